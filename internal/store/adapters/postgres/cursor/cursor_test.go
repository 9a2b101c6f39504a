package cursor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// top is the highest priority, and the only one of the leases.
const top = store.MaxPriority

// markOf is the mark of fresh jobs of the highest priority, or of the leases.
func markOf(c *Cursors, queue string) Position { return c.Get(queue).Lanes[Fresh].Mark[0] }

// startOf is where the next claim begins among them.
func startOf(c *Cursors, queue string) Position {
	for _, from := range c.Plan(queue).Starts(Fresh) {
		return from
	}
	return Position{}
}

// pass brings the horizon to a time.
func pass(c *Cursors, to time.Time) {
	c.Learn(to, 1_000, 1_000, time.Now())
	c.horizon.past = to
}

// look makes a plan whose look sees a fresh job of the highest priority, and ends.
func look(c *Cursors, queue string, first Position) *Plan {
	p := c.Plan(queue)
	p.Open(Horizon{At: c.Horizon()}, false)
	p.Saw(Fresh, top, first)
	p.Looked(first.At)
	return p
}

// All positions of all queues are forgotten at once, and calls under way write none of them back. What begins then is kept.
func TestForgottenPositionsStayForgotten(t *testing.T) {
	t.Parallel()
	c := New()
	queues := []string{"a", "b", "c", Leases}
	for round := range int64(3) {
		base := noon.Add(time.Duration(round) * time.Minute)
		for i := range int64(3) {
			c.Learn(base.Add(time.Duration(10*i)*time.Second), 1000*round+2, 1000*round+2+i, time.Now())
		}
		require.Equal(t, base, c.Horizon())
		seen := Position{base.Add(-time.Second), 7}
		underWay := map[string]*Plan{}
		for _, q := range queues {
			p := look(c, q, seen)
			p.Took(Fresh, top, seen)
			p.Done(false)
			require.Equal(t, seen, markOf(c, q), "round %d: what a claim of %s has learned is lost", round, q)
			require.Equal(t, Position{seen.At, 8}, c.Get(q).Lanes[Fresh].Cursor[0])
			underWay[q] = p
		}

		c.Forget()
		for range 2 { // before and after the calls under way end
			for _, q := range queues {
				assert.Equal(t, Queue{Age: c.age}, c.Get(q), "round %d, queue %s", round, q)
				underWay[q].Looked(noon)
				underWay[q].Done(true)
				underWay[q].Failed()
			}
			assert.Zero(t, c.Horizon())
		}
		known := c.Learn(noon, 9999, 9999, time.Time{})
		assert.Zero(t, known.At, "numbers from before say nothing")
		c.Forget()
		c.horizon.latest = time.Time{}
	}
}

// A mark that a sweep has brought back stays there, whatever was under way in any queue. Others are as they were, and go on.
func TestMarksThatWereBroughtBackStay(t *testing.T) {
	t.Parallel()
	for _, corrected := range []string{"a", Leases} {
		c := New()
		pass(c, noon)
		early, mark := Position{noon.Add(-time.Hour), 1}, Position{noon.Add(-time.Minute), 7}
		all, underWay := []string{"a", "b", Leases}, map[string]*Plan{}
		for _, q := range all {
			underWay[q] = look(c, q, mark)
			underWay[q].Took(Fresh, top, mark)
			underWay[q].Done(false)
			require.Equal(t, mark, markOf(c, q))
			require.Equal(t, Position{mark.At, 8}, startOf(c, q))
		}
		before := c.All()
		require.False(t, c.Correct(before, corrected, Fresh, top, mark), "the job is not before the mark")
		require.False(t, c.Correct(before, corrected, Fresh, top-1, Position{At: noon}), "the marks of other levels do not count")
		require.False(t, c.Correct(before, "unknown", Fresh, top, early), "nothing is known of the queue")
		require.True(t, c.Correct(before, corrected, Fresh, top, early))
		for _, p := range underWay {
			p.Saw(Fresh, top, Position{noon.Add(-time.Second), 9})
			p.Looked(noon)
			p.Done(false)
		}
		for _, q := range all {
			want, start := mark, Position{mark.At, 8}
			if q == corrected {
				want, start = early, early
				assert.True(t, c.Get(q).Told && c.Get(q).Looked.IsZero(), "the next claim looks")
			}
			assert.Equal(t, want, markOf(c, q))
			assert.Equal(t, start, startOf(c, q))
			later := Position{noon.Add(-time.Second), 11}
			look(c, q, later)
			assert.Equal(t, later, markOf(c, q), "queue %q stands still", q)
		}
	}
}

// What is known of the transactions goes first: a claim that begins in between would move a new mark by it.
func TestTheHorizonIsForgottenFirst(t *testing.T) {
	t.Parallel()
	c := New()
	c.Learn(noon, 1, 1, time.Now())
	require.Equal(t, noon, c.Horizon())
	c.mu.Lock()
	done := make(chan struct{})
	go func() { c.Forget(); close(done) }()
	assert.Eventually(t, func() bool { return c.Horizon().IsZero() }, 10*time.Second, time.Millisecond, "positions are forgotten first")
	c.mu.Unlock()
	<-done
}

// Only so many queues are remembered. The leases are remembered again soon.
func TestRememberedQueuesAreBounded(t *testing.T) {
	t.Parallel()
	c := New()
	for i := range MaxQueues {
		c.Plan(string(rune(i + 1))).Done(true)
	}
	require.Len(t, c.All(), MaxQueues)
	c.Plan("one more").Done(true)
	assert.Len(t, c.All(), 1)
	assert.True(t, c.Get("one more").Short)
}
