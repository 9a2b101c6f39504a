package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/store"
)

// A worker is a server on the queue of the run.
type worker struct {
	*tally
	run    *run
	server *jq.Server
}

// never is longer than any lease or retention: the server looks for expired leases and old jobs, as every server does, but
// finds none.
const never = store.MaxDuration

// work returns a worker that is not started yet.
func (r *run) work(handle jq.HandlerFunc, t *tally) (*worker, error) {
	return r.workAs(unlisted(r.store), r.queue, handle, t)
}

func (r *run) workAs(s jq.Store, name string, handle jq.HandlerFunc, t *tally) (*worker, error) {
	var handlers jq.Handlers
	handlers.Func(kind, handle)
	server, err := jq.NewServer(s, &handlers, &jq.ServerOptions{
		Name: name, Queues: map[string]jq.QueueOptions{r.queue: {}}, Slots: r.o.Concurrency, Claim: jq.ClaimOptions{Buffer: max(0, r.o.Buffer)},
		Recovery: jq.RecoveryOptions{Grace: never}, Retention: jq.RetentionOptions{Interval: -1},
		Logger: slog.New(slog.DiscardHandler), Observer: t,
	})
	if err != nil {
		return nil, err
	}
	return &worker{tally: t, run: r, server: server}, nil
}

// nothing is the handler of most workloads.
func nothing(context.Context, *jq.Run) error { return nil }

// unlisted hides the store's list of workers, where the row of a finished run would stay for a day.
func unlisted(s jq.Store) jq.Store {
	type bare struct{ jq.Store }
	if notifier, ok := s.(store.Notifier); ok {
		return struct {
			bare
			store.Notifier
		}{bare{s}, notifier}
	}
	return bare{s}
}

// stop stops the server, even if the context has ended.
func (w *worker) stop(ctx context.Context) error { return w.server.Stop(context.WithoutCancel(ctx)) }

// How long to wait while nothing happens: before looking into the store, and before giving up.
const (
	still = time.Second
	stuck = time.Minute
)

// await waits until that many jobs have succeeded, or none is left that could. verify then finds those that are missing.
func (w *worker) await(ctx context.Context, jobs int64) error {
	all := w.expect(jobs)
	look := time.NewTicker(still)
	defer look.Stop()
	for seen, since := w.seen(), time.Now(); ; {
		select {
		case <-all:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
		if now := w.seen(); now != seen {
			seen, since = now, time.Now()
			continue
		}
		switch left, err := w.run.live(ctx); {
		case err != nil:
			return err
		case left == 0:
			return nil
		case time.Since(since) >= stuck:
			return fmt.Errorf("%d of %d jobs have succeeded, and nothing has happened for %v", w.succeeded.Load(), jobs, stuck)
		}
	}
}

// finish waits until that many jobs have succeeded, ends the measurement, and stops the server.
func (w *worker) finish(ctx context.Context, m *meter, jobs int64) ([]Figure, error) {
	if err := w.await(ctx, jobs); err != nil {
		return nil, err
	}
	figures, err := m.stop(ctx)
	if err != nil {
		return nil, err
	}
	return figures, w.stop(ctx)
}

// A tally counts the successes that the store has accepted.
type tally struct {
	jq.NopObserver
	succeeded atomic.Int64
	wanted    atomic.Int64
	once      sync.Once
	aside     atomic.Int64      // successes of other jobs, which nobody waits for
	counts    func(jq.Job) bool // or nil; which jobs are not such
	ended     func(jq.Job)      // or nil; is called before the success is counted
	all       chan struct{}     // closed when as many have succeeded as wanted

	of      int64         // jobs per credit
	credits chan struct{} // or nil
}

func newTally() *tally {
	t := &tally{all: make(chan struct{})}
	t.wanted.Store(math.MaxInt64)
	return t
}

// seen returns how many jobs have succeeded, also those that nobody waits for.
func (t *tally) seen() int64 { return t.succeeded.Load() + t.aside.Load() }

// lend gives producers that many credits for of jobs each, and returns one for every of successes. This limits how many jobs
// wait.
func (t *tally) lend(credits, of int) {
	t.of, t.credits = int64(of), make(chan struct{}, credits)
	for range credits {
		t.credits <- struct{}{}
	}
}

// expect returns a channel that is closed when that many jobs have succeeded.
func (t *tally) expect(jobs int64) <-chan struct{} {
	t.wanted.Store(jobs)
	t.reached(t.succeeded.Load())
	return t.all
}

func (t *tally) reached(jobs int64) {
	if jobs >= t.wanted.Load() {
		t.once.Do(func() { close(t.all) })
	}
}

// Ended is part of jq.Observer.
func (t *tally) Ended(job jq.Job, _ jq.Ending, phase jq.State, _ time.Duration) {
	if phase != jq.Succeeded {
		return
	}
	if t.counts != nil && !t.counts(job) {
		t.aside.Add(1)
		return
	}
	if t.ended != nil {
		t.ended(job)
	}
	n := t.succeeded.Add(1)
	t.reached(n)
	if t.credits != nil && n%t.of == 0 {
		select {
		case t.credits <- struct{}{}:
		default: // a job has succeeded twice, which verify will find
		}
	}
}

// stopped stops the worker and joins its error to err.
func stopped(ctx context.Context, w *worker, err *error) { *err = errors.Join(*err, w.stop(ctx)) }
