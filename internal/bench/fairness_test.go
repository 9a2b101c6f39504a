package bench

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/bubble"
)

// On a fair queue, jobs wait for few of those of a flood, and on a plain one for nearly all.
func TestJobsDoNotWaitForAFloodOnAFairQueue(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		result, err := Run(t.Context(), stores()["memory"](t), Options{Workload: Fairness, Duration: 2 * time.Second})
		require.NoError(t, err)
		of := func(part, name string) float64 { return figure(t, result.Parts, part, name) }
		assert.InDelta(t, 200, of(NoFlood, "jobs"), 0)
		assert.InDelta(t, 2000, of(Plain, "jobs"), 0)
		assert.Zero(t, of(NoFlood, "flood jobs before p95"))
		assert.LessOrEqual(t, of(Fair, "flood jobs before p95"), 2.0)
		assert.Less(t, of(Fair, P95ToAllowed), 100.0)
		assert.InDelta(t, 100*of(Fair, P95)/(2*of(NoFlood, P95)+50), of(Fair, P95ToAllowed), 0.01)
		assert.Greater(t, of(Plain, "flood jobs before p50"), 1000.0)
		assert.Greater(t, of(Plain, P50), 5000.0, "milliseconds: so long the flood takes without the others")
	})
}

// Jobs of the flood that began before a job was in the store, or after it began itself, have not passed it.
func TestOnlyJobsThatBeganMeanwhilePass(t *testing.T) {
	turns := newTurns(3)
	begin := func(number int, key string) {
		j := jq.Job{Payload: document(number, 0), Extras: &jq.Extras{LimitKey: key}}
		require.Error(t, turns.handle(canceled(t), &jq.Run{Job: j}))
	}
	begin(0, flooder)
	begin(1, "b") // before the answer to its enqueue call
	begin(0, flooder)
	turns.stored(1)
	turns.stored(0)
	turns.stored(2)
	begin(0, flooder)
	begin(0, "a")
	begin(0, flooder)
	begin(0, flooder)
	begin(2, "c")
	begin(0, flooder)
	assert.Equal(t, []int64{0, 1, 3}, turns.passing(0))
	assert.Equal(t, []int64{0, 3}, turns.passing(1))
	fair := flooding{policy: jq.Policy{Fair: true}}
	for range 1000 {
		begin(0, flooder)
	}
	require.NoError(t, turns.fair(fair, 1), "half of the jobs have waited for one at most")
	turns.since[2].Store(1000)
	turns.since[1].Store(1000)
	require.ErrorContains(t, turns.fair(fair, 1), "keys take no turns: half of the jobs have waited for 998 jobs of another key or more, with 1 slots")
	require.NoError(t, turns.fair(flooding{}, 1), "on a plain queue")
}

// canceled returns a context that has ended, so that no handler takes time.
func canceled(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
