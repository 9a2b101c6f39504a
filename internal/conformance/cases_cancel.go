package conformance

import (
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var cancelCases = append([]Case{
	{"Cancel/EndsEveryLiveJob", "Cancel ends jobs that are not terminal, including jobs in flight: their leases are stale from then on.", cancelEndsEveryLiveJob},
	{"Cancel/FencedNotStopped", "Cancel fences a job in flight but does not stop its handler. The worker learns of the cancellation at its next Extend, and until then the handler may run at the same time as a new job with the same unique key.", cancelFencedNotStopped},
	{"Cancel/EveryFieldOfTheFilterChooses", "the first jobs that match and can be changed, in ascending order of id, and at most limit of them.", cancelEveryFieldOfTheFilterChooses},
}, cancelling.cases("Cancel")...)

func cancelEndsEveryLiveJob(c *C) {
	for _, phase := range []store.State{store.InFlight, store.Retrying, store.Ready} {
		before := c.JobIn(phase)
		c.Advance(time.Millisecond)
		got := c.Cancel(before.ID)
		want := becomes(store.OpCancel, before, c.Now())
		c.Equal(c.Get(before.ID), want, "a job that was %s and is cancelled", phase)
		c.Equal(got, store.OutcomeOf(want.Job, store.StatusOK), "the outcome")
	}
	c.Advance(time.Hour)
	c.Equal(ids(c.Claim(10)), []int64{}, "claimed of cancelled jobs")
	c.Equal(c.Recover(10), []store.Recovered{}, "recovered of cancelled jobs")
}

// Each filter is tried on its own crowd of jobs, which differ in everything that a filter knows.
func cancelEveryFieldOfTheFilterChooses(c *C) {
	live := []int{0, 1, 2, 6}
	for _, number := range []int{4, 7, 9, 12, 13, 14, 15, 16, 18, 21, 25, 26} {
		crowd := c.crowd()
		k := crowd.choices()[number]
		k.filter.After = max(k.filter.After, crowd.ids[0]-1) // not those of the crowds before
		var want []int64
		for _, n := range k.want {
			if slices.Contains(live, n) {
				want = append(want, crowd.ids[n])
			}
		}
		outcomes := cancelling.on(c, k.filter, 100)
		c.Equal(outcomes, cancelling.done(c, want...), "cancelled by %+v", k.filter)
		for n, id := range crowd.ids {
			changed := slices.Contains(want, id) || n == 5 || n == 7
			c.Equal(c.Get(id).State == store.Cancelled, changed, "job %d is cancelled after %+v", n, k.filter)
		}
		cancelling.on(c, store.Filter{After: crowd.ids[0] - 1, States: store.Phases}, 100)
	}
}

func cancelFencedNotStopped(c *C) {
	first := c.Enqueue(keyed("key", 0))[0]
	running := c.ClaimOne()
	c.Cancel(first)
	second := c.free(keyed("key", 0), "its holder was cancelled")
	beside := c.ClaimOne()
	c.Equal(beside.ID, second, "the job that runs beside the cancelled one")
	c.Equal(c.Extend(running.Lease()).Status, store.StatusCancelled, "the next Extend of the cancelled one")
	c.Equal(c.Ack(beside.Lease()).Status, store.StatusOK, "Ack of the new one")
}
