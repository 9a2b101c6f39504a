package conformance

import (
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	sentenceToken      = "The token grows with every transition but the holder's own, and never shrinks or restarts, so a token that is not the job's own is one that was overtaken: what is written with it is refused as stale."
	sentenceNoName     = "The token is no counter of attempts, and the worker's name is no part of any check."
	sentenceExpiredOK  = "A lease that ran out goes on being good until somebody ends it: RecoverExpiredLeases, Cancel, or Fence with EndLeases."
	sentenceWholeCall  = "A call takes effect as a whole, at one moment between its start and its return, or not at all."
	sentenceAckStale   = "stale the lease was ended by someone else, or by its holder in another way; nothing changed;"
	sentenceOneBadItem = "One bad item spoils no other."
	sentencePositional = "Where a call takes several items, outcomes are positional, one per item, as if the items were applied in order."
)

var staleCases = []Case{
	{"Stale/StaleCompletionOverwritesNoNewRun", sentenceAckStale, staleAfter(func(c *C, held store.Job) { c.ClaimAnew(held) })},
	{"Stale/SameWorkerClaimsAgainAndItsFirstRunCompletesNothing", sentenceNoName, staleAfter(staleClaimedBySameWorker)},
	{"Stale/FromRecoveryOnBeforeAnyNewClaim", sentenceExpiredOK, staleAfter(staleRecovered)},
	{"Stale/FromRecoveryOnAlsoOfADeadJob", sentenceExpiredOK, staleAfter(staleRecoveredForGood)},
	{"Stale/FromCancelOn", "Cancel ends jobs that are not terminal, also those in flight: their leases are stale from then on.", staleAfter(func(c *C, held store.Job) { c.Cancel(held.ID) })},
	{"Stale/FromRequeueOn", sentenceToken, staleAfter(staleCancelledAndRequeued)},
	{"Stale/FromTheClaimAfterRequeueOn", sentenceToken, staleAfter(staleRequeuedAndClaimed)},
	{"Stale/AfterTheNewHolderHasFinished", sentenceAckStale, staleAfter(staleFinishedByTheNextHolder)},
	{"Stale/TokenIsNoAttemptNumberThatReleaseOrSnoozeOrRequeueBringsBack", sentenceNoName, staleTokensNeverComeBack},
	{"Stale/TokensNeverHandedOutAreStale", "Of a job that is not in flight its own token is stale, unless the holder of that lease finished the job.", staleForgedTokens},
	{"Stale/TokenOfAnotherJobIsStale", "The lease is named by the job's id and its token.", staleTokenOfAnotherJob},
	{"Stale/WorkerNameBlocksNothing", sentenceNoName, staleWorkerNameBlocksNothing},
	{"Stale/OneStaleItemSpoilsNoOther", sentenceOneBadItem, staleItemAmongOthers},
	{"Stale/RescueOverwritesNoJobFinishedInBetween", sentenceWholeCall, staleRescueRace},
	{"Stale/CancelOverwritesNoJobFinishedInBetween", sentenceWholeCall, staleCancelRace},
}

// staleAfter is a case: a lease is lost in some way, and from then on good for nothing.
func staleAfter(lose func(c *C, held store.Job)) func(c *C) {
	return func(c *C) {
		held := holding(c, queue, 1)[0]
		lose(c, held.Job)
		token := c.Get(held.ID).Token
		c.True(token > held.Token, "the token grows with the loss of the lease: it is %d, and was %d", token, held.Token)
		c.Advance(time.Second) // so that what is written all the same shows in its times
		refuses(c, held.Lease(), leaseOps...)
	}
}

func staleClaimedBySameWorker(c *C, held store.Job) {
	anew := c.ClaimAnew(held)
	c.Equal(anew.Worker, held.Worker, "the worker that has claimed the job twice")
}

func staleRecovered(c *C, held store.Job) {
	c.Advance(held.LeaseExpiresAt.Sub(c.Now()))
	c.Equal(len(c.Recover(1)), 1, "recovered leases")
}

func staleRecoveredForGood(c *C, held store.Job) {
	for range held.MaxRetries {
		held = c.ClaimAnew(held)
	}
	lost := held
	staleRecovered(c, held)
	c.Equal(c.Get(held.ID).Phase(), store.Dead, "a job whose retries are used up")
	c.Advance(time.Second)
	refuses(c, lost.Lease(), leaseOps...)
}

func staleCancelledAndRequeued(c *C, held store.Job) {
	c.Cancel(held.ID)
	c.Requeue(held.ID)
}

func staleRequeuedAndClaimed(c *C, held store.Job) {
	c.Ack(held.Lease())
	c.Requeue(held.ID)
	c.ClaimOne()
}

func staleFinishedByTheNextHolder(c *C, held store.Job) {
	anew := c.ClaimAnew(held)
	for i, op := range []store.Op{store.OpSnooze, store.OpRelease, store.OpFail, store.OpAck} {
		if i > 0 {
			c.Advance(time.Hour)
			anew = c.ClaimOne()
		}
		underLease(c, op, anew.Lease())
		c.Advance(time.Second)
		refuses(c, held.Lease(), leaseOps...)
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

// staleForgedTokens offers tokens that no claim has given: none, the one to come, and those of recovery, cancel and requeue,
// which are the job's own and belong to no lease.
func staleForgedTokens(c *C) {
	held := holding(c, "held", 1)[0]
	for _, token := range []int64{held.Token + 1, held.Token + store.FenceStep, 0, -1} {
		refuses(c, store.Lease{ID: held.ID, Token: token}, leaseOps...)
	}
	fresh := c.Get(c.EnqueueOne())
	refuses(c, fresh.Lease(), leaseOps...)

	c.Advance(ttl)
	c.Recover(1)
	refuses(c, c.Get(held.ID).Lease(), leaseOps...)
	c.Cancel(held.ID)
	refuses(c, c.Get(held.ID).Lease(), leaseOps...)
	c.Requeue(held.ID)
	refuses(c, c.Get(held.ID).Lease(), leaseOps...)
}

func staleTokenOfAnotherJob(c *C) {
	ids := c.EnqueueN(2)
	for range 3 {
		c.NAck(c.ClaimOne().Lease(), store.Release, 0, "") // of the first: its token runs ahead
	}
	c.Equal(len(c.Claim(2)), 2, "claimed jobs")
	first, second := c.Get(ids[0]), c.Get(ids[1])
	refuses(c, store.Lease{ID: second.ID, Token: first.Token}, leaseOps...)
	refuses(c, store.Lease{ID: first.ID, Token: second.Token}, leaseOps...)
	c.Equal(statuses(underLeases(c, store.OpAck, first.Lease(), second.Lease())), []store.Status{store.StatusOK, store.StatusOK}, "each under its own token")
}

// staleWorkerNameBlocksNothing lets every run of a job be another worker's, one with a name that two jobs share.
func staleWorkerNameBlocksNothing(c *C) {
	for _, op := range leaseOps {
		for _, names := range [][]string{{"a", "b"}, {"a", "a"}, {"b", "a"}} {
			id := c.Enqueue(plainBut(func(n *store.NewJob) { n.Queue = string(op) }))[0]
			var claimed []store.Job
			for i, name := range names {
				claimed = c.ClaimBy(store.ClaimRequest{Queue: string(op), Limit: 1, Worker: name, TTL: ttl})
				c.Equal(ids(claimed), []int64{id}, "claimed by %s", name)
				if i == 0 {
					c.NAck(claimed[0].Lease(), store.Release, 0, "")
				}
			}
			before := c.Get(id)
			c.Equal(underLease(c, op, before.Lease()).Status, store.StatusOK, "%s by the second of the workers %v", op, names)
			c.Equal(c.Get(id), becomes(op, before, c.Now()), "the job, after %s by the second of the workers %v", op, names)
			c.Cancel(id)
		}
	}
}

func staleItemAmongOthers(c *C) {
	for _, op := range leaseOps {
		jobs := holding(c, string(op), 4)
		c.NAck(jobs[1].Lease(), store.Release, 0, "")
		c.ClaimBy(store.ClaimRequest{Queue: string(op), Limit: 1, Worker: worker, TTL: ttl})
		c.Cancel(jobs[2].ID)
		c.Delete(jobs[2].ID)
		before := c.Get(jobs[1].ID)

		got := underLeases(c, op, jobs[1].Lease(), jobs[0].Lease(), jobs[2].Lease(), store.Lease{ID: jobs[3].ID, Token: 0}, jobs[3].Lease())

		first, last := becomes(op, jobs[0], c.Now()), becomes(op, jobs[3], c.Now())
		c.Equal(got, []store.Outcome{
			store.OutcomeOf(before.Job, store.StatusStale), store.OutcomeOf(first.Job, store.StatusOK),
			{ID: jobs[2].ID, Status: store.StatusNotFound},
			store.OutcomeOf(jobs[3].Job, store.StatusStale), store.OutcomeOf(last.Job, store.StatusOK),
		}, "%s under leases of which the second and the last are good", op)
		c.Equal(c.Get(jobs[0].ID), first, "the job of the second item, after %s", op)
		c.Equal(c.Get(jobs[1].ID), before, "the job of the stale item, after %s", op)
		c.Equal(c.Get(jobs[3].ID), last, "the job of the last two items, after %s", op)
	}
}

// staleRescueRace lets holders come late while others recover: of a lease, one of the two gets hold. Save ends no lease, so
// its job is recovered all the same. The two take turns in starting first, here and below.
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
		for n, before := range jobs {
			staleRescueVerdict(c, op, before, outcomes[n].Status, times[before.ID])
		}
	}
}

func staleRescueVerdict(c *C, op store.Op, before store.JobDetail, got store.Status, recoveries int) {
	want := before
	switch {
	case got == store.StatusOK:
		want = becomes(op, before, c.Now())
	case got != store.StatusStale:
		c.Errorf("%s against recovery: got %s, want ok or stale", op, got)
	}
	wantRecoveries := 0
	if got == store.StatusStale || op == store.OpSave {
		wantRecoveries, want = 1, becomes(store.OpRecover, want, c.Now())
	}
	c.Equal(recoveries, wantRecoveries, "how often a job was recovered whose %s was %s", op, got)
	after := c.Get(before.ID)
	c.Equal(after, want, "a job whose %s against recovery was %s", op, got)
	c.Cancel(before.ID) // out of the way of the next round
}

func staleCancelRace(c *C) {
	for round := range 4 * len(finishOps) {
		op := finishOps[round%len(finishOps)]
		jobs := holding(c, queue, 4)
		outcomes, cancels := make([]store.Outcome, len(jobs)), make([]store.Outcome, len(jobs))
		c.Parallel(2*len(jobs), func(i int) {
			if n := i / 2; i%2 == round/len(finishOps)%2 {
				outcomes[n] = underLease(c, op, jobs[n].Lease())
			} else {
				cancels[n] = c.Cancel(jobs[n].ID)
			}
		})
		for n, before := range jobs {
			finished, cancelled := outcomes[n].Status == store.StatusOK, cancels[n].Status == store.StatusOK
			want := before
			if finished {
				want = becomes(op, want, c.Now())
			}
			c.True(finished || cancelled, "%s or Cancel got hold of job %d", op, before.ID)
			c.True(!cancelled || !want.Terminal(), "not both of %s and Cancel got hold of job %d", op, before.ID)
			if cancelled {
				want = becomes(store.OpCancel, want, c.Now())
			}
			c.Equal(c.Get(before.ID), want, "a job whose %s was %s and whose Cancel was %s", op, outcomes[n].Status, cancels[n].Status)
			c.Cancel(before.ID)
		}
	}
}
