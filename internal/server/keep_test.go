package server

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
)

// Finished jobs are deleted after their retention, which the policy of their queue sets for each state, even if no server works on the
// queue. Dead jobs are kept unless the policy says otherwise: R61.
func TestFinishedJobsAreKeptForTheirTime(t *testing.T) {
	day := 24 * time.Hour
	cases := map[string]struct {
		policy store.Policy
		kept   map[store.State]time.Duration // zero means for ever
	}{
		"defaults": {store.Policy{}, map[store.State]time.Duration{store.Succeeded: day, store.Cancelled: 7 * day, store.Dead: 0}},
		"chosen": {
			store.Policy{RetainSucceeded: time.Hour, RetainCancelled: 2 * time.Hour, RetainDead: 3 * time.Hour},
			map[store.State]time.Duration{store.Succeeded: time.Hour, store.Cancelled: 2 * time.Hour, store.Dead: 3 * time.Hour},
		},
		"for ever": {
			store.Policy{RetainSucceeded: store.KeepForEver, RetainCancelled: store.KeepForEver, RetainDead: store.KeepForEver},
			map[store.State]time.Duration{store.Succeeded: 0, store.Cancelled: 0, store.Dead: 0},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				ids := map[store.State]int64{}
				for state := range c.kept {
					ids[state] = w.finished(1, state)[0]
					w.setPolicy(w.job(ids[state]).Queue, c.policy)
				}
				ready := w.enqueue(1, "job", func(j *store.NewJob) { j.Delay = 20 * day })[0]
				finished := time.Now()
				s := w.start(rare(10 * time.Minute)) // ten days go by
				gone := map[store.State]time.Duration{}
				for time.Since(finished) < 10*day {
					w.wait(10 * time.Minute)
					for state, id := range ids {
						if _, err := w.store.Get(w.Context(), id); err != nil && gone[state] == 0 {
							require.ErrorIs(w, err, store.ErrNotFound)
							gone[state] = time.Since(finished)
						}
					}
				}
				for state, kept := range c.kept {
					if kept == 0 {
						assert.Zero(w, gone[state], state)
						continue
					}
					assert.GreaterOrEqual(w, gone[state], kept, state)
					assert.LessOrEqual(w, gone[state], kept+s.o.Retention.Interval+10*time.Minute, state)
				}
				assert.Equal(w, store.Ready, w.job(ready).State)
				w.stop(s)
			})
		})
	}
}

// setPolicy sets the policy of a queue for the first time.
func (w *world) setPolicy(queue string, p store.Policy) {
	w.Helper()
	_, err := w.store.SetPolicy(w.Context(), queue, p)
	require.NoError(w, err)
}

// finished makes so many jobs of a terminal state.
func (w *world) finished(n int, state store.State) []int64 {
	w.Helper()
	queue := "finished as " + string(state)
	ids := w.enqueue(n, "job", func(j *store.NewJob) { j.Queue = queue })
	jobs, err := w.store.FetchAndClaim(w.Context(), store.ClaimRequest{Queue: queue, Limit: n, Worker: "past", TTL: time.Minute})
	require.NoError(w, err)
	require.Len(w, jobs, n)
	acks, nacks := make([]store.Ack, n), make([]store.NAck, n)
	for i, j := range jobs {
		acks[i], nacks[i] = store.Ack{Lease: j.Lease()}, store.NAck{Lease: j.Lease(), Form: store.Never, Error: "no luck"}
	}
	switch state {
	case store.Succeeded:
		_, err = w.store.Ack(w.Context(), acks)
	case store.Cancelled:
		_, err = w.store.Cancel(w.Context(), store.Filter{IDs: ids}, n)
	case store.Dead:
		_, err = w.store.NAck(w.Context(), nacks)
	}
	require.NoError(w, err)
	return ids
}

// Deletion goes in bounded batches, one after the other until nothing is left, and the log says how many jobs were deleted: R61.
func TestDeletionGoesInBatches(t *testing.T) {
	inWorld(t, func(w *world) {
		for range 3 {
			w.finished(700, store.Succeeded)
		}
		w.setPolicy("finished as succeeded", store.Policy{RetainSucceeded: time.Hour, RetainCancelled: store.KeepForEver})
		h := w.hook()
		s := w.start(Options{}, batches{h, t, new(int64)})
		w.wait(59 * time.Minute)
		deletes := h.count("delete")
		assert.Equal(w, 2100, w.total())
		assert.Empty(w, w.said("jq: finished jobs deleted"))
		w.wait(3 * time.Minute)
		assert.Zero(w, w.total())
		assert.InDelta(w, 5+2, h.count("delete")-deletes, 1.1, "five batches, the last of which is not full, and the looks beside")
		lines := w.said("jq: finished jobs deleted")
		require.Len(w, lines, 1)
		assert.Equal(w, int64(2100), lines[0]["count"])
		assert.Equal(w, store.Succeeded, lines[0]["state"])
		w.stop(s)
	})
}

// batches checks that every deletion has a limit, and that each continues where the one before ended.
type batches struct {
	*hook
	t    *testing.T
	last *int64
}

func (b batches) Delete(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	assert.LessOrEqual(b.t, limit, 500)
	assert.Equal(b.t, store.Filter{States: []store.State{store.Succeeded}, FinishedFor: time.Hour, After: *b.last, Unneeded: true}, filter)
	outcomes, err := b.hook.Delete(ctx, filter, limit)
	*b.last = 0
	if len(outcomes) == limit {
		*b.last = outcomes[limit-1].ID
	}
	return outcomes, err
}

// total returns how many jobs there are.
func (w *world) total() int {
	w.Helper()
	counts, err := w.store.Count(w.Context(), store.Filter{})
	require.NoError(w, err)
	n := 0
	for _, q := range counts.Queues {
		for _, jobs := range q.Jobs {
			n += int(jobs)
		}
	}
	return n
}

// A deletion that fails is tried again at the next interval. A refusal is logged.
func TestFailedDeletionIsTriedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.finished(1, store.Succeeded)
		h := w.hook()
		h.every(func(_ context.Context, method string) error {
			if method == "delete" {
				return fmt.Errorf("disk on fire")
			}
			return nil
		})
		w.setPolicy("finished as succeeded", store.Policy{RetainSucceeded: time.Hour})
		s := w.start(Options{}, h)
		w.wait(2 * time.Hour)
		assert.Equal(w, 1, w.total())
		assert.Equal(w, h.count("delete"), w.log.said("jq: the store refused a call"))
		assert.LessOrEqual(w, h.count("delete"), 2*2*75, "once a minute for each of the two states")
		h.let()
		w.wait(2 * time.Minute)
		assert.Zero(w, w.total())
		w.stop(s)
	})
}

// A server lists itself among the workers while it lives, with its load, and counts as stale after three silent heartbeat intervals. The
// list affects no job: R50.
func TestServerIsListedAmongTheWorkers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["job"] = func(ctx context.Context, _ *Run) error { return travel(ctx, time.Hour) }
		w.enqueue(3, "job")
		h := w.hook()
		s := w.start(Options{Name: "mine", Slots: 2, Queues: map[string]QueueOptions{DefaultQueue: {}, "another": {}}}, h)
		w.wait(time.Minute)
		host, err := os.Hostname()
		require.NoError(w, err)
		list, err := store.AllWorkers(w.Context(), w.store)
		require.NoError(w, err)
		require.Len(w, list, 1)
		assert.WithinRange(w, list[0].BeatAt, time.Now().Add(-10*time.Second), time.Now())
		list[0].BeatAt = time.Time{}
		assert.Equal(w, store.Worker{
			Name: "mine", Host: host, PID: os.Getpid(), Queues: []string{"another", DefaultQueue},
			Slots: 2, Running: 2, StaleAfter: 30 * time.Second,
		}, list[0])

		h.every(func(_ context.Context, method string) error {
			if method == "register" {
				return fmt.Errorf("no such table")
			}
			return nil
		})
		w.wait(time.Minute)
		list, err = store.AllWorkers(w.Context(), w.store)
		require.NoError(w, err)
		assert.True(w, list[0].Stale)
		assert.Positive(w, w.log.said("jq: the store refused a call"))
		require.NoError(w, s.Ready())
		assert.Equal(w, 2, s.Stats().Running, "and its leases live")
		assert.Zero(w, w.log.said("jq: expired leases recovered"))
		h.let()
		w.wait(11 * time.Second)
		list, err = store.AllWorkers(w.Context(), w.store)
		require.NoError(w, err)
		assert.False(w, list[0].Stale)
		_ = s.Stop(inAHurry())
	})
}

// A server without queues, such as that of jobq serve, has no slots in the list: nobody is to take them for free ones.
func TestServerWithoutQueuesListsNoSlots(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.start(Options{Name: "keeper", Queues: map[string]QueueOptions{}})
		w.wait(time.Minute)
		list, err := store.AllWorkers(w.Context(), w.store)
		require.NoError(w, err)
		require.Len(w, list, 1)
		assert.Empty(w, list[0].Queues)
		assert.Zero(w, list[0].Slots)
		_ = s.Stop(inAHurry())
	})
}

// distant is a store whose calls of Beat take a second, and arrive even if nobody waits for them any more.
type distant struct{ *memory.Store }

func (d distant) Beat(ctx context.Context, w store.Worker) error {
	arrived := make(chan error, 1)
	time.AfterFunc(time.Second, func() { arrived <- d.Store.Beat(context.WithoutCancel(ctx), w) })
	select {
	case err := <-arrived:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", store.ErrInDoubt, ctx.Err())
	}
}

// A Beat under way when the worker left used to arrive after Leave, and the worker was listed as if it had died.
func TestBeatUnderWayDoesNotBringBackAWorkerThatLeft(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.server(Options{}, distant{w.store})
		require.NoError(w, s.Start(w.Context()))
		w.wait(500 * time.Millisecond)
		w.stop(s)
		assert.Equal(w, time.Second, w.since(), "it waits for the beat")
		w.wait(time.Minute)
		list, err := store.AllWorkers(w.Context(), w.store)
		require.NoError(w, err)
		assert.Empty(w, list)
	})
}

// The server does not wait much longer for a Beat without an answer than for Leave itself.
func TestHangingBeatDoesNotLengthenTheStop(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.hook()
		h.every(func(ctx context.Context, method string) error {
			if method == "register" {
				return gone(ctx)
			}
			return nil
		})
		s := w.start(Options{}, h)
		w.wait(500 * time.Millisecond)
		began := w.since()
		w.stop(s)
		assert.Equal(w, leaveTimeout, w.since()-began)
	})
}

// D24: a server that had stopped cleanly was listed as stale for a day, and doctor failed after every deploy.
func TestCleanStopWasListedAsACrash(t *testing.T) {
	listed := func(w *world) []store.Worker {
		list, err := store.AllWorkers(w.Context(), w.store)
		require.NoError(w, err)
		return list
	}
	t.Run("clean", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.handlers["job"] = work(3 * time.Minute)
			w.enqueue(1, "job")
			s := w.start(Options{Shutdown: ShutdownOptions{DrainTimeout: 5 * time.Minute}})
			w.wait(time.Second)
			st := beginStop(w, w.Context(), s)
			w.wait(2 * time.Minute)
			require.Len(w, listed(w), 1, "it still runs a job")
			assert.False(w, listed(w)[0].Stale, "and says so")
			w.wait(2 * time.Minute)
			done, err, _ := st.get()
			require.True(w, done)
			require.NoError(w, err)
			assert.Empty(w, listed(w))
			w.wait(time.Hour)
			assert.Empty(w, listed(w), "no late beat brings it back")
		})
	})
	t.Run("something is left behind", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.handlers["deaf"] = deaf(time.Hour)
			w.enqueue(1, "deaf")
			s := w.start(Options{Shutdown: ShutdownOptions{DrainTimeout: time.Second}})
			w.wait(time.Second)
			require.Error(w, s.Stop(w.Context()))
			w.wait(time.Minute)
			require.Len(w, listed(w), 1)
			assert.True(w, listed(w)[0].Stale)
			w.wait(2 * time.Hour)
		})
	})
	t.Run("the store is away", func(t *testing.T) {
		inWorld(t, func(w *world) {
			h := w.hook()
			s := w.start(Options{}, h)
			w.wait(time.Minute)
			h.refuse()
			w.wait(time.Minute)
			began := w.since()
			require.NoError(w, s.Stop(w.Context()))
			assert.LessOrEqual(w, w.since()-began, leaveTimeout)
			require.Len(w, listed(w), 1)
		})
	})
}
