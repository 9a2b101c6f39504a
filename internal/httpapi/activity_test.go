package httpapi

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

func TestActivityIsAddedUpAsTheQuerySays(t *testing.T) {
	w := newWorld(t, Options{})
	add := func(queue, kind string, n int64) {
		require.NoError(t, w.store.AddActivity(t.Context(), []store.Activity{{Queue: queue, Kind: kind, Succeeded: n, Ran: store.Histogram{2: n}}}))
	}
	row := func(at time.Time, queue, kind string, n int64) store.Activity {
		return store.Activity{At: at, Queue: queue, Kind: kind, Succeeded: n, Ran: store.Histogram{2: n}}
	}
	first := w.clock.Now().Truncate(time.Minute)
	add("a-1", "k", 1)
	add("a-2", "l", 2)
	add("b", "k", 4)
	w.clock.Add(time.Minute)
	add("b", "l", 8)
	for query, want := range map[string]store.ActivityPage{
		"":                              {From: first.Add(-58 * time.Minute), Spans: []store.Activity{row(first.Add(-58*time.Minute), "", "", 15)}},
		"last=2m&step=1m":               {From: first, Step: time.Minute, Spans: []store.Activity{row(first, "", "", 7), row(first.Add(time.Minute), "", "", 8)}},
		"last=2m&by=queue&queue=b":      {From: first, Spans: []store.Activity{row(first, "b", "", 12)}},
		"last=2m&by=kind&queue=a-*":     {From: first, Spans: []store.Activity{row(first, "a-1", "k", 1), row(first, "a-2", "l", 2)}},
		"last=2m&queue=a-1&queue=b":     {From: first, Spans: []store.Activity{row(first, "", "", 13)}},
		"last=2m&kind=l":                {From: first, Spans: []store.Activity{row(first, "", "", 10)}},
		"last=1m&kind=k":                {From: first.Add(time.Minute)},
		"last=168h&step=24h&queue=none": {From: first.Truncate(24 * time.Hour).Add(-6 * 24 * time.Hour), Step: 24 * time.Hour},
	} {
		want.Now = w.clock.Now()
		got := call[store.ActivityPage](w, 200, "GET", "/v1/activity?"+query, "")
		if len(got.Spans) == 0 {
			got.Spans = nil
		}
		assert.Equal(t, want, got, query)
	}
}

// A token of other queues gets the store's time, and no more.
func TestActivityOfForeignQueuesIsEmpty(t *testing.T) {
	h := newHouse(t, Options{})
	require.NoError(t, h.store.AddActivity(t.Context(), []store.Activity{{Queue: ownQueue, Succeeded: 1}, {Queue: foreignQueue, Succeeded: 2}, {Succeeded: 4}}))
	ask := func(query string) store.ActivityPage {
		return call[store.ActivityPage](h.world, 200, "GET", "/v1/activity?"+query, "", "Authorization", "Bearer "+h.secrets[Viewer])
	}
	got := ask("queue=" + foreignQueue)
	assert.Empty(t, got.Spans)
	assert.Equal(t, h.clock.Now(), got.Now)
	for _, query := range []string{"", "step=1m", "queue=*"} {
		got = ask(query)
		require.Len(t, got.Spans, 1, query)
		assert.EqualValues(t, 1, got.Spans[0].Succeeded, query)
	}
}

// What clients do is in the store ten seconds later, or when the API is closed.
func TestActivityOfClientsIsHandedOver(t *testing.T) {
	w := newWorld(t, Options{})
	rows := func() []store.Activity {
		t.Helper()
		page, err := w.store.Activity(t.Context(), store.ActivityFilter{Last: 12 * time.Hour, By: store.ByKind})
		require.NoError(t, err)
		for i := range page.Spans {
			page.Spans[i].At = time.Time{}
		}
		return page.Spans
	}
	on := func(path, body string) { w.Helper(); call[wire.Results](w, 200, "POST", path, body) }
	call[wire.Enqueued](w, 201, "POST", "/v1/jobs", `{"jobs":[
		{"kind":"k","queue":"a"},{"kind":"k","queue":"a"},{"kind":"l","queue":"a","max_retries":0},{"kind":"l","queue":"a"},{"kind":"m","queue":"a"},{"kind":"m","queue":"a"}]}`)
	w.clock.Add(20 * time.Millisecond)
	w.claim(`{"worker":"w","limit":9,"queues":["a"],"lease":"1h"}`)
	w.clock.Add(2 * time.Second)
	on("/v1/ack", `{"jobs":[{"id":"1","token":"1"}]}`)
	on("/v1/ack", `{"jobs":[{"id":"1","token":"1"}]}`)
	on("/v1/nack", `{"jobs":[{"id":"2","token":"1","form":"fail"},{"id":"3","token":"1","form":"fail"},{"id":"4","token":"1","form":"snooze"}]}`)
	on("/v1/release", `{"jobs":[{"id":"5","token":"1"}]}`)
	on("/v1/extend", `{"lease":"1h","jobs":[{"id":"6","token":"77"},{"id":"6","token":"1"}]}`)
	on("/v1/checkpoint", `{"jobs":[{"id":"1","token":"1","checkpoint":1,"seq":1}]}`)
	assert.Empty(t, rows(), "before ten seconds have passed")
	w.clock.Add(10 * time.Second)
	require.Eventually(t, func() bool { return len(rows()) > 0 }, 10*time.Second, time.Millisecond, "the API did not hand over")
	assert.Equal(t, []store.Activity{
		{Stale: 1},
		{Queue: "a", Kind: "k", Succeeded: 1, Retried: 1, Stale: 1, Waited: store.Histogram{3: 2}, Ran: store.Histogram{7: 2}},
		{Queue: "a", Kind: "l", Dead: 1, Snoozed: 1, Waited: store.Histogram{3: 2}, Ran: store.Histogram{7: 2}},
		{Queue: "a", Kind: "m", Waited: store.Histogram{3: 2}},
	}, rows())

	w.clock.Add(2 * time.Hour)
	call[wire.Recovered](w, 200, "POST", "/v1/recover", `{}`)
	require.NoError(t, w.api.Close())
	assert.Contains(t, rows(), store.Activity{Queue: "a", Kind: "m", Recovered: 1, Waited: store.Histogram{3: 2}})
}
