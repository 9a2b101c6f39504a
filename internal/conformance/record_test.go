package conformance

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq/internal/store"
)

func TestFailedCaseShowsItsLineItsSentenceAndItsLatestCalls(t *testing.T) {
	r := &record{}
	c := &C{TB: r}
	for i := range callsKept + 2 {
		c.calls.add("Cancel", []any{store.Filter{IDs: []int64{int64(i)}}, 1}, []store.Outcome{{ID: int64(i), Status: store.StatusOK}}, nil)
	}
	c.calls.add("Get", int64(7), store.JobDetail{}, store.ErrNotFound)
	c.Errorf("found %d", 1)
	c.calls.show(c)
	log := r.lines()
	assert.True(t, r.Failed())
	assert.Regexp(t, `^record_test.go:[0-9]+: found 1$`, log[0])
	assert.Equal(t, "the calls on the store, from the 4. of 33:", log[1])
	assert.Equal(t, "  Cancel [{IDs:[3] } 1]: [{ID:3 Status:ok }]", log[2])
	assert.Equal(t, "  Get 7: "+store.ErrNotFound.Error(), log[len(log)-1])
	assert.Len(t, log, callsKept+2)
}
