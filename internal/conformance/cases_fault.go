package conformance

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

const sentenceUnavailable = "ErrUnavailable: the store could not serve the call, and nothing was applied."

var faultCases = []Case{
	{"Fault/EndedContextAppliesNothing", sentenceEnded, faultEndedContextAppliesNothing},
	{"Fault/UnavailableMeansNotApplied", sentenceUnavailable + "\nErrInDoubt: the call was applied as a whole, may still be applied as a whole shortly, or was not applied at all.", faultUnavailableMeansNotApplied},
	{"Fault/UnavailableWriteIsNotApplied", sentenceUnavailable, faultUnavailableWriteIsNotApplied},
	{"Fault/EveryErrorIsOneOfTheContract", "Every error must match, by errors.Is, one of the following errors or one that the method itself names.", faultEveryErrorIsOneOfTheContract},
	{"Fault/CancelledCallsSpoilNoOther", "If the context ends during the call, the call stops waiting and does not affect other calls: the error is ErrUnavailable or ErrInDoubt, and matches the context's own error.", faultCancelledCallsSpoilNoOther},
	{"Fault/UndeliveredClaimIsReleasedAndHidesNoJob", "If the store can tell that the caller of a claim is gone, it releases the claimed jobs.\nA claim that overlaps other calls may leave out jobs that those calls hold. Some claim must still find every committed, claimable job within a bound: at once, or within one second if the adapter says so.", faultUndeliveredClaimIsReleased},
	{"Fault/RequestKeyMakesEnqueueSafeToRepeat", sentenceKeyLife + "\nWithout a request key, a repeated call adds the jobs once more.", faultRepeatedEnqueue},
	{"Fault/LostClaimComesBackWhenItsLeasesExpire", "If the answer to a claim is lost, repeat the claim: the jobs of the lost answer come back when their leases expire.", faultLostClaimComesBack},
	{"Fault/WritesUnderALeaseAreSafeToRepeat", "It is safe to repeat an Ack.\nIt is safe to repeat a NAck: a repeat counts nothing twice and takes nothing back twice.\nIt is safe to repeat an Extend.\nIt is safe to repeat a Save.", faultRepeatedWrites},
	{"Fault/RecoveryIsSafeToRepeat", "It is safe to repeat a recovery.", faultRepeatedRecovery},
	{"Fault/CancelAndDeleteAreSafeToRepeat", "It is safe to repeat a Cancel.\nIt is safe to repeat a Delete.", faultRepeatedBulks},
	{"Fault/RequeueIsSafeToRepeatUntilTheJobsFinish", "It is safe to repeat a Requeue after a lost answer as long as the jobs cannot have finished in between. Jobs that have finished would run once more.", faultRepeatedRequeue},
	{"Fault/RescheduleIsSafeToRepeat", "It is safe to repeat a Reschedule.", faultRepeatedReschedule},
	{"Fault/ClosedStoreRefusesEveryCall", "ErrClosed: the store was closed, and nothing was applied.\nIt is fine to call Close twice.", faultClosedStoreRefusesEveryCall},
	{"Fault/CloseFinishesOrFailsCallsUnderWay", "Calls in progress finish or fail.", faultCloseBesideCalls},
}

// methods are all methods of a store but Close, each with something to do: a late lease, a dead and a ready job.
func (c *C) methods() map[string]func(ctx context.Context) error {
	l := c.JobIn(store.InFlight).Lease()
	c.Advance(ttl)
	dead := c.JobIn(store.Dead).Lease()
	waiting := store.Lease{ID: c.EnqueueOne()}
	calls := map[string]func(ctx context.Context) error{
		"Enqueue": func(ctx context.Context) error {
			_, err := c.Store.Enqueue(ctx, store.EnqueueRequest{Jobs: []store.NewJob{plain()}, RequestKey: "key"})
			return err
		},
		"FetchAndClaim": func(ctx context.Context) error { _, err := c.Store.FetchAndClaim(ctx, claimOf(1)); return err },
		"RecoverExpiredLeases": func(ctx context.Context) error {
			_, err := c.Store.RecoverExpiredLeases(ctx, store.RecoverRequest{Limit: 10})
			return err
		},
		"Get": func(ctx context.Context) error { _, err := c.Store.Get(ctx, l.ID); return err },
		"List": func(ctx context.Context) error {
			_, err := c.Store.List(ctx, store.Filter{}, store.Page{Limit: 1})
			return err
		},
		"Count": func(ctx context.Context) error { _, err := c.Store.Count(ctx, store.Filter{}); return err },
		"Cancel": func(ctx context.Context) error {
			_, err := c.Store.Cancel(ctx, store.Filter{Queue: queue}, 10)
			return err
		},
	}
	for op, l := range map[store.Op]store.Lease{
		store.OpExtend: l, store.OpSave: l, store.OpAck: l, store.OpRelease: l, store.OpRequeue: dead, store.OpReschedule: waiting, store.OpDelete: dead,
	} {
		calls[string(op)] = func(ctx context.Context) error { _, err := tryOn(c.under(ctx), op, l); return err }
	}
	return calls
}

// endedContexts calls each under contexts that have ended already.
func (c *C) endedContexts(calls map[string]func(context.Context) error) {
	cancelled, cancel := context.WithCancel(c.Ctx)
	cancel()
	caused, cancelCause := context.WithCancelCause(c.Ctx)
	cancelCause(errors.New("the caller has gone home"))
	overdue, cancelOverdue := context.WithTimeout(c.Ctx, -time.Second)
	defer cancelOverdue()
	for name, call := range calls {
		for _, ctx := range []context.Context{cancelled, caused, overdue} {
			err := call(ctx)
			c.ErrorIs(err, store.ErrUnavailable, "%s under a context that had ended", name)
			c.ErrorIs(err, ctx.Err(), "%s under a context that had ended", name)
			c.True(!errors.Is(err, store.ErrInDoubt), "%s under a context that had ended is not in doubt: %v", name, err)
		}
	}
}

// abilityCalls are the methods of an ability, each called for the queue or the worker of a name.
type abilityCalls map[string]func(ctx context.Context, name string) error

// errUnnamed is the error of a method that takes no name.
var errUnnamed = errors.New("takes no name")

func unnamed(call func(context.Context) error) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		if name != queue {
			return errUnnamed
		}
		return call(ctx)
	}
}

// refusesAsTheCoreDoes calls each under contexts that have ended, with names that break the limit, and after Close. Before Close,
// unapplied checks that nothing was applied.
func (c *C) refusesAsTheCoreDoes(calls abilityCalls, unapplied func()) {
	withContext := map[string]func(context.Context) error{}
	for name, call := range calls {
		withContext[name] = func(ctx context.Context) error { return call(ctx, queue) }
		for what, wrong := range wrongNamesOrNone() {
			if err := call(c.Ctx, wrong); !errors.Is(err, errUnnamed) {
				c.ErrorIs(err, store.ErrInvalid, "%s with a name of %s", name, what)
			}
		}
	}
	c.endedContexts(withContext)
	unapplied()
	c.OK(c.Store.Close(), "Close")
	for name, call := range calls {
		c.ErrorIs(call(c.Ctx, queue), store.ErrClosed, "%s after Close", name)
	}
}

func faultEndedContextAppliesNothing(c *C) {
	calls := c.methods()
	c.changesNothing("calls under ended contexts", func() { c.endedContexts(calls) })
	c.Equal(c.asked(store.EnqueueRequest{Jobs: []store.NewJob{plain(), plain()}, RequestKey: "key"})[0].Duplicate, false,
		"the request key of a call that was not applied is free for other jobs")
}

func faultClosedStoreRefusesEveryCall(c *C) {
	calls := c.methods()
	c.Parallel(4, func(int) { c.Equal(c.Store.Close(), nil, "the error of Close beside Close") })
	c.OK(c.Store.Close(), "Close once more")
	for name, call := range calls {
		c.ErrorIs(call(c.Ctx), store.ErrClosed, "%s after Close", name)
	}
}

// Whatever is under way when the store is closed comes back, with an answer or an error that says what is known.
func faultCloseBesideCalls(c *C) {
	var closed atomic.Bool
	c.Parallel(6, func(i int) {
		if i == 0 {
			for range 20 {
				c.count(store.Filter{}) // lets the others begin
			}
			c.OK(c.Store.Close(), "Close")
			closed.Store(true)
			return
		}
		for last, open := false, true; !last && open; {
			last = closed.Load()
			c.workOnce(func(call func(ctx context.Context) error) bool {
				err := call(c.Ctx)
				open = open && !errors.Is(err, store.ErrClosed)
				known := err == nil || !open || errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrInDoubt)
				c.True(known, "a call beside Close has an error that says what is known: %v", err)
				c.True(!last || !open, "a call that began after Close returned is ErrClosed, and not %v", err)
				return err == nil
			})
		}
	})
	_, err := c.Store.Count(c.Ctx, store.Filter{})
	c.ErrorIs(err, store.ErrClosed, "Count after Close")
}

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
