package conformance

import (
	"bytes"
	"fmt"
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

// What lies behind the beginning of a value does not change how it is shown.
func TestLargeValuesAreShownAsSmallOnes(t *testing.T) {
	doc := bytes.Repeat([]byte("x"), 1000)
	job := store.Job{ID: 7, Queue: "q", State: store.Ready, Payload: doc, Tags: []string{"a", "b"}, RunAt: epoch}
	for _, v := range []any{
		nil, 1, "text", doc, doc[:shown], doc[:shown+1], []byte(nil), []byte{}, make([]byte, 1000), epoch, job, &job,
		store.JobPage{Jobs: []store.Job{job, job}}, store.JobDetail{Job: job}, []store.Job(nil), make([]store.Outcome, 1000),
		[]any{store.Filter{IDs: make([]int64, 1000)}, 1, nil}, store.EnqueueRequest{Jobs: []store.NewJob{{Payload: doc}}},
		map[string][]byte{"doc": doc}, store.ErrNotFound,
	} {
		assert.Equal(t, shorten(fmt.Sprintf("%+v", v)), short(v))
		assert.Equal(t, shorten(zeroField.ReplaceAllString(fmt.Sprintf("%+v", v), "$3")), brief(v))
	}
	assert.Len(t, job.Payload, 1000, "the value stays as it is")
}
