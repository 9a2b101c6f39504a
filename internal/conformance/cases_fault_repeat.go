package conformance

import (
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// repeats calls the store as one whose connection breaks: the first call is refused, the second loses its answer, and the
// third gets through. After it all jobs must stand as the one call that was applied has left them, although later has
// passed in between. It returns the answer to the repeat.
func repeats[A any](c *C, method string, later time.Duration, call func(c *C) (A, error)) A {
	does := refuse
	breaking := c.over(&faulty{Store: c.Store, Decide: func(string) fault { return does }})

	before := c.everything()
	c.changesNothing(method+" that was refused", func() {
		_, err := call(breaking)
		c.ErrorIs(err, store.ErrUnavailable, "%s that was refused", method)
	})
	does = lose
	_, err := call(breaking)
	c.ErrorIs(err, store.ErrInDoubt, "%s whose answer was lost", method)
	applied := c.everything()
	c.True(len(applied) != len(before) || !slices.EqualFunc(applied, before, sameToken), "%s whose answer was lost was applied", method)
	c.Advance(later)
	does = pass
	answer, err := call(breaking)
	c.OK(err, "%s repeated", method)
	c.Equal(c.everything(), applied, "all jobs after %s and its repeat", method)
	return answer
}

// sameToken compares what every call that was applied changes: the state, its times, or what was saved.
func sameToken(a, b store.JobDetail) bool {
	return a.State == b.State && a.Token == b.Token && a.LeaseExpiresAt.Equal(b.LeaseExpiresAt) && string(a.Checkpoint) == string(b.Checkpoint)
}

func faultRepeatedEnqueue(c *C) {
	enqueue := func(key string) func(c *C) ([]store.Enqueued, error) {
		return func(c *C) ([]store.Enqueued, error) { return c.Store.Enqueue(c.Ctx, request(key)) }
	}
	answers := repeats(c, "Enqueue under a request key", time.Second, enqueue("key"))
	c.Equal(ids(c.All()), []int64{answers[2].ID, answers[1].ID, answers[0].ID}, "jobs after all repeats")

	_, err := enqueue("")(c.over(&faulty{Store: c.Store, Decide: func(string) fault { return lose }}))
	c.ErrorIs(err, store.ErrInDoubt, "Enqueue whose answer was lost")
	answers = c.asked(request(""))
	c.Equal(len(c.All()), 3+6, "jobs after the repeat without a key")
	c.Equal(ids(c.All())[:3], []int64{answers[2].ID, answers[1].ID, answers[0].ID}, "the newest jobs are those of the repeat")
}

func faultLostClaimComesBack(c *C) {
	list := c.EnqueueN(3)
	lossy := &faulty{Store: c.Store, Decide: func(string) fault { return lose }}
	_, err := lossy.FetchAndClaim(c.Ctx, claimOf(2))
	c.ErrorIs(err, store.ErrInDoubt, "FetchAndClaim whose answer was lost")

	repeat := c.Claim(10)
	c.Equal(ids(repeat), list[2:], "claimed by the repeat: nothing is handed out twice")
	c.Ack(repeat[0].Lease())
	c.Advance(ttl)
	back := each(c.Recover(10), func(r store.Recovered) int64 { return r.ID })
	c.Equal(back, list[:2], "recovered when the lost leases expired")
	c.Advance(time.Second)
	claimed := c.Claim(10)
	c.Equal(ids(claimed), list[:2], "claimed after its backoff")
	for _, j := range claimed {
		c.Equal([]any{j.Token, j.Attempts, j.Retries}, []any{int64(3), 2, 1}, "token, attempts and retries of job %d", j.ID)
	}
}

func faultRepeatedWrites(c *C) {
	for _, op := range leaseOps {
		l := holding(c, string(op), 1)[0].Lease()
		later := time.Second
		if op == store.OpExtend {
			later = 0 // for an Extend that is repeated later runs from then
		}
		outcomes := repeats(c, string(op), later, func(c *C) ([]store.Outcome, error) { return tryOn(c, op, l) })
		c.Equal(statuses(outcomes), []store.Status{store.StatusOK}, "outcomes of %s repeated", op)
		if op == store.OpExtend {
			c.Advance(time.Second)
			takes(c, op, c.Get(l.ID), "repeated later")
		}
		c.Cancel(l.ID)
	}
}

func faultRepeatedRecovery(c *C) {
	c.EnqueueN(2)
	c.Claim(2)
	c.Advance(ttl)
	recovered := repeats(c, "RecoverExpiredLeases", time.Second, func(c *C) ([]store.Recovered, error) {
		return c.Store.RecoverExpiredLeases(c.Ctx, store.RecoverRequest{Limit: 10})
	})
	c.Equal(recovered, []store.Recovered{}, "recovered by a call that came second")
}

func faultRepeatedBulks(c *C) {
	for _, b := range []bulk{cancelling, deleting} {
		list := c.manyIn(b.from, 2)
		outcomes := repeats(c, string(b.op), time.Second, func(c *C) ([]store.Outcome, error) { return b.call(c.Store, c.Ctx, only(list...), 1) })
		c.Equal(statuses(outcomes), []store.Status{b.again, b.again}, "outcomes of %s repeated", b.op)
	}
}

func faultRepeatedReschedule(c *C) {
	for _, wait := range []time.Duration{0, time.Minute} {
		list := []int64{c.JobIn(store.Retrying).ID, c.Enqueue(plainBut(func(n *store.NewJob) { n.Delay = time.Hour }))[0]}
		at := c.Now().Add(wait)
		outcomes := repeats(c, "Reschedule", time.Second, func(c *C) ([]store.Outcome, error) {
			return c.Store.Reschedule(c.Ctx, only(list...), at, 1)
		})
		c.Equal(statuses(outcomes), []store.Status{store.StatusOK, store.StatusOK}, "outcomes of the repeat")
		cancelling.on(c, only(list...), 1)
	}
}

func faultRepeatedRequeue(c *C) {
	l := c.JobIn(store.Dead).Lease()
	outcomes := repeats(c, "Requeue", time.Second, func(c *C) ([]store.Outcome, error) { return tryOn(c, store.OpRequeue, l) })
	c.Equal(statuses(outcomes), []store.Status{store.StatusWrongState}, "outcomes of the repeat")
	c.Ack(c.ClaimOne().Lease())
	c.Equal(c.Requeue(l.ID).Status, store.StatusOK, "the repeat after the job has finished")
	c.Equal(ids(c.Claim(10)), []int64{l.ID}, "claimed after it: the job runs once more")
}
