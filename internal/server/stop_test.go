package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// beginStop stops the server in the background, and keeps the error and how long it took.
func beginStop(w *world, ctx context.Context, s *Server) *stopped { //nolint:revive // the world is the test
	st := &stopped{}
	began := w.since()
	go func() {
		err := s.Stop(ctx)
		st.mu.Lock()
		defer st.mu.Unlock()
		st.done, st.err, st.after = true, err, w.since()-began
	}()
	synctest.Wait()
	return st
}

type stopped struct {
	mu    sync.Mutex // guards what follows
	done  bool
	err   error
	after time.Duration
}

func (st *stopped) get() (bool, error, time.Duration) { //nolint:revive // the error is not that of the call
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.done, st.err, st.after
}

// Stop waits for a claim under way, and releases the jobs that it returns: C13.
func TestStopAwaitsAndReleasesTheClaimUnderWay(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		g.claim = func(ctx context.Context, req store.ClaimRequest) ([]store.Job, error) {
			jobs, err := g.Store.FetchAndClaim(ctx, req)
			if err := pause(ctx, 5*time.Second); err != nil {
				return nil, err
			}
			return jobs, err
		}
		w.handlers["never"] = func(context.Context, *Run) error { return errors.New("it was started") }
		ids := w.enqueue(3, "never")
		s := w.start(Options{Slots: 2, Claim: ClaimOptions{Buffer: 1}}, g)
		st := beginStop(w, w.Context(), s)
		assert.Equal(w, store.InFlight, w.job(ids[0]).State)
		w.wait(6 * time.Second)
		done, err, after := st.get()
		require.True(w, done)
		require.NoError(w, err)
		assert.Equal(w, 5*time.Second, after)
		for _, id := range ids {
			j := w.job(id)
			assert.Equal(w, store.Ready, j.State)
			assert.Equal(w, 0, j.Attempts)
			assert.Equal(w, store.EndReleased, j.History[0].Ending)
		}
		assert.Equal(w, 1, g.count("claim"))
	})
}

// Buffered jobs are released at once, and another server can run them while this one still waits for its handlers, whose leases are
// extended and whose results are written: C13, R41.
func TestStopReleasesTheBufferAndLetsHandlersFinish(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["work"] = func(ctx context.Context, r *Run) error {
			r.SetResult(fmt.Appendf(nil, "%q", r.Job.Worker))
			return work(25*time.Second)(ctx, r)
		}
		running, buffered := w.enqueue(1, "work")[0], w.enqueue(1, "work")[0]
		g := w.gate()
		s := w.start(Options{Name: "first", Slots: 1, Claim: ClaimOptions{Buffer: 1}, Lease: LeaseOptions{Duration: 10 * time.Second}}, g)
		other := w.start(Options{Name: "other", Slots: 1})
		w.wait(time.Second)
		st := beginStop(w, w.Context(), s)
		require.ErrorContains(w, s.Ready(), "stopping")
		w.wait(2 * time.Second)
		j := w.job(buffered)
		assert.Equal(w, store.InFlight, j.State)
		assert.Equal(w, "other", j.Worker)
		assert.Equal(w, 1, j.Attempts)
		claims := g.count("claim")

		w.wait(30 * time.Second)
		done, err, after := st.get()
		require.True(w, done)
		require.NoError(w, err)
		assert.Equal(w, 24*time.Second, after)
		j = w.job(running)
		assert.Equal(w, `"first"`, string(j.Result))
		assert.Len(w, j.History, 1)
		assert.Equal(w, `"other"`, string(w.job(buffered).Result))
		assert.Equal(w, claims, g.count("claim"))
		w.stop(other)
	})
}

// When the drain timeout is over, handlers are cancelled, and what they return then decides: C13.
func TestDrainedHandlers(t *testing.T) {
	cases := map[string]struct {
		returned error
		phase    store.State
		attempts int
	}{
		"nil is an Ack":                      {nil, store.Succeeded, 1},
		"the context's error is a Release":   {context.Canceled, store.Ready, 0},
		"the cause is one too":               {ErrDrained, store.Ready, 0},
		"another error is a NAck":            {errors.New("no luck"), store.Retrying, 1},
		"a time-out of its own is another":   {context.DeadlineExceeded, store.Retrying, 1},
		"a wish is granted":                  {&Wish{Form: store.Never, Err: errors.New("hopeless")}, store.Dead, 1},
		"a snooze is granted":                {&Wish{Form: store.Snooze, Delay: time.Hour}, store.Ready, 1},
		"a wish for the context's sake only": {&Wish{Form: store.After, Err: context.Canceled}, store.Ready, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				var heard told
				w.handlers["listen"] = listening(w, &heard, c.returned)
				id := w.enqueue(1, "listen")[0]
				s := w.start(Options{})
				w.wait(10 * time.Second)
				st := beginStop(w, w.Context(), s)
				w.wait(31 * time.Second)
				done, err, after := st.get()
				require.True(w, done)
				require.NoError(w, err)
				assert.Equal(w, DefaultDrainTimeout, after)
				assert.Equal(w, told{ErrDrained, 40 * time.Second}, heard)
				j := w.job(id)
				assert.Equal(w, c.phase, j.Phase())
				assert.Equal(w, c.attempts, j.Attempts)
			})
		})
	}
}

// The end of Stop's context ends the wait for handlers, but not the writing of what they return: C13.
func TestStopWithAContextThatEndsEarly(t *testing.T) {
	inWorld(t, func(w *world) {
		var heard told
		w.handlers["listen"] = func(ctx context.Context, r *Run) error {
			err := listening(w, &heard, ctx.Err())(ctx, r)
			return errors.Join(err, pause(context.WithoutCancel(ctx), 3*time.Second))
		}
		id := w.enqueue(1, "listen")[0]
		s := w.start(Options{})
		ctx, cancel := context.WithTimeout(w.Context(), 2*time.Second)
		defer cancel()
		st := beginStop(w, ctx, s)
		w.wait(10 * time.Second)
		done, err, after := st.get()
		require.True(w, done)
		require.NoError(w, err)
		assert.Equal(w, 5*time.Second, after)
		assert.Equal(w, told{ErrDrained, 2 * time.Second}, heard)
		assert.Equal(w, store.Succeeded, w.job(id).State)
	})
}

// A handler that does not return is left behind, and Stop says so. The job is recovered when its lease expires: C13, R42.
func TestHandlerThatDoesNotReturnIsLeftToItsLease(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["deaf"] = deaf(10 * time.Minute)
		ids := w.enqueue(2, "deaf")
		s := w.start(Options{Slots: 2, Abandon: AbandonOptions{MaxHandlers: 1}})
		st := beginStop(w, w.Context(), s)
		w.wait(time.Minute)
		done, err, after := st.get()
		require.True(w, done)
		require.ErrorContains(w, err, "2 handlers did not return")
		assert.Equal(w, DefaultDrainTimeout+DefaultAbandonTimeout, after)
		w.handlers["deaf"] = work(time.Second)
		other := w.start(Options{})
		w.wait(time.Minute)
		for _, id := range ids {
			j := w.job(id)
			assert.Equal(w, store.Succeeded, j.State)
			assert.Equal(w, store.EndExpired, j.History[0].Ending)
		}
		w.wait(10 * time.Minute) // the handlers return, to nobody
		w.stop(other)
	})
}

// Stop does not wait for a handler that was abandoned long ago.
func TestStopDoesNotWaitForWhatWasGivenUp(t *testing.T) {
	for _, most := range []int{1, -1} { // replaced, and not
		inWorld(t, func(w *world) {
			w.handlers["deaf"] = deaf(10 * time.Minute)
			id := w.enqueue(1, "deaf", func(n *store.NewJob) { n.Timeout, n.MaxRetries = time.Second, 0 })[0]
			s := w.start(Options{Abandon: AbandonOptions{MaxHandlers: most}})
			w.wait(time.Minute)
			assert.Equal(w, store.Dead, w.job(id).Phase())
			began := w.since()
			require.ErrorContains(w, s.Stop(w.Context()), "1 handlers did not return")
			assert.Equal(w, began, w.since())
			w.wait(10 * time.Minute)
		})
	}
}

// While the store is unreachable, Stop waits for it no longer than for handlers. Its error says what could not be written, and other
// servers recover those jobs: C13, R42.
func TestStopWhileTheStoreIsAway(t *testing.T) {
	ways := map[string]func(g *gate){
		"refuses": (*gate).away,
		"hangs": func(g *gate) {
			g.set(func() { g.before = func(ctx context.Context, _ string) error { return gone(ctx) } })
		},
	}
	for name, cut := range ways {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				g := w.gate()
				w.handlers["quick"] = work(5 * time.Second)
				id := w.enqueue(1, "quick")[0]
				s := w.start(Options{}, g)
				cut(g)
				w.enqueue(1, "unheard of") // a claim is under way
				w.wait(time.Second)
				st := beginStop(w, w.Context(), s)
				w.wait(time.Minute)
				done, err, after := st.get()
				require.True(w, done)
				require.ErrorContains(w, err, "1 results could not be written")
				assert.LessOrEqual(w, after, DefaultDrainTimeout+DefaultAbandonTimeout+finalWriteTimeout)
				other := w.start(Options{})
				w.wait(time.Minute)
				assert.Equal(w, store.Succeeded, w.job(id).State)
				w.stop(other)
			})
		})
	}
}

// A claim that hangs delays neither the end of the drain nor that of the stop.
func TestHangingClaimDoesNotLengthenTheStop(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		var heard told
		w.handlers["listen"] = listening(w, &heard, context.Canceled)
		w.enqueue(1, "listen")
		s := w.start(Options{Lease: LeaseOptions{Duration: time.Hour}, Shutdown: ShutdownOptions{DrainTimeout: 10 * time.Second}}, g)
		g.hang("claim")
		w.enqueue(1, "listen")
		w.wait(time.Second)
		st := beginStop(w, w.Context(), s)
		w.wait(time.Minute)
		done, err, after := st.get()
		require.True(w, done)
		require.NoError(w, err)
		assert.Equal(w, 10*time.Second+DefaultAbandonTimeout+finalWriteTimeout, after)
		assert.Equal(w, told{ErrDrained, 11 * time.Second}, heard)
	})
}

// If the store comes back while Stop waits, results that could not be written before are written: nothing is left behind.
func TestStopWaitsForTheStoreToComeBack(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		w.handlers["quick"] = work(5 * time.Second)
		id := w.enqueue(1, "quick")[0]
		s := w.start(Options{}, g)
		g.away()
		st := beginStop(w, w.Context(), s)
		w.wait(20 * time.Second)
		done, _, _ := st.get()
		require.False(w, done)
		g.back()
		w.wait(10 * time.Second)
		done, err, _ := st.get()
		require.True(w, done)
		require.NoError(w, err)
		j := w.job(id)
		assert.Equal(w, store.Succeeded, j.State)
		assert.Len(w, j.History, 1)
	})
}

// A server that waits for its store at the start stops at once.
func TestStopBeforeTheStoreIsThere(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		g.away()
		s := w.start(Options{}, g)
		w.wait(time.Minute)
		require.Error(w, s.Ready())
		began := w.since()
		w.stop(s)
		assert.Equal(w, began, w.since())
	})
}

// A handler that stops its own server is cancelled like any other: nothing waits for ever.
func TestHandlerStopsItsServer(t *testing.T) {
	inWorld(t, func(w *world) {
		var s *Server
		var stopErr error
		w.handlers["stop"] = func(ctx context.Context, _ *Run) error {
			stopErr = s.Stop(ctx)
			return nil
		}
		id := w.enqueue(1, "stop")[0]
		s = w.server(Options{})
		require.NoError(w, s.Start(w.Context()))
		w.wait(2 * time.Minute)
		// Its context ends when the drain time is over, and it is given up 10 s later, for it waits for itself.
		require.ErrorContains(w, stopErr, "1 handlers did not return")
		assert.Equal(w, store.InFlight, w.job(id).State)
	})
}
