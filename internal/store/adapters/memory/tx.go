package memory

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// InTx returns a Writer that writes in a transaction of [Store.DB]. From its first write until its end, the transaction blocks
// all other calls of the store. A call that fails has no effect. A call that waits for another transaction stops waiting when
// its own transaction ends.
func (s *Store) InTx(tx store.Tx) store.Writer { return writer{s, tx} }

// A writer sends its calls through the caller's transaction, so that the store knows to which transaction they belong.
type writer struct {
	store *Store
	tx    store.Tx
}

// Enqueue adds jobs.
func (w writer) Enqueue(ctx context.Context, req store.EnqueueRequest) ([]store.Enqueued, error) {
	prepared, refused := prepare(req)
	return send(ctx, w, refused, func(now time.Time) ([]store.Enqueued, error) {
		return w.store.enqueue(prepared, now)
	})
}

// Ack finishes jobs whose work is done, strictly.
func (w writer) Ack(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
	refusals := refusedResults(acks)
	return send(ctx, w, store.CheckAcks(acks), func(now time.Time) ([]store.Outcome, error) {
		outcomes := make([]store.Outcome, len(acks))
		for i, a := range acks {
			if refusals[i] != nil {
				return nil, &store.InvalidError{Item: i, Field: "result", Rule: "must be a JSON document within the limits"}
			}
			if err := w.store.mustHold(a.Lease, store.FinishedByAck); err != nil {
				return nil, fmt.Errorf("%w: item %d, job %d", err, i, a.ID)
			}
			outcomes[i] = w.store.ack(a, nil, now)
		}
		return outcomes, nil
	})
}

// NAck ends leases without success, strictly.
func (w writer) NAck(ctx context.Context, nacks []store.NAck) ([]store.Outcome, error) {
	failures := failuresOf(nacks)
	return send(ctx, w, store.CheckNAcks(nacks), func(now time.Time) ([]store.Outcome, error) {
		outcomes := make([]store.Outcome, len(nacks))
		for i, n := range nacks {
			if err := n.Check(); err != nil {
				return nil, ofItem(i, err)
			}
			if err := w.store.mustHold(n.Lease, n.FinishedBy()); err != nil {
				return nil, fmt.Errorf("%w: item %d, job %d", err, i, n.ID)
			}
			outcomes[i] = w.store.nack(n, failures[i], now)
		}
		return outcomes, nil
	})
}

// SetSchedule replaces or adds a schedule.
func (w writer) SetSchedule(ctx context.Context, by store.Schedule) (store.Schedule, error) {
	return send(ctx, w, by.Check(), func(time.Time) (store.Schedule, error) { return w.store.setSchedule(by) })
}

// DeleteSchedule removes a schedule.
func (w writer) DeleteSchedule(ctx context.Context, name string) error {
	_, err := send(ctx, w, store.CheckSchedule(name), func(time.Time) (struct{}, error) {
		w.store.dropSchedule(name)
		return struct{}{}, nil
	})
	return err
}

// Schedules returns the schedules that match, by name.
func (w writer) Schedules(ctx context.Context, filter store.ScheduleFilter, page store.Page) (store.SchedulePage, error) {
	after, refused := filter.Position(page)
	return send(ctx, w, refused, func(now time.Time) (store.SchedulePage, error) {
		return w.store.schedulesPage(filter, page, after, now), nil
	})
}

// Fire moves schedules to their next times and enqueues their jobs.
func (w writer) Fire(ctx context.Context, firings []store.Firing) ([]store.Fired, error) {
	return send(ctx, w, store.CheckFirings(firings), func(now time.Time) ([]store.Fired, error) {
		return w.store.fireAll(firings, now), nil
	})
}

// SealGroup seals a group that is open.
func (w writer) SealGroup(ctx context.Context, name string) error {
	_, err := send(ctx, w, store.CheckGroup(name), func(time.Time) (struct{}, error) { return struct{}{}, w.store.seal(name) })
	return err
}

// Groups returns the groups that match, by name.
func (w writer) Groups(ctx context.Context, filter store.GroupFilter, page store.Page) (store.GroupPage, error) {
	after, refused := filter.Position(page)
	return send(ctx, w, refused, func(now time.Time) (store.GroupPage, error) {
		return w.store.groupPage(filter, page, after, now), nil
	})
}

// ofItem adds the item's index to an error.
func ofItem(i int, err error) error {
	if refused, ok := errors.AsType[*store.InvalidError](err); ok {
		refused.Item = i
	}
	return err
}

// mustHold returns an error unless the job is in flight under the lease.
func (s *Store) mustHold(l store.Lease, by store.FinishedBy) error {
	_, r := s.find(l.ID)
	return r.MustHold(l, by)
}

// A call travels through the caller's transaction as the argument of a statement that only this package's driver understands.
type call struct {
	store   *Store
	refused error
	run     func(now time.Time) error

	served bool // the call has reached the store, and err is its answer
	err    error
	tx     *transaction // the transaction that it came through
	other  *transaction // the transaction that keeps it out, or nil
}

// send runs f in the writer's transaction.
func send[A any](ctx context.Context, w writer, refused error, f func(now time.Time) (A, error)) (A, error) {
	var answer, none A
	c := &call{store: w.store, refused: refused, run: func(now time.Time) (err error) {
		answer, err = f(now)
		return err
	}}
	if err := store.CheckTx(w.tx); err != nil {
		return none, w.store.refuse(ctx, cmp.Or(refused, err))
	}
	if err := c.sendThrough(ctx, w.tx); err != nil {
		return none, err
	}
	return answer, nil
}

// sendThrough sends the call until no other transaction keeps it out. It waits between statements, not within one, because
// database/sql does not let anybody end a transaction while a statement runs in it.
func (c *call) sendThrough(ctx context.Context, tx store.Tx) error {
	for {
		c.served, c.other = false, nil
		_, err := tx.ExecContext(ctx, statement, c)
		if c.other == nil {
			return c.outcome(ctx, err)
		}
		select {
		case <-c.other.ended:
		case <-c.tx.ended:
		case <-ctx.Done():
		}
	}
}

// outcome returns the call's error. Err is the error of the statement.
func (c *call) outcome(ctx context.Context, err error) error {
	switch {
	case c.served && c.err != nil:
		return c.err
	case c.served && err == nil:
		return nil
	case ctx.Err() != nil:
		return unavailable(ctx.Err())
	case c.tx != nil && c.tx.ctx.Err() != nil:
		return unavailable(c.tx.ctx.Err())
	case errors.Is(err, sql.ErrTxDone), errors.Is(err, sql.ErrConnDone):
		return c.store.refuse(ctx, cmp.Or(c.refused, store.TxError(err)))
	default:
		return foreignTx()
	}
}

// foreignTx is the error for a transaction that is not an open transaction of the store's own database.
func foreignTx() error {
	return &store.InvalidError{Item: -1, Field: "tx", Rule: "must be an open transaction of this store's DB()"}
}

// A transaction is the store's side of a caller's transaction. The store's lock guards it.
type transaction struct {
	store *Store
	ctx   context.Context // when it ends, so does the transaction
	ended chan struct{}   // closed at the end of the transaction, when others may go on
	undo  []func()        // undoes the changes, in the order in which they were made
	lost  bool            // the store was closed before the transaction ended
}

func (s *Store) begin(ctx context.Context) *transaction {
	return &transaction{store: s, ctx: ctx, ended: make(chan struct{})}
}

// do runs a call in the transaction, unless another transaction keeps it out. If the call fails, do undoes the changes of this
// call only.
func (t *transaction) do(ctx context.Context, c *call) error {
	c.tx = t
	refused := c.refused
	if t.ctx.Err() != nil {
		refused = unavailable(t.ctx.Err())
	}
	now, other, err := t.store.tryEnter(ctx, t, refused)
	if other != nil || err != nil {
		c.other = other
		return err
	}
	defer t.store.leave()
	mark := len(t.undo)
	if err := c.run(now); err != nil {
		t.undoTo(mark)
		return err
	}
	return nil
}

// onRollback keeps a function that undoes a change.
func (t *transaction) onRollback(undo func()) { t.undo = append(t.undo, undo) }

func (t *transaction) undoTo(mark int) {
	for _, undo := range slices.Backward(t.undo[mark:]) {
		undo()
	}
	t.undo = t.undo[:mark]
}

// commit makes the changes visible to other calls.
func (t *transaction) commit() error {
	s := t.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.lost {
		return store.ErrClosed
	}
	wrote := s.tx == t
	t.end()
	if wrote {
		s.follow()
		s.announce()
	}
	return nil
}

// abandon undoes the changes, unless they were undone already.
func (t *transaction) abandon() {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	switch {
	case t.store.tx == t:
		t.rollback()
	case !t.lost: // nothing was written
		t.end()
	}
}

// rollback is abandon for a transaction that has written. The caller holds the lock.
func (t *transaction) rollback() {
	t.undoTo(0)
	t.store.woken = t.store.woken[:0]
	t.lost = t.store.closed
	t.end()
}

// end lets other calls go on, and makes a call that waits in this transaction give up.
func (t *transaction) end() {
	t.undo = nil
	if t.store.tx == t {
		t.store.tx = nil
	}
	close(t.ended)
}
