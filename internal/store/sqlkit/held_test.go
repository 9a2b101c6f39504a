package sqlkit

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq/internal/store"
)

// Between the count of the jobs in flight and the note that there is no room, a lease may end. Somebody must tell of that.
func TestHeldTellsOfEveryEnd(t *testing.T) {
	var h Held
	assert.Empty(t, h.Take())
	seen := h.Taken()
	assert.False(t, h.Note("a", seen))
	assert.False(t, h.Note("b", seen))
	assert.ElementsMatch(t, []store.Wakeup{{Queue: "a"}, {Queue: "b"}}, h.Take())
	assert.Empty(t, h.Take())

	assert.True(t, h.Note("a", seen), "a lease has ended since")
	assert.Equal(t, []store.Wakeup{{Queue: "a"}}, h.Take())
}
