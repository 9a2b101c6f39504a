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

// Tallies are what an observer counts: the counters and histograms of R49.
type tallies struct {
	mu      sync.Mutex // guards what follows
	claimed map[string]int
	waits   []time.Duration
	ends    map[store.Ending]int
	phases  map[store.State]int
	ran     []time.Duration
	lost    int
	settled int
	stale   map[string]int
	unbeat  int
}

func newTallies() *tallies {
	return &tallies{claimed: map[string]int{}, ends: map[store.Ending]int{}, phases: map[store.State]int{}, stale: map[string]int{}}
}

func (c *tallies) note(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *tallies) Claimed(queue string, jobs int) { c.note(func() { c.claimed[queue] += jobs }) }

func (c *tallies) Started(_ store.Job, waited time.Duration) {
	c.note(func() { c.waits = append(c.waits, waited) })
}

func (c *tallies) Ended(_ store.Job, ending store.Ending, phase store.State, ran time.Duration) {
	c.note(func() {
		c.ends[ending]++
		c.phases[phase]++
		c.ran = append(c.ran, ran)
	})
}

func (c *tallies) Recovered(leases []store.Recovered) { c.note(func() { c.lost += len(leases) }) }
func (c *tallies) Settled(jobs []store.Settled)       { c.note(func() { c.settled += len(jobs) }) }
func (c *tallies) StaleWrite(op string)               { c.note(func() { c.stale[op]++ }) }
func (c *tallies) BeatFailed()                        { c.note(func() { c.unbeat++ }) }

// The observer is told of everything that a scrape shows, once each: R49.
func TestObserverCountsEverything(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["good"] = func(ctx context.Context, _ *Run) error { return travel(ctx, 2*time.Second) }
		w.handlers["bad"] = func(context.Context, *Run) error { return errors.New("no luck") }
		w.handlers["busy"] = func(context.Context, *Run) error { return &Wish{Form: store.Snooze, Delay: time.Hour} }
		w.handlers["long"] = func(ctx context.Context, _ *Run) error { return travel(ctx, time.Hour) }
		w.enqueue(30, "good", func(j *store.NewJob) { j.Queue = "a" })
		w.enqueue(5, "bad", func(j *store.NewJob) { j.Queue, j.MaxRetries = "b", 1 })
		w.enqueue(2, "busy", func(j *store.NewJob) { j.Queue = "b" })
		w.orphan(4)
		w.expiring(3)
		w.wait(time.Minute)
		c := newTallies()
		h := w.hook()
		s := w.start(Options{Slots: 100, Observer: c, Queues: map[string]QueueOptions{"a": {}, "b": {}, "c": {}}}, h)
		w.wait(time.Minute)
		c.note(func() {
			assert.Equal(w, map[string]int{"a": 30, "b": 5*2 + 2}, c.claimed)
			assert.Equal(w, map[store.Ending]int{store.EndSucceeded: 30, store.EndFailed: 10, store.EndSnoozed: 2}, c.ends)
			assert.Equal(w, map[store.State]int{store.Succeeded: 30, store.Retrying: 5, store.Dead: 5, store.Ready: 2}, c.phases)
			assert.Equal(w, 4, c.lost)
			assert.Equal(w, 3, c.settled)
			assert.Empty(w, c.stale)
			assert.Zero(w, c.unbeat)
			waits, runs := map[time.Duration]int{}, map[time.Duration]int{}
			for i := range c.waits {
				waits[c.waits[i]]++
				runs[c.ran[i]]++
			}
			assert.Equal(w, map[time.Duration]int{time.Minute: 37, -1: 5}, waits, "the wait of a retry is not known")
			assert.Equal(w, map[time.Duration]int{2 * time.Second: 30, 0: 12}, runs)
		})

		w.enqueue(1, "long", func(j *store.NewJob) { j.Queue = "c" })
		w.wait(time.Second)
		h.every(func(_ context.Context, method string) error {
			if method == "extend" {
				return store.ErrUnavailable
			}
			return nil
		})
		w.wait(15 * time.Second)
		h.let()
		w.fence()
		w.wait(15 * time.Second)
		c.note(func() {
			assert.Positive(w, c.unbeat)
			assert.LessOrEqual(w, c.unbeat, 6, "a beat that failed is tried again a quarter of a beat later")
			assert.Equal(w, map[string]int{"extend": 1}, c.stale)
		})
		w.stop(s)
	})
}

// Stats shows at any time how many runs are running, buffered or uncommitted: the gauges of R49.
func TestStatsShowWhatIsHeld(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["job"] = func(ctx context.Context, _ *Run) error { return travel(ctx, 10*time.Second) }
		h := w.hook()
		s := w.start(Options{Slots: 3, Claim: ClaimOptions{Buffer: 5}}, h)
		assert.Equal(w, Stats{Slots: 3}, s.Stats())
		w.enqueue(8, "job")
		w.wait(time.Second)
		assert.Equal(w, Stats{Slots: 3, Running: 3, Buffered: 5}, s.Stats())
		h.every(func(_ context.Context, method string) error {
			if method == "ack" {
				return store.ErrUnavailable
			}
			return nil
		})
		w.wait(10 * time.Second)
		assert.Equal(w, Stats{Slots: 3, Running: 3, Buffered: 2, Uncommitted: 3}, s.Stats())
		h.let()
		w.wait(time.Minute)
		assert.Equal(w, Stats{Slots: 3}, s.Stats())
		w.stop(s)
	})
}

// A rude observer panics in every method.
type rude struct{}

func (rude) Claimed(string, int)                                       { panic("claimed") }
func (rude) Started(store.Job, time.Duration)                          { panic("started") }
func (rude) Ended(store.Job, store.Ending, store.State, time.Duration) { panic("ended") }
func (rude) Recovered([]store.Recovered)                               { panic("recovered") }
func (rude) Settled([]store.Settled)                                   { panic("settled") }
func (rude) StaleWrite(string)                                         { panic("stale") }
func (rude) BeatFailed()                                               { panic("beat") }

// An observer that panics does not end the server: the first panic is logged once, with its place, and all are ignored.
func TestObserverThatPanicsEndsNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["quick"] = work(0)
		w.handlers["long"] = work(20 * time.Second)
		w.orphan(1)
		w.expiring(1)
		w.wait(time.Minute)
		quick, long := w.enqueue(5, "quick"), w.enqueue(1, "long")[0]
		g := w.gate()
		s := w.start(Options{Observer: rude{}}, g)
		w.wait(time.Second)
		for _, id := range quick {
			assert.Equal(w, store.Succeeded, w.job(id).State)
		}
		g.set(func() {
			g.before = func(_ context.Context, method string) error {
				return map[string]error{"extend": store.ErrUnavailable}[method]
			}
		})
		w.wait(10 * time.Second)
		g.back()
		w.fence()
		w.wait(time.Minute)
		assert.Equal(w, store.Succeeded, w.job(long).State, "in its second run, for it was fenced")
		assert.Len(w, w.said("jq: stale write refused"), 1)
		lines := w.said("jq: the observer panicked; this and later panics are ignored")
		require.Len(w, lines, 1)
		assert.Contains(w, lines[0]["stack"], "observe_test.go")
		require.NoError(w, s.Ready())
		w.stop(s)
	})
}
