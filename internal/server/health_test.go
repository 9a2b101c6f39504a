package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/bubble"
	"github.com/seed-ed332417/jq/internal/store"
)

const (
	wentAway = "jq: the store does not answer"
	cameBack = "jq: the store answers again"
	noAnswer = "jq: store call timed out; other calls succeed"
)

// The ways in which a store can be unreachable.
var absences = map[string]func(h *hook){"refuses": (*hook).refuse, "swallows": (*hook).swallow}

// A server starts without its store, is not ready, tries again with growing pauses, and works when the store is there: C1.
func TestServerWaitsForItsStore(t *testing.T) {
	for name, leave := range absences {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.handlers["job"] = func(context.Context, *Run) error { return nil }
				ids := w.enqueue(100, "job")
				h := w.hook()
				leave(h)
				s := w.start(Options{}, h)
				require.Error(w, s.Ready())
				w.wait(time.Hour)
				require.ErrorContains(w, s.Ready(), "does not answer")
				assert.Less(w, h.count("recover"), 500, "it tries less and less often")
				assert.Zero(w, h.count("claim"), "what others left behind comes first")
				h.let()
				back := time.Now()
				w.wait(40 * time.Second)
				require.NoError(w, s.Ready())
				for _, id := range ids {
					j := w.job(id)
					require.Equal(w, store.Succeeded, j.State)
					require.Less(w, j.FinishedAt.Sub(back), 30*time.Second)
				}
				assert.Equal(w, []int{1, 1}, []int{w.log.said(wentAway), w.log.said(cameBack)})
				w.stop(s)
			})
		})
	}
}

// A store that takes five seconds for each answer is slow, not unreachable: every job runs once, no lease expires, and the log is empty.
func TestSlowStore(t *testing.T) {
	inWorld(t, func(w *world) {
		var mu sync.Mutex // guards runs and causes
		runs, causes := 0, []error(nil)
		w.handlers["job"] = func(ctx context.Context, r *Run) error {
			err := travel(ctx, time.Duration(r.ID%90)*time.Second)
			mu.Lock()
			defer mu.Unlock()
			runs++
			if cause := context.Cause(ctx); cause != nil {
				causes = append(causes, cause)
			}
			return err
		}
		ids := w.enqueue(200, "job")
		h := w.hook()
		h.delay(5 * time.Second)
		s := w.start(Options{Claim: ClaimOptions{Buffer: 20}}, h)
		for range 60 {
			w.wait(30 * time.Second)
			require.NoError(w, s.Ready())
		}
		for _, id := range ids {
			j := w.job(id)
			require.Equal(w, store.Succeeded, j.State)
			require.Len(w, j.History, 1)
		}
		assert.Equal(w, 200, runs)
		assert.Empty(w, causes)
		for _, line := range []string{wentAway, noAnswer, "jq: heartbeat failed", "jq: expired leases recovered"} {
			assert.Zero(w, w.log.said(line), line)
		}
		w.stop(s)
	})
}

// A call that hangs while others are answered is no outage: the log warns of it by name.
func TestHangingCallIsNoOutage(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["job"] = func(ctx context.Context, _ *Run) error { return travel(ctx, time.Hour) }
		w.enqueue(1, "job")
		h := w.hook()
		s := w.start(Options{}, h)
		h.every(func(ctx context.Context, method string) error {
			if method == "claim" {
				<-ctx.Done()
				return fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
			}
			return nil
		})
		w.wait(10 * time.Minute)
		assert.Zero(w, w.log.said(wentAway))
		lines := w.said(noAnswer)
		require.NotEmpty(w, lines)
		assert.Equal(w, "claim", lines[0]["op"])
		require.NoError(w, s.Ready())
		_ = s.Stop(inAHurry())
	})
}

// No call may wait for ever: each has a deadline within a lease, and calls that extend or end leases have an earlier one. R35.
func TestEveryCallHasADeadline(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["job"] = func(ctx context.Context, _ *Run) error { return travel(ctx, 40*time.Second) }
		w.handlers["bad"] = func(context.Context, *Run) error { return errors.New("no luck") }
		w.enqueue(20, "job")
		w.enqueue(5, "bad")
		w.enqueue(5, "unknown")
		longest := map[string]time.Duration{}
		var mu sync.Mutex // guards longest
		h := w.hook()
		h.every(func(ctx context.Context, method string) error {
			deadline, ok := ctx.Deadline()
			if !assert.True(w, ok || method == "subscribe", method) {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			longest[method] = max(longest[method], time.Until(deadline))
			return nil
		})
		s := w.start(Options{Claim: ClaimOptions{Buffer: 10}}, h)
		w.wait(5 * time.Minute)
		mu.Lock()
		for method, most := range map[string]time.Duration{
			"claim": 30 * time.Second, "ack": 30 * time.Second, "nack": 30 * time.Second, "get": 30 * time.Second, "delete": 30 * time.Second,
			"recover": 20 * time.Second, "extend": 10 * time.Second, "register": 10 * time.Second, "queues": 10 * time.Second,
			"addactivity": 10 * time.Second,
		} {
			assert.Positive(w, longest[method], method)
			assert.LessOrEqual(w, longest[method], most, method)
		}
		mu.Unlock()
		w.stop(s)
	})
}

// A call that a stop cancels is no outage.
func TestStopIsNoOutage(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.hook()
		s := w.start(Options{Recovery: RecoveryOptions{Interval: time.Second}}, h)
		h.every(func(ctx context.Context, method string) error {
			if method == "recover" || method == "register" || method == "delete" {
				<-ctx.Done()
				return fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
			}
			return nil
		})
		w.wait(2 * time.Second)
		w.stop(s)
		assert.Zero(w, w.log.said(wentAway))
		assert.Zero(w, w.log.said(noAnswer))
	})
}

// What is known about the store follows from the answers, in the order of their calls.
func TestContactIsKnownByTheLatestCall(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o, err := Options{}.withDefaults()
		require.NoError(t, err)
		c := newHealth(o)
		began := time.Now()
		at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
		lost := store.ErrUnavailable
		for _, call := range []struct {
			sent, ended int
			err         error
			changed     bool
			away        bool
			patience    int // from then on, in seconds after the beginning
			graver      int
		}{
			{sent: 0, ended: 1},
			{sent: 1, ended: 2, err: lost, changed: true, away: true},
			{sent: 2, ended: 3, err: lost, away: true},
			{sent: 2, ended: 4, changed: true, patience: 14}, // 3 seconds of silence: no lease has run out for that
			{sent: 3, ended: 5, err: lost, patience: 14},     // sent before the store had answered
			{sent: 4, ended: 6, err: lost, changed: true, away: true, patience: 14},
			{sent: 30, ended: 30, changed: true, patience: 40, graver: 40},
			{sent: 31, ended: 31, err: lost, changed: true, away: true, patience: 40, graver: 40},
			{sent: 32, ended: 32, changed: true, patience: 42, graver: 40},
		} {
			changed, long := c.record(at(call.sent), call.err != nil, call.err, at(call.ended))
			assert.Equal(t, call.changed, changed, "%+v", call)
			assert.Equal(t, call.graver == call.ended+10, long, "%+v", call)
			assert.Equal(t, call.away, c.unavailable(), "%+v", call)
			assert.Equal(t, call.away, c.err() != nil, "%+v", call)
			if call.patience > 0 {
				assert.Equal(t, at(call.patience).Sub(at(call.ended)), c.recoveryDelay(false, at(call.ended)), "%+v", call)
			}
			if call.graver > 0 {
				assert.Equal(t, at(call.graver).Sub(at(call.ended)), c.recoveryDelay(true, at(call.ended)), "%+v", call)
			} else {
				assert.LessOrEqual(t, c.recoveryDelay(true, at(call.ended)), time.Duration(0), "%+v", call)
			}
		}
	})
}
