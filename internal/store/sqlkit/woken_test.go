package sqlkit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

func TestWokenQueuesAreNotedOnce(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var w sqlkit.Woken
	w.Add("a")
	w.AddFor(store.Job{Queue: "b", State: store.Ready, RunAt: now}, now)
	w.AddFor(store.Job{Queue: "c", State: store.Ready, RunAt: now.Add(time.Microsecond)}, now)
	w.Add("b")
	assert.Equal(t, sqlkit.Woken{"a", "b"}, w)
}
