package httpapi

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/schedule"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// A house has a job in each of two queues, and tokens for one of them.
type house struct {
	*world
	secrets map[Role]string // for the queues mail and mail-*, and keys that begin with m/
}

const (
	ownQueue, foreignQueue = "mail-1", "billing"
	ownKey, foreignKey     = "m/1", "b/1"
)

func newHouse(t *testing.T, options Options) *house {
	t.Helper()
	var file bytes.Buffer
	h := &house{secrets: map[Role]string{}}
	for _, role := range roles {
		secret, token, err := NewToken(Token{Name: string(role), Role: role, Queues: []string{"mail", "mail-*"}, KeyPrefix: "m/"})
		require.NoError(t, err)
		h.secrets[role] = secret
		file.Write(token.Line())
	}
	var err error
	options.Tokens, err = ReadTokens(&file)
	require.NoError(t, err)
	h.world = newWorld(t, options)
	return h
}

// as asks with the token of a role.
func (h *house) as(role Role, method, path, body string, headers ...string) answered {
	h.Helper()
	return h.ask(method, path, body, append([]string{"Authorization", "Bearer " + h.secrets[role]}, headers...)...)
}

// job adds a job behind the back of the API, and claims it.
func (h *house) job(queue, key string) store.Job {
	h.Helper()
	n := store.NewJob{Queue: queue, Kind: "k", Payload: []byte(`{"secret":"` + queue + `"}`), UniqueKey: key, MaxRetries: 3}
	added, err := h.store.Enqueue(h.Context(), store.EnqueueRequest{Jobs: []store.NewJob{n}})
	require.NoError(h, err)
	claimed, err := h.store.FetchAndClaim(h.Context(), store.ClaimRequest{Queue: queue, Worker: "w of " + queue, TTL: time.Minute, Limit: 1})
	require.NoError(h, err)
	require.Equal(h, added[0].ID, claimed[0].ID)
	return claimed[0]
}

// schedule adds a schedule of the queue behind the back of the API. It is due.
func (h *house) schedule(name, queue, key string) store.Schedule {
	h.Helper()
	s, err := h.store.SetSchedule(h.Context(), store.Schedule{
		Name: name, Cron: "@every 1m", NextAt: start,
		Job: store.NewJob{Queue: queue, Kind: "k", Payload: []byte(`{"secret":"` + queue + `"}`), UniqueKey: key},
	})
	require.NoError(h, err)
	return s
}

// TestWhatIsInForeignQueuesIsNotThere: lists, counts and looks see the token's queues, as if there were no others.
func TestWhatIsInForeignQueuesIsNotThere(t *testing.T) {
	h := newHouse(t, Options{})
	own, foreign := h.job(ownQueue, ownKey), h.job(foreignQueue, foreignKey)
	for _, q := range []string{ownQueue, foreignQueue} {
		_, err := h.store.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{{Queue: q, Kind: "k", Payload: []byte(`{}`)}}})
		require.NoError(t, err)
	}
	for _, q := range []string{ownQueue, foreignQueue} {
		require.NoError(t, h.store.Beat(t.Context(), store.Worker{Name: "w-of-" + q + "-", Queues: []string{q, "mail-2", "mailbox"}, StaleAfter: time.Minute, Slots: 1}))
	}
	require.NoError(t, h.store.Beat(t.Context(), store.Worker{Name: "stranger", Queues: []string{foreignQueue}, StaleAfter: time.Minute, Slots: 1}))
	h.schedule("own", ownQueue, "")
	h.schedule("stranger", foreignQueue, "")
	require.NoError(t, h.store.AddActivity(t.Context(), []store.Activity{
		{Queue: ownQueue, Kind: "k", Succeeded: 1}, {Queue: foreignQueue, Kind: "stranger", Succeeded: 1}, {Queue: "mailbox", Succeeded: 1},
	}))
	for path, body := range map[string]string{
		"/v1/jobs": "", "/v1/jobs?queue=" + foreignQueue: "", "/v1/jobs/list": `{}`, "/v1/jobs/count": `{}`, "/v1/stats": "", "/v1/queues": "", "/v1/due": "",
		"/v1/jobs/list#ids": fmt.Sprintf(`{"filter":{"ids":["%d","%d"]}}`, own.ID, foreign.ID),
		"/v1/jobs/list#all": `{"filter":{"queues":["*"]}}`, "/v1/jobs/list#foreign": `{"filter":{"queues":["billing","bill*"]}}`,
		"/v1/workers": "", "/v1/schedules": "", "/v1/activity?by=queue": "", "/v1/activity?by=kind&queue=" + foreignQueue + "&queue=*": "",
	} {
		method := "GET"
		if body != "" {
			method = "POST"
		}
		path, of, _ := strings.Cut(path, "#")
		for _, role := range []Role{Viewer, Operator} {
			got := h.as(role, method, path, body)
			require.Equal(t, 200, got.status, "%s: %s", path, got.text)
			assert.NotContains(t, got.text, foreignQueue+`"`, "%s %s", path, body)
			assert.NotContains(t, got.text, "mailbox", "a name that merely begins alike")
			assert.NotContains(t, got.text, "stranger")
			if of != "foreign" && !strings.HasSuffix(path, foreignQueue) {
				assert.Contains(t, got.text, ownQueue, "%s %s", path, body)
			}
		}
	}
	for _, role := range []Role{Viewer, Producer, Operator} {
		assert.Equal(t, 200, h.as(role, "GET", fmt.Sprint("/v1/jobs/", own.ID), "").status)
		assert.Equal(t, urn+"not_found", h.as(role, "GET", fmt.Sprint("/v1/jobs/", foreign.ID), "").fail(t).Type)
	}
}

// TestForeignJobsAreNotFinished: whoever guesses an id and a token, which are small numbers, changes nothing. Nor does it spoil what is
// its own in the same call.
func TestForeignJobsAreNotFinished(t *testing.T) {
	for path, item := range map[string]string{
		wire.PathAck: `,"result":{"forged":true}`, wire.PathNAck: `,"form":"never"`, wire.PathExtend: ``, wire.PathCheckpoint: `,"checkpoint":1,"seq":1`,
		pathRelease: ``,
	} {
		for _, claimedHere := range []bool{false, true} {
			h := newHouse(t, Options{})
			own, foreign := h.job(ownQueue, ""), h.job(foreignQueue, "")
			if claimedHere {
				h.api.held.add([]store.Job{own, foreign}, h.clock.Now())
			}
			more := ""
			if path == wire.PathExtend {
				more = `,"lease":"30s"`
			}
			body := fmt.Sprintf(`{"jobs":[{"id":"%d","token":"1"%s},{"id":"%d","token":"1"%s},{"id":"77","token":"1"%s}]%s}`, foreign.ID, item, own.ID, item, item, more)
			for _, role := range []Role{Worker, Operator} {
				if role == Operator {
					own2 := h.job("mail", "")
					body = strings.Replace(body, fmt.Sprintf(`"id":"%d"`, own.ID), fmt.Sprintf(`"id":"%d"`, own2.ID), 1)
				}
				got := h.as(role, "POST", path, body)
				require.Equal(t, 200, got.status, got.text)
				var statuses []string
				for _, part := range strings.Split(got.text, `"status":"`)[1:] {
					status, _, _ := strings.Cut(part, `"`)
					statuses = append(statuses, status)
				}
				assert.Equal(t, []string{"not_found", "ok", "not_found"}, statuses, "%s: %s", path, got.text)
			}
			after, err := h.store.Get(t.Context(), foreign.ID)
			require.NoError(t, err)
			assert.Equal(t, foreign, after.Job, path)
		}
	}
}

// TestForeignQueuesAreRefused: a call that names what is not the token's is refused as a whole.
func TestForeignQueuesAreRefused(t *testing.T) {
	h := newHouse(t, Options{})
	foreign := h.job(foreignQueue, foreignKey)
	require.NoError(t, h.store.Beat(t.Context(), store.Worker{Name: "stranger", Queues: []string{foreignQueue}, StaleAfter: time.Minute, Slots: 1}))
	before := h.everything()
	for what, ask := range map[string]func() answered{
		"a job": func() answered {
			return h.as(Producer, "POST", wire.PathJobs, `{"jobs":[{"kind":"k","queue":"mail"},{"kind":"k","queue":"billing"}]}`)
		},
		"the default queue": func() answered { return h.as(Producer, "POST", wire.PathJobs, `{"jobs":[{"kind":"k"}]}`) },
		"a unique key": func() answered {
			return h.as(Producer, "POST", wire.PathJobs, `{"jobs":[{"kind":"k","queue":"mail","unique_key":"b/1"}]}`)
		},
		"a request key": func() answered {
			return h.as(Producer, "POST", wire.PathJobs, `{"jobs":[{"kind":"k","queue":"mail"}]}`, wire.RequestKeyHeader, "b/2")
		},
		"a key like random ones": func() answered {
			return h.as(Producer, "POST", wire.PathJobs, `{"jobs":[{"kind":"k","queue":"mail"}]}`, wire.RequestKeyHeader, "remote-x")
		},
		"a claim": func() answered {
			return h.as(Worker, "POST", wire.PathClaim, `{"worker":"w","queues":["mail","billing"]}`)
		},
		"wake-ups": func() answered { return h.as(Worker, "POST", wire.PathWakeups, `{"queues":["billing"]}`) },
		"a worker": func() answered {
			return h.as(Worker, "PUT", "/v1/workers/w", `{"queues":["billing"],"slots":1,"stale_after":"1m"}`)
		},
		"a name": func() answered {
			return h.as(Worker, "PUT", "/v1/workers/stranger", `{"queues":["mail"],"slots":1,"stale_after":"1m"}`)
		},
		"to leave":          func() answered { return h.as(Worker, "DELETE", "/v1/workers/stranger", "") },
		"a pause":           func() answered { return h.as(Operator, "POST", "/v1/queues/billing/pause", "") },
		"a resume":          func() answered { return h.as(Operator, "POST", "/v1/queues/billing/resume", "") },
		"a policy":          func() answered { return h.as(Viewer, "GET", "/v1/queues/billing/policy", "") },
		"another policy":    func() answered { return h.as(Operator, "PUT", "/v1/queues/billing/policy", `{"retain_dead":"1h"}`) },
		"a fence":           func() answered { return h.as(Operator, "POST", "/v1/fence", "") },
		"a fence that":      func() answered { return h.as(Operator, "POST", "/v1/fence", `{"end_leases":true}`) },
		"name begins alike": func() answered { return h.as(Worker, "POST", wire.PathClaim, `{"worker":"w","queues":["mailbox"]}`) },
	} {
		f := ask().fail(t)
		assert.Equal(t, 403, f.Status, what)
		assert.Equal(t, urn+"forbidden", f.Type, what)
		assert.NotEmpty(t, f.Detail, what)
	}
	assert.Equal(t, before, h.everything())
	for _, call := range []string{"POST /v1/jobs/%d/cancel", "POST /v1/jobs/%d/requeue", "POST /v1/jobs/%d/reschedule", "DELETE /v1/jobs/%d"} {
		method, path, _ := strings.Cut(fmt.Sprintf(call, foreign.ID), " ")
		assert.Equal(t, urn+"not_found", h.as(Operator, method, path, "").fail(t).Type, call)
	}
	for body, status := range map[string]int{
		`{"action":"cancel","filter":{}}`: 400, `{"action":"cancel","filter":{"queue":"billing"}}`: 200, `{"action":"cancel","filter":{"kind":"k"}}`: 200,
		`{"action":"cancel","filter":{"queues":["*"]}}`: 200, `{"action":"cancel","filter":{"queues":["billing"]}}`: 200,
	} {
		assert.Equal(t, status, h.as(Operator, "POST", wire.PathBulk, body).status, body)
	}
	assert.Equal(t, before, h.everything())
}

// everything is what the store holds.
func (h *house) everything() []any {
	h.Helper()
	jobs, err := h.store.List(h.Context(), store.Filter{}, store.Page{Limit: 100})
	require.NoError(h, err)
	queues, err := h.store.Queues(h.Context())
	require.NoError(h, err)
	workers, err := store.AllWorkers(h.Context(), h.store)
	require.NoError(h, err)
	schedules, err := schedule.All(h.Context(), h.store)
	require.NoError(h, err)
	groups, err := h.store.Groups(h.Context(), store.GroupFilter{}, store.Page{Limit: 100})
	require.NoError(h, err)
	return []any{jobs, queues, workers, schedules, groups}
}

// TestOwnQueuesAndKeysAreServed: within its limits a token does what its role may do.
func TestOwnQueuesAndKeysAreServed(t *testing.T) {
	h := newHouse(t, Options{})
	added := h.as(Producer, "POST", wire.PathJobs, `{"jobs":[{"kind":"k","queue":"mail","unique_key":"m/1"}]}`, wire.RequestKeyHeader, "m/r")
	require.Equal(t, 201, added.status, added.text)
	random := h.as(Producer, "POST", wire.PathJobs, `{"jobs":[{"kind":"k","queue":"mail-9"}]}`, wire.RequestKeyHeader, wire.RandomKey())
	require.Equal(t, 201, random.status, random.text)
	claimed := h.as(Worker, "POST", wire.PathClaim, `{"worker":"w","queues":["mail","mail-9"],"limit":2}`)
	require.Equal(t, 200, claimed.status, claimed.text)
	assert.Contains(t, claimed.text, `"token":"1"`)
	assert.Contains(t, h.as(Worker, "POST", wire.PathAck, `{"jobs":[{"id":"1","token":"1"}]}`).text, `"status":"ok"`)
	assert.Equal(t, 204, h.as(Worker, "PUT", "/v1/workers/w", `{"queues":["mail","mail-9"],"slots":1,"stale_after":"1m"}`).status)
	assert.Equal(t, 204, h.as(Worker, "PUT", "/v1/workers/w", `{"queues":["mail"],"slots":1,"stale_after":"1m"}`).status)
	assert.Equal(t, 204, h.as(Worker, "DELETE", "/v1/workers/w", "").status)
	assert.Equal(t, 204, h.as(Operator, "POST", "/v1/queues/mail/pause", "").status)
	assert.Equal(t, 200, h.as(Operator, "PUT", "/v1/queues/mail/policy", `{"retain_dead":"1h"}`).status)
	assert.Equal(t, 200, h.as(Operator, "POST", "/v1/jobs/2/cancel", "").status)
	assert.Contains(t, h.as(Operator, "POST", wire.PathBulk, `{"action":"delete","filter":{"kind":"k"}}`).text, `"id":"1","status":"ok"`)
}

// TestRecoveryServesAll, and tells of the token's queues alone.
func TestRecoveryServesAll(t *testing.T) {
	h := newHouse(t, Options{})
	own, foreign := h.job(ownQueue, ""), h.job(foreignQueue, "")
	h.clock.Add(time.Minute)
	got := h.as(Worker, "POST", wire.PathRecover, `{}`)
	assert.Contains(t, got.text, fmt.Sprintf(`"id":"%d"`, own.ID))
	assert.NotContains(t, got.text, foreignQueue)
	after, err := h.store.Get(t.Context(), foreign.ID)
	require.NoError(t, err)
	assert.Equal(t, store.Failed, after.State)
}

// TestHolderInAForeignQueueIsNotTold: that the key is held is all that a producer learns.
func TestHolderInAForeignQueueIsNotTold(t *testing.T) {
	h := newHouse(t, Options{})
	h.job(foreignQueue, ownKey)
	h.job(ownQueue, "m/2")
	got := h.as(Producer, "POST", wire.PathJobs, `{"jobs":[{"kind":"k","queue":"mail","unique_key":"m/1"},{"kind":"k","queue":"mail","unique_key":"m/2"}]}`)
	require.Equal(t, 201, got.status, got.text)
	assert.JSONEq(t, `{"jobs":[{"id":"0","duplicate":true},{"id":"2","state":"in_flight","duplicate":true}]}`, got.text)
}

// TestEventsAndWakeUpsAreCut to the token's queues. What the server does not know the queue of is told to nobody with such a token.
func TestEventsAndWakeUpsAreCut(t *testing.T) {
	h := newHouse(t, Options{})
	f := h.follow("GET", "/v1/events", "", "Authorization", "Bearer "+h.secrets[Viewer])
	woken := h.follow("POST", "/v1/wakeups", "{}", "Authorization", "Bearer "+h.secrets[Worker])
	h.api.Publish(Event{Job: 1, Queue: foreignQueue, Event: WasEnqueued}, Event{Job: 1, Event: WasDead}, Event{Job: 2, Queue: ownQueue, Event: WasEnqueued})
	assert.Equal(t, `job {"job":"2","queue":"mail-1","event":"enqueued"}`, f.next())
	for _, q := range []string{foreignQueue, ownQueue} {
		_, err := h.store.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{{Queue: q, Kind: "k", Payload: []byte(`{}`)}}})
		require.NoError(t, err)
	}
	assert.Equal(t, `wakeup {"queue":"mail-1"}`, woken.next())
}

// TestDocumentsAreForWhoNeedsThem: a viewer sees that there is a job, a producer its result, an operator everything.
func TestDocumentsAreForWhoNeedsThem(t *testing.T) {
	known, secrets := tokens(t)
	w := newWorld(t, Options{Tokens: known})
	job := (&house{world: w}).job(ownQueue, "")
	_, err := w.store.Save(t.Context(), []store.Save{{Lease: job.Lease(), Seq: 1, Checkpoint: []byte(`"the checkpoint"`), Progress: []byte(`"the progress"`)}})
	require.NoError(t, err)
	_, err = w.store.Ack(t.Context(), []store.Ack{{Lease: job.Lease(), Result: []byte(`"the result"`)}})
	require.NoError(t, err)
	all := []string{"secret", "the checkpoint", "the progress", "the result", `"token":"1"`, `"redacted":true`}
	for role, sees := range map[Role][]string{
		Viewer: {"the progress", `"redacted":true`}, Producer: {"the progress", "the result", `"redacted":true`}, Operator: all[:5],
	} {
		for _, call := range []string{"GET /v1/jobs/1", "GET /v1/jobs", "POST /v1/jobs/list"} {
			method, path, _ := strings.Cut(call, " ")
			body := strings.Repeat("{}", len(strings.Trim(method, "GET"))/2) // a POST has one
			got := w.ask(method, path, body, "Authorization", "Bearer "+secrets[role])
			if role == Producer && path != "/v1/jobs/1" {
				require.Equal(t, 403, got.status)
				continue
			}
			require.Equal(t, 200, got.status, got.text)
			for _, text := range all {
				assert.Equal(t, slices.Contains(sees, text), strings.Contains(got.text, text), "%s: %s to a %s", call, text, role)
			}
		}
	}
}

// TestATokenOfSeveralRoles may do what each of them may.
func TestATokenOfSeveralRoles(t *testing.T) {
	secret, token, err := NewToken(Token{Name: "n", Role: "producer,viewer"})
	require.NoError(t, err)
	known, err := ReadTokens(bytes.NewReader(token.Line()))
	require.NoError(t, err)
	w := newWorld(t, Options{Tokens: known})
	bearer := []string{"Authorization", "Bearer " + secret}
	assert.Equal(t, 201, w.ask("POST", wire.PathJobs, `{"jobs":[{"kind":"k"}]}`, bearer...).status)
	assert.Equal(t, 200, w.ask("GET", wire.PathJobs, "", bearer...).status)
	f := w.ask("POST", wire.PathClaim, `{"worker":"w"}`, bearer...).fail(t)
	assert.Equal(t, "it is that of a producer, viewer, and this is for: worker, operator", f.Detail)
	for _, bad := range []Role{"", "producer,", "producer, viewer", "producer,king"} {
		_, _, err := NewToken(Token{Name: "n", Role: bad})
		require.ErrorContains(t, err, "the role of a token must be", bad)
	}
}

// TestMatrix tries every call as every role, for a queue of the token's own and for a foreign one, over TLS. Which role may call what is
// read from the book, so that a call that is added is tried as well.
func TestMatrix(t *testing.T) {
	for key, op := range theBook().operations() {
		may := rolesOf(op)
		if may == nil {
			continue
		}
		for _, role := range roles {
			for _, queue := range []string{ownQueue, foreignQueue} {
				t.Run(fmt.Sprintf("%s/%s/%s", op["operationId"], role, queue), func(t *testing.T) {
					tryCell(t, example(key, op), role, queue, slices.Contains(may, role))
				})
			}
		}
	}
}

func tryCell(t *testing.T, one request, role Role, queue string, may bool) {
	h := newHouse(t, Options{Metrics: always(metricsText)})
	server := httptest.NewTLSServer(theBook().record(t, h.api))
	defer server.Close()
	defer func() { assert.NoError(t, h.api.Close()) }() // or its streams keep the server open
	h.url, h.client = server.URL, server.Client()
	job := h.job(queue, "")
	h.api.held.add([]store.Job{job}, h.clock.Now())
	h.job(map[string]string{ownQueue: foreignQueue, foreignQueue: ownQueue}[queue], "")
	require.NoError(t, h.store.Beat(t.Context(), store.Worker{Name: "w", Queues: []string{queue}, StaleAfter: time.Minute, Slots: 1}))
	h.schedule("poll-feeds", queue, "")
	_, err := h.store.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{{Queue: queue, Kind: "k", Payload: []byte(`{}`)}}, Open: []string{"m/g", "g"}})
	require.NoError(t, err)
	before := h.everything()
	body := one.body
	for name, value := range map[string]string{"queue": queue, "worker": "w", "queues": "", "wait": "0s"} {
		body = setField(body, name, value, queue)
	}
	path := strings.NewReplacer("/import-2026-01", "/"+map[string]string{ownQueue: "m%2Fg", foreignQueue: "g"}[queue], "/queues/reports", "/queues/"+queue, "/queues/default", "/queues/"+queue).Replace(one.path)
	if strings.HasPrefix(path, wire.PathWorkers+"/") {
		path = wire.PathWorkers + "/w"
	}
	if one.operation == "events" || one.operation == "wakeups" {
		if may && (queue == ownQueue || one.operation == "events") {
			h.follow(one.method, path, body, "Authorization", "Bearer "+h.secrets[role])
			return
		}
	}
	got := h.as(role, one.method, path, body)
	switch {
	case !may:
		assert.Equal(t, 403, got.status, got.text)
		assert.Equal(t, before, h.everything(), "nothing was done")
	case queue == ownQueue:
		assert.NotContains(t, []int{401, 500}, got.status, got.text)
		if one.operation != "fence" && one.operation != "metrics" && one.operation != "enqueue" {
			assert.NotEqual(t, 403, got.status, got.text)
		}
	default:
		assert.NotContains(t, got.text, foreignQueue+`"`, "nothing is told of it")
		after, err := h.store.Get(t.Context(), job.ID)
		require.NoError(t, err)
		assert.Equal(t, job, after.Job, "nothing was done to the foreign job")
		assert.Equal(t, before[3], h.everything()[3], "nothing was done to the foreign schedule")
		assert.Equal(t, before[4], h.everything()[4], "nothing was done to the foreign group")
	}
}

// setField gives a field of an example, wherever it stands, another value.
func setField(body, name, value, queue string) string {
	for _, quoted := range []string{`"` + name + `":"`, `"` + name + `":["`} {
		head, rest, found := strings.Cut(body, quoted)
		if !found {
			continue
		}
		_, tail, _ := strings.Cut(rest, `"`)
		if strings.HasSuffix(quoted, `["`) {
			value = queue
			_, tail, _ = strings.Cut(tail, `]`)
			tail = `]` + tail
		}
		body = head + quoted + value + `"` + setField(tail, name, value, queue)
	}
	return body
}

// TestPatternsOfTwoMeet: what matches a pattern of each list.
func TestPatternsOfTwoMeet(t *testing.T) {
	for _, c := range []struct{ some, others, want []string }{
		{nil, []string{"a*"}, []string{"a*"}}, {[]string{"*"}, []string{"a*", "b"}, []string{"a*", "b"}}, {[]string{"a"}, []string{"a*"}, []string{"a"}},
		{[]string{"a*"}, []string{"a"}, []string{"a"}}, {[]string{"ab*"}, []string{"a*"}, []string{"ab*"}}, {[]string{"a*"}, []string{"ab*"}, []string{"ab*"}},
		{[]string{"a*"}, []string{"b*"}, nil}, {[]string{"a"}, []string{"b"}, nil}, {[]string{"a", "b"}, []string{"b", "a"}, []string{"a", "b"}},
		{[]string{"a*", "a"}, []string{"a*"}, []string{"a", "a*"}},
	} {
		assert.Equal(t, c.want, both(c.some, c.others), c)
	}
	names := []string{"", "a", "ab", "abc", "b", "*", "a*", "a*b"}
	patterns := []string{"a", "a*", "ab*", "b", "*", "a**", "abc"}
	for _, p := range patterns {
		for _, q := range patterns {
			meet := both([]string{p}, []string{q})
			for _, name := range names {
				want := store.QueueMatches([]string{p}, name) && store.QueueMatches([]string{q}, name)
				assert.Equal(t, want, len(meet) > 0 && store.QueueMatches(meet, name), "%q in %s and %s: %v", name, p, q, meet)
			}
		}
	}
}

// metricsText answers as the exposition of metrics does.
func metricsText(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	_, _ = w.Write([]byte("jq_jobs 1\n"))
}

// always shows the same to everybody.
func always(h http.HandlerFunc) func(func(string) bool) http.Handler {
	return func(func(string) bool) http.Handler { return h }
}

// TestMetricsAreCut: the handler is told which queues it may show.
func TestMetricsAreCut(t *testing.T) {
	var told func(string) bool
	h := newHouse(t, Options{Metrics: func(see func(string) bool) http.Handler {
		told = see
		return http.HandlerFunc(metricsText)
	}})
	require.Equal(t, 200, h.as(Viewer, "GET", "/metrics", "").status)
	assert.True(t, told(ownQueue))
	assert.False(t, told(foreignQueue))
	assert.False(t, told(""))
	known, secrets := tokens(t)
	w := newWorld(t, Options{Tokens: known, Metrics: h.api.options.Metrics})
	require.Equal(t, 200, w.ask("GET", "/metrics", "", "Authorization", "Bearer "+secrets[Viewer]).status)
	assert.Nil(t, told, "whoever may see all")
}

// TestALimitedTokenHasNothingThatTheStoreLacks: it sees the store through a view, which has every ability.
func TestALimitedTokenHasNothingThatTheStoreLacks(t *testing.T) {
	secret, token, err := NewToken(Token{Name: "t", Role: Operator, Queues: []string{"mail"}})
	require.NoError(t, err)
	w := newWorld(t, Options{Tokens: listed(t, token)}, withoutAbilities)
	for _, path := range []string{wire.PathQueues, wire.PathWorkers, wire.PathSchedules, wire.PathGroups, wire.PathActivity, wire.PathDue} {
		assert.Equal(t, 501, w.ask("GET", path, "", "Authorization", "Bearer "+secret).fail(t).Status, path)
	}
}
