package sqlkit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

func TestWakeUpsAreNotedOnce(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var w sqlkit.Woken
	w.Add(store.Wakeup{Queue: "a"})
	w.AddFor(store.Job{Queue: "b", State: store.Ready, RunAt: now}, now)
	w.AddFor(store.Job{Queue: "c", State: store.Ready, RunAt: now.Add(time.Microsecond)}, now)
	w.Add(store.Wakeup{Queue: "b"})
	for _, state := range []store.State{store.Ready, store.InFlight, store.InFlight, store.Failed} {
		w.AddCancelled(store.Job{Queue: string(state), State: state})
	}
	assert.Equal(t, sqlkit.Woken{{Queue: "a"}, {Queue: "b"}, {Queue: "in_flight", Cancelled: true}}, w)
}
