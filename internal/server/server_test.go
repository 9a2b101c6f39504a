package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/bubble"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
)

// A world is a memory store and a server on it, in a bubble of virtual time.
type world struct {
	*testing.T
	store    *memory.Store
	handlers map[string]Handler
	log      *logs
}

// fence ends every lease in force.
func (w *world) fence() {
	w.Helper()
	_, err := w.store.Fence(w.Context(), store.FenceRequest{EndLeases: true})
	require.NoError(w, err)
}

// inWorld runs the test in virtual time.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		w := &world{T: t, store: memory.New(memory.Options{}), handlers: map[string]Handler{}, log: &logs{}}
		test(w)
		require.NoError(t, w.store.Close())
	})
}

// start starts a server on the store, or on another one that wraps it.
func (w *world) start(o Options, on ...store.Store) *Server {
	w.Helper()
	s := w.server(o, on...)
	require.NoError(w, s.Start(w.Context()))
	synctest.Wait()
	return s
}

func (w *world) server(o Options, on ...store.Store) *Server {
	w.Helper()
	var st store.Store = w.store
	if len(on) > 0 {
		st = on[0]
	}
	if o.Logger == nil {
		o.Logger = slog.New(w.log)
	}
	s, err := New(st, func(kind string) (Handler, bool) { h, ok := w.handlers[kind]; return h, ok }, o)
	require.NoError(w, err)
	return s
}

func (w *world) stop(s *Server) {
	w.Helper()
	require.NoError(w, s.Stop(w.Context()))
}

// enqueue adds jobs of the kind, after changing each.
func (w *world) enqueue(n int, kind string, change ...func(*store.NewJob)) []int64 {
	w.Helper()
	req := store.EnqueueRequest{Jobs: make([]store.NewJob, n)}
	for i := range req.Jobs {
		req.Jobs[i] = store.NewJob{
			Queue: DefaultQueue, Kind: kind, Payload: []byte("{}"), MaxRetries: 3,
			Backoff: store.Backoff{Base: time.Second, Cap: time.Hour},
		}
		for _, c := range change {
			c(&req.Jobs[i])
		}
	}
	added, err := w.store.Enqueue(w.Context(), req)
	require.NoError(w, err)
	ids := make([]int64, n)
	for i, a := range added {
		ids[i] = a.ID
	}
	return ids
}

// job returns the job as it is, with its history.
func (w *world) job(id int64) store.JobDetail {
	w.Helper()
	j, err := w.store.Get(w.Context(), id)
	require.NoError(w, err)
	return j
}

// wait lets time pass, and everything happen that is due by then.
func (w *world) wait(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}

// logs keeps what was logged.
type logs struct {
	mu      sync.Mutex // guards records
	records []slog.Record
}

func (l *logs) Enabled(context.Context, slog.Level) bool { return true }
func (l *logs) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logs) WithGroup(string) slog.Handler            { return l }

func (l *logs) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, r)
	return nil
}

// said returns how often the message was logged.
func (l *logs) said(message string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, r := range l.records {
		if r.Message == message {
			n++
		}
	}
	return n
}

func TestJobsAreRunOnceEach(t *testing.T) {
	inWorld(t, func(w *world) {
		var mu sync.Mutex // guards ran
		ran := map[int64]int{}
		w.handlers["count"] = func(_ context.Context, r *Run) error {
			mu.Lock()
			defer mu.Unlock()
			ran[r.ID]++
			r.SetResult([]byte(fmt.Sprint(r.ID)))
			return nil
		}
		ids := w.enqueue(100, "count")
		s := w.start(Options{})
		w.wait(time.Second)
		for _, id := range ids {
			require.Equal(t, 1, ran[id])
			j := w.job(id)
			require.Equal(t, store.Succeeded, j.State)
			require.Equal(t, fmt.Sprint(id), string(j.Result))
		}
		assert.NoError(t, s.Ready())
		assert.Equal(t, Stats{Slots: DefaultSlots}, s.Stats())
		w.stop(s)
	})
}

func TestFailedJobIsTriedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["fail"] = func(context.Context, *Run) error { return errors.New("no luck") }
		id := w.enqueue(1, "fail")[0]
		s := w.start(Options{})
		w.wait(time.Minute)
		j := w.job(id)
		assert.Equal(t, store.Dead, j.Phase())
		assert.Equal(t, 4, j.Attempts)
		assert.Equal(t, "no luck", j.Error)
		w.stop(s)
	})
}
