package httpapi

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// What the holder of a token for some queues tries, so as to learn of the others or to change them.

// done adds a job, and lets it succeed.
func (h *house) done(queue, key string) store.Job {
	h.Helper()
	j := h.job(queue, key)
	outcomes, err := h.store.Ack(h.Context(), []store.Ack{{Lease: j.Lease()}})
	require.NoError(h, err)
	require.Equal(h, store.StatusOK, outcomes[0].Status)
	return j
}

// TestRequeueDoesNotNameTheHolderInAForeignQueue: that the key is held is all that an operator of other queues learns.
func TestRequeueDoesNotNameTheHolderInAForeignQueue(t *testing.T) {
	h := newHouse(t, Options{})
	own := h.done(ownQueue, ownKey)
	foreign := h.job(foreignQueue, ownKey)
	one := h.as(Operator, "POST", fmt.Sprintf("/v1/jobs/%d/requeue", own.ID), "")
	assert.Equal(t, urn+"duplicate", one.fail(t).Type)
	many := h.as(Operator, "POST", wire.PathBulk, fmt.Sprintf(`{"action":"requeue","filter":{"ids":["%d"]}}`, own.ID))
	assert.Contains(t, many.text, `"status":"duplicate"`)
	for _, got := range []answered{one, many} {
		assert.NotContains(t, got.text, fmt.Sprint("job ", foreign.ID))
		assert.Contains(t, got.text, "another job holds the unique key")
	}
}

// TestRecoveryIsToldToAll: whoever ends the leases of others hears nothing of it, but those who see them do.
func TestRecoveryIsToldToAll(t *testing.T) {
	var counted recoveryCounter
	h := newHouse(t, Options{Counter: &counted})
	own, foreign := h.job(ownQueue, ""), h.job(foreignQueue, "")
	at := h.api.ring.last
	h.clock.Add(time.Minute)
	got := h.as(Worker, "POST", wire.PathRecover, `{}`)
	require.Equal(t, 200, got.status, got.text)
	assert.NotContains(t, got.text, foreignQueue)
	kept, _, _, _ := h.api.ring.since(at)
	var told []Event
	for _, e := range kept {
		told = append(told, e.Event)
	}
	assert.ElementsMatch(t, []Event{
		{Job: wire.ID(own.ID), Queue: ownQueue, Event: WasRecovered}, {Job: wire.ID(foreign.ID), Queue: foreignQueue, Event: WasRecovered},
	}, told)
	assert.ElementsMatch(t, []string{ownQueue, foreignQueue}, counted.queues)
}

type recoveryCounter struct {
	uncounted
	queues []string
}

func (c *recoveryCounter) Recovered(leases []store.Recovered) {
	for _, r := range leases {
		c.queues = append(c.queues, r.Queue)
	}
}

// TestWorkersThatServeOthersTooAreLeftAlone: a worker is the token's if all of its queues are.
func TestWorkersThatServeOthersTooAreLeftAlone(t *testing.T) {
	h := newHouse(t, Options{})
	for _, w := range []store.Worker{{Name: "both", Queues: []string{ownQueue, foreignQueue}}, {Name: "none"}} {
		w.StaleAfter = time.Minute
		require.NoError(t, h.store.Beat(t.Context(), w))
	}
	before := h.everything()
	for _, name := range []string{"both", "none"} {
		assert.Equal(t, 403, h.as(Worker, "PUT", "/v1/workers/"+name, `{"queues":["mail-1"],"slots":1,"stale_after":"1m"}`).status, name)
		assert.Equal(t, 403, h.as(Worker, "DELETE", "/v1/workers/"+name, "").status, name)
	}
	assert.Equal(t, before, h.everything())
	f := h.as(Worker, "PUT", "/v1/workers/w", `{"queues":[],"slots":1,"stale_after":"1m"}`).fail(t)
	assert.Equal(t, 403, f.Status, "nobody with such a token could see it, beat for it or let it leave")
	assert.Equal(t, "queues", f.Field)
}

// TestWorkersOfATokenForKeys may serve no queue, and are seen: such a token is for all queues.
func TestWorkersOfATokenForKeys(t *testing.T) {
	secret, token, err := NewToken(Token{Name: "n", Role: "worker,viewer", KeyPrefix: "m/"})
	require.NoError(t, err)
	known, err := ReadTokens(bytes.NewReader(token.Line()))
	require.NoError(t, err)
	w := newWorld(t, Options{Tokens: known})
	for range 2 {
		got := w.ask("PUT", "/v1/workers/w", `{"queues":[],"slots":1,"stale_after":"1m"}`, "Authorization", "Bearer "+secret)
		require.Equal(t, 204, got.status, got.text)
	}
	assert.Contains(t, w.ask("GET", "/v1/workers", "", "Authorization", "Bearer "+secret).text, `"name":"w"`)
}

// TestForeignAndAbsentAreAnsweredAlike: whether there is a job elsewhere is not told.
func TestForeignAndAbsentAreAnsweredAlike(t *testing.T) {
	h := newHouse(t, Options{})
	h.job(foreignQueue, "")
	for _, call := range []string{"GET /v1/jobs/%d", "HEAD /v1/jobs/%d", "POST /v1/jobs/%d/cancel", "POST /v1/jobs/%d/requeue", "POST /v1/jobs/%d/reschedule", "DELETE /v1/jobs/%d"} {
		var answers []answered
		for _, id := range []int{1, 7} { // the first is there
			var method, path string
			_, err := fmt.Sscan(fmt.Sprintf(call, id), &method, &path)
			require.NoError(t, err)
			got := h.as(Operator, method, path, "")
			got.header.Del("Date")
			answers = append(answers, got)
		}
		assert.Equal(t, 404, answers[0].status, call)
		assert.Equal(t, answers[1], answers[0], call)
	}
	for _, path := range []string{wire.PathAck, wire.PathExtend, wire.PathCheckpoint, pathRelease, wire.PathNAck} {
		item := map[string]string{wire.PathNAck: `,"form":"fail"`, wire.PathCheckpoint: `,"seq":1,"checkpoint":1`}[path]
		end := map[string]string{wire.PathExtend: `,"lease":"1s"`}[path]
		got := h.as(Worker, "POST", path, fmt.Sprintf(`{"jobs":[{"id":"1","token":"9"%s},{"id":"7","token":"9"%s}]%s}`, item, item, end))
		assert.JSONEq(t, `{"results":[{"id":"1","status":"not_found"},{"id":"7","status":"not_found"}]}`, got.text, path)
	}
}

// TestNamesThatOnlyLookLikeOwnOnes are foreign, and those that look like a way to a foreign queue are names.
func TestNamesThatOnlyLookLikeOwnOnes(t *testing.T) {
	h := newHouse(t, Options{})
	h.job(foreignQueue, "")
	h.job(ownQueue, "")
	for _, name := range []string{"mail%2F..%2Fbilling", "..%2Fbilling", "%2E%2E", "MAIL-1", "%EF%BD%8Dail-1", "m%CC%81ail-1", "mail%E2%80%911", "*", "mail*", "bill*", "%20mail-1"} {
		for _, call := range []string{"POST pause", "POST resume", "GET policy", "PUT policy"} {
			var method, verb string
			_, err := fmt.Sscan(call, &method, &verb)
			require.NoError(t, err)
			body := map[string]string{"PUT": `{"retain_dead":"1s"}`}[method]
			got := h.as(Operator, method, "/v1/queues/"+name+"/"+verb, body)
			assert.Contains(t, []int{403, 404}, got.status, "%s %s: %s", name, call, got.text)
		}
	}
	for _, name := range []string{"mail-1%2F..%2F..%2Fqueues%2Fbilling", "mail-*", "mail-**", "mail-1%00"} {
		got := h.as(Operator, "POST", "/v1/queues/"+name+"/pause", "")
		assert.Contains(t, []int{204, 400}, got.status, "%s: %s", name, got.text)
	}
	assert.Equal(t, 204, h.as(Operator, "POST", "/v1/queues/mail-*/resume", "").status)
	assert.Equal(t, 201, h.as(Producer, "POST", wire.PathJobs, `{"jobs":[{"kind":"k","queue":"mail-*"}]}`).status, "a queue of that name")
	queues, err := h.store.Queues(t.Context())
	require.NoError(t, err)
	for _, q := range queues {
		if q.Name == ownQueue || q.Name == foreignQueue {
			assert.Equal(t, store.Queue{Name: q.Name}, q, "nobody has named it")
		}
	}
	claimed := h.as(Worker, "POST", wire.PathClaim, `{"worker":"w","queues":["mail-*"],"limit":100}`)
	assert.Contains(t, claimed.text, `"queue":"mail-*"`)
	assert.NotContains(t, claimed.text, foreignQueue)
}

// TestOddMethods do nothing, with or without a token.
func TestOddMethods(t *testing.T) {
	h := newHouse(t, Options{})
	foreign := h.job(foreignQueue, "")
	before := h.everything()
	for _, method := range []string{"HEAD", "OPTIONS", "PATCH", "TRACE", "CONNECT", "PROPFIND", "get", "DELETE "} {
		for _, path := range []string{"/v1/jobs", "/v1/queues/billing/policy", "/v1/fence", fmt.Sprintf("/v1/jobs/%d/cancel", foreign.ID)} {
			req := httptest.NewRequestWithContext(t.Context(), "GET", path, http.NoBody)
			req.Method = method
			req.Header.Set("Authorization", "Bearer "+h.secrets[Operator])
			told := httptest.NewRecorder()
			h.api.ServeHTTP(told, req)
			assert.NotContains(t, told.Body.String(), foreignQueue+`"`, "%s %s", method, path)
			assert.Less(t, told.Code, 500, "%s %s", method, path)
		}
	}
	assert.Equal(t, before, h.everything())
}

// TestRequestKeysOfOthersAreNotAnswered: under a key that was used for a foreign queue nothing is told of what it has added.
func TestRequestKeysOfOthersAreNotAnswered(t *testing.T) {
	h := newHouse(t, Options{})
	first := store.NewJob{Queue: foreignQueue, Kind: "k", Payload: []byte(`{}`)}
	_, err := h.store.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{first}, RequestKey: "m/r"})
	require.NoError(t, err)
	before := h.everything()
	same := h.as(Producer, "POST", wire.PathJobs, `{"jobs":[{"kind":"k","queue":"billing","payload":{}}]}`, wire.RequestKeyHeader, "m/r")
	assert.Equal(t, 403, same.status, same.text)
	other := h.as(Producer, "POST", wire.PathJobs, `{"jobs":[{"kind":"k","queue":"mail","payload":{}}]}`, wire.RequestKeyHeader, "m/r")
	assert.Equal(t, 400, other.status, other.text)
	for _, got := range []answered{same, other} {
		assert.NotContains(t, got.text, foreignQueue)
		assert.NotContains(t, got.text, `"id"`)
	}
	assert.Equal(t, before, h.everything())
}
