package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// waitsOf are those that a role is shown of a job, with the whole answer.
func (h *house) waitsOf(role Role, id int64) ([]store.Waiting, string) {
	h.Helper()
	got := h.as(role, "GET", fmt.Sprint("/v1/jobs/", id), "")
	require.Equal(h, 200, got.status, got.text)
	var detail wire.JobDetail
	require.NoError(h, json.Unmarshal([]byte(got.text), &detail))
	return detail.Waits, got.text
}

// TestJobsWaitForOthers: for those that exist, and for earlier ones of the request.
func TestJobsWaitForOthers(t *testing.T) {
	w := newWorld(t, Options{})
	w.enqueue("default")
	added := call[wire.Enqueued](w, 201, "POST", wire.PathJobs,
		`{"jobs":[{"kind":"k"},{"kind":"k","after":[{"id":"1"},{"item":0,"any":true}]},{"kind":"k","after":[{"item":1}]}]}`)
	assert.Equal(t, []store.Enqueued{{ID: 2, State: store.Ready}, {ID: 3, State: store.Blocked}, {ID: 4, State: store.Blocked}}, added.Jobs)
	assert.Contains(t, w.ask("GET", "/v1/jobs/3", "").text, `"waits":[{"id":"1","state":"ready"},{"id":"2","any":true,"state":"ready"}]`)
	assert.Len(t, call[wire.Jobs](w, 200, "GET", "/v1/jobs?state=blocked", "").Jobs, 2)
	assert.Len(t, call[wire.Jobs](w, 200, "POST", "/v1/jobs/list", `{"filter":{"states":["blocked"]}}`).Jobs, 2)
	assert.Equal(t, int64(2), call[store.Counts](w, 200, "GET", "/v1/stats", "").Queues[0].Jobs[store.Blocked])

	for query, want := range map[string]int{"waits_for=1": 1, "waits_for=3": 1, "waits_for=4": 0, "waits_for=2&state=ready": 0} {
		assert.Len(t, call[wire.Jobs](w, 200, "GET", "/v1/jobs?"+query, "").Jobs, want, query)
	}
	for filter, want := range map[string]int{`{"waits_for":"1"}`: 1, `{"unneeded":true}`: 1, `{"unneeded":true,"queue":"other"}`: 0} {
		assert.Len(t, call[wire.Jobs](w, 200, "POST", "/v1/jobs/list", `{"filter":`+filter+`}`).Jobs, want, filter)
	}
	for _, query := range []string{"waits_for=x", "waits_for=-1", "waits_for=0", "waits_for=1&waits_for=2"} {
		assert.Contains(t, w.ask("GET", "/v1/jobs?"+query, "").fail(t).Detail, "waits_for")
	}

	w.claim(`{"worker":"w","limit":2}`)
	call[wire.Results](w, 200, "POST", wire.PathAck, `{"jobs":[{"id":"1","token":"1"},{"id":"2","token":"1"}]}`)
	assert.Contains(t, w.ask("GET", "/v1/jobs/3", "").text, `"waits":[{"id":"1","met":true,"state":"succeeded"},{"id":"2","any":true,"met":true,"state":"succeeded"}]`)
	call[wire.Outcome](w, 200, "POST", "/v1/jobs/3/cancel", "")
	detail := call[wire.JobDetail](w, 200, "GET", "/v1/jobs/4", "")
	assert.Equal(t, store.Cancelled, detail.State)
	assert.Equal(t, "job 3, which it needs, was cancelled", detail.Error)
}

// TestAnInvalidWaitHasItsItem, as everything that is invalid.
func TestAnInvalidWaitHasItsItem(t *testing.T) {
	w := newWorld(t, Options{})
	for _, after := range []string{`{}`, `{"id":"7"}`, `{"item":1}`, `{"id":"1","item":0}`} {
		f := w.ask("POST", wire.PathJobs, `{"jobs":[{"kind":"k"},{"kind":"k","after":[`+after+`]}]}`).fail(t)
		require.NotNil(t, f.Item, after)
		assert.Equal(t, 1, *f.Item, after)
		assert.Equal(t, 400, f.Status, after)
	}
}

// TestWhatGoesOnIsTold: the call that ends a job lets only so many others go on at once.
func TestWhatGoesOnIsTold(t *testing.T) {
	w := newWorld(t, Options{})
	w.enqueue("default")
	waiting := store.NewJob{Queue: "default", Kind: "k", Payload: []byte(`{}`), After: []store.Wait{{ID: 1}}}
	for jobs := range slices.Chunk(slices.Repeat([]store.NewJob{waiting}, store.SettledByCall+1), store.MaxItems) {
		_, err := w.store.Enqueue(t.Context(), store.EnqueueRequest{Jobs: jobs})
		require.NoError(t, err)
	}
	call[wire.Enqueued](w, 201, "POST", wire.PathJobs, `{"jobs":[{"kind":"k","queue":"b","expires_at":"2026-01-02T03:04:06Z"}]}`)
	w.claim(`{"worker":"w"}`)
	call[wire.Results](w, 200, "POST", wire.PathAck, `{"jobs":[{"id":"1","token":"1"}]}`)
	w.clock.Add(time.Second)
	f := w.follow("GET", "/v1/events", "")
	settled := call[wire.Settled](w, 200, "POST", wire.PathSettle, `{}`)
	last := int64(store.SettledByCall + 2)
	require.Equal(t, []store.Settled{
		{ID: last + 1, Queue: "b", Kind: "k", State: store.Cancelled, Token: 1, Expired: true}, {ID: last, Queue: "default", Kind: "k", State: store.Ready},
	}, settled.Settled)
	assert.Equal(t, fmt.Sprintf(`job {"job":"%d","queue":"b","event":"cancelled"}`, last+1), f.next())
	assert.Equal(t, fmt.Sprintf(`job {"job":"%d","queue":"default","event":"unblocked"}`, last), f.next())
}

// TestForeignJobsAreNotWaitedFor: the answer is that for a job that does not exist, with and without a request key.
func TestForeignJobsAreNotWaitedFor(t *testing.T) {
	h := newHouse(t, Options{})
	own, foreign := h.job(ownQueue, ""), h.job(foreignQueue, "")
	before := h.everything()
	for _, key := range []string{"", "m/r", wire.RandomKey()} {
		var headers []string
		if key != "" {
			headers = []string{wire.RequestKeyHeader, key}
		}
		ask := func(first, second int64) string {
			body := fmt.Sprintf(`{"jobs":[{"kind":"k","queue":"mail"},{"kind":"k","queue":"mail","after":[{"item":0},{"id":"%d"}]},{"kind":"k","queue":"mail","after":[{"id":"%d"}]}]}`, first, second)
			got := h.as(Producer, "POST", wire.PathJobs, body, headers...)
			require.Equal(t, 400, got.status, got.text)
			return got.text
		}
		refused, unknown := ask(foreign.ID, own.ID), ask(77, own.ID)
		assert.Equal(t, strings.ReplaceAll(unknown, "77", fmt.Sprint(foreign.ID)), refused)
		assert.Contains(t, refused, `"item":1,"field":"after"`)
		assert.Contains(t, ask(own.ID, foreign.ID), `"item":2,"field":"after"`)
		assert.Equal(t, unknown, ask(77, foreign.ID), "whether another exists makes no difference")
	}
	assert.Equal(t, before, h.everything())
	waits := strings.Repeat(fmt.Sprintf(`,{"id":"%d"}`, foreign.ID), store.MaxWaits)[1:]
	f := h.as(Producer, "POST", wire.PathJobs, `{"jobs":[`+strings.Repeat(`,{"kind":"k","queue":"mail","after":[`+waits+`]}`, 63)[1:]+`]}`).fail(t)
	assert.Equal(t, "must be 0 to 4000", f.Rule, "too many are not looked at")
}

// TestForeignAndAbsentJobsAreRefusedAlike, whatever else is wrong with the call: else it would tell whether the job exists.
func TestForeignAndAbsentJobsAreRefusedAlike(t *testing.T) {
	h := newHouse(t, Options{})
	foreign := h.job(foreignQueue, "")
	require.Equal(t, 201, h.as(Producer, "POST", wire.PathJobs, `{"jobs":[{"kind":"k","queue":"mail"}]}`, wire.RequestKeyHeader, "m/used").status)
	before := h.everything()
	for _, c := range []struct{ body, key, want string }{
		{`{"jobs":[{"kind":"k","queue":"mail","after":[{"id":"%d"}]}]}`, "m/used", `"field":"request_key"`},
		{`{"jobs":[{"kind":"k","queue":"mail","expires_at":"2026-01-02T03:04:05Z"},{"kind":"k","queue":"mail","after":[{"id":"%d"}]}]}`, "m/new", `"item":0,"field":"expires_at"`},
		{`{"jobs":[{"kind":"k","queue":"mail","expires_at":"2026-01-02T03:04:05Z"},{"kind":"k","queue":"mail","after":[{"id":"%d"}]}]}`, "", `"item":0,"field":"expires_at"`},
		{`{"jobs":[{"kind":"k","queue":"mail","after":[{"id":"99"},{"id":"%d"}]}]}`, "m/new", `names job 99`},
		{`{"jobs":[{"kind":"k","queue":"mail","after":[{"id":"9223372036854775807"},{"id":"%d"}]}]}`, "m/new", `names job 9223372036854775807`},
	} {
		var headers []string
		if c.key != "" {
			headers = []string{wire.RequestKeyHeader, c.key}
		}
		absent := h.as(Producer, "POST", wire.PathJobs, fmt.Sprintf(c.body, 77), headers...)
		require.Equal(t, 400, absent.status, absent.text)
		assert.Contains(t, absent.text, c.want)
		assert.Equal(t, absent.text, h.as(Producer, "POST", wire.PathJobs, fmt.Sprintf(c.body, foreign.ID), headers...).text)
	}
	assert.Equal(t, before, h.everything())
}

// TestOwnJobsAreWaitedFor, and each role that sees the history sees the waits. What is gone is for those who see all queues.
func TestOwnJobsAreWaitedFor(t *testing.T) {
	h := newHouse(t, Options{})
	own := h.job(ownQueue, "")
	body := fmt.Sprintf(`{"jobs":[{"kind":"k","queue":"mail","after":[{"id":"%d"}]}]}`, own.ID)
	added := h.as(Producer, "POST", wire.PathJobs, body, wire.RequestKeyHeader, "m/r")
	require.Equal(t, 201, added.status, added.text)
	assert.JSONEq(t, `{"jobs":[{"id":"2","state":"blocked"}]}`, added.text)
	for _, role := range []Role{Viewer, Producer, Operator} {
		waits, text := h.waitsOf(role, 2)
		assert.Equal(t, []store.Waiting{{ID: own.ID, State: store.InFlight}}, waits, text)
	}
	require.Equal(t, 200, h.as(Worker, "POST", wire.PathAck, `{"jobs":[{"id":"1","token":"1"}]}`).status)
	waits, _ := h.waitsOf(Viewer, 2)
	assert.Equal(t, []store.Waiting{{ID: own.ID, Met: true, State: store.Succeeded}}, waits)
	require.Equal(t, 200, h.as(Operator, "DELETE", "/v1/jobs/1", "").status)
	waits, _ = h.waitsOf(Viewer, 2)
	assert.Empty(t, waits)
	all, err := h.store.Get(t.Context(), 2)
	require.NoError(t, err)
	assert.Equal(t, []store.Waiting{{ID: own.ID, Met: true}}, all.Waits)
	assert.Equal(t, added.text, h.as(Producer, "POST", wire.PathJobs, body, wire.RequestKeyHeader, "m/r").text, "a repeat, although it is gone")
}

// TestForeignHoldersAreWaitedForUnseen: the key of an earlier item can be held by a foreign job. Nothing names that, in whatever way it
// ends.
func TestForeignHoldersAreWaitedForUnseen(t *testing.T) {
	for end, cancelled := range map[string]bool{"cancel": true, "delete": true, "ack": false} {
		h := newHouse(t, Options{})
		for range 12 {
			h.job(ownQueue, "")
		}
		foreign := h.job(foreignQueue, ownKey) // number 13, which no time and no other number contains
		h.clock.Set(start)
		added := h.as(Producer, "POST", wire.PathJobs, `{"jobs":[{"kind":"k","queue":"mail","unique_key":"m/1"},{"kind":"k","queue":"mail","after":[{"item":0}]}]}`)
		require.Equal(t, 201, added.status, added.text)
		assert.JSONEq(t, `{"jobs":[{"id":"0","duplicate":true},{"id":"14","state":"blocked"}]}`, added.text)
		unseen := func() {
			t.Helper()
			for _, role := range []Role{Viewer, Producer, Operator} {
				waits, text := h.waitsOf(role, 14)
				assert.Empty(t, waits)
				assert.NotContains(t, text, "13", end)
			}
			assert.NotContains(t, h.as(Viewer, "GET", "/v1/jobs?queue=mail", "").text, "13")
			assert.NotContains(t, h.as(Viewer, "GET", "/v1/jobs?waits_for=13", "").text, "14")
			assert.NotContains(t, h.as(Viewer, "POST", "/v1/jobs/list", `{"filter":{"queue":"mail"}}`).text, "13")
		}
		unseen()
		got := h.waiting("/v1/jobs/14?wait=1m", "Authorization", "Bearer "+h.secrets[Viewer])
		switch end {
		case "cancel":
			_, err := h.store.Cancel(t.Context(), store.Filter{IDs: []int64{foreign.ID}}, 1)
			require.NoError(t, err)
		case "delete":
			_, err := h.store.NAck(t.Context(), []store.NAck{{Lease: foreign.Lease(), Form: store.Never}})
			require.NoError(t, err)
			_, err = h.store.Delete(t.Context(), store.Filter{IDs: []int64{foreign.ID}}, 1)
			require.NoError(t, err)
		default:
			_, err := h.store.Ack(t.Context(), []store.Ack{{Lease: foreign.Lease()}})
			require.NoError(t, err)
			_, err = h.store.Cancel(t.Context(), store.Filter{IDs: []int64{14}}, 1)
			require.NoError(t, err)
		}
		h.eventually("a look finds the end", func() bool { h.clock.Add(20 * time.Millisecond); return len(got) == 1 })
		answer := h.answer(got)
		assert.Equal(t, store.Cancelled, h.phase(answer))
		assert.NotContains(t, answer.text, `"13"`)
		assert.NotContains(t, answer.text, "job 13")
		assert.Equal(t, cancelled, strings.Contains(answer.text, `"error":"a job, which it needs, was `), answer.text)
		all, err := h.store.Get(t.Context(), 14)
		require.NoError(t, err)
		assert.Equal(t, foreign.ID, all.Waits[0].ID)
	}
}

// TestNeededJobIsFoundInItsError: the view depends on the text.
func TestNeededJobIsFoundInItsError(t *testing.T) {
	for _, as := range []store.State{store.Cancelled, store.Gone} {
		assert.Equal(t, []string{"job 42, which it needs, was ", "42"}, neededJob.FindStringSubmatch(store.End{ID: 42, As: as}.Reason()))
	}
}

// TestKeysAloneLimitNoWaits: a token for all queues sees all jobs.
func TestKeysAloneLimitNoWaits(t *testing.T) {
	secret, token, err := NewToken(Token{Name: "n", Role: "producer,operator", KeyPrefix: "m/"})
	require.NoError(t, err)
	known, err := ReadTokens(bytes.NewReader(token.Line()))
	require.NoError(t, err)
	w := newWorld(t, Options{Tokens: known})
	bearer := []string{"Authorization", "Bearer " + secret}
	job := (&house{world: w}).job(foreignQueue, foreignKey)
	added := w.ask("POST", wire.PathJobs, `{"jobs":[{"kind":"k","after":[{"id":"1"}]}]}`, bearer...)
	require.Equal(t, 201, added.status, added.text)
	assert.Contains(t, w.ask("GET", "/v1/jobs/2", "", bearer...).text, `"waits":[{"id":"1","state":"in_flight"}]`)
	_, err = w.store.Cancel(t.Context(), store.Filter{IDs: []int64{job.ID}}, 1)
	require.NoError(t, err)
	assert.Contains(t, w.ask("GET", "/v1/jobs/2", "", bearer...).text, "job 1, which it needs, was cancelled")
}

// TestBlockedJobsTakeRoom: they will be ready, all at once perhaps.
func TestBlockedJobsTakeRoom(t *testing.T) {
	w := newWorld(t, Options{MaxWaitingJobs: 2})
	require.Equal(t, 201, w.ask("POST", wire.PathJobs, `{"jobs":[{"kind":"k"},{"kind":"k","after":[{"item":0}]}]}`).status)
	w.clock.Add(oldCount)
	assert.Equal(t, urn+"quota", w.ask("POST", wire.PathJobs, `{"jobs":[{"kind":"k"}]}`).fail(t).Type)
}
