package conformance_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq/internal/conformance"
	"github.com/seed-ed332417/jq/internal/store"
)

func TestFailedCaseShowsItsLineItsSentenceAndItsLatestCalls(t *testing.T) {
	result := conformance.Run(t.Context(), broken(), conformance.Case{Name: "Group/Name", Sentence: "It holds.", Run: func(c *conformance.C) {
		for i := range int64(32) {
			_, _ = c.Store.Cancel(c.Ctx, store.Filter{IDs: []int64{i + 1}}, 1)
		}
		_, _ = c.Store.Get(c.Ctx, 7)
		c.Errorf("found %d", 1)
	}})
	assert.True(t, result.Failed)
	assert.False(t, result.Hung)
	log := result.Log
	assert.Regexp(t, `^record_test.go:[0-9]+: found 1$`, log[0])
	assert.Equal(t, `the contract says: "It holds."`, log[1])
	assert.Equal(t, "the calls on the store, from the 4. of 33:", log[2])
	assert.Equal(t, "  Cancel [{IDs:[4] } 1]: [{ID:4 Status:not_found }]", log[3])
	assert.Equal(t, "  Get 7: "+store.ErrNotFound.Error(), log[len(log)-1])
	assert.Len(t, log, 3+30)
}
