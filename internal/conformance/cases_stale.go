package conformance

import (
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	sentenceNoName     = "The token does not count attempts, and no check uses the worker's name."
	sentenceWholeCall  = "A call takes effect as a whole, at one moment between its start and its return, or not at all."
	sentenceAckStale   = "stale the lease was ended by someone else, or by its holder in another way; nothing changed;"
	sentencePositional = "If a call takes several items, its outcomes are positional: one per item, as if the items were applied in order."
)

var staleCases = []Case{
	{"Stale/LostLeaseOverwritesNothing", sentenceAckStale + "\nAn expired lease stays valid until it is ended by RecoverExpiredLeases, by Cancel, or by Fence with EndLeases.\nCancel ends jobs that are not terminal, including jobs in flight: their leases are stale from then on.", staleLostLeases},
	{"Stale/TokenIsNoAttemptNumberThatReleaseOrSnoozeOrRequeueBringsBack", "The token grows with every transition except those that the holder of the lease makes and that from blocked to ready, and it never shrinks or restarts. So any token other than the job's current one has been superseded, and the store must reject a write with it as stale.\n" + sentenceNoName, staleTokensNeverComeBack},
	{"Stale/WorkerNameBlocksNothing", sentenceNoName, staleWorkerNameBlocksNothing},
	{"Stale/OneStaleItemSpoilsNoOther", "The job's id and its token identify the lease.\nOne bad item must not affect the other items.", staleItemAmongOthers},
	{"Stale/RescueOverwritesNoJobFinishedInBetween", sentenceWholeCall, staleRescueRace},
}

// staleLostLeases loses a lease in each way there is, and from then on it is good for nothing.
func staleLostLeases(c *C) {
	for _, way := range []struct {
		name string
		lose func(held store.Job)
	}{
		{"recovered", func(store.Job) { c.Advance(ttl); c.Recover(1) }},
		{"recovered, and dead", func(held store.Job) {
			for range held.MaxRetries {
				held = c.ClaimAnew(held)
			}
			c.Advance(ttl)
			c.Recover(1)
			c.Equal(c.Get(held.ID).Phase(), store.Dead, "a job whose retries are used up")
			refuses(c, held.Lease(), leaseOps...)
		}},
		{"claimed anew, by the same worker", func(held store.Job) { c.Equal(c.ClaimAnew(held).Worker, held.Worker, "the worker of both claims") }},
		{"cancelled", func(held store.Job) { c.Cancel(held.ID) }},
		{"cancelled and requeued", func(held store.Job) { c.Cancel(held.ID); c.Requeue(held.ID) }},
		{"finished, requeued and claimed", func(held store.Job) { c.Ack(held.Lease()); c.Requeue(held.ID); c.ClaimOne() }},
	} {
		held := holding(c, queue, 1)[0]
		way.lose(held.Job)
		token := c.Get(held.ID).Token
		c.True(token > held.Token, "the token grows with the loss of the lease: it is %d, and was %d: %s", token, held.Token, way.name)
		c.Advance(time.Second) // so that what is written all the same shows in its times
		refuses(c, held.Lease(), leaseOps...)
		c.Cancel(held.ID) // out of the way of the next one
	}
}

// staleTokensNeverComeBack goes through all that gives attempts back or begins anew, and keeps every lease on the way.
func staleTokensNeverComeBack(c *C) {
	id := c.EnqueueOne()
	var leases []store.Lease
	for _, op := range []store.Op{
		store.OpRelease, store.OpRelease, store.OpSnooze, store.OpFail, store.OpRelease, store.OpNever, store.OpRelease, store.OpAck, store.OpRelease, store.OpSave,
	} {
		c.Advance(time.Hour)
		j := c.ClaimOne()
		c.True(j.Token > 0, "the token %d of a lease is more than that of a job never claimed", j.Token)
		for _, old := range leases {
			c.True(j.Token > old.Token, "the token %d grows beyond the earlier %d", j.Token, old.Token)
			refuses(c, old, store.OpExtend, store.OpAck, store.OpFail)
		}
		leases = append(leases, j.Lease())
		underLease(c, op, j.Lease())
		if c.Get(id).Terminal() {
			c.Requeue(id)
			c.True(c.Get(id).Token > j.Token, "the token grows beyond %d when the job is requeued", j.Token)
		}
	}
	for _, old := range leases[:len(leases)-1] {
		refuses(c, old, leaseOps...)
	}
	c.Equal(c.Ack(leases[len(leases)-1]).Status, store.StatusOK, "the Ack of the only lease in force")
}

// staleWorkerNameBlocksNothing lets every run of a job be another worker's, one with a name that two jobs share.
func staleWorkerNameBlocksNothing(c *C) {
	for _, op := range leaseOps {
		for _, names := range [][]string{{"a", "b"}, {"a", "a"}, {"b", "a"}} {
			id := c.Enqueue(plainBut(func(n *store.NewJob) { n.Queue = string(op) }))[0]
			for i, name := range names {
				claimed := c.ClaimBy(store.ClaimRequest{Queue: string(op), Limit: 1, Worker: name, TTL: ttl})
				c.Equal(ids(claimed), []int64{id}, "claimed by %s", name)
				if i == 0 {
					c.NAck(claimed[0].Lease(), store.Release, 0, "")
				}
			}
			takes(c, op, c.Get(id), "by the second of the workers %v", names)
			c.Cancel(id)
		}
	}
}

// staleItemAmongOthers has, among the stale leases, one with the token of another job, and one with a token that is only greater.
func staleItemAmongOthers(c *C) {
	for _, op := range leaseOps {
		jobs := holding(c, string(op), 4)
		c.NAck(jobs[1].Lease(), store.Release, 0, "")
		c.ClaimBy(store.ClaimRequest{Queue: string(op), Limit: 1, Worker: worker, TTL: ttl})
		c.Cancel(jobs[2].ID)
		c.Delete(jobs[2].ID)
		before := c.Get(jobs[1].ID)

		got := underLeases(c, op, jobs[1].Lease(), jobs[0].Lease(), jobs[2].Lease(), store.Lease{ID: jobs[3].ID, Token: before.Token},
			store.Lease{ID: jobs[3].ID, Token: jobs[3].Token + store.FenceStep}, jobs[3].Lease())

		first, last := becomes(op, jobs[0], c.Now()), becomes(op, jobs[3], c.Now())
		c.Equal(got, []store.Outcome{
			store.OutcomeOf(before.Job, store.StatusStale), store.OutcomeOf(first.Job, store.StatusOK),
			{ID: jobs[2].ID, Status: store.StatusNotFound},
			store.OutcomeOf(jobs[3].Job, store.StatusStale), store.OutcomeOf(jobs[3].Job, store.StatusStale), store.OutcomeOf(last.Job, store.StatusOK),
		}, "%s under leases of which the second and the last are good", op)
		c.Equal(c.Get(jobs[0].ID), first, "the job of the second item, after %s", op)
		c.Equal(c.Get(jobs[1].ID), before, "the job of the stale item, after %s", op)
		c.Equal(c.Get(jobs[3].ID), last, "the job of the last items, after %s", op)
	}
}

// staleRescueRace lets holders come late while others recover: of a lease, one of the two gets hold. Save ends no lease, so
// its job is recovered all the same. The two take turns in starting first.
func staleRescueRace(c *C) {
	for round := range 4 * len(leaseOps) {
		op := leaseOps[round%len(leaseOps)]
		jobs := holding(c, queue, 4)
		c.Advance(ttl)
		outcomes, recoveries := make([]store.Outcome, len(jobs)), make([][]store.Recovered, len(jobs)+1)
		c.Parallel(2*len(jobs), func(i int) {
			if n := i / 2; i%2 == round/len(leaseOps)%2 {
				outcomes[n] = untilDecided(c, op, jobs[n].Lease())
			} else {
				recoveries[n] = c.Recover(1)
			}
		})
		recoveries[len(jobs)] = c.Recover(store.MaxItems)
		times := map[int64]int{}
		for _, r := range slices.Concat(recoveries...) {
			times[r.ID]++
		}
		for n, want := range jobs {
			got, wantTimes := outcomes[n].Status, 0
			c.True(got == store.StatusOK || got == store.StatusStale, "%s against recovery is ok or stale: %s", op, got)
			if got == store.StatusOK {
				want = becomes(op, want, c.Now())
			}
			if got == store.StatusStale || op == store.OpSave {
				wantTimes, want = 1, becomes(store.OpRecover, want, c.Now())
			}
			c.Equal(times[want.ID], wantTimes, "how often a job was recovered whose %s was %s", op, got)
			c.Equal(c.Get(want.ID), want, "a job whose %s against recovery was %s", op, got)
			c.Cancel(want.ID) // out of the way of the next round
		}
	}
}
