package server

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

var errDenied = fmt.Errorf("%w: the role is another", store.ErrDenied)

// deny makes the store deny the calls of that name.
func (g *gate) deny(methods ...string) {
	g.set(func() {
		g.before = func(_ context.Context, called string) error {
			if slices.Contains(methods, called) {
				return errDenied
			}
			return nil
		}
	})
}

// D29: a worker whose token lacked the role asked for ever.
func TestWorkerThatIsNotPermittedAskedForEver(t *testing.T) {
	for name, method := range map[string]string{"recover": "recover", "claim": "claim"} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.handlers["job"] = work(0)
				g := w.gate()
				g.deny(method)
				s := w.server(Options{}, g)
				ctx, cancel := context.WithTimeout(w.Context(), time.Hour)
				defer cancel()
				err := s.Run(ctx)
				require.ErrorIs(w, err, store.ErrDenied)
				require.EqualError(w, err, "jq: the store does not permit this server to work: "+errDenied.Error())
				require.ErrorIs(w, s.Ready(), store.ErrDenied)
				assert.LessOrEqual(w, w.since(), time.Second)
				assert.Equal(w, 1, w.log.said("jq: the store does not permit this server to work; the server stops"))
				require.ErrorIs(w, s.Stop(w.Context()), store.ErrDenied, "as often as it is asked")
			})
		})
	}
}

// A call that was permitted once may be permitted again: the server continues, and does not fill its log.
func TestRightThatIsTakenAwayAndGivenBack(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["job"] = work(0)
		g := w.gate()
		s := w.server(Options{}, g)
		require.NoError(w, s.Start(w.Context()))
		w.wait(time.Minute)
		g.deny("recover", "claim")
		id := w.enqueue(1, "job")[0]
		w.wait(10 * time.Minute)
		require.ErrorIs(w, s.Ready(), store.ErrDenied)
		assert.Equal(w, store.Ready, w.job(id).State)
		assert.Equal(w, 2, w.log.said("jq: the store denied a call"), "once for each")
		assert.Zero(w, w.log.said(wentAway), "it is there")
		g.back()
		w.wait(time.Minute)
		assert.Equal(w, store.Succeeded, w.job(id).State)
		require.NoError(w, s.Ready())
		g.deny("claim")
		w.wait(time.Minute)
		assert.Equal(w, 3, w.log.said("jq: the store denied a call"), "it was permitted in between")
		g.back()
		w.wait(time.Minute)
		w.stop(s)
	})
}

// The log tells of each time at which a right is taken away, also the right to cancel expired jobs, or to finish jobs.
func TestRightIsTakenAwayTwice(t *testing.T) {
	for _, call := range []string{"settle", "ack"} {
		t.Run(call, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.handlers["job"] = work(0)
				g := w.gate()
				s := w.server(Options{}, g)
				require.NoError(w, s.Start(w.Context()))
				for times := range 2 {
					g.deny(call)
					id := w.enqueue(1, "job")[0]
					w.wait(10 * time.Minute)
					assert.Equal(w, times+1, w.log.said("jq: the store denied a call"))
					g.back()
					w.wait(10 * time.Minute)
					assert.Equal(w, store.Succeeded, w.job(id).State)
				}
				w.stop(s)
			})
		})
	}
}

// The server used to ask again and again for a lease longer than the store allows, with a line in the log each time.
func TestWorkerWhoseLeaseIsTooLongAskedForEver(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.server(Options{Lease: LeaseOptions{Duration: 2 * store.DefaultMaxLease}})
		ctx, cancel := context.WithTimeout(w.Context(), time.Hour)
		defer cancel()
		require.ErrorIs(w, s.Run(ctx), store.ErrInvalid)
		assert.LessOrEqual(w, w.since(), time.Second)
		workers, err := store.AllWorkers(w.Context(), w.store)
		require.NoError(w, err)
		assert.Empty(w, workers, "it has ended, and did not die")
	})
}

// A worker may be denied deletion, for example over HTTP: other servers delete.
func TestWorkerThatMayNotDeleteWorks(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["job"] = work(0)
		g := w.gate()
		g.deny("delete")
		s := w.server(Options{}, g)
		require.NoError(w, s.Start(w.Context()))
		w.wait(10 * time.Minute)
		id := w.enqueue(1, "job")[0]
		w.wait(time.Minute)
		assert.Equal(w, store.Succeeded, w.job(id).State)
		assert.Equal(w, 1, w.log.said("jq: the store denied a call"))
		require.NoError(w, s.Ready())
		w.stop(s)
	})
}
