package httpapi

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/schedule"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

const each15 = `{"cron":"*/15 * * * *","job":{"kind":"feed.poll","payload":{"feed": 7}}}`

// TestPersonPutsASchedule: the server computes the next time, fires what is due before a change, and changes nothing for a repeat.
func TestPersonPutsASchedule(t *testing.T) {
	w := newWorld(t, Options{})
	put := func(body string) store.Schedule {
		t.Helper()
		return call[wire.Schedule](w, 200, "PUT", "/v1/schedules/s", body).Store(store.NewJob{})
	}
	first := put(each15)
	want := store.Schedule{
		Name: "s", Cron: "*/15 * * * *", CatchUp: store.CatchUpOne, Overlap: store.OverlapAllow, NextAt: time.Date(2026, 1, 2, 3, 15, 0, 0, time.UTC),
		Revision: first.Revision, Job: w.api.defaults,
	}
	want.Job.Kind, want.Job.Payload = "feed.poll", []byte(`{"feed": 7}`)
	assert.Equal(t, want, first)
	assert.Equal(t, first, put(each15), "a put that changes nothing")
	assert.Equal(t, first, call[wire.Schedule](w, 200, "GET", "/v1/schedules/s", "").Store(store.NewJob{}))

	w.clock.Add(15 * time.Minute)
	hourly := put(`{"cron":"@hourly","job":{"kind":"feed.poll"}}`)
	assert.Equal(t, want.NextAt, hourly.LastAt, "what was due has fired")
	assert.Equal(t, time.Date(2026, 1, 2, 4, 0, 0, 0, time.UTC), hourly.NextAt)
	assert.Equal(t, map[store.State]int64{store.Ready: 1}, w.counts())

	declared := put(`{"cron":"@daily","job":{"kind":"feed.poll"},"owner":"billing","version":2}`)
	assert.Equal(t, declared, put(`{"cron":"@weekly","job":{"kind":"feed.poll"},"owner":"billing","version":2}`), "no higher version")
	f := w.ask("PUT", "/v1/schedules/s", `{"cron":"@weekly","job":{"kind":"feed.poll"},"owner":"other"}`).fail(t)
	assert.Equal(t, []any{409, urn + "conflict", `jq: the schedule "s" belongs to "billing": delete it first, or choose another name`}, []any{f.Status, f.Type, f.Detail})
	assert.Equal(t, declared, call[wire.Schedule](w, 200, "GET", "/v1/schedules/s", "").Store(store.NewJob{}))
}

// TestStorePutsASchedule: with a revision the schedule is kept as it was sent, and nothing is computed.
func TestStorePutsASchedule(t *testing.T) {
	w := newWorld(t, Options{})
	body := `{"cron":"of another parser","job":{"kind":"k"},"next_at":"2026-01-02T00:00:00Z","revision":%q}`
	kept := call[wire.Schedule](w, 200, "PUT", "/v1/schedules/s", fmt.Sprintf(body, "0")).Store(store.NewJob{})
	assert.Equal(t, time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), kept.NextAt)
	assert.Equal(t, "of another parser", kept.Cron)
	other := strings.Replace(body, "another", "a third", 1)
	for _, revision := range []string{"0", fmt.Sprint(kept.Revision + 1)} {
		assert.Equal(t, urn+"conflict", w.ask("PUT", "/v1/schedules/s", fmt.Sprintf(other, revision)).fail(t).Type)
	}
	assert.Equal(t, kept, call[wire.Schedule](w, 200, "GET", "/v1/schedules/s", "").Store(store.NewJob{}))
	assert.Empty(t, w.counts())
}

// TestSchedulesArePausedRunAndRemoved by their names, whatever is in them.
func TestSchedulesArePausedRunAndRemoved(t *testing.T) {
	var count tally
	w := newWorld(t, Options{Counter: &count})
	f := w.follow("GET", "/v1/events", "")
	for _, name := range []string{"s", "a%2Fb", "%2E%2E", "preview", "fire", "100%25"} {
		path := "/v1/schedules/" + name
		call[wire.Schedule](w, 200, "PUT", path, each15)
		paused := call[wire.Schedule](w, 200, "POST", path+"/pause", "")
		assert.Equal(t, []any{true, true}, []any{paused.Paused, paused.NextAt.IsZero()})
		resumed := call[wire.Schedule](w, 200, "POST", path+"/resume", "")
		assert.Equal(t, []any{false, false}, []any{resumed.Paused, resumed.NextAt.IsZero()})
		added := call[store.Enqueued](w, 200, "POST", path+"/run", "")
		for event := f.next(); event != fmt.Sprintf(`job {"job":"%d","queue":"default","event":"enqueued"}`, added.ID); event = f.next() {
			assert.True(t, strings.HasPrefix(event, "audit "), event)
		}
		call[wire.Schedule](w, 200, "POST", path+"/reset", "")
		for range 2 {
			assert.Equal(t, 204, w.ask("DELETE", path, "").status)
		}
		for _, verb := range []string{"pause", "resume", "reset", "run"} {
			assert.Equal(t, 404, w.ask("POST", path+"/"+verb, "").fail(t).Status)
		}
	}
	assert.Equal(t, map[store.State]int64{store.Ready: 6}, w.counts(), "the jobs stay")
	assert.Equal(t, map[string]int{"added default feed.poll": 6}, count.taken())
}

// TestRunHasRoom: a schedule is no way around the quotas.
func TestRunHasRoom(t *testing.T) {
	w := newWorld(t, Options{MaxWaitingJobs: 1})
	call[wire.Schedule](w, 200, "PUT", "/v1/schedules/s", each15)
	call[store.Enqueued](w, 200, "POST", "/v1/schedules/s/run", "")
	assert.Equal(t, urn+"quota", w.ask("POST", "/v1/schedules/s/run", "").fail(t).Type)
	assert.Equal(t, map[store.State]int64{store.Ready: 1}, w.counts())
}

// TestPayloadsOfSchedulesAreForOperators: a viewer and a worker see that there is one.
func TestPayloadsOfSchedulesAreForOperators(t *testing.T) {
	known, secrets := tokens(t)
	var audit audited
	w := newWorld(t, Options{Tokens: known, Audit: audit.logger()})
	as := func(role Role) []string { return []string{"Authorization", "Bearer " + secrets[role]} }
	secret := `{"cron":"@daily","job":{"kind":"k","payload":{"a": "secret"}}}`
	call[wire.Schedule](w, 200, "PUT", "/v1/schedules/s", secret, as(Operator)...)
	assert.NotContains(t, audit.String(), "secret", "the payload is not for the audit")
	for _, path := range []string{"/v1/schedules", "/v1/schedules/s"} {
		for _, role := range []Role{Viewer, Worker, Operator} {
			got := w.ask("GET", path, "", as(role)...)
			require.Equal(t, 200, got.status, got.text)
			assert.Equal(t, role == Operator, strings.Contains(got.text, "secret"), "%s to a %s", path, role)
			assert.Equal(t, role != Operator, strings.Contains(got.text, `"redacted":true`), "%s to a %s", path, role)
		}
	}
}

// TestWorkersFireWhatIsDue, at the times that the server computes, whatever the worker says.
func TestWorkersFireWhatIsDue(t *testing.T) {
	known, secrets := tokens(t)
	w := newWorld(t, Options{Tokens: known})
	worker := []string{"Authorization", "Bearer " + secrets[Worker]}
	set := func(name, cron string, next time.Time) store.Schedule {
		s, err := w.store.SetSchedule(t.Context(), store.Schedule{Name: name, Cron: cron, NextAt: next, Job: store.NewJob{Queue: "q", Kind: "k", Payload: []byte("{}")}})
		require.NoError(t, err)
		return s
	}
	due, later, odd := set("due", "@every 1m", start.Add(-3*time.Minute)), set("later", "@daily", start.Add(time.Second)), set("odd", "61", start)
	fire := func(list ...store.Schedule) []store.Fired {
		t.Helper()
		body := `{"firings":[`
		for _, s := range list {
			body += fmt.Sprintf(`{"name":%q,"revision":"%d","for":"2025-12-31T00:00:00Z","next":"9000-01-01T00:00:00Z"},`, s.Name, s.Revision)
		}
		return call[wire.Fired](w, 200, "POST", wire.PathFire, strings.TrimSuffix(body, ",")+`]}`, worker...).Fired
	}
	fired := fire(later, due, odd, store.Schedule{Name: "gone", Revision: 1})
	assert.Equal(t, []store.Status{store.StatusWrongState, store.StatusOK, store.StatusInvalid, store.StatusNotFound},
		[]store.Status{fired[0].Status, fired[1].Status, fired[2].Status, fired[3].Status})
	assert.Contains(t, fired[2].Reason, "cron")
	now, _, err := schedule.Get(t.Context(), w.store, "due")
	require.NoError(t, err)
	assert.Equal(t, []time.Time{start, start.Add(time.Minute)}, []time.Time{now.LastAt, now.NextAt})
	assert.Equal(t, store.StatusStale, fire(due)[0].Status)
	assert.Equal(t, map[store.State]int64{store.Ready: 1}, w.counts())
	for _, s := range []store.Schedule{later, odd} {
		now, _, err := schedule.Get(t.Context(), w.store, s.Name)
		require.NoError(t, err)
		assert.Equal(t, s, now)
	}
}

// TestForeignSchedules are not there for a token with queues or keys of its own, and no change brings a job into a queue that it may
// not enqueue to.
func TestForeignSchedules(t *testing.T) {
	h := newHouse(t, Options{})
	h.schedule("own", ownQueue, "m/1")
	foreign, otherKey := h.schedule("foreign", foreignQueue, ""), h.schedule("key", ownQueue, foreignKey)
	before := h.everything()
	put := func(name, queue, key, revision string) answered {
		return h.as(Operator, "PUT", "/v1/schedules/"+name, fmt.Sprintf(`{"cron":"@daily","job":{"kind":"k","queue":%q,"unique_key":%q}%s}`, queue, key, revision))
	}
	revision := func(s store.Schedule) string {
		return fmt.Sprintf(`,"next_at":"2026-01-03T00:00:00Z","revision":"%d"`, s.Revision)
	}
	for what, got := range map[string]answered{
		"into a foreign queue":             put("own", foreignQueue, "", ""),
		"with a foreign key":               put("own", ownQueue, foreignKey, ""),
		"a new one into a foreign queue":   put("new", foreignQueue, "", ""),
		"out of a foreign queue":           put("foreign", ownQueue, "", ""),
		"away from a foreign key":          put("key", ownQueue, "", ""),
		"a foreign one by its revision":    put("foreign", ownQueue, "", revision(foreign)),
		"that of a key by its revision":    put("key", ownQueue, "", revision(otherKey)),
		"a new one by no revision":         put("new", foreignQueue, "", `,"revision":"0"`),
		"the default queue":                h.as(Operator, "PUT", "/v1/schedules/new", `{"cron":"@daily","job":{"kind":"k"}}`),
		"to remove it":                     h.as(Operator, "DELETE", "/v1/schedules/foreign", ""),
		"to remove one with a foreign key": h.as(Operator, "DELETE", "/v1/schedules/key", ""),
	} {
		f := got.fail(t)
		assert.Equal(t, []any{403, urn + "forbidden"}, []any{f.Status, f.Type}, what)
		assert.Contains(t, []string{"name", "job.queue", "job.unique_key"}, f.Field, what)
	}
	for _, name := range []string{"foreign", "key", "gone"} {
		for _, verb := range []string{"pause", "resume", "reset", "run"} {
			assert.Equal(t, 404, h.as(Operator, "POST", "/v1/schedules/"+name+"/"+verb, "").status, "%s %s", verb, name)
		}
		assert.Equal(t, 404, h.as(Viewer, "GET", "/v1/schedules/"+name, "").status)
		for _, role := range []Role{Worker, Operator} {
			got := h.as(role, "POST", wire.PathFire, fmt.Sprintf(`{"firings":[{"name":%q,"revision":"%d","for":"2026-01-01T00:00:00Z"}]}`, name, foreign.Revision))
			assert.JSONEq(t, fmt.Sprintf(`{"fired":[{"name":%q,"status":"not_found"}]}`, name), got.text)
		}
	}
	assert.Equal(t, before, h.everything())

	list := call[wire.SchedulePage](h.world, 200, "GET", "/v1/schedules?limit=1", "", "Authorization", "Bearer "+h.secrets[Viewer])
	assert.Equal(t, []any{1, "own", ""}, []any{len(list.Schedules), list.Schedules[0].Name, list.Next})
	assert.Equal(t, 200, put("own", "mail-2", "m/2", "").status, "to another queue of its own")
	assert.Equal(t, 200, put("own", "mail-2", "m/2", "").status)
	assert.Equal(t, 200, h.as(Operator, "POST", "/v1/schedules/own/run", "").status)
	assert.Equal(t, 204, h.as(Operator, "DELETE", "/v1/schedules/own", "").status)
}

// TestScheduleThatChangesHands between the look and the change is not changed.
func TestScheduleThatChangesHands(t *testing.T) {
	h := newHouse(t, Options{})
	s := h.schedule("s", ownQueue, "")
	passOn := func(store.Schedule) error {
		foreign := s
		foreign.Job.Queue = foreignQueue
		_, err := h.store.SetSchedule(t.Context(), foreign)
		return err
	}
	limited := &bearer{known: known{Token: Token{Queues: []string{"mail-*"}}, roles: []Role{Operator}}}
	v := &view{api: h.api, of: &meddled{Store: h.store, setting: passOn}, bearer: limited}
	change := s
	change.Cron = "@weekly"
	for _, revision := range []int64{s.Revision + 1, s.Revision} { // the first is what a bearer could guess to come
		change.Revision = revision
		_, err := v.SetSchedule(t.Context(), change)
		require.ErrorIs(t, err, store.ErrConflict)
	}
	change.Name, change.Job.Queue = "new", foreignQueue
	_, err := v.SetSchedule(t.Context(), change)
	require.ErrorAs(t, err, new(wire.Fail), "the view itself keeps jobs out of foreign queues")
}

// TestForeignHolderOfASchedulesKeyIsNotTold: that the key is held is all that an operator of other queues learns.
func TestForeignHolderOfASchedulesKeyIsNotTold(t *testing.T) {
	h := newHouse(t, Options{})
	h.job(foreignQueue, ownKey)
	held := h.schedule("held", ownQueue, ownKey)
	fire := fmt.Sprintf(`{"firings":[{"name":"held","revision":"%d","for":"2026-01-02T03:04:05Z","next":"2026-01-02T03:05:05Z"}]}`, held.Revision)
	got := h.as(Worker, "POST", wire.PathFire, fire)
	assert.JSONEq(t, fmt.Sprintf(`{"fired":[{"name":"held","status":"ok","revision":"%d","job":{"id":"0","duplicate":true},"reason":"another job holds its unique key"}]}`,
		held.Revision+1), got.text)
	assert.NotContains(t, h.as(Operator, "GET", "/v1/schedules", "").text, "last_job")
	assert.NotContains(t, h.as(Operator, "GET", "/v1/schedules/held", "").text, "last_job")
	assert.NotContains(t, h.as(Operator, "POST", "/v1/schedules/held/pause", "").text, "last_job")
	call[wire.Schedule](h.world, 200, "PUT", "/v1/schedules/held", `{"cron":"@every 1m","overlap":"skip","job":{"kind":"k","queue":"mail","unique_key":"m/1"}}`,
		"Authorization", "Bearer "+h.secrets[Operator])
	f := h.as(Operator, "POST", "/v1/schedules/held/run", "").fail(t)
	assert.Equal(t, `jq: the schedule "held" must not overlap: its previous job has not ended`, f.Detail)
	all, err := schedule.All(t.Context(), h.store)
	require.NoError(t, err)
	assert.EqualValues(t, 1, all[0].LastJob, "the store keeps it")
}

// TestPagesOfOwnSchedules are full, and end before they are too heavy, however many others are in between.
func TestPagesOfOwnSchedules(t *testing.T) {
	h := newHouse(t, Options{})
	for i := range 20 {
		for _, queue := range []string{ownQueue, foreignQueue} {
			s := h.schedule(fmt.Sprintf("%02d-%s", i, queue), queue, "")
			s.Job.Payload = []byte(`"` + strings.Repeat("x", store.MaxTemplateBytes-2) + `"`)
			_, err := h.store.SetSchedule(t.Context(), s)
			require.NoError(t, err)
		}
	}
	sizes := func(limit int) (sizes []int) {
		for cursor := ""; ; {
			page := call[wire.SchedulePage](h.world, 200, "GET", fmt.Sprintf("/v1/schedules?limit=%d%s", limit, cursor), "", "Authorization", "Bearer "+h.secrets[Operator])
			sizes = append(sizes, len(page.Schedules))
			if page.Next == "" {
				return sizes
			}
			cursor = "&cursor=" + page.Next
		}
	}
	assert.Equal(t, []int{7, 7, 6}, sizes(7))
	assert.Equal(t, []int{16, 4}, sizes(1000))
}

// TestPreviewGoesByTheStoresTime, and by the zone.
func TestPreviewGoesByTheStoresTime(t *testing.T) {
	w := newWorld(t, Options{})
	times := call[wire.Times](w, 200, "POST", "/v1/schedules/preview", `{"cron":"30 2 * * *","timezone":"America/New_York"}`).Times
	require.Len(t, times, 5)
	assert.Equal(t, time.Date(2026, 1, 2, 7, 30, 0, 0, time.UTC), times[0].Time)
	assert.Len(t, call[wire.Times](w, 200, "POST", "/v1/schedules/preview", `{"cron":"@every 1s","count":1000}`).Times, 1000)
	later := call[wire.Times](w, 200, "POST", "/v1/schedules/preview", `{"cron":"@every 6h","after":"2030-05-01T11:30:00Z","count":1}`).Times
	assert.Equal(t, []wire.Time{{Time: time.Date(2030, 5, 1, 17, 30, 0, 0, time.UTC)}}, later, "the time after the one that a page shows")
	distant := call[wire.Times](w, 200, "POST", "/v1/schedules/preview", `{"cron":"@every 87600h","count":1000}`).Times
	assert.True(t, distant[len(distant)-1].Before(store.MaxTime), "a time that has no text in RFC 3339")
	all, err := schedule.All(t.Context(), w.store)
	require.NoError(t, err)
	assert.Empty(t, all)
}
