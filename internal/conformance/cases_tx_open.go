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
	job := keyed("key", 0)
	c.EnqueueN(2)
	held := c.Claim(2)
	before := c.everything()
	c.inNone(func(what string, w store.Writer) {
		for name, call := range map[string]func() error{
			"Enqueue": func() error {
				answers, err := w.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{plain(), job}, RequestKey: "request"})
				c.Equal(len(answers), 0, "answers of Enqueue in %s", what)
				return err
			},
			"Ack": func() error {
				outcomes, err := w.Ack(c.Ctx, []store.Ack{{Lease: held[0].Lease(), Result: []byte(`1`)}})
				c.Equal(len(outcomes), 0, "outcomes of Ack in %s", what)
				return err
			},
			"NAck": func() error {
				outcomes, err := w.NAck(c.Ctx, []store.NAck{{Lease: held[1].Lease(), Form: store.Never}})
				c.Equal(len(outcomes), 0, "outcomes of NAck in %s", what)
				return err
			},
		} {
			err := call()
			var invalid *store.InvalidError
			c.True(errors.As(err, &invalid) && invalid.Field == "tx" && invalid.Item == -1, "%s in %s names the field tx: got error %v", name, what, err)
			c.ErrorIs(err, store.ErrInvalid, "%s in %s", name, what)
			c.True(!errors.Is(err, store.ErrUnavailable), "%s in %s would fail again: %v", name, what, err)
		}
	})
	c.Equal(c.everything(), before, "all jobs after calls in what is no open transaction")
	for _, j := range held {
		c.Equal(c.Ack(j.Lease()).Status, store.StatusOK, "Ack of a job that nothing has finished")
	}
	answers := c.asked(store.EnqueueRequest{Jobs: []store.NewJob{job}, RequestKey: "request"})
	c.Equal(answers, []store.Enqueued{{ID: answers[0].ID, State: store.Ready}}, "a job whose unique key and request key nobody has used")
}

func txWrappedOneIsTaken(c *C) {
	wraps := map[string]func(tx *sql.Tx) store.Tx{
		"its own type":                     func(tx *sql.Tx) store.Tx { return tx },
		"a type that embeds it":            func(tx *sql.Tx) store.Tx { return embedded{tx} },
		"a pointer to a type that does":    func(tx *sql.Tx) store.Tx { return &embedded{tx} },
		"a type that passes statements on": func(tx *sql.Tx) store.Tx { return querier{tx} },
		"two types, one in the other":      func(tx *sql.Tx) store.Tx { return querier{&embedded{tx}} },
	}
	for what, wrap := range wraps {
		for _, commit := range []bool{false, true} {
			held := c.JobIn(store.InFlight)
			before := c.everything()
			c.inTx(func(t *txCase) {
				t.w = c.transactor().InTx(wrap(t.tx))
				t.enqueue(store.EnqueueRequest{Jobs: []store.NewJob{plain()}, RequestKey: fmt.Sprint(what, commit)})
				c.Equal(t.ack(held.Lease()).Status, store.StatusOK, "Ack in a transaction in %s", what)
				t.end(commit)
			})
			if commit {
				c.Equal(c.Get(held.ID).State, store.Succeeded, "the job after a commit in %s", what)
				c.Equal(len(c.Claim(10)), 1, "jobs enqueued in %s", what)
				continue
			}
			c.Equal(c.everything(), before, "all jobs after a rollback in %s", what)
			c.Ack(held.Lease())
		}
	}
}

// A writer outlives its transaction, and is of no use then.
func txAfterItsEndNoCallIsTaken(c *C) {
	first := c.JobIn(store.InFlight)
	c.inTx(func(t *txCase) {
		_, err := t.w.Ack(c.Ctx, []store.Ack{{Lease: first.Lease(), Result: []byte(`{`)}})
		c.ErrorIs(err, store.ErrInvalid, "Ack with a result that is no JSON")
		t.rollback()
		_, err = t.w.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{plain()}})
		c.ErrorIs(err, store.ErrInvalid, "Enqueue after the rollback, by the same writer")
	})
	c.inTx(func(t *txCase) {
		t.enqueue(store.EnqueueRequest{Jobs: []store.NewJob{plain()}})
		c.Advance(time.Second)
		t.commit()
		_, err := t.w.Ack(c.Ctx, []store.Ack{{Lease: first.Lease()}})
		c.ErrorIs(err, store.ErrInvalid, "Ack after the commit, by the same writer")
	})
	c.Equal(c.Get(first.ID), first, "the job")
	c.Equal(len(c.Claim(10)), 1, "jobs that were committed")
}
