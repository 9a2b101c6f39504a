package conformance

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ed332417/jq/internal/store"
)

const sentenceUnavailable = "ErrUnavailable: the store could not serve the call, and nothing was applied."

var faultCases = []Case{
	{"Fault/EndedContextAppliesNothing", sentenceEnded, faultEndedContextAppliesNothing},
	{"Fault/UnavailableMeansNotApplied", sentenceUnavailable + "\nErrInDoubt: the call was applied as a whole, may still be applied as a whole shortly, or was not applied at all.", faultUnavailableMeansNotApplied},
	{"Fault/UnavailableWriteIsNotApplied", sentenceUnavailable, faultUnavailableWriteIsNotApplied},
	{"Fault/CancelledCallsSpoilNoOther", "If the context ends during the call, the call stops waiting and does not affect other calls: the error is ErrUnavailable or ErrInDoubt, and matches the context's own error.", faultCancelledCallsSpoilNoOther},
	{"Fault/UndeliveredClaimIsReleasedAndHidesNoJob", "If the store can tell that the caller of a claim is gone, it releases the claimed jobs.\nA claim that overlaps other calls may leave out jobs that those calls hold. Some claim must still find every committed, claimable job within a bound: at once, or within one second if the adapter says so.", faultUndeliveredClaimIsReleased},
	{"Fault/LostClaimComesBackWhenItsLeasesExpire", "If the answer to a claim is lost, repeat the claim: the jobs of the lost answer come back when their leases expire.", faultLostClaimComesBack},
	{"Fault/WritesUnderALeaseAreSafeToRepeat", "It is safe to repeat an Ack.\nIt is safe to repeat a NAck: a repeat counts nothing twice and takes nothing back twice.\nIt is safe to repeat an Extend.\nIt is safe to repeat a Save.", faultRepeatedWrites},
	{"Fault/BulkCallsAreSafeToRepeat", "It is safe to repeat a Cancel.\nIt is safe to repeat a Delete.\nIt is safe to repeat a Reschedule.\nIt is safe to repeat a Requeue after a lost answer as long as the jobs cannot have finished in between. Jobs that have finished would run once more.", faultRepeatedBulks},
	{"Fault/ClosedStoreRefusesEveryCall", "Every error must match, by errors.Is, one of the following errors or one that the method itself names.\nErrClosed: the store was closed, and nothing was applied.\nIt is fine to call Close twice.", faultClosedStoreRefusesEveryCall},
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
		for _, wrong := range append(slices.Collect(maps.Values(wrongNames)), "") {
			if err := call(c.Ctx, wrong); !errors.Is(err, errUnnamed) {
				c.ErrorIs(err, store.ErrInvalid, "%s with the name %.20q", name, wrong)
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
			defer closed.Store(true) // also when a check has failed: the others wait for it
			for range 20 {
				c.count(store.Filter{}) // lets the others begin
			}
			c.OK(c.Store.Close(), "Close")
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

// repeats makes a call, and once more when later has passed, as a caller does whose first answer was lost. All jobs must stand then as
// the first call has left them. It returns the answer to the repeat.
func repeats[A any](c *C, what string, later time.Duration, call func() (A, error)) A {
	before := c.everything()
	_, err := call()
	c.OK(err, "%s", what)
	applied := c.everything()
	c.True(!cmp.Equal(applied, before, alike), "%s has changed something", what)
	c.Advance(later)
	answer, err := call()
	c.OK(err, "%s repeated", what)
	c.Equal(c.everything(), applied, "all jobs after %s and its repeat", what)
	return answer
}

func faultLostClaimComesBack(c *C) {
	list := c.EnqueueN(3)
	c.Claim(2) // of which the caller learns nothing
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
		outcomes := repeats(c, string(op), later, func() ([]store.Outcome, error) { return tryOn(c, op, l) })
		c.Equal(statuses(outcomes), []store.Status{store.StatusOK}, "outcomes of %s repeated", op)
		if op == store.OpExtend {
			c.Advance(time.Second)
			takes(c, op, c.Get(l.ID), "repeated later")
		}
		c.Cancel(l.ID)
	}
}

// faultRepeatedBulks requeues last: the jobs then finish, and a repeat runs them once more.
func faultRepeatedBulks(c *C) {
	var list []int64
	for _, b := range []bulk{rescheduling, cancelling, deleting, requeueing} {
		list = c.manyIn(b.from, 2)
		outcomes := repeats(c, string(b.op), time.Second, func() ([]store.Outcome, error) { return b.call(c.Store, c.Ctx, only(list...), 1) })
		c.Equal(statuses(outcomes), []store.Status{b.again, b.again}, "outcomes of %s repeated", b.op)
		if b.op == store.OpReschedule {
			cancelling.on(c, only(list...), 1)
		}
	}
	c.Equal(statuses(underLeases(c, store.OpAck, each(c.Claim(2), func(j store.Job) store.Lease { return j.Lease() })...)), []store.Status{store.StatusOK, store.StatusOK}, "the Acks of both")
	c.Equal(requeueing.on(c, only(list...), 1), requeueing.done(c, list...), "the repeat after the jobs have finished")
	c.Equal(ids(c.Claim(10)), list, "claimed after it: the jobs run once more")
}
