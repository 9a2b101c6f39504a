package conformance

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var txCases = []Case{
	{"Tx/EnqueueIsSeenAtCommitOnly", "InTx returns a Writer that writes in tx: others see its effect when tx is committed, and never if tx is rolled back.", txEnqueueIsSeenAtCommitOnly},
	{"Tx/RollbackLeavesNothing", "InTx returns a Writer that writes in tx: others see its effect when tx is committed, and never if tx is rolled back.", txRollbackLeavesNothing},
	{"Tx/FinishIsSeenAtCommitOnly", "InTx returns a Writer that writes in tx: others see its effect when tx is committed, and never if tx is rolled back.", txFinishIsSeenAtCommitOnly},
	{"Tx/RolledBackFinishLeavesTheLease", "InTx returns a Writer that writes in tx: others see its effect when tx is committed, and never if tx is rolled back.", txRolledBackFinishLeavesTheLease},
	{"Tx/OnlyAnOpenOneIsTaken", sentenceOpenTx, txOnlyAnOpenOneIsTaken},
	{"Tx/AfterItsEndNoCallIsTaken", sentenceOpenTx, txAfterItsEndNoCallIsTaken},
	{"Tx/WrappedOneIsTaken", "A type that passes its calls on to a *sql.Tx works as well as a *sql.Tx.", txWrappedOneIsTaken},
	{"Tx/WritesStandOrFallTogether", "A Transactor writes in a caller's own transaction, so that jobs and the caller's rows are committed or rolled back together.", txWritesStandOrFallTogether},
	{"Tx/EnqueueKeepsItsPromises", "A Writer is the part of a store that can also write in a caller's own transaction.", txEnqueueKeepsItsPromises},
	{"Tx/FinishIsStrict", "In a transaction, Ack and NAck are strict. They return ErrStaleLease for a stale lease, ErrAlreadyFinished for a job that its holder has already finished, and ErrNotFound for a job that is gone. They return ErrInvalid for an item that breaks a limit, including the limit of a result: the InvalidError has the item's index.", txFinishIsStrict},
	{"Tx/FinishedInAnotherWayIsAnErrorToo", "In a transaction, Ack and NAck are strict.", txFinishedInAnotherWayIsAnError},
	{"Tx/OneBadItemFailsAll", "After an error, the caller must roll back the transaction.", txOneBadItemFailsAll},
	{"Tx/InvalidItemIsNamed", "They return ErrInvalid for an item that breaks a limit, including the limit of a result: the InvalidError has the item's index.", txInvalidItemIsNamed},
	{"Tx/ErrorsAreMendedAndCut", sentenceErrorText, txErrorsAreMended},
	{"Tx/EachCallHasItsOwnNow", "Each call uses one value of now throughout.", txEachCallHasItsOwnNow},
	{"Tx/WindowEndsWithinOne", "A window ends when now reaches its end.", txWindowEndsWithinOne},
	{"Tx/RequestKeyIsForgottenWithinOne", "A request key makes the call safe to repeat. For 24 hours, the same request with the same key adds nothing and returns the first answer, even after its jobs are gone.", txRequestKeyIsForgottenWithinOne},
	{"Tx/RollbackLeavesTheKeysOfOthersAlone", "InTx returns a Writer that writes in tx: others see its effect when tx is committed, and never if tx is rolled back.", txRollbackLeavesTheKeysOfOthersAlone},
	{"Tx/RollbackLeavesNoWindowThatEndsLater", "InTx returns a Writer that writes in tx: others see its effect when tx is committed, and never if tx is rolled back.", txRollbackLeavesNoWindow},
	{"Tx/RollbackLeavesNoRequestKeyThatEndsLater", "InTx returns a Writer that writes in tx: others see its effect when tx is committed, and never if tx is rolled back.", txRollbackLeavesNoRequestKey},
	{"Tx/ExtendOfALockedJobIsBusyOrWaits", "A job that was finished in a transaction stays locked until the transaction ends, so finish jobs last, and then commit. Meanwhile Extend answers busy or waits, and recovery leaves the job alone or waits.", txExtendOfALockedJob},
	{"Tx/BusyIsNeitherExtendedNorLost", "busy an open transaction locks the job; the lease was neither extended nor lost, so ask again;", txBusyIsNeitherExtendedNorLost},
	{"Tx/OneLockedRowStopsNoOtherHeartbeat", "busy an open transaction locks the job; the lease was neither extended nor lost, so ask again;", txOneLockedRowStopsNoOtherHeartbeat},
	{"Tx/RecoveryLeavesALockedJobAloneOrWaits", "A job that was finished in a transaction stays locked until the transaction ends, so finish jobs last, and then commit. Meanwhile Extend answers busy or waits, and recovery leaves the job alone or waits.", txRecoveryLeavesALockedJob},
	{"Tx/OthersDecideAfterItsEnd", "A job that was finished in a transaction stays locked until the transaction ends, so finish jobs last, and then commit.", txOthersDecideAfterItsEnd},
	{"Tx/EnqueueMayWaitForTheSameUniqueKey", "An Enqueue may wait for an open transaction that has written the same unique key or request key.", txEnqueueMayWaitForTheSameUniqueKey},
	{"Tx/EnqueueMayWaitForTheSameRequestKey", "An Enqueue may wait for an open transaction that has written the same unique key or request key.", txEnqueueMayWaitForTheSameRequestKey},
	{"Tx/WaitingEndsWithTheContext", "No method waits for work to appear. A call may wait for other calls and for open transactions, but only until its context ends.", txWaitingEndsWithTheContext},
	{"Tx/CallerWaitsForItselfNoLongerThanItsContext", "Calls outside the transaction may wait until it ends. So a caller that holds tx open and calls the store directly may wait for itself.", txCallerWaitsForItself},
	{"Tx/PingWaitsForNone", "It does not wait for other calls.", txPingWaitsForNone},
	{"Tx/EndOfItsContextRollsBack", "InTx returns a Writer that writes in tx: others see its effect when tx is committed, and never if tx is rolled back.", txEndOfItsContextRollsBack},
	{"Tx/EndedContextAppliesNothing", "If the context has ended before the call, the store must not apply the call: the error is ErrUnavailable and matches the context's own error.", txEndedContextAppliesNothing},
}

const sentenceOpenTx = "tx must be an open transaction. If tx is nil, a *sql.DB or a *sql.Conn, a type that passes its calls on to one of them, or a transaction that has ended, each call returns ErrInvalid: the InvalidError has the field tx, and nothing is written."

// A txCase is a caller's open transaction.
type txCase struct {
	c  *C
	tx *sql.Tx
	w  store.Writer
}

// inTx opens a transaction for f, and rolls it back unless f has ended it.
func (c *C) inTx(f func(t *txCase)) { c.inTxUnder(c.Ctx, f) }

// transactor is the store as one, with a pool to open transactions from.
func (c *C) transactor() store.Transactor {
	if c.instance.DB == nil {
		c.Fatalf("the instance has no DB to open transactions from: exclude the case with a reason")
	}
	return ability[store.Transactor](c)
}

func (c *C) inTxUnder(ctx context.Context, f func(t *txCase)) {
	transactor := c.transactor()
	tx, err := c.instance.DB.BeginTx(ctx, nil)
	c.OK(err, "BeginTx")
	defer func() { _ = tx.Rollback() }() // after an end of its own it says so, which is well
	f(&txCase{c: c, tx: tx, w: transactor.InTx(tx)})
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

func (t *txCase) enqueue(req store.EnqueueRequest) []store.Enqueued {
	answers, err := t.w.Enqueue(t.c.Ctx, req)
	t.c.OK(err, "Enqueue in a transaction")
	return answers
}

func (t *txCase) ack(l store.Lease) store.Outcome {
	return t.c.One(t.w.Ack(t.c.Ctx, []store.Ack{{Lease: l, Result: []byte(`1`)}}))
}

// glance is how long a caller beside an open transaction waits for it.
const glance = 50 * time.Millisecond

// beside calls the store from another goroutine while a transaction is open. It may wait, for so long as a glance.
func (c *C) beside(call func(ctx context.Context) error) (served bool) {
	ctx, cancel := context.WithTimeout(c.Ctx, glance)
	defer cancel()
	var err error
	var wait sync.WaitGroup
	wait.Go(func() { err = call(ctx) })
	wait.Wait()
	if err != nil {
		c.ErrorIs(err, context.DeadlineExceeded, "a call beside an open transaction")
		c.True(errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrInDoubt), "a call that waited is unavailable or in doubt: %v", err)
	}
	return err == nil
}

// meanwhile calls the store from another goroutine, ends the transaction while that call may be waiting for it, and waits
// for the call.
func (t *txCase) meanwhile(commit bool, call func() error) {
	var err error
	var wait sync.WaitGroup
	begun := make(chan struct{})
	wait.Go(func() {
		close(begun)
		err = call()
	})
	<-begun
	t.end(commit)
	wait.Wait()
	t.c.OK(err, "a call beside a transaction that ended meanwhile")
}

func txEnqueueIsSeenAtCommitOnly(c *C) {
	job := plainBut(func(n *store.NewJob) { n.Tags, n.UniqueKey = []string{"t"}, "key" })
	var want store.Job
	c.inTx(func(t *txCase) {
		answers := t.enqueue(store.EnqueueRequest{Jobs: []store.NewJob{job}})
		want = job.Row(answers[0].ID, c.Now())
		c.Equal(answers, []store.Enqueued{{ID: want.ID, State: store.Ready}}, "the answer in the transaction")
		c.beside(func(ctx context.Context) error {
			page, err := c.Store.List(ctx, store.Filter{}, store.Page{Limit: 10})
			c.Equal(ids(page.Jobs), []int64{}, "jobs that others see before the commit")
			return err
		})
		c.beside(func(ctx context.Context) error {
			jobs, err := c.Store.FetchAndClaim(ctx, claimOf(10))
			c.Equal(ids(jobs), []int64{}, "jobs that others claim before the commit")
			return err
		})
		t.commit()
	})
	c.Equal(c.All(), []store.Job{want}, "jobs after the commit")
	c.Equal(ids(c.Claim(10)), []int64{want.ID}, "claimed after the commit")
}

func txRollbackLeavesNothing(c *C) {
	job := plainBut(func(n *store.NewJob) { n.UniqueKey = "key" })
	window := plainBut(func(n *store.NewJob) { n.UniqueKey, n.UniqueFor = "window", time.Hour })
	c.inTx(func(t *txCase) {
		t.enqueue(store.EnqueueRequest{Jobs: []store.NewJob{job, window}, RequestKey: "request"})
		t.rollback()
	})
	c.Equal(c.All(), []store.Job{}, "jobs after the rollback")
	c.Equal(ids(c.Claim(10)), []int64{}, "claimed after the rollback")

	answers := c.asked(store.EnqueueRequest{Jobs: []store.NewJob{plain(), window, job}, RequestKey: "request"})
	for i, a := range answers {
		c.Equal(a, store.Enqueued{ID: a.ID, State: store.Ready}, "answer %d, under the keys of a rolled-back transaction", i)
	}
	c.Equal(len(c.All()), 3, "jobs after that")
}

// finishes are all ways to finish in a transaction, and what each makes of the job.
func (c *C) finishes() map[string]func(w store.Writer, j store.Job) (store.Job, error) {
	ways := map[string]func(w store.Writer, j store.Job) (store.Job, error){
		"Ack": func(w store.Writer, j store.Job) (store.Job, error) {
			_, err := w.Ack(c.Ctx, []store.Ack{{Lease: j.Lease(), Result: []byte(`1`)}})
			j.State, j.Result, j.LeaseExpiresAt, j.FinishedAt = store.Succeeded, []byte(`1`), time.Time{}, c.Now()
			return j, err
		},
	}
	for _, n := range []store.NAck{
		{Form: store.Fail, Error: "boom"}, {Form: store.Never, Error: "boom"}, {Form: store.After, Error: "boom", Delay: time.Hour},
	} {
		ways["NAck "+string(n.Form)] = func(w store.Writer, j store.Job) (store.Job, error) {
			n.Lease = j.Lease()
			_, err := w.NAck(c.Ctx, []store.NAck{n})
			return j.Failed(n.Failure(), c.Now()), err
		}
	}
	for _, n := range []store.NAck{{Form: store.Snooze, Delay: time.Hour}, {Form: store.Release}} {
		ways["NAck "+string(n.Form)] = func(w store.Writer, j store.Job) (store.Job, error) {
			n.Lease = j.Lease()
			_, err := w.NAck(c.Ctx, []store.NAck{n})
			j.State, j.LeaseExpiresAt, j.RunAt = store.Ready, time.Time{}, c.Now().Add(n.Delay)
			if n.Form == store.Release {
				j.Attempts--
			}
			return j, err
		}
	}
	return ways
}

func txFinishIsSeenAtCommitOnly(c *C) {
	for way, finish := range c.finishes() {
		before := c.JobIn(store.InFlight)
		c.Advance(time.Millisecond)
		var want store.Job
		c.inTx(func(t *txCase) {
			var err error
			want, err = finish(t.w, before.Job)
			c.OK(err, "%s in a transaction", way)
			c.beside(func(ctx context.Context) error {
				detail, err := c.Store.Get(ctx, before.ID)
				if err == nil {
					c.Equal(detail, before, "the job that others see before the commit of %s", way)
				}
				return err
			})
			t.commit()
		})
		after := c.Get(before.ID)
		c.Equal(after.Job, want, "the job after the commit of %s", way)
		c.Equal(after.History[0].EndedAt, c.Now(), "the end of the attempt after the commit of %s", way)
		c.Cancel(before.ID)
	}
}

func txRolledBackFinishLeavesTheLease(c *C) {
	for way, finish := range c.finishes() {
		before := c.JobIn(store.InFlight)
		c.changesNothing("the rollback of "+way, func() {
			c.inTx(func(t *txCase) {
				_, err := finish(t.w, before.Job)
				c.OK(err, "%s in a transaction", way)
				t.rollback()
			})
		})
		c.Equal(c.Extend(before.Lease()).Status, store.StatusOK, "Extend after the rollback of %s", way)
		want, err := finish(c.Store, before.Job)
		c.OK(err, "%s once more", way)
		c.Equal(c.Get(before.ID).Job, want, "the job after %s once more", way)
		c.Cancel(before.ID)
	}
}

func txWritesStandOrFallTogether(c *C) {
	for _, commit := range []bool{false, true} {
		a, b := c.JobIn(store.InFlight), c.JobIn(store.InFlight)
		before := c.everything()
		c.inTx(func(t *txCase) {
			t.enqueue(store.EnqueueRequest{Jobs: []store.NewJob{plain(), plain()}})
			c.Equal(t.ack(a.Lease()).Status, store.StatusOK, "Ack in a transaction")
			_, err := t.w.NAck(c.Ctx, []store.NAck{{Lease: b.Lease(), Form: store.Never}})
			c.OK(err, "NAck in a transaction")
			t.end(commit)
		})
		if !commit {
			c.Equal(c.everything(), before, "all jobs after the rollback")
			cancelling.on(c, only(a.ID, b.ID), 2)
			continue
		}
		c.Equal(c.Get(a.ID).Phase(), store.Succeeded, "the acked job after the commit")
		c.Equal(c.Get(b.ID).Phase(), store.Dead, "the nacked job after the commit")
		c.Equal(len(c.Claim(10)), 2, "the enqueued jobs after the commit")
		c.Equal(c.One(c.Store.Ack(c.Ctx, []store.Ack{{Lease: a.Lease()}})).Status, store.StatusOK, "Ack once more after the commit")
	}
}
