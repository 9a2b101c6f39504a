package conformance

import (
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	sentenceRemembers = "The store remembers how: by Ack, by failing (NAck with Fail, Never or After), by Snooze or by Release."
	sentenceHolds     = "This holds until the next claim, cancel, requeue or deletion."
)

var finishRepeatCases = []Case{
	{"Finish/RepeatedAckKeepsTheFirstResult", sentenceAckOK, finishRepeatedAck},
	{"Finish/RepeatedNAckKeepsTheFirstErrorAndDelay", "ok the job was in flight under this token, or had been ended under it in the same way before;", finishRepeatedNAck},
	{"Finish/HoldsThroughTimeAndRefusedCalls", sentenceHolds, finishHoldsThroughRefusals},
	{"Finish/AJobNotInFlightWithTheLeasesTokenWasFinishedByItsHolder", "A job that is not in flight and still has the token of a lease was finished by the holder of that lease.", finishOnlyTheHolderLeavesTheToken},
	{"Finish/RepeatsAtOnceCountOnce", "To repeat a NAck is safe: nothing is counted or taken back twice.", finishRepeatsAtOnce},
}

// again checks that the operation, repeated, answers with the status and leaves the job as it is.
func again(c *C, op store.Op, before store.JobDetail, l store.Lease, status store.Status, what string) {
	c.Equal(underLease(c, op, l), store.OutcomeOf(before.Job, status), "%s %s", op, what)
	c.Equal(c.Get(before.ID), before, "the job, after %s %s", op, what)
}

// finishedBy is a job that the operation has finished, an hour ago.
func finishedBy(c *C, op store.Op, name string) store.JobDetail {
	held := holding(c, name, 1)[0]
	underLease(c, op, held.Lease())
	c.Advance(time.Hour)
	return c.Get(held.ID)
}

func finishRepeatedAck(c *C) {
	done := finishedBy(c, store.OpAck, queue)
	for _, result := range []string{``, `"another"`, `{`} {
		got := c.One(c.Store.Ack(c.Ctx, []store.Ack{{Lease: done.Lease(), Result: []byte(result)}}))
		c.Equal(got, store.OutcomeOf(done.Job, store.StatusOK), "Ack repeated with the result %q", result)
		c.Equal(c.Get(done.ID), done, "the job, after Ack repeated with the result %q", result)
	}
}

func finishRepeatedNAck(c *C) {
	for _, op := range finishOps[1:] {
		done := finishedBy(c, op, string(op))
		n := nackOf(op, done.Lease())
		n.Error = "another reason"
		if n.Delay > 0 {
			n.Delay = time.Minute
		}
		got := c.One(c.Store.NAck(c.Ctx, []store.NAck{n}))
		c.Equal(got, store.OutcomeOf(done.Job, store.StatusOK), "%s repeated with another reason and delay", op)
		c.Equal(c.Get(done.ID), done, "the job, after %s repeated with another reason and delay", op)
	}
}

// finishHoldsThroughRefusals does all that is refused, and lets days pass, between a way of finishing and its repeat.
func finishHoldsThroughRefusals(c *C) {
	for _, op := range finishOps {
		done := finishedBy(c, op, string(op))
		for _, refused := range leaseOps {
			underLease(c, refused, store.Lease{ID: done.ID, Token: done.Token - 1})
			if wayOf(refused) != wayOf(op) {
				underLease(c, refused, done.Lease())
			}
		}
		c.Recover(store.MaxItems)
		if done.Terminal() {
			c.Cancel(done.ID)
		} else {
			c.Requeue(done.ID)
			c.Delete(done.ID)
		}
		c.Advance(48 * time.Hour)
		again(c, op, done, done.Lease(), store.StatusOK, "after two days of refused calls")
	}
}

// finishOnlyTheHolderLeavesTheToken checks both directions: what others do to a lease takes its token away.
func finishOnlyTheHolderLeavesTheToken(c *C) {
	for _, op := range finishOps {
		done := finishedBy(c, op, string(op))
		o := underLease(c, store.OpExtend, done.Lease())
		c.Equal(o, store.OutcomeOf(done.Job, store.StatusFinished), "Extend after %s", op)
	}
	for _, end := range []func(store.Job){
		func(store.Job) { c.Advance(ttl); c.Recover(1) },
		func(j store.Job) { c.Cancel(j.ID) },
	} {
		held := holding(c, queue, 1)[0]
		end(held.Job)
		after := c.Get(held.ID)
		c.True(after.State != store.InFlight && after.Token > held.Token, "a lease that others ended has lost its token: %d, before %d", after.Token, held.Token)
		c.Cancel(held.ID)
	}
}

func finishRepeatsAtOnce(c *C) {
	for _, op := range finishOps {
		for _, before := range holding(c, string(op), 5) {
			outcomes := make([]store.Outcome, 8)
			c.Parallel(len(outcomes), func(i int) { outcomes[i] = underLease(c, op, before.Lease()) })
			want := becomes(op, before, c.Now())
			c.Equal(c.Get(before.ID), want, "a job, after %s by eight at once", op)
			for _, o := range outcomes {
				c.Equal(o, store.OutcomeOf(want.Job, store.StatusOK), "the outcome of %s by eight at once", op)
			}
		}
	}
}
