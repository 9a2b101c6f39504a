package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// What is an open transaction, and what only looks like one.

// A querier is what generated code and query builders put around a pool, a connection or a transaction: nothing of its type
// tells which.
type querier struct{ inner store.Tx }

func (q querier) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return q.inner.ExecContext(ctx, query, args...)
}

func (q querier) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return q.inner.QueryContext(ctx, query, args...)
}

func (q querier) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return q.inner.QueryRowContext(ctx, query, args...)
}

// An embedded transaction has its methods, as the transactions of most libraries do.
type embedded struct{ *sql.Tx }

// inNone calls f with everything that is no open transaction.
func (c *C) inNone(f func(what string, w store.Writer)) {
	transactor := c.transactor()
	conn, err := c.instance.DB.Conn(c.Ctx)
	c.OK(err, "a connection")
	defer func() { _ = conn.Close() }() // whose pool the store may have closed
	ended := func(end func(*sql.Tx) error) *sql.Tx {
		tx, err := c.instance.DB.BeginTx(c.Ctx, nil)
		c.OK(err, "BeginTx")
		c.OK(end(tx), "the end of a transaction")
		return tx
	}
	committed, rolledBack := ended((*sql.Tx).Commit), ended((*sql.Tx).Rollback)
	var none *querier
	for _, k := range []struct {
		what string
		tx   store.Tx
	}{
		{"nil", nil},
		{"a *sql.Tx that is nil", (*sql.Tx)(nil)},
		{"a *sql.DB that is nil", (*sql.DB)(nil)},
		{"a type of the caller's that is nil", none},
		{"a *sql.DB", c.instance.DB},
		{"a *sql.Conn", conn},
		{"a type around a *sql.DB", querier{c.instance.DB}},
		{"a pointer to a type around a *sql.DB", &querier{c.instance.DB}},
		{"a type around a *sql.Conn", querier{conn}},
		{"a committed transaction", committed},
		{"a transaction that was rolled back", rolledBack},
		{"a type around a committed transaction", embedded{committed}},
		{"a type around a transaction that was rolled back", querier{rolledBack}},
	} {
		f(k.what, transactor.InTx(k.tx))
	}
}

func txOnlyAnOpenOneIsTaken(c *C) {
	req := store.EnqueueRequest{Jobs: []store.NewJob{plain(), keyed("key", 0)}, RequestKey: "request"}
	held := holding(c, queue, 1)[0]
	before := c.everything()
	c.inNone(func(what string, w store.Writer) {
		answers, err := w.Enqueue(c.Ctx, req)
		c.Equal(len(answers), 0, "answers of Enqueue in %s", what)
		errs := map[store.Op]error{"enqueue": err}
		for _, op := range finishOps {
			outcomes, err := tryUnderLeases(c.writingBy(w), op, held.Lease())
			c.Equal(len(outcomes), 0, "outcomes of %s in %s", op, what)
			errs[op] = err
		}
		for op, err := range errs {
			c.refused(err, -1, "tx", string(op)+" in "+what)
			c.True(!errors.Is(err, store.ErrUnavailable), "%s in %s would fail again: %v", op, what, err)
		}
	})
	c.Equal(c.everything(), before, "all jobs after calls in what is no open transaction")
	takes(c, store.OpAck, held, "of a job that nothing has finished")
	for _, a := range c.asked(req) {
		c.Equal(a, store.Enqueued{ID: a.ID, State: store.Ready}, "a job whose unique key and request key nobody has used")
	}
}

func txWrappedOneIsTaken(c *C) {
	for what, wrap := range map[string]func(tx *sql.Tx) store.Tx{
		"its own type":                     func(tx *sql.Tx) store.Tx { return tx },
		"a type that embeds it":            func(tx *sql.Tx) store.Tx { return embedded{tx} },
		"a pointer to a type that does":    func(tx *sql.Tx) store.Tx { return &embedded{tx} },
		"a type that passes statements on": func(tx *sql.Tx) store.Tx { return querier{tx} },
		"two types, one in the other":      func(tx *sql.Tx) store.Tx { return querier{&embedded{tx}} },
	} {
		for _, commit := range []bool{false, true} {
			held := holding(c, fmt.Sprint(what, commit), 2)
			before := c.everything()
			c.inTx(func(t *txCase) {
				in := c.writingBy(c.transactor().InTx(wrap(t.tx)))
				in.asked(store.EnqueueRequest{Jobs: []store.NewJob{plain(), plain()}, RequestKey: fmt.Sprint(what, commit)})
				underLease(in, store.OpAck, held[0].Lease())
				underLease(in, store.OpNever, held[1].Lease())
				t.end(commit)
			})
			if !commit {
				c.Equal(c.everything(), before, "all jobs after a rollback in %s", what)
				continue
			}
			c.Equal(c.Get(held[0].ID), becomes(store.OpAck, held[0], c.Now()), "the acked job after a commit in %s", what)
			c.Equal(c.Get(held[1].ID), becomes(store.OpNever, held[1], c.Now()), "the nacked job after a commit in %s", what)
			c.Equal(len(c.Claim(10)), 2, "jobs enqueued in %s", what)
		}
	}
}

// A writer outlives its transaction, and is of no use then.
func txAfterItsEndNoCallIsTaken(c *C) {
	first := c.JobIn(store.InFlight)
	c.inTx(func(t *txCase) {
		_, err := t.in.Store.Ack(c.Ctx, []store.Ack{{Lease: first.Lease(), Result: []byte(`{`)}})
		c.ErrorIs(err, store.ErrInvalid, "Ack with a result that is no JSON")
		t.rollback()
		_, err = t.in.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{plain()}})
		c.refused(err, -1, "tx", "Enqueue after the rollback, by the same writer")
	})
	c.inTx(func(t *txCase) {
		t.in.EnqueueOne()
		c.Advance(time.Second)
		t.commit()
		_, err := t.in.Store.Ack(c.Ctx, []store.Ack{{Lease: first.Lease()}})
		c.refused(err, -1, "tx", "Ack after the commit, by the same writer")
	})
	c.Equal(c.Get(first.ID), first, "the job")
	c.Equal(len(c.Claim(10)), 1, "jobs that were committed")
}
