package httpapi

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/graph"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// TestJobsWaitForAGroup that the request opens, until it is sealed and its jobs have ended.
func TestJobsWaitForAGroup(t *testing.T) {
	w := newWorld(t, Options{})
	call[wire.Enqueued](w, 201, "POST", wire.PathJobs, `{"open":["g"],"jobs":[{"kind":"report","queue":"b","after":[{"group":"g","any":true}]},{"kind":"k","group":"g"}]}`)
	assert.Contains(t, w.ask("GET", "/v1/jobs/1", "").text, `"waits":[{"group":"g","any":true,"state":"in_flight"}]`)
	assert.Contains(t, w.ask("GET", "/v1/jobs/2", "").text, `"group":"g"`)
	call[wire.Enqueued](w, 201, "POST", wire.PathJobs, `{"jobs":[{"kind":"k","group":"g"}]}`)
	for _, ask := range []string{"GET /v1/jobs?group=g", "GET /v1/jobs?group=g&state=ready"} {
		assert.Len(t, call[wire.Jobs](w, 200, "GET", ask[4:], "").Jobs, 2, ask)
	}
	assert.Len(t, call[wire.Jobs](w, 200, "POST", "/v1/jobs/list", `{"filter":{"group":"g"}}`).Jobs, 2)
	assert.Len(t, call[wire.Jobs](w, 200, "POST", "/v1/jobs/list", `{"filter":{"waits_for_group":"g"}}`).Jobs, 1)
	for query, want := range map[string]int{"g": 1, "h": 0, "g&state=ready": 0} {
		assert.Len(t, call[wire.Jobs](w, 200, "GET", "/v1/jobs?waits_for_group="+query, "").Jobs, want, query)
	}

	w.clock.Add(time.Minute)
	open := store.Group{Name: "g", OpenedAt: start, GroupStatus: store.GroupStatus{Open: true, Live: true}}
	for query, want := range map[string][]store.Group{"": {open}, "?name=g": {open}, "?name=h": {}, "?open_for=1m": {open}, "?open_for=61s": {}} {
		assert.Equal(t, want, call[wire.Groups](w, 200, "GET", wire.PathGroups+query, "").Groups, query)
	}
	detail := call[wire.GroupDetail](w, 200, "GET", "/v1/groups/g", "")
	assert.Equal(t, wire.GroupDetail{Group: open, Jobs: map[store.State]int64{store.Ready: 2}, Graph: detail.Graph}, detail)
	assert.Equal(t, detail.Graph, call[graph.Graph](w, 200, "GET", "/v1/jobs/1/graph", ""))
	assert.JSONEq(t, `{
		"nodes": [
			{"id":"2","queue":"default","kind":"k","group":"g","state":"ready","layer":0},
			{"id":"3","queue":"default","kind":"k","group":"g","state":"ready","layer":0},
			{"name":"g","state":"in_flight","open":true,"live":true,"jobs":{"ready":2},"layer":1},
			{"id":"1","queue":"b","kind":"report","state":"blocked","layer":2}
		],
		"edges": [{"waiter":3,"on":2,"any":true}]
	}`, w.ask("GET", "/v1/jobs/3/graph", "").text)
	for _, path := range []string{"/v1/jobs/4/graph", "/v1/jobs/0/graph"} {
		assert.Equal(t, 404, w.ask("GET", path, "").fail(t).Status, path)
	}
	assert.Equal(t, 404, w.ask("GET", "/v1/groups/h", "").fail(t).Status)

	w.claim(`{"worker":"w","limit":2}`)
	call[wire.Results](w, 200, "POST", wire.PathAck, `{"jobs":[{"id":"2","token":"1"}]}`)
	call[wire.Outcome](w, 200, "POST", "/v1/jobs/3/cancel", "")
	detail = call[wire.GroupDetail](w, 200, "GET", "/v1/groups/g", "")
	assert.Equal(t, store.GroupStatus{Open: true, Spoiled: true}, detail.GroupStatus)
	assert.Equal(t, map[store.State]int64{store.Succeeded: 1, store.Cancelled: 1}, detail.Jobs)
	require.Equal(t, 204, w.ask("POST", "/v1/groups/g/seal", "").status)
	assert.Contains(t, w.ask("GET", "/v1/jobs/1", "").text, `"state":"ready"`)
	assert.Equal(t, 400, w.ask("POST", "/v1/groups/g/seal", "").fail(t).Status)
}

// TestAPageOfGroupsHasAHundred, unless its reader asks for more.
func TestAPageOfGroupsHasAHundred(t *testing.T) {
	w := newWorld(t, Options{})
	open := make([]string, 101)
	for i := range open {
		open[i] = fmt.Sprintf("g%03d", i)
	}
	for some := range slices.Chunk(open, store.MaxOpen) {
		_, err := w.store.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{{Queue: "q", Kind: "k", Payload: []byte("{}")}}, Open: some})
		require.NoError(t, err)
	}
	page := call[wire.Groups](w, 200, "GET", wire.PathGroups, "")
	require.Len(t, page.Groups, 100)
	assert.NotEmpty(t, page.Next)
	assert.Len(t, call[wire.Groups](w, 200, "GET", wire.PathGroups+"?limit=101", "").Groups, 101)
}

// TestDeadJobIsShownInItsGroup.
func TestDeadJobIsShownInItsGroup(t *testing.T) {
	w := newWorld(t, Options{})
	call[wire.Enqueued](w, 201, "POST", wire.PathJobs, `{"jobs":[{"kind":"k","group":"g","max_retries":0}]}`)
	w.claim(`{"worker":"w"}`)
	call[wire.Results](w, 200, "POST", wire.PathNAck, `{"jobs":[{"id":"1","token":"1","form":"fail","error":"boom"}]}`)
	assert.JSONEq(t, `{"groups":[{"name":"g","dead":true}]}`, w.ask("GET", wire.PathGroups, "").text)
	assert.JSONEq(t, `{"name":"g","dead":true,"jobs":{"dead":1},"graph":{
		"nodes": [
			{"id":"1","queue":"default","kind":"k","group":"g","error":"boom","state":"dead","layer":0},
			{"name":"g","state":"dead","dead":true,"jobs":{"dead":1},"layer":1}
		],
		"edges": []
	}}`, w.ask("GET", "/v1/groups/g", "").text)
}

// TestForeignGroupsAreRefused: a group belongs to whom its name belongs as a key.
func TestForeignGroupsAreRefused(t *testing.T) {
	h := newHouse(t, Options{})
	_, err := h.store.Enqueue(t.Context(), store.EnqueueRequest{
		Jobs: []store.NewJob{
			{Queue: foreignQueue, Kind: "k", Payload: []byte(`{}`), Group: "theirs"},
			{Queue: ownQueue, Kind: "k", Payload: []byte(`{}`), After: []store.Wait{{Group: "theirs"}, {Group: "m/g"}}},
		},
		Open: []string{"theirs", "m/g"},
	})
	require.NoError(t, err)
	before := h.everything()
	for field, body := range map[string]string{
		"group": `{"jobs":[{"kind":"k","queue":"mail"},{"kind":"k","queue":"mail","group":"theirs"}]}`,
		"after": `{"jobs":[{"kind":"k","queue":"mail"},{"kind":"k","queue":"mail","after":[{"group":"theirs"}]}]}`,
		"open":  `{"jobs":[{"kind":"k","queue":"mail"}],"open":["theirs"]}`,
	} {
		f := h.as(Producer, "POST", wire.PathJobs, body).fail(t)
		assert.Equal(t, []any{403, field}, []any{f.Status, f.Field}, field)
		if field != "open" {
			require.NotNil(t, f.Item, field)
			assert.Equal(t, 1, *f.Item, field)
		}
	}
	assert.Equal(t, 403, h.as(Producer, "POST", "/v1/groups/theirs/seal", "").fail(t).Status)
	assert.Equal(t, before, h.everything())

	assert.JSONEq(t, `{"groups":[{"name":"m/g","opened_at":"2026-01-02T03:04:05Z","open":true}]}`, h.as(Viewer, "GET", wire.PathGroups, "").text)
	assert.Equal(t, 404, h.as(Viewer, "GET", "/v1/groups/theirs", "").status)
	assert.Equal(t, 200, h.as(Viewer, "GET", "/v1/groups/m%2Fg", "").status)
	for group, want := range map[string]int{"m/g": 1, "theirs": 0} {
		for _, got := range []answered{
			h.as(Viewer, "GET", "/v1/jobs?waits_for_group="+url.QueryEscape(group), ""),
			h.as(Viewer, "POST", "/v1/jobs/list", `{"filter":{"waits_for_group":"`+group+`"}}`),
		} {
			assert.Equal(t, want, strings.Count(got.text, `"id":"2"`), got.text)
		}
	}
	for _, path := range []string{"/v1/jobs/2/graph", "/v1/groups/m%2Fg"} {
		for _, role := range []Role{Viewer, Producer} {
			text := h.as(role, "GET", path, "").text
			assert.Contains(t, text, `"edges":[{"waiter":1,"on":0}]`, path)
			assert.NotContains(t, text, "theirs", path)
		}
	}
	assert.Equal(t, 404, h.as(Viewer, "GET", "/v1/jobs/1/graph", "").status)
	assert.Equal(t, 403, h.as(Worker, "GET", "/v1/jobs/2/graph", "").status)
	waits, text := h.waitsOf(Viewer, 2)
	assert.Equal(t, []store.Waiting{{Group: "m/g", State: store.InFlight}}, waits, text)
	assert.Equal(t, 201, h.as(Producer, "POST", wire.PathJobs, `{"jobs":[{"kind":"k","queue":"mail","group":"m/g","after":[{"group":"m/h"}]}],"open":["m/i"]}`).status)
	assert.Equal(t, 204, h.as(Producer, "POST", "/v1/groups/m%2Fg/seal", "").status)

	_, err = h.store.Cancel(t.Context(), store.Filter{IDs: []int64{1}}, 1)
	require.NoError(t, err)
	for _, path := range []string{"/v1/jobs/2", "/v1/jobs?state=cancelled"} {
		text := h.as(Viewer, "GET", path, "").text
		assert.Contains(t, text, "a group, which it needs, has a job that was cancelled or deleted", path)
		assert.NotContains(t, text, "theirs", path)
	}
}

// TestTokenForQueuesNeedsAPrefixForGroups, since a group may have jobs of every queue.
func TestTokenForQueuesNeedsAPrefixForGroups(t *testing.T) {
	b := &bearer{known: known{Token: Token{Queues: []string{"mail"}}}}
	require.ErrorContains(t, b.needsGroup("group", "g"), "needs a key_prefix")
	require.NoError(t, (&bearer{known: known{Token: Token{KeyPrefix: "m/"}}}).needsGroup("group", "m/g"))
	require.NoError(t, (&bearer{}).needsGroup("group", "g"))
}
