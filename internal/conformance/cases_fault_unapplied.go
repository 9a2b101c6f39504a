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

const hastyWritesEach = 2 * mostLooks // of each operation

// A hastyWrite is one call that would change the one job it has.
type hastyWrite struct {
	op     store.Op
	before store.Job

	outcomes []store.Outcome
	err      error
}

func faultUnavailableWriteIsNotApplied(c *C) {
	var writes []*hastyWrite
	for _, op := range []store.Op{
		store.OpExtend, store.OpSave, store.OpAck, store.OpFail, store.OpCancel, store.OpRequeue, store.OpReschedule, store.OpDelete,
	} {
		ready := map[store.Op]store.Op{store.OpRequeue: store.OpAck, store.OpDelete: store.OpAck, store.OpReschedule: store.OpAfter}[op]
		for _, d := range holding(c, string(op), hastyWritesEach) {
			if ready != "" {
				underLease(c, ready, d.Lease())
			}
			writes = append(writes, &hastyWrite{op: op, before: c.Get(d.ID).Job})
		}
	}
	c.Advance(time.Second) // so that every change shows
	c.Parallel(hastyCallers, func(i int) {
		for n := i; n < len(writes); n += hastyCallers {
			w := writes[n]
			w.err = c.hastily(n%hastyWritesEach, func(ctx context.Context) (err error) {
				w.outcomes, err = tryOn(c.under(ctx), w.op, w.before.Lease())
				return err
			})
		}
	})
	rows := map[int64]store.Job{}
	for _, j := range c.All() {
		rows[j.ID] = j
	}
	for _, w := range writes {
		after := rows[w.before.ID]
		switch {
		case w.err == nil:
			c.Equal(c.One(w.outcomes, nil).Status, store.StatusOK, "the outcome of a %s that was answered", w.op)
			c.True(!cmp.Equal(after, w.before, alike), "a %s that was answered has changed the job", w.op)
		case errors.Is(w.err, store.ErrUnavailable):
			c.Equal(after, w.before, "the job after a %s that was unavailable: %v", w.op, w.err)
		}
	}
}
