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

// A run that takes longer than its timeout has failed, whatever its handler returns: R36.
func TestTimeoutFailsTheRun(t *testing.T) {
	cases := map[string]struct {
		of       time.Duration // the job's own
		returned error
		after    time.Duration
		reason   string
	}{
		"the server's":          {0, context.Canceled, 15 * time.Minute, "timed out after 15m0s"},
		"the job's own":         {time.Minute, context.Canceled, time.Minute, "timed out after 1m0s"},
		"though it returns nil": {time.Minute, nil, time.Minute, "timed out after 1m0s"},
		"with its own error":    {time.Minute, errors.New("half done"), time.Minute, "timed out after 1m0s: half done"},
		"with a wish":           {time.Minute, &Wish{Form: store.Snooze, Delay: time.Hour}, time.Minute, "timed out after 1m0s: jq: snooze for 1h0m0s"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				var heard told
				w.handlers["listen"] = listening(w, &heard, c.returned)
				id := w.enqueue(1, "listen", func(n *store.NewJob) { n.Timeout, n.Backoff.Base = c.of, time.Hour })[0]
				s := w.start(Options{})
				w.wait(c.after + time.Second)
				assert.Equal(w, told{ErrTimeout, c.after}, heard)
				j := w.job(id)
				assert.Equal(w, store.Retrying, j.Phase())
				assert.Equal(w, c.reason, j.Error)
				assert.Equal(w, dawn.Add(c.after), j.History[0].EndedAt, "as soon as it returns")
				w.stop(s)
			})
		})
	}
}

// The server waits 10 s longer for a handler that ignores its timeout. Then its job fails regardless, and another job gets its slot.
// When the handler returns at last, nothing happens. R36.
func TestDeafHandlerIsGivenUp(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["deaf"] = deaf(5 * time.Minute)
		w.handlers["quick"] = work(time.Second)
		id := w.enqueue(1, "deaf", func(n *store.NewJob) { n.Timeout, n.MaxRetries = time.Minute, 0 })[0]
		s := w.start(Options{Slots: 1})
		next := w.enqueue(1, "quick")[0]
		w.wait(70*time.Second - 1)
		assert.Equal(w, store.InFlight, w.job(id).State)
		assert.Equal(w, store.Ready, w.job(next).State)

		w.wait(2 * time.Second)
		j := w.job(id)
		assert.Equal(w, store.Dead, j.Phase())
		assert.Equal(w, "timed out after 1m0s: the handler did not return", j.Error)
		assert.WithinRange(w, j.FinishedAt, dawn.Add(70*time.Second), dawn.Add(70*time.Second+DefaultCommitMaxDelay))
		assert.Equal(w, store.Succeeded, w.job(next).State)
		assert.Equal(w, Stats{Slots: 1, Abandoned: 1}, s.Stats())
		assert.NoError(w, s.Ready())

		w.wait(4 * time.Minute)
		assert.Equal(w, j, w.job(id))
		assert.Equal(w, Stats{Slots: 1}, s.Stats())
		assert.Empty(w, w.said("jq: stale write refused"))
		w.stop(s)
	})
}

// Slots are reused up to a limit. Beyond it, the server is not ready, and the slots stay blocked. When handlers return, the server is
// ready again. R36.
func TestAbandonedSlotsAreReplacedUpToACap(t *testing.T) {
	inWorld(t, func(w *world) {
		back := map[int64]chan struct{}{}
		w.handlers["deaf"] = func(_ context.Context, r *Run) error {
			<-back[r.ID]
			return nil
		}
		w.handlers["quick"] = work(time.Second)
		ids := w.enqueue(3, "deaf", func(n *store.NewJob) { n.Timeout, n.MaxRetries = time.Minute, 0 })
		for _, id := range ids {
			back[id] = make(chan struct{})
		}
		s := w.start(Options{Slots: 1, Abandon: AbandonOptions{MaxHandlers: 2}})
		quick := w.enqueue(1, "quick")[0]
		w.wait(141 * time.Second)
		assert.Equal(w, Stats{Slots: 1, Running: 1, Abandoned: 2}, s.Stats())
		assert.NoError(w, s.Ready())

		w.wait(70 * time.Second)
		for _, id := range ids {
			assert.Equal(w, store.Dead, w.job(id).Phase(), "the job has failed, also where its slot was not replaced")
		}
		assert.Equal(w, Stats{Slots: 1, Running: 1, Abandoned: 2}, s.Stats())
		require.ErrorContains(w, s.Ready(), "did not return")
		w.wait(time.Minute)
		assert.Equal(w, store.Ready, w.job(quick).State)

		close(back[ids[0]]) // so that the third can be replaced
		w.wait(2 * time.Second)
		assert.Equal(w, Stats{Slots: 1, Abandoned: 2}, s.Stats())
		assert.NoError(w, s.Ready())
		assert.Equal(w, store.Succeeded, w.job(quick).State)

		close(back[ids[1]])
		close(back[ids[2]])
		w.wait(time.Second)
		assert.Equal(w, Stats{Slots: 1}, s.Stats())
		w.stop(s)
	})
}

// A blocked slot becomes free when its own handler returns.
func TestSlotBeyondTheCapComesBack(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["deaf"] = deaf(5 * time.Minute)
		w.handlers["quick"] = work(time.Second)
		w.enqueue(1, "deaf", func(n *store.NewJob) { n.Timeout, n.MaxRetries = time.Minute, 0 })
		s := w.start(Options{Slots: 1, Abandon: AbandonOptions{MaxHandlers: -1}})
		quick := w.enqueue(1, "quick")[0]
		w.wait(4 * time.Minute)
		assert.Equal(w, Stats{Slots: 1, Running: 1}, s.Stats())
		require.ErrorContains(w, s.Ready(), "did not return")
		w.wait(2 * time.Minute)
		assert.Equal(w, store.Succeeded, w.job(quick).State)
		assert.Equal(w, Stats{Slots: 1}, s.Stats())
		assert.NoError(w, s.Ready())
		w.stop(s)
	})
}

// A handler whose lease is lost, and that does not return, also frees its slot; its job belongs to another run.
func TestDeafHandlerOfALostLeaseIsGivenUp(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["deaf"] = deaf(time.Minute)
		w.handlers["quick"] = work(time.Second)
		id := w.enqueue(1, "deaf")[0]
		s := w.start(Options{Slots: 1})
		quick := w.enqueue(1, "quick")[0]
		_, err := w.store.Cancel(w.Context(), store.Filter{IDs: []int64{id}}, 1)
		require.NoError(w, err)
		w.wait(22 * time.Second)
		assert.Equal(w, Stats{Slots: 1, Abandoned: 1}, s.Stats())
		assert.Equal(w, store.Succeeded, w.job(quick).State)
		w.wait(time.Minute)
		assert.Equal(w, store.Cancelled, w.job(id).State)
		assert.Equal(w, Stats{Slots: 1}, s.Stats())
		w.stop(s)
	})
}

// A handler whose lease is unknown, and that does not return, is abandoned. If it finishes while nobody has recovered its job, its
// result is still accepted: C14.
func TestResultOfAHandlerThatWasGivenUpIsOffered(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		w.handlers["deaf"] = deaf(2 * time.Minute)
		id := w.enqueue(1, "deaf")[0]
		s := w.start(Options{Slots: 1, Recovery: RecoveryOptions{Interval: -1}}, g)
		g.away()
		w.wait(90 * time.Second)
		assert.Equal(w, Stats{Slots: 1, Abandoned: 1}, s.Stats())
		g.back()
		w.wait(time.Minute)
		assert.Equal(w, store.Succeeded, w.job(id).State)
		assert.Equal(w, Stats{Slots: 1}, s.Stats())
		w.stop(s)
	})
}

// If the job was recovered meanwhile, such a result is refused: R20.
func TestResultOfAHandlerThatWasGivenUpIsRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		w.handlers["deaf"] = func(ctx context.Context, r *Run) error {
			r.SetResult([]byte(`"` + r.Job.Worker + `"`))
			return deaf(2*time.Minute)(ctx, r)
		}
		id := w.enqueue(1, "deaf")[0]
		cut := w.start(Options{Name: "cut off", Slots: 1}, g)
		other := w.start(Options{Name: "other"})
		g.away()
		w.wait(110 * time.Second)
		g.back()
		w.wait(2 * time.Minute)
		j := w.job(id)
		assert.Equal(w, store.Succeeded, j.State)
		assert.Equal(w, `"other"`, string(j.Result))
		assert.Len(w, j.History, 2)
		lines := w.said("jq: stale write refused")
		require.Len(w, lines, 1)
		assert.Equal(w, int64(1), lines[0]["token"])
		assert.Equal(w, j.Token, lines[0]["current_token"])
		assert.Equal(w, Stats{Slots: 1}, cut.Stats())
		w.stop(cut)
		w.stop(other)
	})
}

// The timeout counts from the start of the handler, not from the claim.
func TestTimeInTheBufferIsNoRunningTime(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["long"] = work(50 * time.Second)
		ids := w.enqueue(3, "long", func(n *store.NewJob) { n.Timeout, n.MaxRetries = time.Minute, 0 })
		s := w.start(Options{Slots: 1, Claim: ClaimOptions{Buffer: 2}})
		w.wait(3 * time.Minute)
		for _, id := range ids {
			assert.Equal(w, store.Succeeded, w.job(id).State)
		}
		w.stop(s)
	})
}

// Timeouts of many lengths are exact, although one timer serves all.
func TestEachTimeoutIsKept(t *testing.T) {
	inWorld(t, func(w *world) {
		heard := map[int64]*told{}
		w.handlers["listen"] = func(ctx context.Context, r *Run) error {
			return listening(w, heard[r.ID], nil)(ctx, r)
		}
		want := map[int64]time.Duration{}
		for i := range 50 {
			d := time.Duration((i*37)%50+1) * 7 * time.Second
			id := w.enqueue(1, "listen", func(n *store.NewJob) { n.Timeout, n.MaxRetries = d, 0 })[0]
			want[id], heard[id] = d, &told{}
		}
		s := w.start(Options{Slots: 50})
		w.wait(time.Hour)
		for id, d := range want {
			assert.Equal(w, told{ErrTimeout, d}, *heard[id])
		}
		w.stop(s)
	})
}
