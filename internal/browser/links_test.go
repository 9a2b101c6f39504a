package browser

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
)

// A link shows the same to somebody else: the filters stand in the address.
func TestLinksShowTheSame(t *testing.T) {
	t.Parallel()
	s := serve(t, options{})
	s.many(70, "mail", "welcome", "a&b=c")
	s.many(3, "mail", "digest", "ä/ö?#")
	s.many(3, "images & more", "welcome", "a&b=c")
	s.fail("mail", "broken", contract.Never)
	p := open(t, s.url, desk)
	p.visit("/#/jobs")
	p.shown("Jobs")
	rows := `[...document.querySelectorAll("tbody tr")].map(r => r.dataset.key)`
	same := func(n int) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d rows", n), func() (bool, string) {
			return eval[int](p, rows+`.length`) == n, p.text()
		})
		other := open(t, s.url, desk)
		other.visit("/" + eval[string](p, `location.hash`))
		other.shown("Jobs")
		assert.Equal(t, eval[[]string](p, rows), eval[[]string](other, rows), "at %s", eval[string](p, `location.hash`))
	}
	p.write(textbox("Tag"), "a&b=c")
	p.click(button("Filter"))
	same(50)
	p.click(link("Older jobs"))
	same(23)
	p.click(link("Newest jobs"))
	p.write(element{role: "combobox", name: "Queue"}, "images & more")
	p.press(enter)
	same(3)
	p.click(link("Clear"))
	p.write(textbox("Tag"), "ä/ö?#")
	p.press(enter)
	same(3)
	p.click(link("Clear"))
	p.click(link("dead*"))
	same(1)
	p.do(chromedp.NavigateBack()) // as a reader expects
	eventually(t, "the page before", func() (bool, string) { return eval[int](p, rows+`.length`) == 50, p.text() })
	p.click(link("images & more").of("[data-key='74']"))
	same(3)
}

// A job is found by its id, and one that does not exist is said to be missing.
func TestFindJob(t *testing.T) {
	t.Parallel()
	s := serve(t, options{})
	s.many(3, "q", "k")
	p := open(t, s.url, desk)
	p.allow(404, "/v1/jobs/")
	p.visit("/#/jobs")
	p.shown("Jobs")
	p.write(textbox("Job id"), "2")
	p.press(enter)
	p.shown("Job 2")
	p.visit("/#/jobs/77")
	p.shown("Job 77")
	p.find(element{role: "alert", name: "*"})
	p.shows("no such job")
}

// The page of a job tells its story: who had it under which token, how that ended, and the late write that was refused.
func TestTimeline(t *testing.T) {
	t.Parallel()
	s := serve(t, options{flags: []string{"--recover-every", "100ms"}})
	id := s.add("reports.export", `{"table":"orders"}`, &jq.EnqueueOptions{Queue: "reports", Backoff: jq.Backoff{Base: time.Millisecond, Cap: time.Millisecond}})
	claim := func(worker string) jq.Job {
		t.Helper()
		var jobs []jq.Job
		eventually(t, "the job for "+worker, func() (bool, string) {
			var err error
			jobs, err = s.store.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: "reports", Limit: 1, RetryQuota: 1, Worker: worker, TTL: time.Minute})
			require.NoError(t, err)
			return len(jobs) == 1, string(s.job(id).Phase())
		})
		return jobs[0]
	}
	first := claim("worker-a")
	require.NoError(t, ended(s.store.Save(t.Context(), []contract.Save{{Lease: first.Lease(), Seq: 1, Checkpoint: []byte(`{"row": 41}`), Progress: []byte(`{"done": "41 %"}`)}})))
	outcomes, err := s.store.Extend(t.Context(), []contract.Lease{first.Lease()}, time.Millisecond)
	require.NoError(t, ended(outcomes, err))
	second := claim("worker-b") // after the recovery
	outcomes, err = s.store.Ack(t.Context(), []contract.Ack{{Lease: first.Lease()}})
	require.NoError(t, err)
	require.Equal(t, contract.StatusStale, outcomes[0].Status)

	p := open(t, s.url, desk)
	p.visit(fmt.Sprintf("/#/jobs/%d", id))
	p.shown(fmt.Sprintf("Job %d", id))
	attempts := eval[[]string](p, `[...document.querySelectorAll("ol.timeline > li")].map(l => l.innerText)`)
	require.Len(t, attempts, 3, "two attempts, the latest first, and the enqueueing")
	assert.Contains(t, attempts[0], "running")
	assert.Contains(t, attempts[0], "worker-b")
	assert.Contains(t, attempts[0], fmt.Sprintf("token %d", second.Token))
	assert.Contains(t, attempts[1], "lease expired")
	assert.Contains(t, attempts[1], "worker-a")
	assert.Contains(t, attempts[1], fmt.Sprintf("token %d", first.Token))
	assert.Contains(t, attempts[1], "late write refused")
	assert.Contains(t, attempts[2], "enqueued")
	p.shows(`"row": 41`)
	p.shows(`"done": "41 %"`)

	require.NoError(t, ended(s.store.Ack(t.Context(), []contract.Ack{{Lease: second.Lease(), Result: []byte(`{"rows":1200000}`)}})))
	p.shows("It succeeded")
	p.shows(`"rows": 1200000`)
}
