package server

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A Handler does the work of a job. Its return value decides what happens to the job: see verdictOf.
type Handler func(ctx context.Context, r *Run) error

// A Run is one run of a job. The server holds it from the claim until the store has answered the write of its verdict.
type Run struct {
	store.Job // as it was claimed

	holder  runHolder
	timeout time.Duration
	ctx     runContext // the handler's context

	seq atomic.Int64 // sequence number of the latest save

	result []byte // ctx.mu guards it

	inTx atomic.Bool // the handler has finished the job in a transaction of its own

	// The book's lock guards what follows. The narrow fields stand together, which keeps a run small.
	index      int32 // in the book's runs, counted from one; zero if it is not there
	stage      stage
	leaseEnded bool // heartbeats leave it out: its lease is lost, or its handler has finished the job
	leaseLost  bool // the store has reported it
	abandoned  bool
	slotReused bool // abandoned, and another run got its slot

	startedAt  time.Time // zero if it has not started
	leaseUntil time.Time // when the lease expires by this process's clock, unless a heartbeat extends it
	cause      error     // why the handler was cancelled, or nil
	abandonAt  time.Time // when a cancelled handler will be abandoned

	// The committer owns what follows once the run has ended.
	verdict        verdict
	ran            time.Duration // how long the handler ran; zero if it never started
	delays         int32         // how often the write was delayed
	refusals       int32         // how often the store has refused the verdict while it was reachable
	firstRefusalAt time.Time     // when the store refused it first
	writesBefore   int           // how many writes of this operation had succeeded by then
	writeAt        time.Time     // until when the write is delayed
}

// A stage is how far a run has come.
type stage int8

const (
	buffered stage = iota
	running
	ended // and not yet written
)

// A runHolder is what a run needs of the server, or of Once.
type runHolder interface {
	backend() store.Store
	writeRefused(r *Run, op string, outcome store.Outcome) // the store refused a write because of its lease
}

type runKey struct{}

// newRun returns the run of a job that was just claimed. Its context has the values of base.
func newRun(base context.Context, k runHolder, job store.Job, timeout time.Duration) *Run {
	r := &Run{Job: job, holder: k, timeout: timeout}
	if job.Timeout > 0 {
		r.timeout = job.Timeout
	}
	r.ctx.base, r.ctx.run = base, r
	return r
}

// From returns the run whose handler received the context, or nil.
func From(ctx context.Context) *Run {
	r, _ := ctx.Value(runKey{}).(*Run)
	return r
}

// timeoutAt returns when the timeout ends.
func (r *Run) timeoutAt() time.Time { return r.startedAt.Add(r.timeout) }

// SetResult keeps the document as the result of the job, in case the handler returns nil.
func (r *Run) SetResult(doc []byte) {
	r.ctx.mu.Lock()
	defer r.ctx.mu.Unlock()
	r.result = bytes.Clone(doc) // the handler may reuse its buffer, and the result is written later
}

func (r *Run) finalResult() []byte {
	r.ctx.mu.Lock()
	defer r.ctx.mu.Unlock()
	return r.result
}

// Save writes a checkpoint, a progress document or both.
func (r *Run) Save(ctx context.Context, checkpoint, progress []byte) error {
	save := store.Save{Lease: r.Lease(), Seq: r.seq.Add(1), Checkpoint: checkpoint, Progress: progress}
	outcomes, err := r.holder.backend().Save(ctx, []store.Save{save})
	if err != nil {
		return err
	}
	o := outcomes[0]
	refused := o.Status == store.StatusStale || o.Status == store.StatusNotFound
	if refused && !r.inTx.Load() { // otherwise FinishTx ended the lease itself
		r.holder.writeRefused(r, "save", o)
	}
	return o.Err()
}

// FinishTx acks the job in the caller's transaction, so that both are committed or neither is.
func (r *Run) FinishTx(ctx context.Context, tx store.Tx) error {
	transactor, ok := r.holder.backend().(store.Transactor)
	if !ok {
		return errors.New("jq: the store cannot write in a caller's transaction")
	}
	_, err := transactor.InTx(tx).Ack(ctx, []store.Ack{{Lease: r.Lease(), Result: r.finalResult()}})
	if err == nil {
		r.inTx.Store(true)
	}
	return err
}

// cancelCause returns why the handler was cancelled, or nil.
func (r *Run) cancelCause() error { return r.ctx.cause() }

// cancel cancels the context of the handler.
func (r *Run) cancel(cause error) { r.ctx.cancel(cause) }

// deadline returns when the watch has to look at a running handler. A handler that has finished its job in a transaction needs no heartbeat:
// as long as the transaction is open, nobody else can get the job, and the store can only answer busy. The caller holds the book's lock.
func (r *Run) deadline() time.Time {
	switch {
	case r.cause != nil:
		return r.abandonAt
	case r.leaseEnded || r.inTx.Load() || r.timeoutAt().Before(r.leaseUntil):
		return r.timeoutAt()
	default:
		return r.leaseUntil
	}
}
