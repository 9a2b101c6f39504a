package server

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-ed332417/jq/internal/store"
)

// A clerk plays every loop that writes into the book, one step at a time, and checks that the book stays consistent.
type clerk struct {
	*rapid.T
	h        *book
	now      time.Time
	claimed  int64
	live     []*Run         // those whose handlers run, as far as the clerk knows
	taken    []*Run         // those in the hands of the committer
	starts   map[*Run]int   // how often each was started
	told     map[*Run]int   // how often each was told to stop
	givenUp  map[*Run]int   // and given up
	written  map[*Run]bool  // the store has answered for it
	stopped  bool           // the server is stopping
	waitings map[string]int // what stood before the step, for which a signal must come when it grows
}

// pick returns one of the runs.
func (c *clerk) pick(runs []*Run, what string) (*Run, bool) {
	if len(runs) == 0 {
		return nil, false
	}
	return runs[rapid.IntRange(0, len(runs)-1).Draw(c.T, what)], true
}

func (c *clerk) started(runs []*Run) {
	for _, r := range runs {
		if c.starts[r]++; c.starts[r] > 1 {
			c.Fatalf("run %v was started twice", r.Lease())
		}
		if !r.leaseUntil.After(c.now) || c.stopped {
			c.Fatalf("run %v was started with a lease until %v at %v, the server stopping: %v", r.Lease(), r.leaseUntil, c.now, c.stopped)
		}
		c.live = append(c.live, r)
	}
}

func (c *clerk) stops(stops []cancellation) {
	for _, st := range stops {
		if st.cause == nil {
			if c.givenUp[st.run]++; c.givenUp[st.run] > 1 {
				c.Fatalf("run %v was given up twice", st.run.Lease())
			}
			continue
		}
		if c.told[st.run]++; c.told[st.run] > 2 { // of its time, and of its lease
			c.Fatalf("run %v was told to stop three times", st.run.Lease())
		}
	}
}

// Claim adds jobs, as many as there is room for.
func (c *clerk) Claim(t *rapid.T) {
	room := c.h.room()
	if c.stopped {
		room = 2 // of a claim that was under way
	}
	if room == 0 {
		t.Skip("no room")
	}
	var runs []*Run
	for range rapid.IntRange(1, room).Draw(t, "jobs") {
		c.claimed++
		r := newRun(context.Background(), store.Job{
			ID: c.claimed, Token: 1, Queue: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "queue"),
		}, time.Duration(rapid.IntRange(1, 60).Draw(t, "timeout"))*time.Second)
		r.inTx.Store(rapid.Bool().Draw(t, "in a transaction"))
		runs = append(runs, r)
	}
	sent := time.Duration(rapid.IntRange(0, 40).Draw(t, "answered after")) * time.Second
	c.started(c.h.add(runs, c.now.Add(30*time.Second-sent), c.now))
}

// Return ends a handler.
func (c *clerk) Return(t *rapid.T) {
	r, ok := c.pick(c.live, "which")
	if !ok {
		t.Skip("nothing runs")
	}
	c.live = slices.DeleteFunc(c.live, func(other *Run) bool { return other == r })
	v := rapid.SampledFrom([]verdict{{}, {op: ack}, release(), fail("no luck")}).Draw(t, "verdict")
	if next := c.h.finish(r, confirmIfFinished(r, v), c.now); next != nil {
		c.started([]*Run{next})
	}
}

// Beat applies the answers to a heartbeat, which may be late.
func (c *clerk) Beat(t *rapid.T) {
	runs := c.h.extendable(func(*Run) bool { return true })
	outcomes := make([]store.Outcome, len(runs))
	for i, r := range runs {
		outcomes[i] = store.Outcome{ID: r.ID, Status: rapid.SampledFrom([]store.Status{
			store.StatusOK, store.StatusOK, store.StatusOK, store.StatusBusy, store.StatusFinished,
			store.StatusStale, store.StatusNotFound, store.StatusCancelled,
		}).Draw(t, "status")}
	}
	sent := c.now
	if rapid.Bool().Draw(t, "slow") {
		c.now = c.now.Add(5 * time.Second)
	}
	started, stops := c.h.extended(runs, outcomes, sent.Add(30*time.Second), c.now)
	c.started(started)
	c.stops(stops)
}

// Save is refused.
func (c *clerk) Save(t *rapid.T) {
	r, ok := c.pick(c.live, "which")
	if !ok {
		t.Skip("nothing runs")
	}
	c.stops(c.h.writeRefused(r, store.Outcome{Status: store.StatusStale}, c.now))
}

// Time passes, and the watch checks when it said that it would.
func (c *clerk) Time(t *rapid.T) {
	c.now = c.now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "seconds")) * time.Second)
	c.Watch(t)
}

// Watch checks the deadlines.
func (c *clerk) Watch(*rapid.T) {
	started, stops, again := c.h.checkDeadlines(c.now)
	c.started(started)
	c.stops(stops)
	if !again.Equal(c.h.watchAt) || !again.IsZero() && !again.After(c.now) {
		c.Fatalf("the watch looks again at %v, it is %v, and the book says %v", again, c.now, c.h.watchAt)
	}
}

// Pause releases the buffered runs of a queue.
func (c *clerk) Pause(t *rapid.T) {
	c.h.releaseQueues(map[string]bool{rapid.SampledFrom([]string{"a", "b"}).Draw(t, "queue"): true}, c.now)
}

// Take is the committer's.
func (c *clerk) Take(*rapid.T) {
	for _, r := range c.h.takeBatch(nil, c.now) {
		if slices.Contains(c.taken, r) || c.written[r] {
			c.Fatalf("run %v is to be written twice", r.Lease())
		}
		c.taken = append(c.taken, r)
	}
}

// Write is an answer to the committer.
func (c *clerk) Write(t *rapid.T) {
	r, ok := c.pick(c.taken, "which")
	if !ok {
		t.Skip("nothing is being written")
	}
	c.taken = slices.DeleteFunc(c.taken, func(other *Run) bool { return other == r })
	switch rapid.IntRange(0, 3).Draw(t, "answer") {
	case 0:
		c.h.delayWrite(r, c.now.Add(time.Second))
	case 1:
		c.h.replaceVerdict(r, fail("another verdict"))
	default:
		c.written[r] = true
		c.h.remove([]*Run{r})
	}
}

// Stop begins, and cancels handlers when the drain timeout is over.
func (c *clerk) Stop(t *rapid.T) {
	switch {
	case rapid.IntRange(0, 9).Draw(t, "whether") > 0:
		t.Skip("not yet")
	case c.stopped:
		c.stops(c.h.cancelRunning(ErrDrained, c.now))
	default:
		c.stopped = true
		c.h.drain(c.now)
	}
}

// Check runs after every step: the book is consistent, and every loop that must see a change is woken.
func (c *clerk) Check(*rapid.T) {
	if err := c.h.broken(c.now); err != nil {
		c.Fatal(err)
	}
	if n, counted := c.h.byQueue["b"]; counted {
		c.Fatalf("queue b has no limit, and %d of its jobs are counted", n)
	}
	now := c.waiting()
	for name, s := range map[string]signal{"claim": c.h.claim, "commit": c.h.commit, "progress": c.h.progress} {
		if now[name] > c.waitings[name] && len(s) == 0 {
			c.Fatalf("%s: %d, after %d, and nobody is woken", name, now[name], c.waitings[name])
		}
		if len(s) > 0 {
			<-s
		}
	}
	c.waitings = now
}

// waiting returns what the loops wait for: a loop must be woken when there is more of it.
func (c *clerk) waiting() map[string]int {
	room := c.h.room() - c.h.byQueue["a"]
	if c.stopped {
		room = math.MinInt // nobody claims any more
	}
	return map[string]int{
		"claim":    room,
		"commit":   len(c.h.ended),
		"progress": -c.h.running - c.h.uncommitted,
	}
}

// finish lets every handler return, and the store answer every write.
func (c *clerk) finish() {
	for len(c.h.buffered) > 0 || len(c.live) > 0 {
		runs := c.h.extendable(func(*Run) bool { return true })
		outcomes := make([]store.Outcome, len(runs))
		for i := range outcomes {
			outcomes[i].Status = store.StatusOK
		}
		started, _ := c.h.extended(runs, outcomes, c.now.Add(30*time.Second), c.now)
		c.started(started)
		if len(c.live) == 0 {
			c.Fatal("runs wait, their leases are good, and none starts")
		}
		r := c.live[0]
		c.live = c.live[1:]
		if next := c.h.finish(r, verdict{op: ack}, c.now); next != nil {
			c.started([]*Run{next})
		}
	}
	c.now = c.now.Add(time.Minute)
	c.Take(c.T)
	c.h.remove(c.taken)
	c.taken = nil
	require.NoError(c.T, c.h.broken(c.now))
	require.Equal(c.T, Stats{Slots: c.h.slots}, c.h.stats())
	require.Empty(c.T, c.h.runs)
	require.True(c.T, c.h.drained())
}
