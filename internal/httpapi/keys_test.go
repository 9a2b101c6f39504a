package httpapi

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

func TestJobsHaveALimitKey(t *testing.T) {
	w := newWorld(t, Options{})
	call[wire.Enqueued](w, 201, "POST", wire.PathJobs, `{"jobs":[{"kind":"k","limit_key":"c7"},{"kind":"k","limit_key":"c8"},{"kind":"k","limit_key":""}]}`)
	assert.Contains(t, w.ask("GET", "/v1/jobs/1", "").text, `"limit_key":"c7"`)
	assert.NotContains(t, w.ask("GET", "/v1/jobs/3", "").text, "limit_key")
	for query, want := range map[string]int{"c7": 1, "c8&state=ready": 1, "c8&queue=other": 0, "c9": 0} {
		assert.Len(t, call[wire.Jobs](w, 200, "GET", "/v1/jobs?limit_key="+query, "").Jobs, want, query)
	}
	assert.Len(t, call[wire.Jobs](w, 200, "POST", wire.PathList, `{"filter":{"limit_key":"c7"}}`).Jobs, 1)
	assert.Contains(t, w.ask("POST", wire.PathCount, `{"filter":{"limit_key":"c7"}}`).text, `"jobs":{"ready":1}`)
	assert.Contains(t, w.ask("POST", wire.PathBulk, `{"action":"cancel","filter":{"limit_key":"c8"}}`).text, `"id":"2","status":"ok"`)
	claimed := w.claim(`{"worker":"w","limit":1}`)
	require.Len(t, claimed, 1)
	assert.Equal(t, "c7", claimed[0].LimitKey)

	call[wire.Schedule](w, 200, "PUT", "/v1/schedules/s", `{"cron":"@daily","job":{"kind":"k","limit_key":"c7"}}`)
	assert.Equal(t, "c7", call[wire.Schedule](w, 200, "GET", "/v1/schedules/s", "").Job.LimitKey)

	set := call[wire.Policy](w, 200, "PUT", "/v1/queues/default/policy", `{"max_per_key":3}`)
	assert.Equal(t, wire.Policy{MaxPerKey: 3, Version: 1}, set)
	assert.Equal(t, set, call[wire.Policy](w, 200, "GET", "/v1/queues/default/policy", ""))
}

// A PUT without fair ends the turns, because it replaces the policy as a whole.
func TestPolicyIsFair(t *testing.T) {
	w := newWorld(t, Options{})
	assert.JSONEq(t, `{"fair":true,"version":1}`, w.ask("PUT", "/v1/queues/default/policy", `{"fair":true}`).text)
	assert.JSONEq(t, `{"fair":true,"version":1}`, w.ask("GET", "/v1/queues/default/policy", "").text)
	assert.JSONEq(t, `{"queues":[{"name":"default","paused":false,"policy":{"fair":true,"version":1}}]}`, w.ask("GET", "/v1/queues", "").text)
	assert.JSONEq(t, `{"max_per_key":3,"version":2}`, w.ask("PUT", "/v1/queues/default/policy", `{"max_per_key":3,"version":1}`).text)
}

// A PUT without ordered ends the order, because it replaces the policy as a whole. While it lasts, jobs with a limit key must have no priority.
func TestPolicyIsOrdered(t *testing.T) {
	w := newWorld(t, Options{})
	const prioritized = `{"jobs":[{"kind":"k"},{"kind":"k","limit_key":"c7","priority":1}]}`
	assert.JSONEq(t, `{"ordered":true,"version":1}`, w.ask("PUT", "/v1/queues/default/policy", `{"ordered":true}`).text)
	assert.JSONEq(t, `{"ordered":true,"version":1}`, w.ask("GET", "/v1/queues/default/policy", "").text)
	assert.JSONEq(t, `{"queues":[{"name":"default","paused":false,"policy":{"ordered":true,"version":1}}]}`, w.ask("GET", "/v1/queues", "").text)
	refused := w.ask("POST", wire.PathJobs, prioritized).fail(t)
	require.NotNil(t, refused.Item)
	assert.Equal(t, []any{400, "priority", 1, "must be 0 for a job with a limit key: its queue is ordered"}, []any{refused.Status, refused.Field, *refused.Item, refused.Rule})
	call[wire.Enqueued](w, 201, "POST", wire.PathJobs, `{"jobs":[{"kind":"k","priority":1},{"kind":"k","limit_key":"c7"}]}`)
	assert.JSONEq(t, `{"fair":true,"version":2}`, w.ask("PUT", "/v1/queues/default/policy", `{"fair":true,"version":1}`).text)
	call[wire.Enqueued](w, 201, "POST", wire.PathJobs, prioritized)
}

// TestForeignLimitKeysAreRefused: a token with a prefix uses up the room of no key of others. A key counts within its queue, so a token
// for queues alone may use any in them.
func TestForeignLimitKeysAreRefused(t *testing.T) {
	h := newHouse(t, Options{})
	before := h.everything()
	f := h.as(Producer, "POST", wire.PathJobs, `{"jobs":[{"kind":"k","queue":"mail"},{"kind":"k","queue":"mail","limit_key":"b/1"}]}`).fail(t)
	require.NotNil(t, f.Item)
	assert.Equal(t, []any{403, "limit_key", 1}, []any{f.Status, f.Field, *f.Item})
	f = h.as(Operator, "PUT", "/v1/schedules/own", `{"cron":"@daily","job":{"kind":"k","queue":"mail","limit_key":"b/1"}}`).fail(t)
	assert.Equal(t, []any{403, "job.limit_key"}, []any{f.Status, f.Field})
	assert.Equal(t, before, h.everything())
	assert.Equal(t, 201, h.as(Producer, "POST", wire.PathJobs, `{"jobs":[{"kind":"k","queue":"mail","limit_key":"m/1"}]}`).status)
	assert.Contains(t, h.as(Viewer, "GET", "/v1/jobs?limit_key=m%2F1", "").text, `"limit_key":"m/1"`)

	forQueues := &bearer{known: known{Token: Token{Queues: []string{"mail"}}}}
	require.NoError(t, forQueues.needsAll(store.EnqueueRequest{Jobs: []store.NewJob{{Queue: "mail", LimitKey: "b/1"}}}))
}
