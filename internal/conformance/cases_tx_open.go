package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
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

func txEnqueueKeepsItsPromises(c *C) {
	job := keyed("key", 0)
	twice := store.EnqueueRequest{Jobs: []store.NewJob{plain(), job}, RequestKey: "request"}
	c.inTx(func(t *txCase) {
		first := t.in.asked(twice)
		c.Equal(t.in.asked(twice), first, "the same request in one transaction")
		second := t.in.answers(job, plain())
		c.Equal(second[0], store.Enqueued{ID: first[1].ID, State: store.Ready, Duplicate: true}, "a duplicate in one transaction")
		c.True(first[0].ID < first[1].ID && first[1].ID < second[1].ID, "ids grow in the order of the items: %v, %v", first, second)
		t.commit()
	})
	c.Equal(len(c.All()), 3, "jobs after the commit")
	c.changesNothing("an invalid Enqueue in a transaction", func() {
		c.inTx(func(t *txCase) {
			_, err := t.in.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{plain(), plainBut(func(n *store.NewJob) { n.Kind = "" })}})
			c.refused(err, 1, "kind", "an invalid job in a transaction")
			t.rollback()
		})
	})
}

// The item that fails the call is alone in it, or beside a good one, which is not finished either. A job that was finished in another way is
// ErrStaleLease by the words of that error and ErrAlreadyFinished by those of InTx: never a silent success.
func txFinishIsStrict(c *C) {
	acked, dead, gone := c.JobIn(store.Succeeded).Lease(), c.JobIn(store.Dead).Lease(), c.JobIn(store.Succeeded).Lease()
	c.Delete(gone.ID)
	cancelled := c.JobIn(store.InFlight).Lease()
	c.Cancel(cancelled.ID)
	c.NAck(c.JobIn(store.InFlight).Lease(), store.Release, 0, "")
	older := c.ClaimOne().Lease()
	older.Token--
	held, good := c.JobIn(store.InFlight).Lease(), c.JobIn(store.InFlight).Lease()
	nack := func(l store.Lease, form store.Form, delay time.Duration) *store.NAck {
		return &store.NAck{Lease: l, Form: form, Delay: delay}
	}
	for _, k := range []struct {
		what string
		ack  *store.Ack
		nack *store.NAck
		want []error // one of them
	}{
		{"of a cancelled job", &store.Ack{Lease: cancelled}, nack(cancelled, store.Fail, 0), []error{store.ErrStaleLease}},
		{"under an older token", &store.Ack{Lease: older}, nack(older, store.Release, 0), []error{store.ErrStaleLease}},
		{"once more", &store.Ack{Lease: acked}, nack(dead, store.Never, 0), []error{store.ErrAlreadyFinished}},
		{"After where it was Never", nil, nack(dead, store.After, time.Second), []error{store.ErrAlreadyFinished}},
		{"of the same job twice", &store.Ack{Lease: good}, nack(good, store.Fail, 0), []error{store.ErrAlreadyFinished}},
		{"after Ack", nil, nack(acked, store.Never, 0), []error{store.ErrStaleLease, store.ErrAlreadyFinished}},
		{"of a deleted job", &store.Ack{Lease: gone}, nack(gone, store.Snooze, 0), []error{store.ErrNotFound}},
		{"in an unknown form", nil, nack(held, "lose", 0), []error{store.ErrInvalid}},
		{"with a delay below zero", nil, nack(held, store.After, -time.Second), []error{store.ErrInvalid}},
		{"Release with a delay", nil, nack(held, store.Release, time.Second), []error{store.ErrInvalid}},
		{"with a result that is no JSON", &store.Ack{Lease: held, Result: []byte(`{`)}, nil, []error{store.ErrInvalid}},
		{"with a result that is too long", &store.Ack{Lease: held, Result: docOf(store.MaxDocBytes + 1)}, nil, []error{store.ErrInvalid}},
	} {
		fails := func(at int, call string, finish func(w store.Writer) ([]store.Outcome, error)) {
			c.changesNothing(call+" "+k.what+" in a transaction", func() {
				c.inTx(func(t *txCase) {
					outcomes, err := finish(t.in.Store)
					c.Equal(outcomes, []store.Outcome{}, "the outcomes of %s %s", call, k.what)
					c.True(slices.ContainsFunc(k.want, func(kind error) bool { return errors.Is(err, kind) }), "%s %s: got error %v, want %v", call, k.what, err, k.want)
					var invalid *store.InvalidError
					c.True(!errors.Is(k.want[0], store.ErrInvalid) || errors.As(err, &invalid) && invalid.Item == at, "the error of %s %s names item %d: %v", call, k.what, at, err)
					t.rollback()
				})
			})
		}
		for _, items := range []struct{ n, at int }{{1, 0}, {2, 0}, {2, 1}} {
			if items.n == 1 && k.nack != nil && k.nack.Lease == good {
				continue // alone it would be finished
			}
			if k.ack != nil {
				acks := slices.Insert([]store.Ack{{Lease: good}}, items.at, *k.ack)[:items.n]
				fails(items.at, "Ack", func(w store.Writer) ([]store.Outcome, error) { return w.Ack(c.Ctx, acks) })
			}
			if k.nack != nil {
				nacks := slices.Insert([]store.NAck{{Lease: good, Form: store.Fail}}, items.at, *k.nack)[:items.n]
				fails(items.at, "NAck", func(w store.Writer) ([]store.Outcome, error) { return w.NAck(c.Ctx, nacks) })
			}
		}
	}
	c.Equal(c.Ack(held).Status, store.StatusOK, "Ack of a job that no call has finished")
	c.Equal(c.Ack(good).Status, store.StatusOK, "Ack of the good item of all calls")
}

// What is kept is what is kept outside: see Finish/ErrorsAreMendedAndCut for every way to mend and cut.
func txErrorsAreMended(c *C) {
	text := "a\x00b\xff" + strings.Repeat("x", store.MaxErrorBytes)
	for _, form := range []store.Form{store.Fail, store.Never, store.After} {
		held := c.JobIn(store.InFlight).Lease()
		c.inTx(func(t *txCase) {
			c.Equal(t.in.NAck(held, form, 0, text).Status, store.StatusOK, "NAck %s in a transaction", form)
			t.commit()
		})
		got := c.Get(held.ID)
		want := store.CleanError(text)
		c.Equal([]string{got.Error, got.History[0].Error}, []string{want, want}, "the error of the job and of its attempt, after %s", form)
		c.Cancel(held.ID)
	}
}
