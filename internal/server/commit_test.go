package server

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// A full batch is written at once, however young its results are: R37.
func TestResultsAreFlushedBySize(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		w.handlers["long"], w.handlers["quick"] = work(time.Hour), work(time.Second)
		s := w.start(Options{Slots: 100, Commit: CommitOptions{Size: 10, MaxDelay: time.Hour}}, g)
		w.enqueue(1, "long")
		ids := w.enqueue(10, "quick")
		w.wait(2 * time.Second)
		for _, id := range ids {
			assert.Equal(w, dawn.Add(time.Second), w.job(id).FinishedAt)
		}
		assert.Equal(w, 1, g.count("ack"))
		w.stop(s)
	})
}

// A result that waits for others is written as soon as none can join it, also when the last of them leaves nothing to write.
func TestResultDoesNotWaitForARunWithoutAVerdict(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["quick"] = work(0)
		w.handlers["slow"] = func(ctx context.Context, _ *Run) error { return travel(ctx, time.Hour) }
		s := w.start(Options{Commit: CommitOptions{MaxDelay: time.Hour}})
		slow := w.enqueue(1, "slow")[0]
		w.wait(time.Second)
		quick := w.enqueue(1, "quick")[0]
		w.wait(time.Second)
		require.Equal(w, store.InFlight, w.job(quick).State, "it waits")
		w.cancel(slow)
		w.wait(time.Second)
		assert.Equal(w, store.Succeeded, w.job(quick).State)
		w.stop(s)
	})
}

// A smaller batch is written when its first result has waited for MaxDelay: R37.
func TestResultsAreFlushedByAge(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		w.handlers["long"], w.handlers["quick"] = work(time.Hour), work(time.Second)
		s := w.start(Options{Slots: 100, Commit: CommitOptions{MaxDelay: 3 * time.Second}}, g)
		w.enqueue(1, "long")
		first := w.enqueue(1, "quick")[0]
		w.wait(2 * time.Second)
		second := w.enqueue(1, "quick")[0]
		w.wait(5 * time.Second)
		for _, id := range []int64{first, second} {
			assert.Equal(w, dawn.Add(4*time.Second), w.job(id).FinishedAt)
		}
		assert.Equal(w, 1, g.count("ack"))
		w.stop(s)
	})
}

// The result of a lone job is written at once, because no other could join it. R37.
func TestLoneResultIsWrittenAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["quick"] = work(time.Second)
		s := w.start(Options{Commit: CommitOptions{MaxDelay: time.Hour}})
		id := w.enqueue(1, "quick")[0]
		w.wait(2 * time.Second)
		assert.Equal(w, dawn.Add(time.Second), w.job(id).FinishedAt)
		w.stop(s)
	})
}

// With an interval, the results of lone jobs gather. A server that stops writes them at once.
func TestIntervalGathersResults(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		w.handlers["quick"] = work(time.Second)
		s := w.start(Options{Commit: CommitOptions{Size: 3, Interval: time.Minute}}, g)
		one := func() (id int64) {
			id = w.enqueue(1, "quick")[0]
			w.wait(2 * time.Second)
			return id
		}
		first, second, third := one(), one(), one()
		assert.Equal(w, store.InFlight, w.job(second).State)
		w.wait(time.Minute)
		assert.Equal(w, dawn.Add(time.Second), w.job(first).FinishedAt, "nothing was written before")
		for _, id := range []int64{second, third} {
			assert.Equal(w, dawn.Add(61*time.Second), w.job(id).FinishedAt)
		}
		assert.Equal(w, 2, g.count("ack"))

		full := w.since()
		ids := []int64{one(), one(), one()}
		assert.Equal(w, dawn.Add(full+5*time.Second), w.job(ids[0]).FinishedAt, "as many as Size wait no longer")

		last := one()
		assert.Equal(w, store.InFlight, w.job(last).State)
		stopped := w.since()
		w.stop(s)
		assert.Equal(w, store.Succeeded, w.job(last).State)
		assert.Equal(w, dawn.Add(stopped), w.job(last).FinishedAt)
	})
}

// Results that keep the server from claiming more jobs do not wait for the interval.
func TestIntervalStopsNoClaims(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["quick"] = work(time.Second)
		s := w.start(Options{Slots: 1, Commit: CommitOptions{MaxUncommitted: 2, Interval: time.Hour}})
		ids := w.enqueue(7, "quick") // one is written at once, and then two together
		w.wait(20 * time.Second)
		for _, id := range ids {
			assert.Equal(w, store.Succeeded, w.job(id).State)
		}
		w.stop(s)
	})
}

// Nor do they wait for one whose write is delayed.
func TestDelayedWriteStopsNoClaims(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		g.ack = func(_ context.Context, acks []store.Ack) ([]store.Outcome, error) {
			g.set(func() { g.ack = nil })
			return []store.Outcome{{ID: acks[0].ID, Status: store.StatusBusy}}, nil
		}
		w.handlers["quick"] = work(10 * time.Millisecond)
		s := w.start(Options{Slots: 1, Commit: CommitOptions{MaxUncommitted: 2, Interval: time.Hour}}, g)
		ids := w.enqueue(4, "quick")
		w.wait(time.Minute)
		require.Equal(w, store.InFlight, w.job(ids[0]).State, "its write was delayed")
		for _, id := range ids[1:] {
			assert.Equal(w, store.Succeeded, w.job(id).State)
		}
		w.stop(s)
	})
}

// While results cannot be written, no more than Commit.MaxUncommitted pile up besides running jobs. Then everything continues, and every
// job has run once: R37.
func TestClaimingStopsBeforeMemoryGrows(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		var mu sync.Mutex // guards ran
		ran := map[int64]int{}
		w.handlers["quick"] = func(_ context.Context, r *Run) error {
			mu.Lock()
			defer mu.Unlock()
			ran[r.ID]++
			return nil
		}
		w.enqueue(500, "quick")
		g.set(func() {
			g.ack = func(context.Context, []store.Ack) ([]store.Outcome, error) { return nil, store.ErrUnavailable }
		})
		s := w.start(Options{Slots: 5, Claim: ClaimOptions{Buffer: 5}, Commit: CommitOptions{MaxUncommitted: 40}}, g)
		w.wait(10 * time.Minute)
		assert.GreaterOrEqual(w, len(ran), 40)
		assert.LessOrEqual(w, len(ran), 50)
		assert.Equal(w, len(ran), s.Stats().Uncommitted)
		require.ErrorContains(w, s.Ready(), "results")
		claimed := g.count("claim")
		w.wait(time.Minute)
		assert.Equal(w, claimed, g.count("claim"))

		g.set(func() { g.ack = nil })
		w.wait(time.Minute)
		assert.NoError(w, s.Ready())
		counts, err := w.store.Count(w.Context(), store.Filter{})
		require.NoError(w, err)
		assert.Equal(w, map[store.State]int64{store.Succeeded: 500}, counts.Queues[0].Jobs)
		for id, n := range ran {
			require.Equal(w, 1, n, "job %d", id)
		}
		w.stop(s)
	})
}

// While the store is unreachable, results wait and their leases expire. Once it is back, they are accepted, because nobody has recovered
// the jobs. Calls have pauses between them. R38.
func TestResultsWaitForTheStore(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		w.handlers["quick"] = work(time.Second)
		ids := w.enqueue(5, "quick")
		s := w.start(Options{}, g)
		g.away()
		w.wait(10 * time.Minute)
		assert.Less(w, g.count("ack"), 100)
		assert.Equal(w, 5, s.Stats().Uncommitted)
		g.back()
		w.wait(time.Minute)
		for _, id := range ids {
			j := w.job(id)
			assert.Equal(w, store.Succeeded, j.State)
			assert.Len(w, j.History, 1)
		}
		assert.Equal(w, Stats{Slots: DefaultSlots}, s.Stats())
		w.stop(s)
	})
}

// If an answer does not arrive, the call is repeated. Nothing is counted twice, and the log warns of no stale write: R38, R27.
func TestWritesInDoubtAreRepeated(t *testing.T) {
	for _, lost := range []int{1, 2, 1000} {
		inWorld(t, func(w *world) {
			g := w.gate()
			g.ack = func(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
				outcomes, err := g.Store.Ack(ctx, acks)
				return outcomes, lose(err, g.count("ack") <= lost)
			}
			g.nack = func(ctx context.Context, nacks []store.NAck) ([]store.Outcome, error) {
				outcomes, err := g.Store.NAck(ctx, nacks)
				return outcomes, lose(err, g.count("nack") <= lost)
			}
			w.handlers["quick"] = work(time.Second)
			w.handlers["fail"] = func(context.Context, *Run) error { return errors.New("no luck") }
			w.handlers["later"] = func(context.Context, *Run) error { return &Wish{Form: store.Snooze, Delay: time.Hour} }
			heard := &ends{}
			quick := w.enqueue(3, "quick")
			failed := w.enqueue(1, "fail", func(n *store.NewJob) { n.Backoff.Base = time.Hour })[0]
			later := w.enqueue(1, "later")[0]
			s := w.start(Options{Observer: heard}, g)
			w.wait(5 * time.Minute)
			for _, id := range quick {
				assert.Equal(w, store.Succeeded, w.job(id).State)
			}
			assert.Equal(w, 1, w.job(failed).Retries)
			assert.Equal(w, store.Ready, w.job(later).State)
			assert.Len(w, heard.all, 5)
			assert.Empty(w, w.said("jq: stale write refused"))
			assert.Equal(w, Stats{Slots: DefaultSlots}, s.Stats())
			w.stop(s)
		})
	}
}

func lose(err error, lost bool) error {
	if lost {
		return errors.Join(store.ErrInDoubt, err)
	}
	return err
}

// A call carries as many results, and as many bytes of them, as the contract allows, and no more.
func TestCallsCarryWhatTheContractAllows(t *testing.T) {
	of := func(n, bytes int) []*Run {
		return slices.Repeat([]*Run{{verdict: &verdict{result: make([]byte, bytes)}}}, n)
	}
	const full = store.MaxCallBytes / store.MaxDocBytes
	for name, c := range map[string]struct {
		runs []*Run
		want []int // runs of each call
	}{
		"none":               {nil, nil},
		"as many as allowed": {of(store.MaxItems, 0), []int{store.MaxItems}},
		"one more":           {of(store.MaxItems+1, 0), []int{store.MaxItems, 1}},
		"twice as many":      {of(2*store.MaxItems, 0), []int{store.MaxItems, store.MaxItems}},
		"as long as allowed": {of(full, store.MaxDocBytes), []int{full}},
		"a byte more":        {append(of(full, store.MaxDocBytes), of(2, 1)...), []int{full, 2}},
		"a byte less each":   {of(2*full, store.MaxDocBytes-1), []int{full, full}},
	} {
		var got []int
		for part := range splitByLimits(c.runs) {
			got = append(got, len(part))
		}
		assert.Equal(t, c.want, got, name)
	}
}
