package conformance

import (
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// recoverCrashLoopsEnd loses every worker, and counts claims: one and MaxRetries, then never again.
func recoverCrashLoopsEnd(c *C) {
	for _, maxRetries := range []int{0, 1, 3} {
		id := c.Enqueue(plainBut(func(n *store.NewJob) { n.MaxRetries = maxRetries }))[0]
		claims := 0
		for range 12 {
			for _, j := range c.Claim(10) {
				claims++
				c.Equal([]int{j.Attempts, j.Retries, int(j.Token)}, []int{claims, claims - 1, 2*claims - 1}, "attempts, retries and token at claim %d", claims)
			}
			c.Advance(ttl)
			c.Recover(10)
			c.Advance(time.Hour)
		}
		c.Equal(claims, maxRetries+1, "how often a job was claimed whose workers all die, with MaxRetries %d", maxRetries)
		got := c.Get(id)
		c.Equal(got.Phase(), store.Dead, "its phase")
		c.Equal([]int{got.Attempts, got.Retries, int(got.Token)}, []int{maxRetries + 1, maxRetries + 1, 2*maxRetries + 2}, "its attempts, retries and token")
		c.Equal(got.Error, store.LeaseExpired.Reason, "its error, which must say that it may never have run")
		c.Equal(len(got.History), claims, "the length of its history")
	}
}

// recoverRetriesJobsOfDeadWorkers lets one worker die with many jobs, and others who hold some of theirs go on.
func recoverRetriesJobsOfDeadWorkers(c *C) {
	lost := c.EnqueueN(20)
	c.ClaimBy(store.ClaimRequest{Queue: queue, Limit: 20, Worker: "dead", TTL: ttl})
	c.EnqueueN(5)
	kept := c.ClaimBy(store.ClaimRequest{Queue: queue, Limit: 5, Worker: "alive", TTL: time.Hour})
	c.Advance(ttl)
	c.Equal(len(c.Recover(store.MaxItems)), 20, "how many were recovered")
	for _, id := range lost {
		d := c.Get(id)
		c.Equal(d.Phase(), store.Retrying, "the phase of a job whose worker died")
		c.Equal(d.RetryAt, c.Now().Add(time.Second), "when it is due again")
	}
	for _, j := range kept {
		c.Equal(c.Get(j.ID).Job, j, "a job of the worker that lives")
	}
	c.Advance(time.Second)
	c.Equal(ids(c.ClaimBy(store.ClaimRequest{Queue: queue, Limit: 100, Worker: "alive", TTL: ttl})), lost, "claimed by the worker that lives")
}

func recoverUnknownKind(c *C) {
	var jobs []store.NewJob
	for _, kind := range append(slices.Clone(strangeNames), "k") {
		jobs = append(jobs, plainBut(func(n *store.NewJob) { n.Kind = kind }))
	}
	enqueued := c.Enqueue(jobs...)
	var before []store.JobDetail
	for _, j := range c.Claim(len(jobs)) {
		before = append(before, c.Get(j.ID))
	}
	c.Advance(ttl)
	var want []store.Recovered
	for _, d := range before {
		want = append(want, recoveredAs(expired(d, c.Now()).Job))
	}
	c.Equal(c.Recover(store.MaxItems), want, "recovered of jobs of all kinds")
	for _, d := range before {
		c.Equal(c.Get(d.ID), expired(d, c.Now()), "a recovered job of kind %q", d.Kind)
	}
	c.Advance(time.Second)
	c.Equal(ids(c.Claim(len(jobs))), enqueued, "claimed again")
}

// recoverNoOrphan brings jobs in flight by every way there is. Nobody beats for any of the workers, and most were never
// heard of.
func recoverNoOrphan(c *C) {
	enqueued := c.EnqueueN(7)
	held := c.Claim(7)
	c.endAll(held[0:1], store.Fail, 0)
	c.endAll(held[1:2], store.Snooze, 0)
	c.endAll(held[2:3], store.Release, 0)
	c.Ack(held[3].Lease())
	c.Requeue(held[3].ID)
	c.Cancel(held[4].ID)
	c.Requeue(held[4].ID)
	c.Advance(time.Second)
	c.Equal(len(c.ClaimBy(store.ClaimRequest{Queue: queue, Limit: 10, RetryQuota: 1, Worker: "nobody", TTL: ttl})), 5, "how many were claimed again")
	for _, l := range []time.Duration{time.Hour, time.Second} {
		_, err := c.Store.Extend(c.Ctx, []store.Lease{held[5].Lease()}, l)
		c.OK(err, "Extend")
	}
	c.SaveCheckpoint(held[6].Lease(), 1, "1")
	c.Advance(ttl)

	var got []int64
	for _, r := range c.Recover(store.MaxItems) {
		got = append(got, r.ID)
	}
	slices.Sort(got)
	c.Equal(got, enqueued, "recovered of jobs that came in flight in every way")
	c.Advance(time.Hour)
	c.Equal(len(c.Claim(100)), 7, "how many were claimed after that")
}

func recoverThenAnotherWorker(c *C) {
	id := c.EnqueueOne()
	lost := c.ClaimBy(store.ClaimRequest{Queue: queue, Limit: 1, Worker: "crashes", TTL: ttl})[0]
	c.SaveCheckpoint(lost.Lease(), 1, `"half"`)
	c.Advance(ttl)
	c.Equal(len(c.Recover(10)), 1, "how many were recovered when the lease expired")
	c.Advance(time.Second - store.Resolution)
	c.Equal(ids(c.Claim(10)), []int64{}, "claimed one tick before the backoff is over")
	c.Advance(store.Resolution)
	next := c.ClaimBy(store.ClaimRequest{Queue: queue, Limit: 1, Worker: "finishes", TTL: ttl})
	if len(next) != 1 {
		c.Fatalf("the job was not claimable after its backoff")
	}
	c.Equal(string(next[0].Checkpoint), `"half"`, "what the first worker had saved")
	c.Equal(c.Ack(lost.Lease()).Status, store.StatusStale, "an Ack of the worker that crashed")
	c.Equal(c.Get(id).Job, next[0], "the job after a stale Ack")
	c.Equal(c.Ack(next[0].Lease()).Status, store.StatusOK, "an Ack of the worker that took over")

	want := next[0]
	want.State, want.LeaseExpiresAt, want.Error, want.FinishedAt = store.Succeeded, time.Time{}, "", c.Now()
	want.CheckpointSeq, want.ProgressSeq = c.Get(id).CheckpointSeq, c.Get(id).ProgressSeq
	c.Equal(c.Get(id).Job, want, "the finished job")
}

// recoverBeatsHold runs a job of ten minutes under leases of thirty seconds, with a recovery at every beat and at the last
// moment before each.
func recoverBeatsHold(c *C) {
	held := c.JobIn(store.InFlight)
	for range 20 {
		c.Advance(ttl - 2*store.Resolution)
		c.Equal(c.Recover(10), []store.Recovered{}, "recovered of a job whose worker beats")
		want := held
		want.LeaseExpiresAt = c.Now().Add(ttl)
		c.Equal(c.Extend(held.Lease()), store.OutcomeOf(want.Job, store.StatusOK), "the answer to a beat")
		c.Equal(c.Get(held.ID), want, "the job after a beat")
		c.Advance(store.Resolution)
		c.Equal(c.Recover(10), []store.Recovered{}, "recovered when the lease before the beat would have expired")
		c.Equal(c.Claim(10), []store.Job{}, "claimed of a job whose worker beats")
	}
	held = c.Get(held.ID)
	c.Advance(ttl - 2*store.Resolution)
	c.Equal(c.Recover(10), []store.Recovered{}, "recovered one tick before the last lease expires")
	c.Advance(store.Resolution)
	c.Equal(len(c.Recover(10)), 1, "how many were recovered once beats had stopped")
	c.Equal(c.Recover(10), []store.Recovered{}, "recovered once more")
	c.Equal(c.Get(held.ID), expired(held, c.Now()), "the recovered job")
}
