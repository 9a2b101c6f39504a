package httpapi

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// A tally is a counter that tests read.
type tally struct {
	mu sync.Mutex // guards of
	of map[string]int
}

func (c *tally) add(n int, what ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.of[strings.Join(what, " ")] += n
}

func (c *tally) Added(queue, kind string)             { c.add(1, "added", queue, kind) }
func (c *tally) Claimed(queue string, jobs int)       { c.add(jobs, "claimed", queue) }
func (c *tally) Finished(queue, kind, outcome string) { c.add(1, "finished", queue, kind, outcome) }
func (c *tally) Recovered(leases []store.Recovered)   { c.add(len(leases), "recovered") }
func (c *tally) Settled(jobs []store.Settled)         { c.add(len(jobs), "settled") }
func (c *tally) StaleWrite(op string)                 { c.add(1, "stale", op) }
func (c *tally) Refused(reason string)                { c.add(1, "refused", reason) }

// taken is what was counted since the last time.
func (c *tally) taken() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.of
	c.of = nil
	return of
}

func TestWhatIsDoneIsCounted(t *testing.T) {
	var count tally
	w := newWorld(t, Options{Counter: &count})
	on := func(path, body string) { w.Helper(); call[wire.Results](w, 200, "POST", path, body) }

	call[wire.Enqueued](w, 201, "POST", "/v1/jobs", `{"jobs":[
		{"kind":"k","queue":"a","unique_key":"u"},{"kind":"k","queue":"a","unique_key":"u"},{"kind":"l","queue":"b"},
		{"kind":"l","queue":"b"},{"kind":"l","queue":"b","max_retries":0},{"kind":"l","queue":"b"},{"kind":"l","queue":"b"}]}`)
	assert.Equal(t, map[string]int{"added a k": 1, "added b l": 5}, count.taken(), "without the duplicate")
	w.claim(`{"worker":"w","limit":9,"queues":["a","b","empty"]}`)
	assert.Equal(t, map[string]int{"claimed a": 1, "claimed b": 5}, count.taken())

	on("/v1/ack", `{"jobs":[{"id":"1","token":"1"},{"id":"77","token":"1"}]}`)
	on("/v1/nack", `{"jobs":[
		{"id":"2","token":"1","form":"fail"},{"id":"4","token":"1","form":"fail"},{"id":"3","token":"1","form":"snooze"}]}`)
	on("/v1/release", `{"jobs":[{"id":"5","token":"1"}]}`)
	done := map[string]int{
		"finished a k succeeded": 1, "finished b l retrying": 1, "finished b l dead": 1, "finished b l snoozed": 1,
		"finished b l released": 1,
	}
	assert.Equal(t, done, count.taken())
	on("/v1/ack", `{"jobs":[{"id":"1","token":"1"}]}`)
	assert.Empty(t, count.taken(), "a repeated call ends no lease")

	w.clock.Add(time.Hour)
	call[wire.Recovered](w, 200, "POST", "/v1/recover", `{}`)
	assert.Equal(t, map[string]int{"recovered": 1}, count.taken())
	call[wire.Enqueued](w, 201, "POST", "/v1/jobs", `{"jobs":[{"kind":"k","queue":"a","expires_at":"`+w.clock.Now().Add(time.Second).Format(time.RFC3339Nano)+`"}]}`)
	w.clock.Add(time.Second)
	call[wire.Settled](w, 200, "POST", "/v1/settle", `{}`)
	assert.Equal(t, map[string]int{"added a k": 1, "settled": 1}, count.taken())
	on("/v1/ack", `{"jobs":[{"id":"6","token":"1"}]}`)
	on("/v1/nack", `{"jobs":[{"id":"6","token":"1","form":"fail"}]}`)
	on("/v1/extend", `{"jobs":[{"id":"6","token":"1"}],"lease":"1m"}`)
	on("/v1/checkpoint", `{"jobs":[{"id":"6","token":"1","checkpoint":1,"seq":1}]}`)
	assert.Equal(t, map[string]int{"stale ack": 1, "stale nack": 1, "stale extend": 1, "stale save": 1}, count.taken())
}

// Jobs that were claimed elsewhere are counted too, without a name, for to look them up would be a call of the store.
func TestLeasesOfOtherServersAreCountedWithoutNames(t *testing.T) {
	var count tally
	w := newWorld(t, Options{Counter: &count})
	w.enqueue("a")
	_, err := w.store.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "a", Limit: 1, Worker: "w", TTL: time.Minute})
	assert.NoError(t, err)
	count.taken()
	call[wire.Results](w, 200, "POST", "/v1/ack", `{"jobs":[{"id":"1","token":"1"}]}`)
	assert.Equal(t, map[string]int{"finished   succeeded": 1}, count.taken())
}

func TestOldestHoldingsAreForgotten(t *testing.T) {
	h := newHoldings(3)
	for id := range int64(10) {
		h.add([]store.Job{{ID: id, Token: 1, Queue: fmt.Sprint(id)}}, start)
	}
	assert.Len(t, h.of, 3)
	for id := range int64(10) {
		of, _, _ := h.end(store.Lease{ID: id, Token: 1})
		want := ""
		if id >= 7 {
			want = fmt.Sprint(id)
		}
		assert.Equal(t, want, of.queue, "job %d", id)
	}
	of, _, again := h.end(store.Lease{ID: 9, Token: 1})
	assert.Equal(t, []any{"9", true}, []any{of.queue, again})
	of, _, again = h.end(store.Lease{ID: 9, Token: 2})
	assert.Equal(t, []any{"", false}, []any{of.queue, again}, "another lease of the same job")
}
