package browser

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/figures"
)

// within measures how long after a change the page shows it, by the clock that both share. It looks at each frame.
func (p *tab) within(limit time.Duration, what, condition string, change func()) {
	p.t.Helper()
	eval[bool](p, fmt.Sprintf(`(() => {
		window.seenAt = 0;
		const look = () => { if (%s) window.seenAt = Date.now(); else requestAnimationFrame(look); };
		look();
		return true;
	})()`, condition))
	require.Zero(p.t, eval[int64](p, `window.seenAt`), "%s: the page shows it before the change", what)
	change()
	changed := time.Now().UnixMilli()
	var seen int64
	eventually(p.t, what, func() (bool, string) {
		seen = eval[int64](p, `window.seenAt`)
		return seen > 0, p.text()
	})
	took := time.Duration(seen-changed) * time.Millisecond
	figures.Print(p.t, "%s: shown %s after the change", what, took)
	assert.Less(p.t, took, limit, what)
}

// An open page shows a change within a second. The test is not parallel to others, because it measures.
func TestLive(t *testing.T) {
	s := serve(t, options{})
	s.add("k", `{}`, &jq.EnqueueOptions{Queue: "mail"})
	p := open(t, s.url, desk)
	ready := func(path, heading string) {
		t.Helper()
		p.visit(path)
		p.shown(heading)
		p.find(button("live*"))
		quiet(p)
	}
	row := func(id int64) string {
		return fmt.Sprintf(`document.querySelector('main [data-key="%d"]') !== null`, id)
	}
	var id int64

	ready("/#/jobs", "Jobs")
	p.within(time.Second, "a new job in the list", row(2), func() { id = s.add("k", `{}`, &jq.EnqueueOptions{Queue: "mail"}) })
	require.EqualValues(t, 2, id)

	ready("/#/jobs/2", "Job 2")
	p.within(time.Second, "the end of a job on its page", `document.querySelector("main .badge")?.textContent === "cancelled"`, func() {
		require.NoError(t, s.Cancel(t.Context(), 2))
	})

	ready("/#/queues/mail", "mail")
	p.within(time.Second, "a pause on the page of the queue", `[...document.querySelectorAll(".badge")].some(b => b.textContent === "paused")`, func() {
		require.NoError(t, s.Pause(t.Context(), "mail"))
		s.add("k", `{}`, &jq.EnqueueOptions{Queue: "mail"}) // a pause is no event of a job
	})

	ready("/", "Overview")
	p.within(2*time.Second, "a new queue on the first page, which shares its counts", `document.querySelector('main [data-key="images"]') !== null`, func() {
		s.add("k", `{}`, &jq.EnqueueOptions{Queue: "images"})
	})
}

// quiet waits until the page has read nothing for a while, so that the next reading is due to a change.
func quiet(p *tab) {
	p.t.Helper()
	eventually(p.t, "a quiet page", func() (bool, string) {
		return eval[bool](p, `(() => {
			const last = Math.max(0, ...performance.getEntriesByType("resource").map(e => e.responseEnd));
			return performance.now() - last > 1500;
		})()`), "it goes on reading"
	})
}

// While the updates are paused the page does not change and says that it is out of date. Then it catches up.
func TestPauseOfUpdates(t *testing.T) {
	t.Parallel()
	s := serve(t, options{})
	s.add("k", `{}`, nil)
	p := open(t, s.url, desk)
	p.visit("/#/jobs")
	p.shown("Jobs")
	p.click(button("live*"))
	p.find(button("paused*"))
	p.made("")
	s.add("k", `{}`, nil)
	p.shows("paused, out of date")
	quiet(p)
	assert.Empty(t, p.made("/v1/jobs"), "it reads nothing while it is paused")
	assert.False(t, p.has(link("2")))
	p.click(button("paused*"))
	p.find(link("2"))
	p.find(button("live*"))
}

// A reader does not lose the place: while somebody uses the list, its rows stay, and new ones are offered.
func TestNothingJumpsWhileReading(t *testing.T) {
	t.Parallel()
	s := serve(t, options{})
	s.many(5, "q", "k")
	p := open(t, s.url, desk)
	p.visit("/#/jobs")
	p.shown("Jobs")
	p.focus(link("4"))
	before := eval[string](p, `document.activeElement.textContent`)
	rows := `[...document.querySelectorAll("tbody tr")].map(r => r.dataset.key)`
	s.many(3, "q", "k")
	p.shows("3 changes in the list: show")
	assert.Equal(t, []string{"5", "4", "3", "2", "1"}, eval[[]string](p, rows))
	require.NoError(t, s.Cancel(t.Context(), 4))
	eventually(t, "the new state of a row that stays", func() (bool, string) {
		return eval[bool](p, `document.querySelector('[data-key="4"] .badge').textContent === "cancelled"`), p.text()
	})
	assert.Equal(t, before, eval[string](p, `document.activeElement.textContent`), "the keyboard is where it was")
	p.click(button("3 changes in the list: show"))
	eventually(t, "the new rows", func() (bool, string) {
		return slices.Equal([]string{"8", "7", "6", "5", "4", "3", "2", "1"}, eval[[]string](p, rows)), p.text()
	})
}

// Pages that nobody sees hold no connection: browsers allow six for each server, and the seventh page would not load.
func TestManyPages(t *testing.T) {
	t.Parallel()
	s := serve(t, options{})
	p := open(t, s.url, desk)
	for range 8 {
		p.visit("/#/queues")
		p.shown("Queues")
		p.find(button("live*"))
	}
}

// A thousand changes a second leave the page usable, and it asks the server no more often than otherwise. The test is not
// parallel to others, because it measures.
func TestFlood(t *testing.T) {
	s := serve(t, options{})
	s.many(200, "mail", "k")
	p := open(t, s.url, desk)
	for _, v := range []view{{"overview", "/", "Overview"}, {"jobs", "/#/jobs", "Jobs"}} {
		t.Run(v.name, func(t *testing.T) {
			p := p.during(t)
			p.see(v)
			p.find(button("live*"))
			p.made("")
			const seconds = 5
			changes := s.flood(t, seconds*time.Second)
			var trips []time.Duration
			var frames []float64
			for begin := time.Now(); time.Since(begin) < seconds*time.Second; {
				asked := time.Now()
				frames = append(frames, eval[float64](p, `new Promise(done => { const t = performance.now(); requestAnimationFrame(() => done(performance.now() - t)); })`))
				trips = append(trips, time.Since(asked))
			}
			requests := len(p.made("/v1/"))
			made := changes()
			slices.Sort(trips)
			slices.Sort(frames)
			p95 := trips[len(trips)*95/100]
			figures.Print(t, "%s: %d changes a second, a frame within %s at p95 (worst %s), %.1f requests a second",
				v.name, made/seconds, p95.Round(time.Millisecond), trips[len(trips)-1].Round(time.Millisecond), float64(requests)/seconds)
			assert.Greater(t, made, 1000*seconds, "the flood was too small to prove anything")
			assert.Less(t, p95, 200*time.Millisecond)
			assert.LessOrEqual(t, requests, 8*(seconds+2), "the page reads at most about once a second, with a few requests each time")
			p.shown(v.heading)
		})
	}
}

// flood makes changes for a while: enqueue, claim, acknowledge. The function waits for the end, and returns how many events that were.
func (s *site) flood(t *testing.T, length time.Duration) func() int {
	t.Helper()
	const each = 100
	changes := 0
	var failed error
	var done sync.WaitGroup
	done.Go(func() {
		jobs := make([]jq.NewJob, each)
		for i := range jobs {
			jobs[i] = jq.NewJob{Queue: "mail", Kind: "k", Payload: []byte(`{}`)}
		}
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for begin := time.Now(); time.Since(begin) < length && failed == nil; <-tick.C {
			_, failed = s.store.Enqueue(t.Context(), jq.EnqueueRequest{Jobs: jobs})
			if failed != nil {
				return
			}
			var claimed []jq.Job
			claimed, failed = s.store.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: "mail", Limit: each, Worker: "w", TTL: time.Minute})
			acks := make([]contract.Ack, len(claimed))
			for i, job := range claimed {
				acks[i].Lease = job.Lease()
			}
			if failed == nil {
				failed = ended(s.store.Ack(t.Context(), acks))
			}
			changes += each + 2*len(claimed)
		}
	})
	return func() int {
		done.Wait()
		require.NoError(t, failed)
		return changes
	}
}
