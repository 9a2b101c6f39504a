package httpapi

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
	"github.com/seed-ed332417/jq/internal/wire"
)

const pathOverview = "/v1/overview"

// patience is how long what should not happen is waited for, so that a defect does not hang the test.
const patience = 5 * time.Second

func (w *world) overview() overviewAnswer {
	w.Helper()
	return call[overviewAnswer](w, 200, "GET", pathOverview, "")
}

// withoutCount lets the time pass in which an overview waits for a count.
func (w *world) withoutCount(asked <-chan overviewAnswer) (answer overviewAnswer) {
	w.Helper()
	w.eventually("the overview answers", func() bool {
		select {
		case answer = <-asked:
			return true
		default:
			w.clock.Add(quickCount)
			return false
		}
	})
	return answer
}

// heldCounts hold up each count until the test lets it go, or fails it.
type heldCounts struct {
	begun chan struct{}
	goOn  chan error
	calls atomic.Int64
}

func holdCounts() *heldCounts { return &heldCounts{begun: make(chan struct{}), goOn: make(chan error)} }

func (c *heldCounts) before(s *memory.Store) store.Store {
	return &meddled{Store: s, counting: func() error {
		c.calls.Add(1)
		late := time.After(patience)
		select {
		case c.begun <- struct{}{}:
		case <-late:
			return errors.New("the test expects no count here")
		}
		select {
		case err := <-c.goOn:
			return err
		case <-late:
			return errors.New("the test has given up")
		}
	}}
}

// TestOverviewShowsQueuesAndWorkers: all phases, what is due, pauses and workers.
func TestOverviewShowsQueuesAndWorkers(t *testing.T) {
	w := newWorld(t, Options{})
	assert.JSONEq(t, `{"now":"2026-01-02T03:04:05Z","counted_at":"2026-01-02T03:04:05Z","count_took":"0s","queues":[],
		"workers":{"alive":0,"stale":0,"slots":0,"running":0}}`, w.ask("GET", pathOverview, "").text)
	w.ask("PUT", "/v1/workers/gone", `{"queues":["mail"],"slots":99,"running":9,"stale_after":"10s"}`)
	w.clock.Add(10 * time.Second)
	w.enqueue("mail", "mail", "mail", "mail", "mail", "mail", "mail")
	require.Len(t, w.claim(`{"worker":"w","queues":["mail"],"limit":4}`), 4)
	w.ask("POST", "/v1/ack", `{"jobs":[{"id":"1","token":"1"}]}`)
	w.ask("POST", "/v1/nack", `{"jobs":[{"id":"2","token":"1"},{"id":"3","token":"1","form":"never"}]}`)
	w.ask("POST", "/v1/jobs/5/cancel", "")
	w.ask("POST", "/v1/queues/idle/pause", "")
	w.ask("POST", "/v1/queues/mail/pause", "")
	w.ask("PUT", "/v1/queues/kept/policy", `{"retain_dead":"1h"}`)
	w.ask("PUT", "/v1/queues/full/policy", `{"max_in_flight":2,"max_per_key":1,"rate":{"n":9,"per":"1m"},"fair":true,"ordered":true}`)
	w.enqueue("full", "full", "full")
	require.Len(t, w.claim(`{"worker":"w","queues":["full"],"limit":1}`), 1)
	w.ask("PUT", "/v1/workers/a", `{"queues":["mail"],"slots":10,"running":3,"stale_after":"10s"}`)
	w.ask("PUT", "/v1/workers/b", `{"queues":["other"],"slots":5,"running":0,"stale_after":"10s"}`)
	assert.JSONEq(t, `{"now":"2026-01-02T03:04:15Z","counted_at":"2026-01-02T03:04:15Z","count_took":"0s","queues":[
		{"queue":"full","paused":false,"oldest_due":"2026-01-02T03:04:15Z","due":2,"jobs":{"ready":2,"in_flight":1},"max_in_flight":2,"max_per_key":1,"rate":{"n":9,"per":"1m0s"},"fair":true,"ordered":true,"held_back":1},
		{"queue":"idle","paused":true,"due":0,"jobs":{}},
		{"queue":"kept","paused":false,"due":0,"jobs":{}},
		{"queue":"mail","paused":true,"oldest_due":"2026-01-02T03:04:15Z","due":2,
			"jobs":{"ready":2,"in_flight":1,"retrying":1,"succeeded":1,"dead":1,"cancelled":1}}],
		"workers":{"alive":2,"stale":1,"slots":15,"running":3}}`, w.ask("GET", pathOverview, "").text)
}

// TestAQueueThatIsNotListedYetRuns: its jobs were counted after the queues were listed, so nobody has paused it.
func TestAQueueThatIsNotListedYetRuns(t *testing.T) {
	due := store.Due{Queues: []store.QueueDue{{Queue: "new", OldestDue: start}}}
	listed := queuesFor(nil, due, []store.Queue{}, store.Counts{})
	assert.Equal(t, []queueOverview{{Queue: "new", Paused: new(bool), OldestDue: wire.Time{Time: start}}}, listed)
	unknown := queuesFor(nil, due, nil, store.Counts{})
	assert.Equal(t, []queueOverview{{Queue: "new", OldestDue: wire.Time{Time: start}}}, unknown, "the store lists no queues")
}

// TestOverviewWaitsForNoCount: while a count of all jobs goes on and on, overviews answer without it, or with the one before and its
// time. They wait for it 25 ms, which pass only if the test lets them.
func TestOverviewWaitsForNoCount(t *testing.T) {
	c := holdCounts()
	w := newWorld(t, Options{CallTimeout: time.Hour, PollPause: 24 * time.Hour}, c.before)
	w.enqueue("mail")
	ask := func(begins bool) overviewAnswer {
		t.Helper()
		got := make(chan overviewAnswer, 1)
		go func() { got <- w.overview() }()
		if begins {
			<-c.begun
		}
		return w.withoutCount(got)
	}
	first := ask(true)
	assert.True(t, first.CountedAt.IsZero())
	assert.Nil(t, first.CountTook)
	paused := false
	assert.Equal(t, []queueOverview{{Queue: "mail", Paused: &paused, OldestDue: first.Queues[0].OldestDue}}, first.Queues)
	assert.Equal(t, start, first.Queues[0].OldestDue.Time)
	assert.NotNil(t, first.Workers)
	for range 10 {
		ask(false)
	}
	assert.EqualValues(t, 1, c.calls.Load(), "counts do not stack")

	c.goOn <- nil
	counted := func() bool { _, good := w.api.samples.counts.Answers(); return good.Known() }
	w.eventually("the count ends", counted)
	second := w.overview()
	assert.EqualValues(t, 1, *second.Queues[0].Due)
	assert.Equal(t, map[store.State]int64{store.Ready: 1}, second.Queues[0].Jobs)
	at := second.CountedAt
	assert.False(t, at.IsZero())

	w.clock.Add(time.Hour)
	w.enqueue("new")
	third := ask(true)
	assert.Equal(t, at, third.CountedAt, "an old count has its time")
	assert.GreaterOrEqual(t, third.Now.Sub(at.Time), time.Hour)
	require.Len(t, third.Queues, 2)
	assert.Equal(t, "new", third.Queues[1].Queue, "what is due is of now")
	assert.Empty(t, third.Queues[1].Jobs)
	c.goOn <- nil
}

// TestOverviewsShareTheirCalls: however many ask, each call is made once a second, and a count once in five.
func TestOverviewsShareTheirCalls(t *testing.T) {
	var calls tally
	w := newWorld(t, Options{PollPause: 24 * time.Hour}, func(s *memory.Store) store.Store {
		return &meddled{Store: s, reading: func(call string) { calls.add(1, call) }}
	})
	w.clock.Add(time.Hour)
	assert.Empty(t, calls.taken(), "nobody asks, and nothing is read")
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { w.overview() })
	}
	all.Wait()
	w.clock.Add(briefAge - 1)
	assert.Equal(t, start.Add(time.Hour+briefAge-time.Microsecond), w.overview().Now.Time, "what was read before is shown with the time of now")
	assert.Equal(t, map[string]int{"due": 1, "queues": 1, "workers": 1, "count": 1}, calls.taken())
	w.clock.Add(1)
	w.overview()
	assert.Equal(t, map[string]int{"due": 1, "queues": 1, "workers": 1}, calls.taken())
	w.clock.Add(countAge - briefAge)
	w.overview()
	assert.Equal(t, map[string]int{"due": 1, "queues": 1, "workers": 1, "count": 1}, calls.taken())
}

// TestLongCountsOfOverviewsRest: a count of a minute is not repeated for nine.
func TestLongCountsOfOverviewsRest(t *testing.T) {
	c := holdCounts()
	w := newWorld(t, Options{CallTimeout: time.Hour, PollPause: 24 * time.Hour}, c.before)
	asked := make(chan overviewAnswer)
	go func() { asked <- w.overview() }()
	<-c.begun
	w.clock.Add(time.Minute)
	<-asked
	c.goOn <- nil
	w.eventually("the count ends", func() bool { _, good := w.api.samples.counts.Answers(); return good.Known() })
	w.clock.Add(9*time.Minute - 1)
	assert.Equal(t, time.Minute, time.Duration(*w.overview().CountTook))
	assert.EqualValues(t, 1, c.calls.Load())
	w.clock.Add(1)
	go func() { asked <- w.overview() }()
	<-c.begun
	c.goOn <- nil
	<-asked
}

// TestOverviewOfATokenForSomeQueues sees no other, although all share one count. Tokens ask at the same time.
func TestOverviewOfATokenForSomeQueues(t *testing.T) {
	h := newHouse(t, Options{})
	h.job(ownQueue, "")
	h.job(foreignQueue, "")
	for _, queue := range []string{"mailbox", "mail", "billing-2"} {
		_, err := h.store.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{{Queue: queue, Kind: "k", Payload: []byte(`{}`)}}})
		require.NoError(t, err)
	}
	for _, queue := range []string{foreignQueue, "billing-paused", "mail-paused"} {
		require.NoError(t, h.store.SetPaused(t.Context(), queue, true))
	}
	for name, queues := range map[string][]string{"own": {"mail"}, "both": {"mail", foreignQueue}, "foreign": {foreignQueue}, "none": {}} {
		require.NoError(t, h.store.Beat(t.Context(), store.Worker{Name: name, Queues: queues, Slots: 1, StaleAfter: time.Minute}))
	}
	secret, all, err := NewToken(Token{Name: "sees all", Role: Viewer})
	require.NoError(t, err)
	own := h.api.bearers.find(h.secrets[Viewer]).Token
	h.api.SetTokens(listed(t, all, own))
	var both sync.WaitGroup
	for range 10 {
		both.Go(func() {
			got := h.ask("GET", pathOverview, "", "Authorization", "Bearer "+h.secrets[Viewer])
			assert.JSONEq(t, `{"now":"2026-01-02T03:04:05Z","counted_at":"2026-01-02T03:04:05Z","count_took":"0s","queues":[
				{"queue":"mail","paused":false,"oldest_due":"2026-01-02T03:04:05Z","due":1,"jobs":{"ready":1}},
				{"queue":"mail-1","paused":false,"due":0,"jobs":{"in_flight":1}},
				{"queue":"mail-paused","paused":true,"due":0,"jobs":{}}],
				"workers":{"alive":2,"stale":0,"slots":2,"running":0}}`, got.text)
		})
		both.Go(func() {
			got := call[overviewAnswer](h.world, 200, "GET", pathOverview, "", "Authorization", "Bearer "+secret)
			assert.Len(t, got.Queues, 7)
			assert.Equal(t, workerOverview{Alive: 4, Slots: 4}, *got.Workers)
		})
	}
	both.Wait()
}

// TestOverviewOfAPlainStore leaves out what the store does not know. What is due is that of the count.
func TestOverviewOfAPlainStore(t *testing.T) {
	w := newWorld(t, Options{}, withoutAbilities)
	w.enqueue("mail")
	require.NoError(t, w.store.SetPaused(t.Context(), "paused", true))
	assert.JSONEq(t, `{"now":"2026-01-02T03:04:05Z","counted_at":"2026-01-02T03:04:05Z","count_took":"0s","queues":[
		{"queue":"mail","oldest_due":"2026-01-02T03:04:05Z","due":1,"jobs":{"ready":1}}]}`, w.ask("GET", pathOverview, "").text)
}

// TestOverviewSaysThatACountFailed, without what only the log may say, and keeps the counts before.
func TestOverviewSaysThatACountFailed(t *testing.T) {
	c := holdCounts()
	w := newWorld(t, Options{}, c.before)
	w.enqueue("mail")
	ask := func(err error) overviewAnswer {
		t.Helper()
		w.clock.Add(time.Minute)
		go func() {
			<-c.begun
			c.goOn <- err
		}()
		return w.overview()
	}
	failed := ask(fmt.Errorf("%w: secret.internal", store.ErrUnavailable))
	assert.Equal(t, "the store is unavailable, nothing was applied", failed.CountError)
	assert.True(t, failed.CountedAt.IsZero())
	assert.Equal(t, 1, strings.Count(w.logged.String(), "secret.internal"))
	counted := ask(nil)
	assert.Empty(t, counted.CountError)
	again := ask(&store.OverlongError{Limit: 10 * time.Second})
	assert.Equal(t, "the store is unavailable, nothing was applied: the reading took longer than 10s: narrow its filter, first by queue and state", again.CountError)
	assert.Equal(t, []any{counted.CountedAt, counted.Queues[0].Jobs}, []any{again.CountedAt, again.Queues[0].Jobs})
}

// TestOverviewTakesATurnForItsCount: listings that take all turns hold it up, and not the overview.
func TestOverviewTakesATurnForItsCount(t *testing.T) {
	var calls tally
	w := newWorld(t, Options{MaxReads: 1, CallTimeout: time.Hour}, func(s *memory.Store) store.Store {
		return &meddled{Store: s, reading: func(call string) { calls.add(1, call) }}
	})
	require.True(t, w.api.all.reads.enter())
	asked := make(chan overviewAnswer, 1)
	go func() { asked <- w.overview() }()
	got := w.withoutCount(asked)
	assert.True(t, got.CountedAt.IsZero())
	assert.NotContains(t, calls.taken(), "count")
	w.clock.Add(time.Second)
	w.api.all.reads.leave()
	w.eventually("it has its turn", func() bool { _, good := w.api.samples.counts.Answers(); return good.Known() })
	assert.Zero(t, *w.overview().CountTook, "the wait for the turn is not the store's")
}

// linger lets others go first, who ought to wait.
func linger() {
	for range 1000 {
		runtime.Gosched()
	}
}

// TestOverviewHasAQuickCount: a small store is counted by the time of the answer.
func TestOverviewHasAQuickCount(t *testing.T) {
	w := newWorld(t, Options{}, func(s *memory.Store) store.Store {
		return &meddled{Store: s, counting: func() error { linger(); return nil }}
	})
	w.enqueue("mail")
	assert.Equal(t, start, w.overview().CountedAt.Time)
}

// TestOverviewDoesNotWaitForASlowStore where it has read queues and workers within ten seconds.
func TestOverviewDoesNotWaitForASlowStore(t *testing.T) {
	var hangs atomic.Bool
	held := make(chan struct{})
	w := newWorld(t, Options{CallTimeout: time.Hour, PollPause: 24 * time.Hour}, func(s *memory.Store) store.Store {
		return &meddled{Store: s, reading: func(call string) {
			if hangs.Load() && call != "count" {
				select {
				case <-held:
				case <-time.After(2 * patience):
				}
			}
		}}
	})
	w.enqueue("mail")
	w.overview()
	w.clock.Add(oldBrief / 2)
	hangs.Store(true)
	asked := make(chan overviewAnswer, 1)
	go func() { asked <- w.overview() }()
	got := w.withoutCount(asked)
	assert.Equal(t, "mail", got.Queues[0].Queue)
	w.clock.Add(oldBrief)
	go func() { asked <- w.overview() }()
	hangs.Store(false)
	close(held)
	assert.Equal(t, "mail", (<-asked).Queues[0].Queue)
}

// TestCloseEndsOverviews: one whose calls hang ends with the API, and not later.
func TestCloseEndsOverviews(t *testing.T) {
	var hangs atomic.Bool
	begun := make(chan struct{}, 4)
	w := newWorld(t, Options{}, func(s *memory.Store) store.Store {
		return &meddled{Store: s, any: func(ctx context.Context) error {
			if !hangs.Load() {
				return nil
			}
			begun <- struct{}{}
			select {
			case <-ctx.Done():
			case <-time.After(patience):
				t.Error("its context does not end")
			}
			return store.ErrUnavailable
		}}
	})
	hangs.Store(true)
	asked := make(chan answered)
	go func() { asked <- w.ask("GET", pathOverview, "") }()
	for range cap(begun) {
		<-begun
	}
	require.NoError(t, w.api.Close())
	assert.Equal(t, 503, (<-asked).status)
}

// A stuck store counts until the end of the context.
type stuck struct {
	*memory.Store
	begun chan struct{}
	ended atomic.Bool
}

func (s *stuck) Count(ctx context.Context, f store.Filter) (store.Counts, error) {
	if len(f.IDs) > 0 { // somebody asks for the time
		return s.Store.Count(ctx, f)
	}
	close(s.begun)
	select {
	case <-ctx.Done():
	case <-time.After(patience):
		return store.Counts{}, errors.New("its context does not end")
	}
	linger()
	s.ended.Store(true)
	return store.Counts{}, store.ErrUnavailable
}

// TestCloseEndsTheCountOfAnOverview: the store may be closed after it.
func TestCloseEndsTheCountOfAnOverview(t *testing.T) {
	s := &stuck{begun: make(chan struct{})}
	w := newWorld(t, Options{CallTimeout: time.Hour}, func(m *memory.Store) store.Store {
		s.Store = m
		return bare{s}
	})
	asked := make(chan overviewAnswer, 1)
	go func() { asked <- w.overview() }()
	<-s.begun
	w.withoutCount(asked)
	require.NoError(t, w.api.Close())
	assert.True(t, s.ended.Load())
	assert.Equal(t, urn+"closed", w.ask("GET", pathOverview, "").fail(t).Type)
}

// TestManyWorkersTakeUpLittle: overviews count them all, but keep the queues of only so many.
func TestManyWorkersTakeUpLittle(t *testing.T) {
	for _, length := range []int{1, store.MaxNameBytes} {
		w := newWorld(t, Options{})
		queues := slices.Repeat([]string{strings.Repeat("q", length)}, store.MaxItems)
		most := maxCrew / (len(queues)*(length+sizeOfName) + sizeOfWorker)
		for i := range 2 * most {
			require.NoError(t, w.store.Beat(t.Context(), store.Worker{Name: fmt.Sprint(i), Queues: queues, Slots: 2, Running: 1, StaleAfter: time.Minute}))
		}
		found, err := w.api.readWorkers(t.Context())
		require.NoError(t, err)
		assert.Equal(t, workerOverview{Alive: 2 * most, Slots: 4 * most, Running: 2 * most}, *workersFor(nil, found))
		assert.Len(t, found.each, most)
		limited := &bearer{known: known{Token: Token{Queues: queues[:1]}}}
		assert.Equal(t, workerOverview{Alive: most, Slots: 2 * most, Running: most}, *workersFor(limited, found))
	}
}
