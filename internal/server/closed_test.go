package server

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

const storeClosed = "jq: the store was closed under the server, which stops"

// A store that is closed under its server is gone for good: the server says that it is not ready, tells its handlers to stop,
// and ends with an error that says what went wrong. It neither waits for writes that can not be nor fills the log.
func TestStoreIsClosedUnderTheServer(t *testing.T) {
	inWorld(t, func(w *world) {
		var heard told
		w.handlers["listen"] = listening(w, &heard, context.Canceled)
		w.enqueue(1, "listen")
		s := w.server(Options{})
		ended := make(chan error, 1)
		go func() { ended <- s.Run(w.Context()) }()
		w.wait(time.Second)
		require.NoError(w, s.Ready())
		require.NoError(w, w.store.Close())
		w.wait(2 * time.Second) // in which the queue is looked at, at least
		require.ErrorIs(w, s.Ready(), store.ErrClosed)
		err := <-ended
		require.ErrorIs(w, err, store.ErrClosed)
		require.ErrorContains(w, err, "close it afterwards")
		require.ErrorContains(w, err, "results that could not be written: 1")
		require.ErrorIs(w, heard.cause, ErrDrained)
		assert.LessOrEqual(w, w.since(), 3*time.Second)
		require.ErrorIs(w, s.Stop(w.Context()), store.ErrClosed, "as often as it is asked")
		assert.Equal(w, 1, w.log.said(storeClosed))
		assert.Zero(w, w.log.said("jq: the store refuses a call"))
	})
}

// However seldom a server calls its store, it notices soon, and while it stops as well.
func TestClosedStoreIsNoticed(t *testing.T) {
	cases := map[string]struct {
		before func(w *world, s *Server)
		within time.Duration
	}{
		"idle":                {func(*world, *Server) {}, time.Second},
		"before the start":    {func(w *world, _ *Server) { require.NoError(w, w.store.Close()) }, 0},
		"while the store was": {func(w *world, _ *Server) { w.wait(time.Minute) }, time.Second},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				s := w.server(Options{Poll: 24 * time.Hour, Lease: time.Hour, RecoverEvery: 24 * time.Hour})
				c.before(w, s)
				began := w.since()
				require.NoError(w, s.Start(w.Context()))
				w.wait(0)
				require.NoError(w, w.store.Close())
				<-s.stopped
				assert.LessOrEqual(w, w.since()-began, c.within)
				require.ErrorIs(w, s.Stop(w.Context()), store.ErrClosed)
			})
		})
	}
	t.Run("while it stops", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.handlers["work"] = work(20 * time.Second)
			w.enqueue(1, "work")
			s := w.start(Options{})
			st := beginStop(w, w.Context(), s)
			w.wait(time.Second)
			require.NoError(w, w.store.Close())
			w.wait(10 * time.Second) // until the next beat
			done, err, after := st.get()
			require.True(w, done)
			require.ErrorIs(w, err, store.ErrClosed)
			assert.LessOrEqual(w, after, DefaultLease/3)
		})
	})
}

// A handler that ignores that it was told to stop is waited for no longer than ever.
func TestDeafHandlerOfAClosedStore(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["deaf"] = deaf(5 * time.Minute)
		w.enqueue(1, "deaf")
		s := w.start(Options{})
		require.NoError(w, w.store.Close())
		w.wait(time.Second + DefaultAbandonAfter)
		<-s.stopped
		err := s.Stop(w.Context())
		require.ErrorContains(w, err, "handlers that did not return: 1")
		require.ErrorIs(w, err, store.ErrClosed)
		w.wait(5 * time.Minute) // the handler returns, and there is nobody to be told
	})
}

// The order of the deferred calls that goes wrong most easily ends in an error, and not in silence.
func TestStopAfterTheStoreWasClosed(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["quick"] = func(context.Context, *Run) error { return errors.New("no luck") }
		s := w.start(Options{})
		require.NoError(w, w.store.Close())
		w.wait(time.Minute)
		began := w.since()
		require.ErrorIs(w, s.Stop(w.Context()), store.ErrClosed)
		assert.Equal(w, began, w.since())
	})
}
