package server

import (
	"context"
	"errors"
	"sync"
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
		s := w.start(Options{}, w.hook().plain()) // without wake-ups, so that the job is gone before the heartbeat
		w.cancel(ids...)
		_, err := w.store.Delete(w.Context(), store.Filter{IDs: ids}, 1)
		require.NoError(w, err)
		w.wait(20 * time.Second)
		assert.Equal(w, told{ErrLeaseLost, 10 * time.Second}, heard)
		w.stop(s)
	})
}

// cancel cancels the jobs.
func (w *world) cancel(ids ...int64) {
	w.Helper()
	_, err := w.store.Cancel(w.Context(), store.Filter{IDs: ids}, len(ids))
	require.NoError(w, err)
}

// A forgetful store loses the wake-ups of cancellations.
type forgetful struct{ *hook }

func (f forgetful) Subscribe(ctx context.Context, queues []string) (<-chan store.Wakeup, error) {
	in, err := f.hook.Subscribe(ctx, queues)
	out := make(chan store.Wakeup)
	go func() {
		defer close(out)
		for wakeup := range in {
			if !wakeup.Cancelled {
				out <- wakeup
			}
		}
	}()
	return out, err
}

// The handler of a cancelled job is cancelled at once by a wake-up, and otherwise at the next heartbeat. Its end changes nothing: R60.
func TestCancelledJobCancelsItsHandler(t *testing.T) {
	for name, c := range map[string]struct {
		on    func(*hook) store.Store
		after time.Duration
	}{
		"by a wake-up":      {func(h *hook) store.Store { return h }, time.Second},
		"wake-up lost":      {func(h *hook) store.Store { return forgetful{h} }, 10 * time.Second},
		"without a wake-up": {(*hook).plain, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				var heard told
				w.handlers["listen"] = listening(w, &heard, nil)
				ids := w.enqueue(1, "listen")
				s := w.start(Options{}, c.on(w.hook()))
				w.wait(time.Second)
				w.cancel(ids...)
				w.wait(20 * time.Second)
				assert.Equal(w, told{ErrCancelled, c.after}, heard)
				assert.Equal(w, store.Cancelled, w.job(ids[0]).State)
				assert.Empty(w, w.said("jq: stale write refused"), "nobody has lost anything to somebody else")
				w.stop(s)
			})
		})
	}
}

// However many jobs are cancelled one by one, a server makes at most one early heartbeat a second, and the last one is never left out.
func TestManyCancellationsMakeFewHeartbeats(t *testing.T) {
	inWorld(t, func(w *world) {
		const jobs, pause = 99, 50 * time.Millisecond
		var mu sync.Mutex // guards what follows
		ended := map[int64]time.Duration{}
		w.handlers["listen"] = func(ctx context.Context, r *Run) error {
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			ended[r.ID] = w.since()
			return context.Cause(ctx)
		}
		ids := w.enqueue(jobs, "listen")
		h := w.hook()
		s := w.start(Options{Slots: jobs}, h)
		w.wait(time.Second)
		cancelled := map[int64]time.Duration{}
		for _, id := range ids { // for five seconds, in which no other heartbeat is due
			cancelled[id] = w.since()
			w.cancel(id)
			w.wait(pause)
		}
		w.wait(time.Second)
		assert.Equal(w, 6, h.count("extend"))
		for _, id := range ids {
			require.Contains(w, ended, id)
			require.LessOrEqual(w, ended[id]-cancelled[id], time.Second)
		}
		w.stop(s)
	})
}

// A wake-up concerns only the servers that have jobs of the queue, and only these jobs.
func TestWakeUpOfACancellationConcernsItsQueue(t *testing.T) {
	inWorld(t, func(w *world) {
		var heard told
		w.handlers["listen"] = listening(w, &heard, nil)
		w.handlers["long"] = work(8 * time.Second)
		queues := map[string]QueueOptions{DefaultQueue: {}, "other": {}}
		busy, idle := w.gate(), w.hook()
		var extended [][]store.Lease
		busy.extend = func(ctx context.Context, leases []store.Lease) ([]store.Outcome, error) {
			extended = append(extended, leases)
			return w.store.Extend(ctx, leases, DefaultLease)
		}
		ids := w.enqueue(1, "listen")
		w.enqueue(1, "long", func(n *store.NewJob) { n.Queue = "other" })
		s := w.start(Options{Queues: queues}, busy)
		other := w.start(Options{Queues: queues}, idle)
		w.cancel(ids...)
		w.wait(9 * time.Second)
		assert.Equal(w, told{ErrCancelled, 0}, heard)
		assert.Equal(w, [][]store.Lease{{{ID: ids[0], Token: 1}}}, extended)
		assert.Zero(w, idle.count("extend"))
		w.stop(s)
		w.stop(other)
	})
}

// A server that stops waits for its handlers, and those are cancelled like others.
func TestCancellationReachesAServerThatStops(t *testing.T) {
	inWorld(t, func(w *world) {
		var heard told
		w.handlers["listen"] = listening(w, &heard, nil)
		ids := w.enqueue(1, "listen")
		s := w.start(Options{})
		stopped := make(chan error)
		go func() { stopped <- s.Stop(w.Context()) }()
		w.wait(time.Second)
		w.cancel(ids...)
		require.NoError(w, <-stopped)
		assert.Equal(w, told{ErrCancelled, time.Second}, heard)
	})
}

// A job that is cancelled before the server has the answer to its claim is cancelled as soon as it starts.
func TestCancellationDuringTheClaim(t *testing.T) {
	inWorld(t, func(w *world) {
		var heard told
		w.handlers["listen"] = listening(w, &heard, nil)
		g := w.gate()
		g.claim = func(ctx context.Context, req store.ClaimRequest) ([]store.Job, error) {
			jobs, err := w.store.FetchAndClaim(ctx, req)
			for _, j := range jobs {
				w.cancel(j.ID)
			}
			if len(jobs) > 0 {
				err = pause(ctx, 2*time.Second) // the answer is slow
			}
			return jobs, err
		}
		s := w.start(Options{}, g)
		w.enqueue(1, "listen")
		w.wait(5 * time.Second)
		assert.Equal(w, told{ErrCancelled, 0}, heard)
		w.stop(s)
	})
}

// An early heartbeat that fails is repeated as soon as any other.
func TestEarlyHeartbeatThatFails(t *testing.T) {
	inWorld(t, func(w *world) {
		var heard told
		w.handlers["listen"] = listening(w, &heard, nil)
		ids := w.enqueue(1, "listen")
		g := w.gate()
		s := w.start(Options{}, g)
		w.wait(time.Second)
		g.away()
		w.cancel(ids...)
		w.wait(time.Second)
		g.back()
		w.wait(20 * time.Second)
		assert.Equal(w, told{ErrCancelled, time.Second + DefaultLease/12}, heard)
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
