package jq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/server"
	"github.com/seed-ed332417/jq/internal/store"
)

// A HandlerFunc does the work of a job. What it returns decides what becomes of the job:
//
//	nil                  succeeded, with the result if one was set
//	RetryAfter(d, err)   tried again after d, if retries are left
//	Never(err)           dead
//	Snooze(d)            ready again after d, and nothing counted
//	any other error      tried again after the job's backoff, if retries are left; else dead
//
// A panic is an error that carries the stack. The context is cancelled when the handler has to stop; context.Cause says why:
// [ErrLeaseLost], [ErrLeaseUnknown], [ErrCancelled], [ErrTimeout] or [ErrDrained].
type HandlerFunc func(ctx context.Context, run *Run) error

// A Middleware stands around handlers.
type Middleware func(next HandlerFunc) HandlerFunc

// Handlers say what to do with which kind of job. The zero value is ready to use. They are filled first, and given to servers
// then: a change after that panics, and so does a handler or a middleware that is nil.
type Handlers struct {
	mu         sync.Mutex // guards what follows
	byKind     map[string]HandlerFunc
	otherwise  HandlerFunc
	middleware []Middleware
	lookup     server.Lookup // what servers were given, or nil: then the filling goes on
}

// Handle registers the handler of the payload's kind. A payload that can not be decoded is an error like any other: a newer
// version of the program may know better. Registering a kind twice panics, and so does a type that does not know its kind
// without a value, such as [Raw]: [Handlers.Func] is for those.
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

// Func registers the handler of a kind that is known by name only.
func (h *Handlers) Func(kind string, handle HandlerFunc) {
	what := "kind " + kind
	switch {
	case kind == "":
		panic("jq: a handler needs the kind that it is for; Otherwise registers one for all kinds that have none of their own")
	case handle == nil:
		panic(noHandler(what))
	}
	h.change(what, func() {
		if h.byKind[kind] != nil {
			panic(fmt.Sprintf("jq: kind %q has a handler already", kind))
		}
		if h.byKind == nil {
			h.byKind = map[string]HandlerFunc{}
		}
		h.byKind[kind] = handle
	})
}

// Otherwise registers the handler of all kinds that have none of their own. Without it they are left to other servers.
func (h *Handlers) Otherwise(handle HandlerFunc) {
	if handle == nil {
		panic(noHandler("Otherwise"))
	}
	h.change("Otherwise", func() { h.otherwise = handle })
}

func noHandler(what string) string { return "jq: " + what + ": the handler is nil" }

// Use puts middleware around every handler, those registered before and after. The first one stands outermost.
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
		panic("jq: " + what + " comes too late: these handlers were given to a server")
	}
	change()
}

func (h *Handlers) empty() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.byKind) == 0 && h.otherwise == nil
}

// seal ends the filling and is the table as servers use it, the same for all of them: middleware is put around a handler once.
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
			panic("jq: a middleware has returned no handler")
		}
	}
	return func(ctx context.Context, live *server.Run) error {
		return handle(ctx, &Run{Job: live.Job, live: live})
	}
}

// RunJob runs one job that was claimed by other means than a server, in the caller's goroutine, and writes how it ended: for
// tests, and for processes that are started for a single job. There is no heartbeat: the lease has to last. The job's timeout
// and the end of the context tell the handler to stop; until it returns, RunJob waits for it. A kind without a handler is an error, and leaves the job to its lease.
func (h *Handlers) RunJob(ctx context.Context, s Store, job Job) (Outcome, error) {
	return server.Once(ctx, s, h.seal(), job)
}

// A Run is one run of a job: the job as it was claimed, with its token, and what its handler can do besides returning.
//
// The job is a copy. What a middleware changes in it, as one that decrypts payloads, the handlers inside see; the server goes by
// what it has claimed.
type Run struct {
	Job

	live *server.Run
}

// RunFrom is the run whose handler was given the context, or nil. So a function deep down can ask for the token with which
// a store outside the queue refuses an older run: RunFrom(ctx).Lease().
func RunFrom(ctx context.Context) *Run {
	live := server.From(ctx)
	if live == nil {
		return nil
	}
	return &Run{Job: live.Job, live: live}
}

// Decode reads the payload.
func (r *Run) Decode(into any) error {
	if err := json.Unmarshal(r.Payload, into); err != nil {
		return fmt.Errorf("jq: the payload of kind %q is no %T: %w", r.Kind, into, err)
	}
	return nil
}

// SetResult keeps the value, as JSON, as the job's result if the handler succeeds. More than 1 MiB of it fails the job for
// good.
func (r *Run) SetResult(v any) error {
	doc, err := document(v)
	if err != nil {
		return fmt.Errorf("jq: the result is no JSON: %w", err)
	}
	r.live.SetResult(doc)
	return nil
}

// SaveCheckpoint keeps the value, as JSON, for the next attempt: [Run.LoadCheckpoint] reads it there. When it returns nil the
// checkpoint is stored; ErrStaleLease says that the job is not this run's any more.
func (r *Run) SaveCheckpoint(ctx context.Context, v any) error {
	doc, err := document(v)
	if err != nil {
		return fmt.Errorf("jq: the checkpoint is no JSON: %w", err)
	}
	return r.live.Save(ctx, doc, nil)
}

// LoadCheckpoint reads what an earlier attempt has saved, and says whether there is anything.
func (r *Run) LoadCheckpoint(into any) (bool, error) {
	if len(r.Checkpoint) == 0 {
		return false, nil
	}
	if err := json.Unmarshal(r.Checkpoint, into); err != nil {
		return false, fmt.Errorf("jq: the checkpoint of job %d is no %T: %w", r.ID, into, err)
	}
	return true, nil
}

// SaveProgress keeps the value, as JSON, for people to see.
func (r *Run) SaveProgress(ctx context.Context, v any) error {
	doc, err := document(v)
	if err != nil {
		return fmt.Errorf("jq: the progress is no JSON: %w", err)
	}
	return r.live.Save(ctx, nil, doc)
}

// FinishTx finishes the job in the handler's own SQL transaction, with the result that was set before: so what the handler
// writes and the end of the job stand or fall together, and it is done exactly once. If the lease was lost meanwhile the error
// is ErrStaleLease, and the transaction must be rolled back. What is no open transaction, such as a *sql.DB, is ErrInvalid.
//
// Finish last, then commit, then return nil. Until the commit the job is locked: its lease can not be extended, and nobody else
// can get it, however long that takes; the timeout goes on. If the transaction was not committed in the end, the job fails
// although the handler returned nil. What EnqueueTx says of the Commit holds here too.
func (r *Run) FinishTx(ctx context.Context, tx Tx) error { return r.live.FinishTx(ctx, tx) }

// Why a handler's context was cancelled, by context.Cause.
var (
	// ErrLeaseLost says that the store has ended the lease: the job may be running elsewhere, and what this run writes is
	// refused.
	ErrLeaseLost = server.ErrLeaseLost
	// ErrLeaseUnknown says that the store was not heard of for a whole lease, so that the job may be running elsewhere. If
	// the handler finishes all the same, its result is offered to the store.
	ErrLeaseUnknown = server.ErrLeaseUnknown
	// ErrCancelled says that the job was cancelled.
	ErrCancelled = server.ErrCancelled
	// ErrTimeout says that the run took longer than the job's timeout. Whatever the handler returns, the run has failed.
	ErrTimeout = server.ErrTimeout
	// ErrDrained says that the server is stopping, and has waited for as long as it was told to, or that its store was closed.
	ErrDrained = server.ErrDrained
)

// Never is an error that lets the job be tried no more: it is dead.
func Never(err error) error { return &server.Wish{Form: store.Never, Err: orUnknown(err)} }

// RetryAfter is an error that lets the job be tried again after exactly d, if retries are left. A negative d means at once, as
// time.Until says of a moment that has passed.
func RetryAfter(d time.Duration, err error) error {
	return &server.Wish{Form: store.After, Delay: max(0, d), Err: orUnknown(err)}
}

// Snooze puts the job off: it is ready again after d, and this run does not count as a failure. A negative d means at once, as
// time.Until says of a moment that has passed.
func Snooze(d time.Duration) error { return &server.Wish{Form: store.Snooze, Delay: max(0, d)} }

// IsSnooze says whether the error is that of [Snooze]: middleware should not take it for a failure.
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
