package conformance_test

import (
	"context"
	"errors"
	"testing"

	"github.com/benbjohnson/clock"
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
	assert.Regexp(t, `^internal/conformance/record_test\.go:[0-9]+: found 1$`, log[0])
	assert.Regexp(t, `^the case begins at internal/conformance/record_test\.go:[0-9]+$`, log[1])
	assert.Equal(t, `the contract says: "It holds."`, log[2])
	assert.Equal(t, "the calls on the store, from the 4. of 33:", log[3])
	assert.Equal(t, "  Cancel [{IDs:[4] } 1]: [{ID:4 Status:not_found }]", log[4])
	assert.Equal(t, "  Get 7: "+store.ErrNotFound.Error(), log[len(log)-1])
	assert.Len(t, log, 4+30)
}

func TestCaseThatFailsBeforeItsFirstCallSaysSo(t *testing.T) {
	failing := func(c *conformance.C) { c.Errorf("found %d", 1) }
	log := conformance.Run(t.Context(), broken(), conformance.Case{Name: "Group/Name", Sentence: "It holds.", Run: failing}).Log
	assert.Equal(t, "the case made no call on the store", log[len(log)-1])

	noStore := conformance.Adapter{New: func(context.Context, clock.Clock) (*conformance.Instance, error) { return nil, errors.New("no room") }}
	log = conformance.Run(t.Context(), noStore, conformance.Case{Name: "Group/Name", Sentence: "It holds.", Run: failing}).Log
	assert.Regexp(t, `^internal/conformance/conformance\.go:[0-9]+: opening a fresh store: no room$`, log[0])
	assert.Equal(t, "the case made no call on the store", log[len(log)-1])
}

func TestCaseThatPanicsNamesTheLineOfThePanic(t *testing.T) {
	log := conformance.Run(t.Context(), broken(), conformance.Case{Name: "Group/Name", Sentence: "It holds.", Run: func(*conformance.C) { panic("oh") }}).Log
	assert.Regexp(t, `^internal/conformance/record_test\.go:[0-9]+: panic: oh\n`, log[0])
}
