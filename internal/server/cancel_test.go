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

// A handler whose lease is lost is cancelled at the next heartbeat, with the cause, and its result is not written: C14, R20, R22. The
// log warns of the loss once, with the id and both tokens: R48.
func TestLostLeaseCancelsTheHandler(t *testing.T) {
	for _, returned := range []error{nil, errors.New("broken off")} {
		inWorld(t, func(w *world) {
			var heard told
			w.handlers["listen"] = listening(w, &heard, returned)
			id := w.enqueue(1, "listen")[0]
			s := w.start(Options{})
			w.wait(time.Second)
			w.fence() // every token grows
			w.wait(20 * time.Second)
			assert.Equal(w, told{ErrLeaseLost, 10 * time.Second}, heard)
			j := w.job(id)
			assert.Equal(w, store.InFlight, j.State)
			lines := w.said("jq: stale write refused")
			require.Len(w, lines, 1)
			assert.Equal(w, map[string]any{
				"op": "extend", "job": id, "queue": DefaultQueue, "kind": "listen", "token": int64(1), "current_token": j.Token,
			}, lines[0])
			assert.Equal(w, Stats{Slots: DefaultSlots}, s.Stats())
			w.stop(s)
		})
	}
}

// A handler that finishes before it could be cancelled gets its write refused, and the log warns of it once: R20, R48.
func TestLateResultIsRefusedAndWarnedOfOnce(t *testing.T) {
	for op, returned := range map[string]error{"ack": nil, "nack": errors.New("no luck")} {
		inWorld(t, func(w *world) {
			w.handlers["brief"] = func(ctx context.Context, r *Run) error {
				return errors.Join(work(5*time.Second)(ctx, r), returned)
			}
			id := w.enqueue(1, "brief")[0]
			s := w.start(Options{})
			w.wait(time.Second)
			w.fence()
			w.wait(20 * time.Second)
			j := w.job(id)
			assert.Equal(w, store.InFlight, j.State)
			lines := w.said("jq: stale write refused")
			require.Len(w, lines, 1)
			assert.Equal(w, op, lines[0]["op"])
			assert.Equal(w, id, lines[0]["job"])
			assert.Equal(w, int64(1), lines[0]["token"])
			assert.Equal(w, j.Token, lines[0]["current_token"])
			assert.Equal(w, Stats{Slots: DefaultSlots}, s.Stats())
			w.stop(s)
		})
	}
}

// If a lease is lost after its handler was cancelled for another reason, the log also warns once: nothing more is written. R48.
func TestLeaseLostAfterATimeout(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["deaf"] = deaf(12 * time.Second)
		w.enqueue(1, "deaf", func(n *store.NewJob) { n.Timeout = 5 * time.Second })
		s := w.start(Options{})
		w.wait(6 * time.Second)
		w.fence()
		w.wait(20 * time.Second)
		lines := w.said("jq: stale write refused")
		require.Len(w, lines, 1)
		assert.Equal(w, "extend", lines[0]["op"])
		assert.Equal(w, Stats{Slots: DefaultSlots}, s.Stats())
		w.stop(s)
	})
}

// The lease of a deleted job is lost too: C14.
func TestDeletedJobIsLost(t *testing.T) {
	inWorld(t, func(w *world) {
		var heard told
		w.handlers["listen"] = listening(w, &heard, context.Canceled)
		ids := w.enqueue(1, "listen")
		s := w.start(Options{})
		for _, end := range []func(context.Context, store.Filter, int) ([]store.Outcome, error){w.store.Cancel, w.store.Delete} {
			_, err := end(w.Context(), store.Filter{IDs: ids}, 1)
			require.NoError(w, err)
		}
		w.wait(20 * time.Second)
		assert.Equal(w, told{ErrLeaseLost, 10 * time.Second}, heard)
		w.stop(s)
	})
}

// The handler of a cancelled job is cancelled at the next heartbeat, and its end changes nothing: R60.
func TestCancelledJobCancelsItsHandler(t *testing.T) {
	inWorld(t, func(w *world) {
		var heard told
		w.handlers["listen"] = listening(w, &heard, nil)
		ids := w.enqueue(1, "listen")
		s := w.start(Options{})
		w.wait(time.Second)
		_, err := w.store.Cancel(w.Context(), store.Filter{IDs: ids}, 1)
		require.NoError(w, err)
		w.wait(20 * time.Second)
		assert.Equal(w, told{ErrCancelled, 10 * time.Second}, heard)
		assert.Equal(w, store.Cancelled, w.job(ids[0]).State)
		assert.Empty(w, w.said("jq: stale write refused"), "nobody has lost anything to somebody else")
		w.stop(s)
	})
}

// If the store has not answered until the lease expires by the local clock, the handler is cancelled. Its result is still offered, and
// accepted if nobody has recovered the job. C14.
func TestUnknownLeaseCancelsAndTheResultIsOffered(t *testing.T) {
	cases := map[string]struct {
		returned error
		state    store.State
		ending   store.Ending
		attempts int
	}{
		"nil":               {nil, store.Succeeded, store.EndSucceeded, 1},
		"the context's":     {context.Canceled, store.Ready, store.EndReleased, 0},
		"the cause":         {ErrLeaseUnknown, store.Ready, store.EndReleased, 0},
		"one of its own":    {errors.New("no luck"), store.Failed, store.EndFailed, 1},
		"one that wraps it": {errors.Join(errors.New("call broken off"), context.Canceled), store.Ready, store.EndReleased, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				g := w.gate()
				var heard told
				w.handlers["listen"] = listening(w, &heard, c.returned)
				id := w.enqueue(1, "listen", func(n *store.NewJob) { n.Backoff.Base = time.Hour })[0]
				s := w.start(Options{Recovery: RecoveryOptions{Interval: -1}}, g)
				g.away()
				w.wait(time.Minute)
				assert.Equal(w, told{ErrLeaseUnknown, 30 * time.Second}, heard)
				g.set(func() {
					g.before = func(_ context.Context, method string) error {
						if method == "claim" {
							return store.ErrUnavailable // so that the job stays as it is left
						}
						return nil
					}
				})
				w.wait(time.Minute)
				j := w.job(id)
				assert.Equal(w, c.state, j.State)
				assert.Equal(w, c.ending, j.History[0].Ending)
				assert.Equal(w, c.attempts, j.Attempts)
				g.back()
				w.stop(s)
			})
		})
	}
}

// The lease is in force until its end, counted from the time when the last successful Extend was sent, and not a moment longer.
func TestLocalDeadlineCountsFromTheSending(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		g.before = func(ctx context.Context, method string) error {
			if method == "extend" && g.count("extend") == 1 {
				return pause(ctx, 4*time.Second) // and is then answered
			}
			return nil
		}
		var heard told
		w.handlers["listen"] = listening(w, &heard, nil)
		w.enqueue(1, "listen")
		s := w.start(Options{Recovery: RecoveryOptions{Interval: -1}}, g)
		w.wait(15 * time.Second)
		g.away()
		w.wait(time.Minute)
		assert.Equal(w, told{ErrLeaseUnknown, 40 * time.Second}, heard)
		g.back()
		w.stop(s)
	})
}
