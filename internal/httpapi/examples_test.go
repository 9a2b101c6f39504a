package httpapi

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/wire"
)

// A request as the book shows it.
type request struct {
	operation    string
	method, path string
	query        string // with its ?, only in the example itself
	body         string
}

// example is the documented request of an operation.
func example(key string, op map[string]any) request {
	method, path, _ := strings.Cut(key, " ")
	out := request{operation: op["operationId"].(string), method: method, path: path}
	parameters, _ := op["parameters"].([]any)
	for _, p := range parameters {
		p := p.(map[string]any)
		shown, _ := p["example"].(string)
		switch {
		case p["in"] == "path":
			out.path = strings.Replace(out.path, "{"+p["name"].(string)+"}", shown, 1)
		case shown != "":
			out.query = "?" + p["name"].(string) + "=" + shown
		}
	}
	if shown := theBook().at([]string{"paths", path, strings.ToLower(method), "requestBody", "content", wire.JSON, "example"}); shown != nil {
		text, err := json.Marshal(shown)
		if err != nil {
			panic(err)
		}
		out.body = string(text)
	}
	return out
}

func examples() map[string]request {
	all := map[string]request{}
	for key, op := range theBook().operations() {
		one := example(key, op)
		all[one.operation] = one
	}
	return all
}

// before says which examples must have been sent, or which jobs enqueued, for an example to be answered as documented.
var before = map[string][]string{
	"claim": {"enqueue"}, "ack": {"enqueue", "claim"}, "nack": {"enqueue", "claim"}, "extend": {"enqueue", "claim"},
	"checkpoint": {"enqueue", "claim"}, "release": {"enqueue", "claim"}, "recover": {"enqueue", "claim", "+1m"},
	"settle": {`{"jobs":[{"kind":"mail.welcome","expires_at":"2026-01-02T03:05:00Z"}]}`, "+1m"},
	"jobs":   {"enqueue", "claim", "checkpoint"}, "list": {"enqueue", "claim"}, "count": {"enqueue", "claim"}, "stats": {"enqueue", "claim"},
	"errors":   {"enqueue", "claim", "nack"},
	"overview": {"enqueue", "claim", "beat", "pause"},
	"job":      {"enqueue", "claim", "checkpoint", "+2s", "ack"}, "queues": {"enqueue", "pause"}, "due": {"enqueue", "+5s"}, "workers": {"beat", "+5s"}, "leave": {"beat"}, "bulk": {"enqueue"},
	"schedules": {"set-schedule"}, "schedule": {"set-schedule"}, "delete-schedule": {"set-schedule"}, "pause-schedule": {"set-schedule"},
	"resume-schedule": {"set-schedule", "pause-schedule"}, "reset-schedule": {"set-schedule"}, "run-schedule": {"set-schedule"},
	"graph": {`{"jobs":[{"kind":"extract"},{"kind":"load","after":[{"item":0}]}]}`}, "groups": {aGroup}, "group": {aGroup}, "seal": {aGroup},
	"fire": {"set-schedule", "+11m"}, "policy": {"set-policy"}, "cancel": {"enqueue"}, "waited-for": {"enqueue", "claim", "ack", `{"jobs":[{"kind":"mail.digest","after":[{"id":"1"}]}]}`, "claim"},
	"requeue": {"enqueue", "claim", "ack"}, "reschedule": {"enqueue"}, "delete": {"enqueue", "claim", "ack"},
}

const aGroup = `{"jobs":[{"kind":"k","group":"import-2026-01"}],"open":["import-2026-01"]}`

// openGroup opens the group of the examples.
func (w *world) openGroup() {
	w.Helper()
	call[wire.Enqueued](w, 201, "POST", wire.PathJobs, aGroup)
}

// TestExamplesAreAnsweredAsDocumented sends each request as it stands in the book.
func TestExamplesAreAnsweredAsDocumented(t *testing.T) {
	for key, op := range theBook().operations() {
		if strings.HasSuffix(key, " "+pathSession) {
			continue // which needs tokens: see TestSession
		}
		t.Run(op["operationId"].(string), func(t *testing.T) {
			w := newWorld(t, Options{Metrics: always(metricsText)})
			one := example(key, op)
			w.prepare(one.operation)
			if one.operation == "events" || one.operation == "wakeups" {
				w.follow(one.method, one.path, one.body) // an answer without an end: see the tests of streams
				return
			}
			got := w.ask(one.method, one.path+one.query, one.body)
			require.Less(t, got.status, 400, got.text)
			want := theBook().at([]string{"paths", strings.Fields(key)[1], strings.ToLower(one.method), "responses", "200", "content", wire.JSON, "example"})
			if one.operation == "enqueue" {
				want = theBook().at([]string{"paths", "/v1/jobs", "post", "responses", "201", "content", wire.JSON, "example"})
			}
			if one.operation == "openapi" {
				assert.Equal(t, string(openapiText), got.text)
				return
			}
			if got.header.Get("Content-Type") == wire.JSON {
				text, err := json.Marshal(want)
				require.NoError(t, err)
				require.JSONEq(t, string(text), got.text)
			}
		})
	}
}

// prepare does what must come before an example.
func (w *world) prepare(operation string) {
	w.Helper()
	all := examples()
	for _, step := range before[operation] {
		if wait, is := strings.CutPrefix(step, "+"); is {
			d, err := time.ParseDuration(wait)
			require.NoError(w, err)
			w.clock.Add(d)
			continue
		}
		first := all[step]
		if strings.HasPrefix(step, "{") {
			first = request{method: "POST", path: "/v1/jobs", body: step}
		}
		got := w.ask(first.method, first.path, first.body)
		require.Less(w, got.status, 300, got.text)
	}
}
