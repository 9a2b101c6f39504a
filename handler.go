package jq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/server"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/waited"
)

// A HandlerFunc does the work of a job. Its return value decides what happens to the job:
//
//	nil                    it succeeds, with the result if you set one
//	RetryAfter(d, err)     it is retried after d, if retries are left
//	Never(err)             it is dead
//	Snooze(d)              it is ready again after d, and no retry is counted
//	SnoozeBecause(d, err)  the same as Snooze(d), and the history says why
//	any other error        it is retried after its backoff, if retries are left; otherwise it is dead
//
// A panic counts as an error that carries the stack. The server cancels the context when the handler must return. context.Cause then says
// why: [ErrLeaseLost], [ErrLeaseUnknown], [ErrCancelled], [ErrTimeout] or [ErrDrained].
type HandlerFunc func(ctx context.Context, run *Run) error

// A Middleware wraps handlers, for example to log or to measure them: register it with [Handlers.Use], and call next in it.
type Middleware func(next HandlerFunc) HandlerFunc

// Handlers have a handler for each kind of job. The zero value is ready to use. Register all handlers before you give Handlers
// to a server: a later change panics, and so does a handler or a middleware that is nil.
type Handlers struct {
	mu         sync.Mutex // guards what follows
	byKind     map[string]HandlerFunc
	otherwise  HandlerFunc
	middleware []Middleware
	lookup     server.Lookup // the table given to servers, or nil while handlers are registered
}

// Handle registers the handler of the payload's kind. If a payload cannot be decoded, the run fails and is tried again like any
// other: a newer version of the program may be able to decode it. Handle panics if the kind is registered already, or if the
// type does not know its kind without a value, as [Raw] does not: use [Handlers.Func] for those.
func Handle[P Payload](h *Handlers, handle func(ctx context.Context, run *Run, payload P) error) {
	kind := kindOf[P]()
	if handle == nil {
		panic(noHandler("kind " + kind))
	}
	h.Func(kind, func(ctx context.Context, run *Run) error {
		var payload P
		if err := run.Decode(&payload); err != nil {
			return err
		}
		return handle(ctx, run, payload)
	})
}

// Func registers the handler of a kind by its name, for a payload whose type is not known.
func (h *Handlers) Func(kind string, handle HandlerFunc) {
	what := "kind " + kind
	switch {
	case kind == "":
		panic("jq: Func needs a kind; Otherwise registers a handler for all kinds without one")
	case handle == nil:
		panic(noHandler(what))
	}
	h.change(what, func() {
		if h.byKind[kind] != nil {
			panic(fmt.Sprintf("jq: kind %q already has a handler", kind))
		}
		if h.byKind == nil {
			h.byKind = map[string]HandlerFunc{}
		}
		h.byKind[kind] = handle
	})
}

// Otherwise registers the handler of all kinds that have no handler of their own. Without it, jobs of those kinds are left to
// other servers.
func (h *Handlers) Otherwise(handle HandlerFunc) {
	if handle == nil {
		panic(noHandler("Otherwise"))
	}
	h.change("Otherwise", func() { h.otherwise = handle })
}

func noHandler(what string) string { return "jq: " + what + ": the handler is nil" }

// Use wraps every handler in middleware, also handlers that were registered before. The first middleware is outermost.
func (h *Handlers) Use(middleware ...Middleware) {
	if slices.ContainsFunc(middleware, func(m Middleware) bool { return m == nil }) {
		panic("jq: Use: a middleware is nil")
	}
	h.change("Use", func() { h.middleware = append(h.middleware, middleware...) })
}

func (h *Handlers) change(what string, change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lookup != nil {
		panic("jq: " + what + " comes too late: a server already uses these handlers")
	}
	change()
}

func (h *Handlers) empty() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.byKind) == 0 && h.otherwise == nil
}

// seal ends the registration and returns the table for servers. All servers get the same table, so each handler is wrapped once.
func (h *Handlers) seal() server.Lookup {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lookup == nil {
		h.lookup = h.table()
	}
	return h.lookup
}

func (h *Handlers) table() server.Lookup {
	table := map[string]server.Handler{}
	for kind, handle := range h.byKind {
		table[kind] = h.wrap(handle)
	}
	var otherwise server.Handler
	if h.otherwise != nil {
		otherwise = h.wrap(h.otherwise)
	}
	return func(kind string) (server.Handler, bool) {
		if handle, ok := table[kind]; ok {
			return handle, true
		}
		return otherwise, otherwise != nil
	}
}

func (h *Handlers) wrap(handle HandlerFunc) server.Handler {
	for _, around := range slices.Backward(h.middleware) {
		if handle = around(handle); handle == nil {
			panic("jq: a middleware returned a nil handler")
		}
	}
	return func(ctx context.Context, live *server.Run) error {
		return handle(ctx, live.Holder.(*Run))
	}
}

// RunJob runs one job that you have claimed without a server, in the caller's goroutine, and writes how it ended. It is for
// tests, and for processes that are started for a single job. It sends no heartbeats, so the lease must be long enough. The
// job's timeout and the end of the context tell the handler to stop, and RunJob waits until it returns. A job without a handler
// is an error and stays in flight until its lease expires.
func (h *Handlers) RunJob(ctx context.Context, s Store, job Job) (Outcome, error) {
	return server.Once(ctx, s, h.seal(), slab, job)
}

// A Run is one run of a job: the job as it was claimed, with its token, and the calls that its handler can make.
//
// The job is a copy. If a middleware changes it, for example to decrypt the payload, the handlers inside see the change, and
// the server does not.
type Run struct {
	Job

	live *server.Run
}

// slab makes runs for a server.
func slab(runs []*server.Run) {
	type both struct {
		run  Run
		live server.Run
	}
	slab := make([]both, len(runs))
	for i := range slab {
		b := &slab[i]
		b.run.live, b.live.Job, b.live.Holder = &b.live, &b.run.Job, &b.run
		runs[i] = &b.live
	}
}

// RunFrom returns the run whose handler got the context, or nil. With it, a function deep down can get the lease,
// RunFrom(ctx).Lease(), and pass its token to a store outside the queue that refuses older runs. The run is a copy, and its ID,
// token, queue, kind and payload are as claimed, even if a middleware has changed those that the handler sees.
func RunFrom(ctx context.Context) *Run {
	live := server.From(ctx)
	if live == nil {
		return nil
	}
	run := &Run{Job: *live.Job, live: live}
	run.ID, run.Token, run.Queue, run.Kind, run.Payload = live.ID, live.Token, live.Queue, live.Kind, live.Payload
	return run
}

// Decode decodes the payload.
func (r *Run) Decode(into any) error {
	if err := json.Unmarshal(r.Payload, into); err != nil {
		return fmt.Errorf("jq: the payload of kind %q does not decode into %T: %w", r.Kind, into, err)
	}
	return nil
}

// SetResult sets the job's result, as JSON. It is kept if the handler succeeds. A result of more than 1 MiB fails the job for
// good.
func (r *Run) SetResult(v any) error {
	doc, err := document(v)
	if err != nil {
		return fmt.Errorf("jq: the result is not JSON: %w", err)
	}
	r.live.SetResult(doc)
	return nil
}

// SaveCheckpoint stores the value, as JSON, for the next attempt, which reads it with [Run.LoadCheckpoint]. When it returns
// nil, the checkpoint is stored. If another run may have the job by now, the error is ErrStaleLease.
func (r *Run) SaveCheckpoint(ctx context.Context, v any) error {
	doc, err := document(v)
	if err != nil {
		return fmt.Errorf("jq: the checkpoint is not JSON: %w", err)
	}
	return r.live.Save(ctx, doc, nil)
}

// LoadCheckpoint reads the latest checkpoint of an earlier attempt, and reports whether there is one.
func (r *Run) LoadCheckpoint(into any) (bool, error) {
	if len(r.Checkpoint) == 0 {
		return false, nil
	}
	if err := json.Unmarshal(r.Checkpoint, into); err != nil {
		return false, fmt.Errorf("jq: the checkpoint of job %d does not decode into %T: %w", r.ID, into, err)
	}
	return true, nil
}

// WaitedFor returns the jobs that this one has waited for by their ids, in the order of its waits. [Result] reads the result of one. They
// come without their tokens. A job that was deleted meanwhile has nothing but its ID: succeeded jobs are deleted after a day by default.
//
// It asks the store for each call, while this run holds the lease: the error is ErrStaleLease if it does not any more. Through a server, a
// worker's token is enough. If the token is limited to queues, jobs of other queues are left out, and so are jobs that were deleted.
func (r *Run) WaitedFor(ctx context.Context) ([]Job, error) {
	var ids []int64
	known, err := byID(pages(func(page Page) (JobPage, error) {
		found, err := r.waitedFor(ctx, page, false)
		ids = waitedIDs(found.Waits)
		return found.JobPage, err
	}))
	return inOrder(ids, known), err
}

// WaitedForGroups iterates over the jobs of the groups that this one has waited for, the newest of each group first. It reads them page by
// page, and otherwise works as [Run.WaitedFor]. After an error it yields nothing more.
func (r *Run) WaitedForGroups(ctx context.Context) iter.Seq2[Job, error] {
	return pages(func(page Page) (JobPage, error) {
		found, err := r.waitedFor(ctx, page, true)
		return found.JobPage, err
	})
}

func (r *Run) waitedFor(ctx context.Context, page Page, groups bool) (waited.Page, error) {
	return waited.Jobs(ctx, r.live.Store(), waited.Request{Lease: r.live.Lease(), Groups: groups, Page: page})
}

// SaveProgress stores the value, as JSON, for people to see.
func (r *Run) SaveProgress(ctx context.Context, v any) error {
	doc, err := document(v)
	if err != nil {
		return fmt.Errorf("jq: the progress is not JSON: %w", err)
	}
	return r.live.Save(ctx, nil, doc)
}

// FinishTx finishes the job in the handler's own SQL transaction, with the result that was set before. So the handler's writes
// and the end of the job are committed together, exactly once. If the lease was lost meanwhile, the error is ErrStaleLease, and
// you must roll back. Anything but an open transaction, such as a *sql.DB, is refused with ErrInvalid.
//
// Finish last, then commit, then return nil. Until the commit the job is locked: its lease cannot be extended, and no other
// worker can get the job, however long that takes. The timeout still applies. If the transaction was not committed, the job
// fails although the handler returned nil. After a rollback, nothing tells the handler that its lease has ended: return soon. A
// commit can be in doubt here as for [Client.EnqueueTx].
func (r *Run) FinishTx(ctx context.Context, tx Tx) error { return r.live.FinishTx(ctx, tx) }

// Why a handler's context was cancelled, by context.Cause.
var (
	// ErrLeaseLost means that the store has ended the lease. The job may be running elsewhere, and the store refuses what this run writes.
	ErrLeaseLost = server.ErrLeaseLost
	// ErrLeaseUnknown means that the store did not answer for the length of the lease, so the job may be running elsewhere. If the handler
	// still finishes, its result is offered to the store.
	ErrLeaseUnknown = server.ErrLeaseUnknown
	// ErrCancelled means that the job was cancelled: about a second ago at most, or one heartbeat if the store's wake-up was lost.
	ErrCancelled = server.ErrCancelled
	// ErrTimeout means that the run took longer than the job's timeout. The run has failed, whatever the handler returns.
	ErrTimeout = server.ErrTimeout
	// ErrDrained means that the server is stopping and its drain timeout is over, or that its store was closed.
	ErrDrained = server.ErrDrained
)

// Never returns an error that makes the job dead: it is not retried.
func Never(err error) error { return &server.Wish{Form: store.Never, Err: orUnknown(err)} }

// RetryAfter returns an error that retries the job after exactly d, if retries are left. A negative d, such as time.Until of a moment that
// has passed, means at once.
func RetryAfter(d time.Duration, err error) error {
	return &server.Wish{Form: store.After, Delay: max(0, d), Err: orUnknown(err)}
}

// Snooze returns an error that makes the job ready again after d. The run does not count as a failure. A negative d, such as time.Until of
// a moment that has passed, means at once.
func Snooze(d time.Duration) error { return &server.Wish{Form: store.Snooze, Delay: max(0, d)} }

// SnoozeBecause is [Snooze] with a reason. The job's history shows the reason with the run. The job's Error does not change, because it is
// for failures.
func SnoozeBecause(d time.Duration, err error) error {
	return &server.Wish{Form: store.Snooze, Delay: max(0, d), Err: orUnknown(err)}
}

// IsSnooze returns whether the error is that of [Snooze] or [SnoozeBecause]. Middleware should not count it as a failure.
func IsSnooze(err error) bool {
	wish, ok := errors.AsType[*server.Wish](err)
	return ok && wish.Form == store.Snooze
}

func orUnknown(err error) error {
	if err == nil {
		return errors.New("no reason given")
	}
	return err
}
