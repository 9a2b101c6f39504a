package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A Handler does the work of a job. Its return value decides what happens to the job: see verdictOf.
type Handler func(ctx context.Context, r *Run) error

// A Run is one run of a job. The server holds it from the claim until the store has answered the write of its verdict. What the server
// itself needs to know of the job is in the first fields, because the job belongs to the handler.
type Run struct {
	ID, Token   int64
	Queue, Kind string
	Payload     []byte
	Job         *store.Job // as it was claimed, until the handler changes it: only the handler may read it once it runs
	Holder      any        // set by the Slab, for its handlers

	seen    *store.Job // as it was claimed, for the observer; nil if there is none
	holder  runHolder
	timeout time.Duration
	ctx     runContext // the handler's context

	seq atomic.Int64 // sequence number of the latest save

	result *[]byte // nil unless the handler has set it; ctx.mu guards it

	attempt int32       // its number, from one
	inTx    atomic.Bool // the handler has finished the job in a transaction of its own

	// The book's lock guards what follows. The narrow fields stand together, which keeps a run small.
	index      int32 // in the book's runs, counted from one; zero if it is not there
	stage      stage
	leaseEnded bool // heartbeats leave it out: its lease is lost, or its handler has finished the job
	leaseLost  bool // the store has reported it
	abandoned  bool
	slotReused bool // abandoned, and another run got its slot

	startedAt    time.Time  // zero if it has not started
	leaseUntil   time.Time  // when the lease expires by this process's clock, unless a heartbeat extends it
	cancellation *cancelled // nil if the handler was not cancelled

	// The committer owns what follows once the run has ended.
	verdict *verdict      // nil until the run has ended; shared by runs that end alike, so nobody may change it
	ran     time.Duration // how long the handler ran; zero if it never started
	trouble *trouble      // nil if its verdict was written at once
}

// A cancelled says why and until when the server waits for a handler that it has cancelled.
type cancelled struct {
	cause     error
	abandonAt time.Time
}

// A trouble says why a verdict could not be written at once.
type trouble struct {
	delays         int       // how often the write was delayed
	refusals       int       // how often the store has refused the verdict while it was reachable
	firstRefusalAt time.Time // when the store refused it first
	writesBefore   int       // how many writes of this operation had succeeded by then
	writeAt        time.Time // until when the write is delayed
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

// Store returns the store that has the job.
func (r *Run) Store() store.Store { return r.holder.backend() }

type runKey struct{}

// A Slab fills the slice with new runs, each with memory for its Job. They should all be one allocation, together with what the handlers
// of the caller need for each run.
type Slab func(runs []*Run)

// plainSlab adds nothing to a run.
func plainSlab(runs []*Run) {
	type both struct {
		run Run
		job store.Job
	}
	slab := make([]both, len(runs))
	for i := range slab {
		runs[i] = &slab[i].run
		runs[i].Job = &slab[i].job
	}
}

const (
	maxSlabRuns  = 23       // jq's runs then fill a size class of the allocator
	maxSlabBytes = 16 << 10 // of documents, unless a single job has more
)

// slabOf returns how many of the jobs can share a slab. There must be one. A slab stays in memory as long as one of its handlers runs.
func slabOf(jobs []store.Job) int {
	n, weight := 1, jobs[0].Weight()
	for n < min(len(jobs), maxSlabRuns) {
		if weight += jobs[n].Weight(); weight > maxSlabBytes {
			break
		}
		n++
	}
	return n
}

// newRuns returns the runs of jobs that were just claimed. It copies the jobs. The context of each run has the values of base.
func newRuns(base context.Context, slab Slab, k runHolder, jobs []store.Job, timeout time.Duration) []*Run {
	runs := make([]*Run, len(jobs))
	for from := 0; from < len(jobs); {
		to := from + slabOf(jobs[from:])
		slab(runs[from:to])
		for i := from; i < to; i++ {
			runs[i].begin(base, k, &jobs[i], timeout)
		}
		from = to
	}
	return runs
}

func (r *Run) begin(base context.Context, k runHolder, job *store.Job, timeout time.Duration) {
	*r.Job = *job
	r.ID, r.Token, r.Queue, r.Kind, r.Payload = job.ID, job.Token, job.Queue, job.Kind, job.Payload
	r.holder, r.timeout, r.attempt = k, timeout, int32(job.Attempts)
	if job.Timeout > 0 {
		r.timeout = job.Timeout
	}
	r.ctx.base, r.ctx.run = base, r
}

// Lease returns the lease under which the run has its job.
func (r *Run) Lease() store.Lease { return store.Lease{ID: r.ID, Token: r.Token} }

// cause returns why the book has cancelled the handler, or nil. The caller holds the book's lock.
func (r *Run) cause() error {
	if r.cancellation == nil {
		return nil
	}
	return r.cancellation.cause
}

// delays returns how often the write of the verdict was delayed.
func (r *Run) delays() int {
	if r.trouble == nil {
		return 0
	}
	return r.trouble.delays
}

// troubled returns what the run has to say about its trouble, for the first time if it had none.
func (r *Run) troubled() *trouble {
	if r.trouble == nil {
		r.trouble = &trouble{}
	}
	return r.trouble
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
	doc = bytes.Clone(doc) // the handler may reuse its buffer, and the result is written later
	r.result = &doc
}

func (r *Run) finalResult() []byte {
	r.ctx.mu.Lock()
	defer r.ctx.mu.Unlock()
	if r.result == nil {
		return nil
	}
	return *r.result
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
	switch {
	case err == nil:
		r.inTx.Store(true)
	case errors.Is(err, store.ErrStaleLease):
		return fmt.Errorf("job %d: %w: roll back, because another run may have the job", r.ID, store.ErrStaleLease)
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
	case r.cancellation != nil:
		return r.cancellation.abandonAt
	case r.leaseEnded || r.inTx.Load() || r.timeoutAt().Before(r.leaseUntil):
		return r.timeoutAt()
	default:
		return r.leaseUntil
	}
}
