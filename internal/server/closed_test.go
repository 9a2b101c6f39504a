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

const storeClosed = "jq: the store was closed; the server stops"

// A store that is closed under its server never comes back: the server is not ready, cancels its handlers, and stops with an error that
// says why. It does not wait for writes that cannot succeed, and does not fill the log.
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
		require.ErrorContains(w, err, "close the store after the server")
		require.ErrorContains(w, err, "1 results could not be written")
		require.ErrorIs(w, heard.cause, ErrDrained)
		assert.LessOrEqual(w, w.since(), 3*time.Second)
		require.ErrorIs(w, s.Stop(w.Context()), store.ErrClosed, "as often as it is asked")
		assert.Equal(w, 1, w.log.said(storeClosed))
		assert.Zero(w, w.log.said("jq: the store refused a call"))
	})
}

// However seldom a server calls its store, it notices soon that the store is closed, even while it stops.
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
				s := w.server(Options{
					Claim:    ClaimOptions{PollInterval: 24 * time.Hour},
					Lease:    LeaseOptions{Duration: time.Hour},
					Recovery: RecoveryOptions{Interval: 24 * time.Hour},
				})
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

// The server does not wait longer than usual for a handler that ignores its cancellation.
func TestDeafHandlerOfAClosedStore(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["deaf"] = deaf(5 * time.Minute)
		w.enqueue(1, "deaf")
		s := w.start(Options{})
		require.NoError(w, w.store.Close())
		w.wait(time.Second + DefaultAbandonTimeout)
		<-s.stopped
		err := s.Stop(w.Context())
		require.ErrorContains(w, err, "1 handlers did not return")
		require.ErrorIs(w, err, store.ErrClosed)
		w.wait(5 * time.Minute) // the handler returns, and there is nobody to be told
	})
}

// The order of deferred calls that goes wrong most easily ends in an error, not in silence.
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
