package conformance

import (
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// repeats calls the store as one whose connection breaks: the first call is refused, the second loses its answer, and the
// third gets through. After it all jobs must stand as the one call that was applied has left them, although later has
// passed in between.
func (c *C) repeats(method string, later time.Duration, call func(s store.Store) error) {
	fault := Refuse
	faulty := &Faulty{Store: c.Store, Decide: func(string) Fault { return fault }}

	before := c.everything()
	c.changesNothing(method+" that was refused", func() {
		c.ErrorIs(call(faulty), store.ErrUnavailable, "%s that was refused", method)
	})
	fault = Lose
	c.ErrorIs(call(faulty), store.ErrInDoubt, "%s whose answer was lost", method)
	applied := c.everything()
	c.True(len(applied) != len(before) || !slices.EqualFunc(applied, before, sameToken), "%s whose answer was lost was applied", method)
	c.Advance(later)
	fault = Pass
	c.OK(call(faulty), "%s repeated", method)
	c.Equal(c.everything(), applied, "all jobs after %s and its repeat", method)
}

// sameToken compares what every call that was applied changes: the state, its times, or what was saved.
func sameToken(a, b store.JobDetail) bool {
	return a.State == b.State && a.Token == b.Token && a.LeaseExpiresAt.Equal(b.LeaseExpiresAt) && string(a.Checkpoint) == string(b.Checkpoint)
}

func faultRepeatedEnqueue(c *C) {
	c.repeats("Enqueue under a request key", time.Second, func(s store.Store) error {
		answers, err := s.Enqueue(c.Ctx, request("key"))
		if err == nil {
			c.Equal(len(answers), 3, "answers to the repeat")
		}
		return err
	})
	c.Equal(len(c.All()), 3, "jobs after all repeats")
}

func faultRepeatedEnqueueWithoutAKey(c *C) {
	lossy := &Faulty{Store: c.Store, Decide: func(string) Fault { return Lose }}
	_, err := lossy.Enqueue(c.Ctx, request(""))
	c.ErrorIs(err, store.ErrInDoubt, "Enqueue whose answer was lost")
	answers := c.asked(request(""))
	c.Equal(len(c.All()), 6, "jobs after the repeat")
	c.Equal(ids(c.All())[:3], []int64{answers[2].ID, answers[1].ID, answers[0].ID}, "the newest jobs are those of the repeat")
}

func faultLostClaimComesBack(c *C) {
	list := c.EnqueueN(3)
	lossy := &Faulty{Store: c.Store, Decide: func(string) Fault { return Lose }}
	_, err := lossy.FetchAndClaim(c.Ctx, claimOf(2))
	c.ErrorIs(err, store.ErrInDoubt, "FetchAndClaim whose answer was lost")

	repeat := c.Claim(10)
	c.Equal(ids(repeat), list[2:], "claimed by the repeat: nothing is handed out twice")
	c.Ack(repeat[0].Lease())
	c.Advance(ttl)
	var back []int64
	for _, r := range c.Recover(10) {
		back = append(back, r.ID)
	}
	c.Equal(back, list[:2], "recovered when the lost leases expired")
	c.Advance(time.Second)
	claimed := c.Claim(10)
	c.Equal(ids(claimed), list[:2], "claimed after its backoff")
	for _, j := range claimed {
		c.Equal([]any{j.Token, j.Attempts, j.Retries}, []any{int64(3), 2, 1}, "token, attempts and retries of job %d", j.ID)
	}
}

func faultRepeatedAck(c *C) {
	l := c.JobIn(store.InFlight).Lease()
	c.repeats("Ack", time.Second, func(s store.Store) error {
		outcomes, err := s.Ack(c.Ctx, []store.Ack{{Lease: l, Result: []byte(`1`)}})
		return c.allOK(outcomes, err)
	})
}

func faultRepeatedNAck(c *C) {
	for _, n := range []store.NAck{
		{Form: store.Fail, Error: "boom"}, {Form: store.Never, Error: "boom"}, {Form: store.After, Delay: time.Hour, Error: "boom"},
		{Form: store.Snooze, Delay: time.Hour}, {Form: store.Release},
	} {
		n.Lease = c.JobIn(store.InFlight).Lease()
		c.repeats("NAck "+string(n.Form), time.Second, func(s store.Store) error {
			outcomes, err := s.NAck(c.Ctx, []store.NAck{n})
			return c.allOK(outcomes, err)
		})
		c.Cancel(n.ID)
	}
}

func faultRepeatedExtend(c *C) {
	l := c.JobIn(store.InFlight).Lease()
	c.Advance(time.Second)
	extend := func(s store.Store) error {
		outcomes, err := s.Extend(c.Ctx, []store.Lease{l}, ttl)
		return c.allOK(outcomes, err)
	}
	c.repeats("Extend", 0, extend)
	c.Advance(time.Second)
	c.OK(extend(c.Store), "Extend repeated later")
	c.Equal(c.Get(l.ID).LeaseExpiresAt, c.Now().Add(ttl), "the lease's end runs from the repeat")
}

func faultRepeatedSave(c *C) {
	l := c.JobIn(store.InFlight).Lease()
	save := store.Save{Lease: l, Seq: 3, Checkpoint: []byte(`"c"`), Progress: []byte(`"p"`)}
	c.repeats("Save", time.Second, func(s store.Store) error {
		outcomes, err := s.Save(c.Ctx, []store.Save{save})
		return c.allOK(outcomes, err)
	})
}

func faultRepeatedRecovery(c *C) {
	c.EnqueueN(2)
	c.Claim(2)
	c.Advance(ttl)
	c.repeats("RecoverExpiredLeases", time.Second, func(s store.Store) error {
		recovered, err := s.RecoverExpiredLeases(c.Ctx, store.RecoverRequest{Limit: 10})
		c.Equal(recovered, []store.Recovered{}, "recovered by a call that failed or came second")
		return err
	})
}

func faultRepeatedCancel(c *C) {
	list := []int64{c.JobIn(store.InFlight).ID, c.JobIn(store.Ready).ID}
	c.repeats("Cancel", time.Second, func(s store.Store) error {
		outcomes, err := s.Cancel(c.Ctx, only(list...), 1)
		return c.allOK(outcomes, err)
	})
}

func faultRepeatedRequeue(c *C) {
	id := c.JobIn(store.Dead).ID
	c.repeats("Requeue", time.Second, func(s store.Store) error {
		outcomes, err := s.Requeue(c.Ctx, only(id), 1)
		if err == nil {
			c.Equal(statuses(outcomes), []store.Status{store.StatusWrongState}, "outcomes of the repeat")
		}
		return err
	})
	c.Ack(c.ClaimOne().Lease())
	c.Equal(c.Requeue(id).Status, store.StatusOK, "the repeat after the job has finished")
	c.Equal(ids(c.Claim(10)), []int64{id}, "claimed after it: the job runs once more")
}

func faultRepeatedDelete(c *C) {
	id := c.JobIn(store.Dead).ID
	c.JobIn(store.Succeeded)
	c.repeats("Delete", time.Second, func(s store.Store) error {
		outcomes, err := s.Delete(c.Ctx, only(id), 1)
		if err == nil {
			c.Equal(statuses(outcomes), []store.Status{store.StatusNotFound}, "outcomes of the repeat")
		}
		return err
	})
}

// allOK checks the outcomes of a call that went through.
func (c *C) allOK(outcomes []store.Outcome, err error) error {
	if err == nil {
		c.Equal(statuses(outcomes), slices.Repeat([]store.Status{store.StatusOK}, len(outcomes)), "outcomes")
		c.True(len(outcomes) > 0, "there are outcomes")
	}
	return err
}
