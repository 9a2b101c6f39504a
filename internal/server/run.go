package server

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A Handler does the work of a job. What it returns decides what becomes of the job: see judge.
type Handler func(ctx context.Context, r *Run) error

// A Run is one run of a job, held from its claim until the store has answered for its end.
type Run struct {
	store.Job // as it was claimed

	keeper  keeper
	timeout time.Duration
	ctx     runContext // of the handler

	seq  atomic.Int64 // of the latest save
	inTx atomic.Bool  // the handler has finished the job in a transaction of its own

	resultMu sync.Mutex // guards result
	result   []byte

	// The book's lock guards what follows.
	place      int // on the roster, from one on; zero if it is not there
	stage      stage
	startedAt  time.Time // zero if it has not run
	leaseUntil time.Time // when the lease ends by this process' clock, if the store is not heard of before
	cause      error     // why the handler was told to stop, or nil
	abandonAt  time.Time // from when it is then no longer waited for
	settled    bool      // nothing can be extended: the lease was lost, or the job finished by its handler
	lost       bool      // the store has said so
	abandoned  bool
	replaced   bool // abandoned, and its slot given to another

	// What follows belongs to the committer once the run has ended.
	verdict   verdict
	ran       time.Duration // how long its handler took; zero if it never started
	tries     int           // how often it was put off
	tryAt     time.Time     // when it is tried again
	refused   int           // how often the store has refused the verdict although it was there
	refusedAt time.Time     // when it did so first
	wroteThen int           // what the server had written before that
}

// A stage is how far a run has come.
type stage int

const (
	buffered stage = iota
	running
	ended // and not yet written
)

// A keeper is what a run needs of whoever holds it.
type keeper interface {
	backend() store.Store
	writeRefused(r *Run, op string, outcome store.Outcome) // a write was refused for its lease
}

type runKey struct{}

// newRun is the run of a job that was just claimed, with a context that has the values of base.
func newRun(base context.Context, k keeper, job store.Job, timeout time.Duration) *Run {
	r := &Run{Job: job, keeper: k, timeout: timeout}
	if job.Timeout > 0 {
		r.timeout = job.Timeout
	}
	r.ctx.base, r.ctx.run = base, r
	return r
}

// From is the run whose handler was given the context, or nil.
func From(ctx context.Context) *Run {
	r, _ := ctx.Value(runKey{}).(*Run)
	return r
}

// stopAt is when the timeout ends.
func (r *Run) stopAt() time.Time { return r.startedAt.Add(r.timeout) }

// SetResult keeps the document as the result, for the moment when the handler returns nil.
func (r *Run) SetResult(doc []byte) {
	r.resultMu.Lock()
	defer r.resultMu.Unlock()
	r.result = bytes.Clone(doc) // it is written after the handler has returned, which may use its buffer again
}

func (r *Run) finalResult() []byte {
	r.resultMu.Lock()
	defer r.resultMu.Unlock()
	return r.result
}

// Save writes a checkpoint, a progress or both at once.
func (r *Run) Save(ctx context.Context, checkpoint, progress []byte) error {
	save := store.Save{Lease: r.Lease(), Seq: r.seq.Add(1), Checkpoint: checkpoint, Progress: progress}
	outcomes, err := r.keeper.backend().Save(ctx, []store.Save{save})
	if err != nil {
		return err
	}
	o := outcomes[0]
	refused := o.Status == store.StatusStale || o.Status == store.StatusNotFound
	if refused && !r.inTx.Load() { // else its own end came before, and nothing is lost
		r.keeper.writeRefused(r, "save", o)
	}
	return o.Err()
}

// FinishTx acks the job in the caller's transaction, so that its effect and its end stand or fall together.
func (r *Run) FinishTx(ctx context.Context, tx store.Tx) error {
	transactor, ok := r.keeper.backend().(store.Transactor)
	if !ok {
		return errors.New("jq: the store can not write in a caller's transaction")
	}
	_, err := transactor.InTx(tx).Ack(ctx, []store.Ack{{Lease: r.Lease(), Result: r.finalResult()}})
	if err == nil {
		r.inTx.Store(true)
	}
	return err
}

// stopCause is why the handler was told to stop, or nil.
func (r *Run) stopCause() error { return r.ctx.cause() }

// cancel tells the handler to stop.
func (r *Run) cancel(cause error) { r.ctx.cancel(cause) }

// deadline returns when the watch has to look at a running handler. A handler that has finished its job in a transaction needs no heartbeat:
// as long as the transaction is open, nobody else can get the job, and the store can only answer busy. The caller holds the book's lock.
func (r *Run) deadline() time.Time {
	switch {
	case r.cause != nil:
		return r.abandonAt
	case r.settled || r.inTx.Load() || r.stopAt().Before(r.leaseUntil):
		return r.stopAt()
	default:
		return r.leaseUntil
	}
}
