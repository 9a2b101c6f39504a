package sqlite

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A Settle makes no pauses while nobody else calls, and otherwise pauses for a bounded time.
func TestSettlePausesWhileOthersCall(t *testing.T) {
	t.Parallel()
	p := newPace()
	p.took(time.Millisecond, 0)
	assert.Zero(t, p.next, "nobody has called")
	before := time.Now()
	p.took(time.Millisecond, 1)
	assert.False(t, p.next.Before(before.Add(pauses*time.Millisecond)), "somebody has called")
	p.took(time.Hour, 2)
	assert.False(t, p.next.After(time.Now().Add(longestRest)), "a long transaction")
	p.noticed = p.noticed.Add(-lately)
	last := p.next
	p.took(time.Millisecond, 2)
	assert.Equal(t, last, p.next, "the call was long ago")
}

// Settles make their transactions one after the other. One whose context has ended, or whose store is closed, waits for none, and ends no other's turn.
func TestSettlesTakeTurns(t *testing.T) {
	t.Parallel()
	p := newPace()
	done := p.wait(t.Context(), nil)
	ended, end := context.WithCancel(t.Context())
	end()
	p.wait(ended, nil)()
	closed := make(chan struct{})
	close(closed)
	p.wait(t.Context(), closed)()
	assert.Len(t, p.turn, 1, "the first one has its turn")
	done()
	assert.Empty(t, p.turn)

	p.next = time.Now().Add(20 * time.Millisecond)
	p.wait(t.Context(), nil)()
	assert.False(t, time.Now().Before(p.next), "the next one waits for its time")
}
