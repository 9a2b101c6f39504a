package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPhaseSplitsFailed(t *testing.T) {
	assert.Equal(t, Retrying, Job{State: Failed, RetryAt: noon}.Phase())
	assert.Equal(t, Dead, Job{State: Failed}.Phase())
	assert.Equal(t, Ready, Job{State: Ready}.Phase())
}

func TestClaimableToTheMicrosecond(t *testing.T) {
	for _, job := range []Job{{State: Ready, RunAt: noon}, {State: Failed, RetryAt: noon, RunAt: noon.Add(-time.Hour)}} {
		assert.False(t, job.Claimable(noon.Add(-Resolution)), job.Phase())
		assert.True(t, job.Claimable(noon), job.Phase())
	}
	for _, job := range []Job{{State: Failed}, {State: Succeeded}, {State: Cancelled}, {State: InFlight, LeaseExpiresAt: noon}} {
		assert.False(t, job.Claimable(noon.Add(time.Hour)), job.Phase())
	}
}

// The table of transitions is data that others build on: it has to be whole.
func TestTransitionsAreWhole(t *testing.T) {
	seen := map[Op]bool{}
	for _, tr := range Transitions {
		assert.False(t, seen[tr.Op], "%s stands twice", tr.Op)
		seen[tr.Op] = true
		for _, phase := range tr.From {
			assert.Contains(t, Phases, phase, tr.Op)
		}
		for _, phase := range tr.To {
			assert.Contains(t, append([]State{Gone}, Phases...), phase, tr.Op)
		}
		assert.NotEmpty(t, tr.From, tr.Op)
		assert.NotEmpty(t, tr.To, tr.Op)
	}
	assert.Len(t, seen, 15)
}

func TestRowIsDueAtTheLaterOfNowAndWhatWasAsked(t *testing.T) {
	assert.Equal(t, noon, NewJob{}.Row(1, noon).RunAt)
	assert.Equal(t, noon, NewJob{RunAt: noon.Add(-time.Hour)}.Row(1, noon).RunAt)
	assert.Equal(t, noon.Add(time.Hour), NewJob{RunAt: noon.Add(time.Hour + 999*time.Nanosecond)}.Row(1, noon).RunAt)
	assert.Equal(t, noon.Add(time.Minute), NewJob{Delay: time.Minute + 999*time.Nanosecond}.Row(1, noon).RunAt)
}

func TestRowSharesNoSlice(t *testing.T) {
	n := NewJob{Payload: []byte(`{}`), Tags: []string{"a"}}
	row := n.Row(1, noon)
	n.Payload[0], n.Tags[0] = 'x', "x"
	assert.Equal(t, `{}`, string(row.Payload))
	assert.Equal(t, []string{"a"}, row.Tags)
}

func TestMissingNamesEveryAbility(t *testing.T) {
	assert.Equal(t, []string{"Transactor", "Notifier", "QueueKeeper", "PolicyKeeper", "Registry", "ScheduleKeeper", "GroupKeeper", "Fencer", "Monitor", "ActivityReader"}, Missing(nil))
}

// A claim may have left jobs where it was filled, or where the next job, at its heaviest, would have found no room.
func TestMayLeave(t *testing.T) {
	doc := make([]byte, MaxDocBytes)
	heavy := Job{Payload: doc, Checkpoint: doc, Progress: doc, Result: doc}
	require.Equal(t, MaxJobBytes, heavy.Weight())
	room := MaxAnswerBytes - MaxJobBytes
	for _, c := range []struct {
		jobs []Job
		want bool
	}{
		{nil, false},
		{make([]Job, 9), false},
		{make([]Job, 10), true},
		{[]Job{heavy}, false},
		{[]Job{{Payload: make([]byte, room)}}, false},
		{[]Job{{Payload: make([]byte, room+1)}}, true},
		{[]Job{heavy, {Result: doc[:1]}}, true},
	} {
		assert.Equal(t, c.want, ClaimRequest{Limit: 10}.MayLeave(c.jobs), "%d jobs", len(c.jobs))
	}
}
