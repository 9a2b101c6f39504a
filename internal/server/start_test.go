package server

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// Start and Stop in any order, and from many goroutines, do what their documentation says.
func TestStartAndStopInAnyOrder(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["second"] = work(time.Second)

		s := w.server(Options{})
		require.ErrorContains(w, s.Ready(), "not started")
		require.NoError(w, s.Stop(w.Context()), "before the start")
		require.NoError(w, s.Stop(w.Context()))
		require.ErrorContains(w, s.Start(w.Context()), "once")
		require.ErrorContains(w, s.Run(w.Context()), "once")

		s = w.start(Options{})
		require.ErrorContains(w, s.Start(w.Context()), "once")
		w.enqueue(1, "second")
		w.wait(time.Millisecond)
		var all []*stopped
		for range 5 {
			all = append(all, beginStop(w, w.Context(), s))
		}
		w.wait(2 * time.Second)
		for _, st := range all {
			done, err, after := st.get()
			require.True(w, done)
			require.NoError(w, err)
			assert.Equal(w, time.Second-time.Millisecond, after)
		}
		require.NoError(w, s.Stop(w.Context()))
		require.ErrorContains(w, s.Start(w.Context()), "once")
		require.ErrorContains(w, s.Ready(), "stopping")
	})
}

// A start and a stop at the same time end with a stopped server.
func TestStartAndStopAtTheSameTime(t *testing.T) {
	for range 50 {
		inWorld(t, func(w *world) {
			s := w.server(Options{})
			var both sync.WaitGroup
			both.Go(func() { _ = s.Start(w.Context()) }) // an error if it comes second
			both.Go(func() { assert.NoError(w, s.Stop(w.Context())) })
			both.Wait()
			require.NoError(w, s.Stop(w.Context()))
			require.ErrorContains(w, s.Ready(), "stopping")
		})
	}
}

// Run works until its context ends, or somebody else stops the server.
func TestRun(t *testing.T) {
	inWorld(t, func(w *world) {
		type key struct{}
		var value any
		w.handlers["value"] = func(ctx context.Context, _ *Run) error {
			value = ctx.Value(key{})
			return work(time.Second)(ctx, nil)
		}
		id := w.enqueue(1, "value")[0]
		ctx, cancel := context.WithCancel(context.WithValue(w.Context(), key{}, "passed on"))
		ended := make(chan error, 1)
		s := w.server(Options{})
		go func() { ended <- s.Run(ctx) }()
		w.wait(time.Millisecond)
		cancel()
		require.NoError(w, <-ended)
		assert.Equal(w, store.Succeeded, w.job(id).State, "the end of the context is not that of the handlers")
		assert.Equal(w, "passed on", value)

		s = w.server(Options{})
		go func() { ended <- s.Run(w.Context()) }()
		w.wait(time.Second)
		require.NoError(w, s.Stop(w.Context()))
		require.NoError(w, <-ended)
	})
}
