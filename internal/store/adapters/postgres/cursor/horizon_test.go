package cursor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/bubble"
	"github.com/seed-ed332417/jq/internal/store"
)

// note lets the horizon learn from an opening.
func note(h *horizon, at time.Time, xmin, number int64, sent time.Time) (past time.Time, stuck, setBack bool) {
	known, setBack := h.learn(at, xmin, number, sent)
	return known.At, known.Stuck, setBack
}

// TestClockSetBack: positions are forgotten, and nothing stays hidden behind them.
func TestClockSetBack(t *testing.T) {
	h := &horizon{}
	_, _, back := note(h, noon, 10, 10, time.Now())
	assert.False(t, back)
	past, _, _ := note(h, noon.Add(time.Second), 11, 12, time.Now())
	assert.Equal(t, noon, past)
	_, _, back = note(h, noon, 12, 12, time.Now())
	assert.True(t, back, "a second back, asked after the later answer")
	past, _, back = note(h, noon, 12, 12, time.Now().Add(-time.Hour))
	assert.False(t, back)
	assert.True(t, past.IsZero(), "what was known before is forgotten")
}

// After a step back of the clock, no position can be trusted.
func TestAStepOfTheClockForgetsPositions(t *testing.T) {
	c := New()
	pass(c, noon)
	look(c, "q", Position{noon.Add(-time.Minute), 7})
	require.NotZero(t, markOf(c, "q"))
	assert.Zero(t, c.Learn(noon.Add(-time.Second), 2_000, 2_000, time.Now()))
	assert.Zero(t, markOf(c, "q"))
	assert.Equal(t, noon.Add(-time.Second), c.Latest())
}

// A step back of the clock either is noticed, and then nothing is known of the time before, or is so small that marks lie behind it:
// what is due after the step is never hidden. An answer that comes late is no step.
func TestStepsOfTheClockHideNothing(t *testing.T) {
	for by, noticed := range map[time.Duration]bool{
		0: false, store.Resolution: false, Slack / 2: false, Slack: false, Slack + store.Resolution: true, time.Second: true,
		store.MaxSetBack: true, store.MaxSetBack + store.Resolution: true, time.Hour: true,
	} {
		h := &horizon{}
		early := time.Now()
		for i := range int64(5) {
			note(h, noon.Add(time.Duration(i)*time.Second), 10, 10+i, time.Now())
		}
		latest := noon.Add(4 * time.Second)
		_, _, back := note(h, latest.Add(-by), 10, 20, early)
		require.False(t, back, "%v: it was asked before the latest answer", by)
		assert.Equal(t, noon, h.known())

		after := latest.Add(-by)
		past, _, back := note(h, after, 1000, 1000, time.Now())
		assert.Equal(t, noticed, back, "a step of %v", by)
		if noticed {
			assert.Zero(t, past)
			past, _, back = note(h, after, 2000, 2000, time.Now())
			assert.Zero(t, past, "what was read before a step of %v is still counted on", by)
			assert.False(t, back, "a step of %v is noticed twice", by)
			past, _, _ = note(h, after.Add(store.Resolution), 3000, 3000, time.Now())
			assert.Equal(t, after.Add(store.Resolution), past, "the horizon stands still after a step of %v", by)
			continue
		}
		mark := moved([Levels]Position{}, [Levels]Position{}, past)[0]
		assert.Equal(t, latest.Add(-Slack), mark.At, "after a step of %v", by)
		assert.False(t, (Position{At: after, ID: 1}).Before(mark), "a job that is due after a step of %v is hidden", by)
	}
}

// TestHorizonWaitsForWriters: a moment is past only when every transaction that was open then has ended.
func TestHorizonWaitsForWriters(t *testing.T) {
	h := &horizon{}
	for i := range int64(1000) { // an open transaction with number 5 keeps xmin there
		past, _, _ := note(h, noon.Add(time.Duration(i)*time.Millisecond), 5, 10+i, time.Now())
		assert.True(t, past.IsZero())
	}
	assert.LessOrEqual(t, len(h.moments), maxMoments+1)
	past, stuck, _ := note(h, noon.Add(time.Second), 1010, 1010, time.Now())
	assert.False(t, stuck)
	assert.False(t, past.After(noon.Add(time.Second)))
	assert.True(t, past.After(noon.Add(900*time.Millisecond)), "past: %v", past)
}

// The horizon is stuck once an open transaction has kept it where it is for longer than StuckFor.
func TestHorizonIsStuckAfterAWhile(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := &horizon{}
		isStuck := func(xmin int64) bool {
			_, stuck, _ := note(h, noon, xmin, 10, time.Now())
			return stuck
		}
		assert.False(t, isStuck(5))
		<-time.After(StuckFor)
		assert.False(t, isStuck(5))
		<-time.After(1)
		assert.True(t, isStuck(5))
		assert.False(t, isStuck(11), "the transaction has ended")
	})
}

// Every other moment is left, and the first one, from which the horizon goes on.
func TestMomentsAreThinnedOut(t *testing.T) {
	h := &horizon{}
	for i := range int64(6) {
		note(h, noon.Add(time.Duration(i)*time.Second), 5, 10+i, time.Now())
	}
	h.thin()
	var numbers []int64
	for _, m := range h.moments {
		numbers = append(numbers, m.number)
	}
	assert.Equal(t, []int64{10, 12, 14}, numbers)
}
