// Package await waits for jobs to end.
//
// A watch looks at a job once a second, and at once when somebody in this process tells it of an end. All waiters of the same job
// share a watch. Nothing is held in the store between two looks.
package await

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	pause     = time.Second // from the start of one look to the next
	longest   = time.Minute // of one look: a call that hangs is given up
	unchanged = "jq: waited for the end of job %d, which has not come: %w"
)

// A poller is a store that can wait for the end of a job by itself. AwaitEnd returns the job once it has ended, or as it is after a time
// below a minute.
type poller interface {
	AwaitEnd(ctx context.Context, id int64) (store.JobDetail, error)
}

// Until waits until the job has succeeded, is dead or is cancelled, and returns it as it was at that look. A job that is requeued
// between two looks may be missed. Until looks at least once, and no look that began before the call counts.
//
// It returns ErrNotFound if the job does not exist, and ErrClosed within a second after the store was closed. While the store is
// unavailable, it goes on. If the context ends, it returns an error that matches the context's own, and also ErrUnavailable if the
// latest look failed. The clock measures the pauses; a job that others wait for already has the clock of the first of them.
func Until(ctx context.Context, c clock.Clock, s store.Store, id int64) (store.JobDetail, error) {
	j, err := Shared(ctx, c, s, id)
	for _, doc := range []*[]byte{&j.Payload, &j.Checkpoint, &j.Progress, &j.Result} {
		*doc = bytes.Clone(*doc)
	}
	return j, err
}

// Shared is Until for callers that do not change the documents of the job: all who have waited for it get the same ones.
func Shared(ctx context.Context, c clock.Clock, s store.Store, id int64) (store.JobDetail, error) {
	if err := ctx.Err(); err != nil {
		return store.JobDetail{}, fmt.Errorf(unchanged, id, err)
	}
	w, me := all.join(c, s, id)
	select {
	case end := <-me.end:
		_ = all.leave(w, me)
		j := end.job
		j.Tags, j.History, j.Extras = slices.Clone(j.Tags), slices.Clone(j.History), j.Extras.Clone()
		return j, end.err
	case <-ctx.Done():
		if failed := all.leave(w, me); failed != nil {
			return store.JobDetail{}, fmt.Errorf(unchanged+"; the latest look failed: %w", id, ctx.Err(), failed)
		}
		return store.JobDetail{}, fmt.Errorf(unchanged, id, ctx.Err())
	}
}

// Tell tells the waiters in this process of the jobs that have ended or are gone according to the outcomes of a call of the store.
// Without waiters it costs one atomic read.
func Tell(s store.Store, outcomes []store.Outcome) {
	all.tell(s, len(outcomes), func(i int) (int64, bool) {
		o := &outcomes[i]
		written := o.Status == store.StatusOK || o.Status == store.StatusFinished
		return o.ID, written && o.Next.IsZero() // a job that goes on has a next time
	})
}

// TellRecovered is Tell for the jobs that a recovery has made dead.
func TellRecovered(s store.Store, recovered []store.Recovered) {
	all.tell(s, len(recovered), func(i int) (int64, bool) { return recovered[i].ID, recovered[i].Next.IsZero() })
}

// TellSettled is Tell for the jobs that a Settle has cancelled.
func TellSettled(s store.Store, settled []store.Settled) {
	all.tell(s, len(settled), func(i int) (int64, bool) { return settled[i].ID, settled[i].State == store.Cancelled })
}

// all are the watches of this process. Client, server and HTTP API meet here, because they have nothing in common but the value of
// their store.
var all = registry{watches: map[key]*watch{}}

type key struct {
	store store.Store
	id    int64
}

type registry struct {
	watched atomic.Int64 // how many watches there are, so that Tell need not lock

	mu      sync.Mutex // guards watches, and the fields of each watch
	watches map[key]*watch
}

// A watch looks at one job while anybody waits for it.
type watch struct {
	key    key
	shared bool          // it is in the registry
	told   chan struct{} // look now
	stop   context.CancelFunc
	gone   chan struct{} // closed when nobody looks any more

	inside int // how many calls of Until use it
	begun  int // the number of the latest look
	failed error
	open   map[*waiter]struct{} // those who have no answer yet
}

type waiter struct {
	after int      // the look that had begun when it joined: only later ones count
	end   chan end // gets one answer
}

// An end is what the look has found that ended the waiting.
type end struct {
	job store.JobDetail // shared by all who waited
	err error
}

// join adds a waiter before it looks, so that no end is missed in between.
func (r *registry) join(c clock.Clock, s store.Store, id int64) (*watch, *waiter) {
	k := key{s, id}
	shared := isKey(s)
	r.mu.Lock()
	defer r.mu.Unlock()
	var w *watch
	if shared {
		w = r.watches[k]
	}
	if w == nil {
		w = &watch{key: k, shared: shared, told: make(chan struct{}, 1), gone: make(chan struct{}), open: map[*waiter]struct{}{}}
		if shared {
			r.watches[k] = w
			r.watched.Add(1)
		}
		var ctx context.Context
		ctx, w.stop = context.WithCancel(context.Background())
		go w.run(ctx, r, c) // the last waiter to leave waits for it
	}
	me := &waiter{after: w.begun, end: make(chan end, 1)}
	w.inside++
	w.open[me] = struct{}{}
	w.tell()
	return w, me
}

// leave removes the waiter and returns the error of the latest look. The last waiter ends the watch.
func (r *registry) leave(w *watch, me *waiter) error {
	r.mu.Lock()
	delete(w.open, me)
	w.inside--
	last, failed := w.inside == 0, w.failed
	if last && w.shared {
		delete(r.watches, w.key)
		r.watched.Add(-1)
	}
	r.mu.Unlock()
	if last {
		w.stop()
		<-w.gone
	}
	return failed
}

func (r *registry) tell(s store.Store, n int, at func(i int) (id int64, ended bool)) {
	if r.watched.Load() == 0 || !isKey(s) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range n {
		if id, ended := at(i); ended {
			if w := r.watches[key{s, id}]; w != nil {
				w.tell()
			}
		}
	}
}

// isKey reports whether the store can be a part of a key. A store in a struct with a slice cannot.
func isKey(s store.Store) bool {
	v := reflect.ValueOf(s)
	return v.Kind() == reflect.Pointer || v.Comparable() // Comparable allocates
}

// tell makes the watch look. If it is looking already, it looks once more.
func (w *watch) tell() {
	select {
	case w.told <- struct{}{}:
	default:
	}
}

func (w *watch) run(ctx context.Context, r *registry, c clock.Clock) {
	defer close(w.gone)
	for {
		again := c.Timer(pause)
		if number, wanted := r.begin(w); wanted {
			job, err := w.look(ctx, c)
			r.finish(w, number, end{job, err})
		}
		select {
		case <-ctx.Done():
			again.Stop()
			return
		case <-w.told:
			again.Stop()
		case <-again.C:
		}
	}
}

// begin returns the number of the look that begins now, and whether anybody needs it. It serves everybody who has told the watch to look
// by now.
func (r *registry) begin(w *watch) (number int, wanted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-w.told:
	default:
	}
	w.begun++
	return w.begun, len(w.open) > 0
}

func (w *watch) look(ctx context.Context, c clock.Clock) (store.JobDetail, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer c.AfterFunc(longest, cancel).Stop()
	if p, ok := w.key.store.(poller); ok {
		return p.AwaitEnd(ctx, w.key.id)
	}
	return w.key.store.Get(ctx, w.key.id)
}

// finish answers those who had joined before the look began, if it has found an end.
func (r *registry) finish(w *watch, number int, e end) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w.failed = e.err
	if e.err == nil && !store.TerminalOf(&e.job.Job) || errors.Is(e.err, store.ErrUnavailable) || errors.Is(e.err, store.ErrInDoubt) {
		return
	}
	for one := range w.open {
		if one.after < number {
			one.end <- e
			delete(w.open, one)
		}
	}
}
