package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	sentenceInTx   = "InTx returns a Writer that writes in tx: others see its effect when tx is committed, and never if tx is rolled back."
	sentenceLocked = "A job that was finished in a transaction stays locked until the transaction ends, so finish jobs last, and then commit. Meanwhile Extend answers busy or waits, and recovery leaves the job alone or waits."
	sentenceEnded  = "If the context has ended before the call, the store must not apply the call: the error is ErrUnavailable and matches the context's own error."
)

var txCases = []Case{
	{"Tx/EnqueueIsSeenAtCommitOnly", sentenceInTx, txEnqueueIsSeenAtCommitOnly},
	{"Tx/RollbackLeavesNothing", sentenceInTx, txRollbackLeavesNothing},
	{"Tx/ReplaceIsSeenAtCommitOnly", sentenceInTx, txReplaceIsSeenAtCommitOnly},
	{"Tx/FinishIsSeenAtCommitOnly", sentenceInTx, txFinishIsSeenAtCommitOnly},
	{"Tx/SchedulesArePartOfIt", "If the store is a ScheduleKeeper, the Writer is one as well: the schedules that it sets, deletes and fires are part of the transaction.", txSchedulesArePartOfIt},
	{"Tx/SealsArePartOfIt", "If it is a GroupKeeper, so is the Writer: the groups that it seals are part of the transaction.", txSealsArePartOfIt},
	{"Tx/OnlyAnOpenOneIsTaken", sentenceOpenTx, txOnlyAnOpenOneIsTaken},
	{"Tx/AfterItsEndNoCallIsTaken", sentenceOpenTx, txAfterItsEndNoCallIsTaken},
	{"Tx/WrappedOneIsTaken", "A type that passes its calls on to a *sql.Tx works as well as a *sql.Tx.\nA Transactor writes in a caller's own transaction, so that jobs and the caller's rows are committed or rolled back together.", txWrappedOneIsTaken},
	{"Tx/EnqueueKeepsItsPromises", "A Writer is the part of a store that can also write in a caller's own transaction.", txEnqueueKeepsItsPromises},
	{"Tx/FinishIsStrict", "In a transaction, Ack and NAck are strict. They return ErrStaleLease for a stale lease, ErrAlreadyFinished for a job that its holder has already finished, and ErrNotFound for a job that is gone. They return ErrInvalid for an item that breaks a limit, including the limit of a result: the InvalidError has the item's index.\nAfter an error, the caller must roll back the transaction.", txFinishIsStrict},
	{"Tx/ErrorsAreMendedAndCut", sentenceErrorText, txErrorsAreMended},
	{"Tx/EachCallHasItsOwnNow", "Each call uses one value of now throughout.", txEachCallHasItsOwnNow},
	{"Tx/KeysEndWithinOne", "A window ends when now reaches its end.\n" + sentenceRequestKey, txKeysEndWithinOne},
	{"Tx/ExtendOfALockedJobIsBusyOrWaits", sentenceLocked + "\nbusy an open transaction locks the job; the lease was neither extended nor lost, so ask again;", txExtendOfALockedJob},
	{"Tx/RecoveryLeavesALockedJobAloneOrWaits", sentenceLocked, txRecoveryLeavesALockedJob},
	{"Tx/FinishedJobTakesItsRoomUntilTheCommit", sentenceInFlight, txFinishedJobTakesItsRoom},
	{"Tx/FinishedJobTakesTheRoomOfItsKeyUntilTheCommit", sentenceInFlight + "\n" + sentenceKeyRoom, txFinishedJobTakesTheRoomOfItsKey},
	{"Tx/OthersDecideAfterItsEnd", sentenceLocked, txOthersDecideAfterItsEnd},
	{"Tx/EnqueueMayWaitForTheSameKey", "An Enqueue may wait for an open transaction that has written the same unique key or request key, or has opened or sealed the same group.", txEnqueueMayWaitForTheSameKey},
	{"Tx/WaitingEndsWithTheContext", "No method waits for work to appear. A call may wait for other calls and for open transactions, but only until its context ends.\nCalls outside the transaction may wait until it ends. So a caller that holds tx open and calls the store directly may wait for itself.", txWaitingEndsWithTheContext},
	{"Tx/PingWaitsForNone", "It does not wait for other calls.", txPingWaitsForNone},
	{"Tx/EndOfItsContextRollsBack", sentenceInTx, txEndOfItsContextRollsBack},
	{"Tx/EndedContextAppliesNothing", sentenceEnded, txEndedContextAppliesNothing},
}

const sentenceOpenTx = "tx must be an open transaction. If tx is nil, a *sql.DB or a *sql.Conn, a type that passes its calls on to one of them, or a transaction that has ended, each call returns ErrInvalid: the InvalidError has the field tx, and nothing is written."

// A txCase is a caller's open transaction.
type txCase struct {
	c  *C
	in *C // Enqueue, Ack and NAck of its store are made in the transaction; it has no other calls
	tx *sql.Tx
}

// noStore stands for the methods that a Writer has not: Go prefers those of the Writer, which are nearer.
type noStore struct{ store.Store }

// inTx opens a transaction for f, and rolls it back unless f has ended it.
func (c *C) inTx(f func(t *txCase)) { c.inTxUnder(c.Ctx, f) }

func (c *C) inTxUnder(ctx context.Context, f func(t *txCase)) {
	transactor := c.transactor()
	tx, err := c.instance.DB.BeginTx(ctx, nil)
	c.OK(err, "BeginTx")
	defer func() { _ = tx.Rollback() }() // after an end of its own it says so, which is well
	f(&txCase{c: c, in: c.writingBy(transactor.InTx(tx)), tx: tx})
}

// transactor is the store as one, with a pool to open transactions from.
func (c *C) transactor() store.Transactor {
	if c.instance.DB == nil {
		c.Fatalf("the instance has no DB to open transactions from: exclude the case with a reason")
	}
	return ability[store.Transactor](c)
}

func (c *C) writingBy(w store.Writer) *C {
	return c.over(struct {
		store.Writer
		noStore
	}{Writer: w})
}

// over is the case with another store.
func (c *C) over(s store.Store) *C {
	return &C{TB: c.TB, Ctx: c.Ctx, Clock: c.Clock, Store: s}
}

// under is the case with another context.
func (c *C) under(ctx context.Context) *C {
	return &C{TB: c.TB, Ctx: ctx, Clock: c.Clock, Store: c.Store}
}

func (t *txCase) commit() { t.c.OK(t.tx.Commit(), "Commit") }

func (t *txCase) rollback() { t.c.OK(t.tx.Rollback(), "Rollback") }

func (t *txCase) end(commit bool) {
	if commit {
		t.commit()
	} else {
		t.rollback()
	}
}

// acks finishes the job in the transaction, under a lease that is good.
func (t *txCase) acks(l store.Lease) {
	t.c.Helper()
	t.c.Equal(t.in.Ack(l).Status, store.StatusOK, "Ack in a transaction")
}

// glance is how long a caller beside an open transaction waits for it.
const glance = 50 * time.Millisecond

// beside calls the store while a transaction is open. The call may wait for a glance, and then fails.
func (c *C) beside(call func(c *C) error) (served bool) {
	ctx, cancel := context.WithTimeout(c.Ctx, glance)
	defer cancel()
	err := call(c.under(ctx))
	if err != nil {
		c.ErrorIs(err, context.DeadlineExceeded, "a call beside an open transaction")
		c.True(errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrInDoubt), "a call that waited is unavailable or in doubt: %v", err)
	}
	return err == nil
}

// meanwhile calls the store from another goroutine, ends the transaction while that call may be waiting for it, and returns
// the answer to the call.
func meanwhile[A any](t *txCase, commit bool, call func() (A, error)) A {
	var answer A
	var err error
	var wait sync.WaitGroup
	begun := make(chan struct{})
	wait.Go(func() {
		close(begun)
		answer, err = call()
	})
	<-begun
	t.end(commit)
	wait.Wait()
	t.c.OK(err, "a call beside a transaction that ended meanwhile")
	return answer
}

func txEnqueueIsSeenAtCommitOnly(c *C) {
	job := plainBut(func(n *store.NewJob) { n.Tags, n.UniqueKey = []string{"t"}, "key" })
	var want store.Job
	c.inTx(func(t *txCase) {
		want = t.adds(job, "before the commit")
		c.beside(func(c *C) error {
			page, err := c.Store.List(c.Ctx, store.Filter{}, store.Page{Limit: 10})
			c.Equal(ids(page.Jobs), []int64{}, "jobs that others see before the commit")
			return err
		})
		c.beside(func(c *C) error {
			jobs, err := c.Store.FetchAndClaim(c.Ctx, claimOf(10))
			c.Equal(ids(jobs), []int64{}, "jobs that others claim before the commit")
			return err
		})
		t.commit()
	})
	c.Equal(c.All(), []store.Job{want}, "jobs after the commit")
	c.Equal(ids(c.Claim(10)), []int64{want.ID}, "claimed after the commit")
}

// txReplaceIsSeenAtCommitOnly replaces a job from before the transaction, and one that the transaction has added.
func txReplaceIsSeenAtCommitOnly(c *C) {
	for _, commit := range []bool{false, true} {
		before := c.waitingHolder(store.After, keyed("key", 0))
		n := replacing("key", func(n *store.NewJob) {
			n.Payload, n.Priority, n.ExpiresAt = []byte("1"), 3, c.Now().Add(time.Hour)
		})
		var added store.JobDetail
		c.inTx(func(t *txCase) {
			want := store.Enqueued{ID: before.ID, State: store.Failed, Duplicate: true, Replaced: true}
			c.Equal(t.in.answers(n)[0], want, "the answer for a job that replaces another in a transaction")
			added = store.JobDetail{Job: t.adds(keyed("another", 0), "the first job")}
			want = store.Enqueued{ID: added.ID, State: store.Ready, Duplicate: true, Replaced: true}
			c.Equal(t.in.answers(replacing("another", nil))[0], want, "the answer for a job that replaces one of the transaction")
			c.beside(func(c *C) error {
				detail, err := c.Store.Get(c.Ctx, before.ID)
				if err == nil {
					c.Equal(detail, before, "the job that others see before the end of the transaction")
				}
				return err
			})
			t.end(commit)
		})
		if !commit {
			c.Equal(c.Get(before.ID), before, "the job after the rollback")
			c.Equal(ids(c.Claim(10)), []int64{}, "claimed after the rollback")
			c.Cancel(before.ID)
			continue
		}
		after := replacedBy(before, n, c.Now())
		c.Equal(c.Get(before.ID), after, "the job after the commit")
		c.Equal(c.Get(added.ID).Job, replacedBy(added, replacing("another", nil), c.Now()).Job, "the job of the transaction")
		c.Equal(ids(c.Claim(10)), []int64{before.ID, added.ID}, "claimed after the commit")
	}
}

func txFinishIsSeenAtCommitOnly(c *C) {
	for _, op := range finishOps {
		for _, commit := range []bool{false, true} {
			before := holding(c, fmt.Sprint(op, commit), 1)[0]
			c.inTx(func(t *txCase) {
				c.Equal(underLease(t.in, op, before.Lease()).Status, store.StatusOK, "the outcome of %s in a transaction", op)
				c.beside(func(c *C) error {
					detail, err := c.Store.Get(c.Ctx, before.ID)
					if err == nil {
						c.Equal(detail, before, "the job that others see before the end of a transaction with %s", op)
					}
					return err
				})
				t.end(commit)
			})
			if commit {
				c.Equal(c.Get(before.ID), becomes(op, before, c.Now()), "the job after the commit of %s", op)
				continue
			}
			c.Equal(c.Get(before.ID), before, "the job after the rollback of %s", op)
			takes(c, store.OpExtend, before, "after the rollback of %s", op)
			takes(c, op, c.Get(before.ID), "after its rollback")
		}
	}
}

// keeper is the Writer of the transaction, for schedules.
func (t *txCase) keeper() store.ScheduleKeeper {
	keeper, ok := t.c.transactor().InTx(t.tx).(store.ScheduleKeeper)
	if !ok {
		t.c.Fatalf("the Writer of a store that keeps schedules does not keep them")
	}
	return keeper
}

func txSchedulesArePartOfIt(c *C) {
	fires, goes := c.setSchedule(c.daily("fires")), c.setSchedule(c.daily("goes"))
	for _, commit := range []bool{false, true} {
		before := c.allSchedules()
		c.Advance(time.Second)
		var added store.Schedule
		var fired []store.Fired
		c.inTx(func(t *txCase) {
			keeper := t.keeper()
			var err error
			added, err = keeper.SetSchedule(c.Ctx, c.full("new"))
			c.OK(err, "SetSchedule in a transaction")
			fired, err = keeper.Fire(c.Ctx, []store.Firing{c.firing(fires), {Name: "new", Revision: added.Revision}})
			c.OK(err, "Fire in a transaction")
			c.Equal(c.statusesOf(fired), []store.Status{store.StatusOK, store.StatusOK}, "the outcomes in a transaction")
			c.OK(keeper.DeleteSchedule(c.Ctx, goes.Name), "DeleteSchedule in a transaction")
			page, err := keeper.Schedules(c.Ctx, store.ScheduleFilter{}, store.Page{Limit: 10})
			c.OK(err, "Schedules in a transaction")
			c.Equal(scheduleNames(page.Schedules), []string{"fires", "new"}, "schedules as the transaction sees them")
			t.end(commit)
		})
		if !commit {
			c.Equal(c.allSchedules(), before, "schedules after a rollback")
			c.Equal(c.All(), []store.Job{}, "jobs after a rollback")
			continue
		}
		c.Equal(scheduleNames(c.allSchedules()), []string{"fires", "new"}, "schedules after a commit")
		c.Equal(c.scheduleNow("fires").LastJob, fired[0].Job.ID, "the last job of the schedule that fired")
		c.Equal(c.Get(fired[0].Job.ID).Scheduled(), &store.Scheduled{Name: "fires", For: c.Now()}, "the schedule of its job")
	}
}
