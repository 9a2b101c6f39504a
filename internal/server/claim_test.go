package server

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// A begun records when handlers began, by the ids of their jobs.
type begun struct {
	mu sync.Mutex // guards at
	at map[int64]time.Time
}

// handler returns a handler that records when it began, and works for so long.
func (b *begun) handler(d time.Duration) Handler {
	b.at = map[int64]time.Time{}
	return func(ctx context.Context, r *Run) error {
		b.mu.Lock()
		b.at[r.ID] = time.Now()
		b.mu.Unlock()
		return travel(ctx, d)
	}
}

func (b *begun) of(id int64) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at[id]
}

func (b *begun) all() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.at)
}

// On a server that has been idle for long, a job starts at once if the store announces it, and within PollInterval otherwise.
func TestJobOnAnIdleServerStartsInTime(t *testing.T) {
	for _, notified := range []bool{true, false} {
		inWorld(t, func(w *world) {
			var b begun
			w.handlers["job"] = b.handler(0)
			h := w.hook()
			var on store.Store = h
			bound := time.Duration(0)
			if !notified {
				on, bound = h.plain(), DefaultPollInterval
			}
			s := w.start(Options{}, on)
			for range 50 {
				w.wait(time.Minute + 123*time.Millisecond)
				now := time.Now()
				id := w.enqueue(1, "job")[0]
				w.wait(2 * DefaultPollInterval)
				require.False(w, b.of(id).IsZero(), "it ran")
				require.LessOrEqual(w, b.of(id).Sub(now), bound, "notified %t", notified)
			}
			w.stop(s)
		})
	}
}

// Jobs that are announced one by one cause one claim each, besides the polls.
func TestLoneJobsCauseAClaimEach(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["job"] = func(context.Context, *Run) error { return nil }
		h := w.hook()
		s := w.start(Options{}, h)
		w.wait(10 * time.Second) // until it is idle
		const jobs = 200
		claims, began := h.count("claim"), time.Now()
		for range jobs {
			w.enqueue(1, "job")
			w.wait(50 * time.Millisecond)
		}
		polls := int(time.Since(began)/(DefaultPollInterval*4/5)) + 1
		claims = h.count("claim") - claims
		assert.GreaterOrEqual(w, claims, jobs)
		assert.LessOrEqual(w, claims, jobs+polls)
		w.stop(s)
	})
}

// A delayed job, and a retry, start within PollInterval of their due times.
func TestDelayedJobStartsInTime(t *testing.T) {
	for _, poll := range []time.Duration{0, 50 * time.Millisecond, 5 * time.Second} {
		inWorld(t, func(w *world) {
			var b begun
			w.handlers["job"] = b.handler(0)
			s := w.start(Options{Claim: ClaimOptions{PollInterval: poll}})
			bound := s.o.Claim.PollInterval
			due := map[int64]time.Time{}
			for n := range 50 {
				delay := time.Duration(n*7919) * time.Millisecond
				id := w.enqueue(1, "job", func(j *store.NewJob) { j.Delay = delay })[0]
				due[id] = time.Now().Add(delay)
			}
			w.wait(10 * time.Minute)
			for id, at := range due {
				late := b.of(id).Sub(at)
				require.True(w, late >= 0 && late <= bound, "%v late, with a poll of %v", late, bound)
			}
			w.stop(s)
		})
	}
}

// An idle server makes at most two calls a second for each queue, including recovery and everything else: P10.
func TestIdleServerAsksSeldom(t *testing.T) {
	for _, queues := range []map[string]QueueOptions{{"a": {}}, {"a": {}, "b": {}, "c": {}}} {
		for _, notified := range []bool{true, false} {
			inWorld(t, func(w *world) {
				h := w.hook()
				var on store.Store = h
				if !notified {
					on = h.plain()
				}
				s := w.start(Options{Queues: queues}, on)
				w.wait(10 * time.Second) // until it is idle
				claims, calls := h.count("claim"), h.count("")
				w.wait(time.Minute)
				claims, calls = h.count("claim")-claims, h.count("")-calls
				t.Logf("%d queues, notified %t: %d claims and %d calls in all in a minute", len(queues), notified, claims, calls)
				assert.LessOrEqual(w, calls, 2*60*len(queues))
				assert.GreaterOrEqual(w, claims, 60*len(queues), "it looks once in a Poll")
				w.stop(s)
			})
		}
	}
}

// A job that becomes claimable while an empty answer to a claim is on its way is claimed at once.
func TestJobEnqueuedDuringAClaimStartsAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		var b begun
		w.handlers["job"] = b.handler(0)
		h := w.hook()
		var id int64
		var at time.Time
		claim := 0
		on := afterClaim{h, func() {
			if claim++; claim == 10 {
				id, at = w.enqueue(1, "job")[0], time.Now()
			}
		}}
		s := w.start(Options{}, on)
		w.wait(time.Minute)
		require.NotZero(w, id)
		assert.Equal(w, at.Add(2*time.Millisecond), b.of(id), "with the claim that follows")
		w.stop(s)
	})
}

// An afterClaim does something after the store has decided a claim, and before its answer arrives.
type afterClaim struct {
	*hook
	then func()
}

func (a afterClaim) FetchAndClaim(ctx context.Context, req store.ClaimRequest) ([]store.Job, error) {
	jobs, err := a.hook.FetchAndClaim(ctx, req)
	a.then()
	return jobs, errors.Join(err, travel(ctx, time.Millisecond))
}

// A subscription that ends or is refused is made again; meanwhile the server polls the queues.
func TestSubscriptionThatEndsIsMadeAnew(t *testing.T) {
	inWorld(t, func(w *world) {
		var b begun
		w.handlers["job"] = b.handler(0)
		h := w.hook()
		cut := &cutter{hook: h}
		s := w.start(Options{}, cut)
		w.wait(time.Minute)
		for n := range 10 {
			if n%2 == 1 {
				h.every(func(_ context.Context, method string) error {
					if method == "subscribe" {
						return store.ErrUnavailable
					}
					return nil
				})
			}
			cut.cut()
			now := time.Now()
			id := w.enqueue(1, "job")[0]
			w.wait(5 * time.Second)
			require.False(w, b.of(id).IsZero())
			require.LessOrEqual(w, b.of(id).Sub(now), DefaultPollInterval, "nobody told of it")
			h.let()
			w.wait(time.Minute)
			now = time.Now()
			id = w.enqueue(1, "job")[0]
			w.wait(0)
			require.Equal(w, now, b.of(id), "it was told of")
		}
		assert.Positive(w, w.log.said(noAnswer), "of the subscriptions that were refused")
		require.NoError(w, s.Ready(), "wake-ups are a help only")
		w.stop(s)
	})
}

// A long PollInterval is safe with a store that announces jobs: a subscription that ended is made again within a second, even after it
// had failed for long, and the server then looks for jobs that it missed.
func TestWhatASubscriptionMissedIsLookedFor(t *testing.T) {
	inWorld(t, func(w *world) {
		var b begun
		w.handlers["job"] = b.handler(0)
		h := w.hook()
		cut := &cutter{hook: h}
		s := w.start(Options{Claim: ClaimOptions{PollInterval: 24 * time.Hour}}, cut)
		h.every(func(_ context.Context, method string) error {
			if method == "subscribe" {
				return store.ErrUnavailable
			}
			return nil
		})
		cut.cut()
		w.wait(10 * time.Minute)
		h.let()
		w.wait(time.Minute)
		for range 10 {
			w.wait(6 * time.Hour) // the next look is hours away
			cut.cut()
			now := time.Now()
			id := w.enqueue(1, "job")[0]
			w.wait(2 * time.Second)
			require.False(w, b.of(id).IsZero())
			require.LessOrEqual(w, b.of(id).Sub(now), time.Second)
		}
		w.stop(s)
	})
}

// A store that refuses claims is not asked again for each new job, and every refusal is logged.
func TestRefusedClaimsAreNotRepeatedAtEachWakeUp(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.hook()
		h.every(func(_ context.Context, method string) error {
			if method == "claim" {
				return errors.New("permission denied")
			}
			return nil
		})
		s := w.start(Options{}, h)
		for range 1000 {
			w.enqueue(1, "job")
			w.wait(30 * time.Millisecond)
		}
		assert.Less(w, h.count("claim"), 50, "in half a minute")
		assert.Equal(w, h.count("claim"), w.log.said("jq: the store refused a call"))
		w.stop(s)
	})
}

// A cutter ends the subscription that goes through it.
type cutter struct {
	*hook
	mu  sync.Mutex // guards end
	end context.CancelFunc
}

func (c *cutter) Subscribe(ctx context.Context, queues []string) (<-chan store.Wakeup, error) {
	ctx, end := context.WithCancel(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end = end
	return c.hook.Subscribe(ctx, queues)
}

func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
}

// More slots than one claim may fill are filled by several claims.
func TestMoreRoomThanACallMayClaim(t *testing.T) {
	inWorld(t, func(w *world) {
		var b begun
		w.handlers["job"] = b.handler(time.Minute)
		for range 3 {
			w.enqueue(1000, "job")
		}
		h := w.hook()
		s := w.start(Options{Slots: 2000, Claim: ClaimOptions{Buffer: 500}}, h)
		w.wait(time.Second)
		assert.Equal(w, 2000, b.all())
		assert.Equal(w, Stats{Slots: 2000, Running: 2000, Buffered: 500}, s.Stats())
		assert.Zero(w, w.log.said("jq: the store refused a call"))
		w.wait(2 * time.Minute)
		assert.Equal(w, 3000, b.all())
		w.stop(s)
	})
}

// Several servers share the work of a queue: each job runs once, and each server gets a part. C1.
func TestServersShareTheWork(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["job"] = func(ctx context.Context, _ *Run) error { return travel(ctx, time.Second) }
		ids := w.enqueue(900, "job")
		var servers []*Server
		for _, name := range []string{"a", "b", "c"} {
			servers = append(servers, w.start(Options{Name: name}))
		}
		w.wait(time.Minute)
		ran := map[string]int{}
		for _, id := range ids {
			j := w.job(id)
			require.Equal(w, store.Succeeded, j.State)
			require.Len(w, j.History, 1)
			ran[j.History[0].Worker]++
		}
		for _, name := range []string{"a", "b", "c"} {
			assert.InDelta(w, 300, ran[name], 30, "by %s: %v", name, ran)
		}
		for _, s := range servers {
			w.stop(s)
		}
	})
}

// Portions are the numbers of jobs that the successful claims returned, in order.
type portions struct {
	NopObserver
	jobs []int
}

func (p *portions) Claimed(_ string, jobs int) { p.jobs = append(p.jobs, jobs) }

// If jobs are so heavy that a claim returns fewer than there is room for, the next claim follows without a pause.
func TestHeavyJobsWaitForNoPoll(t *testing.T) {
	inWorld(t, func(w *world) {
		var b begun
		w.handlers["job"] = b.handler(time.Minute)
		const n = 20
		for range n {
			w.enqueue(1, "job", func(j *store.NewJob) { j.Payload = []byte(`"` + strings.Repeat("x", 1<<20-2) + `"`) })
		}
		var some portions
		h := w.hook()
		s := w.start(Options{Slots: 100, Observer: &some}, h.plain()) // whose wake-ups would let it look once more
		w.wait(0)
		assert.Equal(w, n, b.all(), "begun at once")
		assert.Equal(w, []int{8, 8, 4}, some.jobs)
		assert.Equal(w, 3, h.count("claim"), "none that brought nothing")
		w.wait(2 * time.Minute)
		w.stop(s)
	})
}
