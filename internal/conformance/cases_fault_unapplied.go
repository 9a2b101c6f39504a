package conformance

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ed332417/jq/internal/store"
)

// A fickle context ends when it has been looked at so many times: at an exact moment of the call that it is given to,
// which is the worst one for a store that looks once more when it has done its work.
type fickle struct {
	context.Context
	looks atomic.Int64 // how many are left
	end   context.CancelFunc
}

func (f *fickle) look() {
	if f.looks.Add(-1) < 0 {
		f.end()
	}
}

func (f *fickle) Done() <-chan struct{} {
	f.look()
	return f.Context.Done()
}

func (f *fickle) Err() error {
	f.look()
	return f.Context.Err()
}

// fickly calls under a context that ends at its look after so many others. A call that looks less often is not disturbed.
func (c *C) fickly(looks int, call func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(c.Ctx)
	defer cancel()
	f := &fickle{Context: ctx, end: cancel}
	f.looks.Store(int64(looks))
	return call(f)
}

const hastyWritesEach = 2 * mostLooks // of each method

// A hastyWrite is one call that would change the one job it has.
type hastyWrite struct {
	name   string
	before store.Job
	call   func(ctx context.Context) ([]store.Outcome, error)

	outcomes []store.Outcome
	err      error
}

// hastyWrites are n calls of each method that changes a job it is told of, each with a job of its own.
func (c *C) hastyWrites(n int) []*hastyWrite {
	calls := changesOfOne(c.Store)
	terminal := map[string]bool{"Requeue": true, "Delete": true}
	c.EnqueueN(n * len(calls))
	claimed := c.Claim(n * len(calls))
	if len(claimed) != n*len(calls) {
		c.Fatalf("claimed %d jobs of %d", len(claimed), n*len(calls))
	}
	var writes []*hastyWrite
	var acks []store.Ack
	for name, call := range calls {
		for _, j := range claimed[:n] {
			writes = append(writes, &hastyWrite{name: name, before: j, call: func(ctx context.Context) ([]store.Outcome, error) {
				return call(ctx, j.Lease())
			}})
			if terminal[name] {
				acks = append(acks, store.Ack{Lease: j.Lease()})
			}
		}
		claimed = claimed[n:]
	}
	_, err := c.Store.Ack(c.Ctx, acks)
	c.OK(err, "Ack of %d jobs", len(acks))
	c.Advance(time.Second) // so that every change shows
	rows := c.rowsByID()
	for _, w := range writes {
		w.before = rows[w.before.ID]
	}
	return writes
}

// changesOfOne are the methods that change a job they are told of.
func changesOfOne(s store.Store) map[string]func(ctx context.Context, l store.Lease) ([]store.Outcome, error) {
	return map[string]func(ctx context.Context, l store.Lease) ([]store.Outcome, error){
		"Extend": func(ctx context.Context, l store.Lease) ([]store.Outcome, error) {
			return s.Extend(ctx, []store.Lease{l}, ttl)
		},
		"Save": func(ctx context.Context, l store.Lease) ([]store.Outcome, error) {
			return s.Save(ctx, []store.Save{{Lease: l, Seq: 1, Checkpoint: []byte(`1`)}})
		},
		"Ack": func(ctx context.Context, l store.Lease) ([]store.Outcome, error) {
			return s.Ack(ctx, []store.Ack{{Lease: l}})
		},
		"NAck": func(ctx context.Context, l store.Lease) ([]store.Outcome, error) {
			return s.NAck(ctx, []store.NAck{{Lease: l, Form: store.Fail}})
		},
		"Cancel": func(ctx context.Context, l store.Lease) ([]store.Outcome, error) { return s.Cancel(ctx, only(l.ID), 1) },
		"Requeue": func(ctx context.Context, l store.Lease) ([]store.Outcome, error) {
			return s.Requeue(ctx, only(l.ID), 1)
		},
		"Delete": func(ctx context.Context, l store.Lease) ([]store.Outcome, error) { return s.Delete(ctx, only(l.ID), 1) },
	}
}

func (c *C) rowsByID() map[int64]store.Job {
	rows := map[int64]store.Job{}
	for _, j := range c.All() {
		rows[j.ID] = j
	}
	return rows
}

func faultUnavailableWriteIsNotApplied(c *C) {
	writes := c.hastyWrites(hastyWritesEach)
	c.Parallel(hastyCallers, func(i int) {
		for n := i; n < len(writes); n += hastyCallers {
			w := writes[n]
			w.err = c.hastily(n%hastyWritesEach, func(ctx context.Context) (err error) {
				w.outcomes, err = w.call(ctx)
				return err
			})
		}
	})
	rows := c.rowsByID()
	for _, w := range writes {
		after := rows[w.before.ID]
		switch {
		case w.err == nil:
			c.Equal(c.One(w.outcomes, nil).Status, store.StatusOK, "the outcome of a %s that was answered", w.name)
			c.True(!cmp.Equal(after, w.before, alike), "a %s that was answered has changed the job", w.name)
		case errors.Is(w.err, store.ErrUnavailable):
			c.Equal(after, w.before, "the job after a %s that was unavailable: %v", w.name, w.err)
		}
	}
}
