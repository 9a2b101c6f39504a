package httpapi

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/schedule"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
	"github.com/seed-ed332417/jq/internal/wire"
)

// TestReadOnlyServerRefusesWhatChanges: of each call that changes the store it is only said that the server reads, whoever asks and
// with whatever body. Nothing reaches the store, the audit or the counts. All other calls are answered as ever.
func TestReadOnlyServerRefusesWhatChanges(t *testing.T) {
	known, secrets := tokens(t)
	for _, r := range table() {
		if r.name == "events" || r.name == "wakeups" {
			continue // see TestReadOnlyServerStreams
		}
		t.Run(r.name, func(t *testing.T) {
			var audit audited
			var count tally
			options := Options{ReadOnly: true, Tokens: known, Audit: audit.logger(), Counter: &count, Metrics: always(metricsText)}
			armed := false
			w := newWorld(t, options, func(s *memory.Store) store.Store {
				return &meddled{Store: s, any: func(context.Context) error {
					if armed {
						t.Error("the store is called")
					}
					return nil
				}}
			})
			w.furnish()
			one := examples()[r.name]
			if r.effect == reads {
				got := w.ask(one.method, one.path, one.body, "Authorization", "Bearer "+secrets[Operator])
				assert.Less(t, got.status, 400, got.text)
				return
			}
			if r.path == pathSession {
				assert.NotEqual(t, urn+"read_only", w.ask(one.method, one.path, one.body).fail(t).Type)
				return
			}
			before := w.contents()
			armed = true
			for _, headers := range [][]string{{}, {"Authorization", "Bearer x"}, {"Authorization", "Bearer " + secrets[Operator]}, {"Authorization", "Bearer " + secrets[Viewer]}} {
				for _, body := range []string{one.body, "", "{"} {
					f := w.ask(one.method, one.path, body, headers...).fail(t)
					assert.Equal(t, []any{403, urn + "read_only"}, []any{f.Status, f.Type})
				}
			}
			armed = false
			assert.Equal(t, before, w.contents())
			assert.Empty(t, audit.lines(t))
			assert.Empty(t, count.taken())
			assert.NotContains(t, w.logged.String(), requestRefused)
		})
	}
}

// furnish adds what the examples name, behind the back of the API.
func (w *world) furnish() {
	w.Helper()
	added, err := w.store.Enqueue(w.Context(), store.EnqueueRequest{Jobs: []store.NewJob{{Queue: "default", Kind: "k", Payload: []byte(`{}`)}}})
	require.NoError(w, err)
	require.EqualValues(w, 1, added[0].ID)
	_, err = w.store.SetSchedule(w.Context(), aSchedule())
	require.NoError(w, err)
	require.NoError(w, w.store.Beat(w.Context(), store.Worker{Name: "mailer-1", Queues: []string{"default"}}))
	member := store.NewJob{Queue: "default", Kind: "k", Payload: []byte(`{}`), Group: "import-2026-01"}
	held := store.NewJob{Queue: "held", Kind: "k", Payload: []byte(`{}`)}
	_, err = w.store.Enqueue(w.Context(), store.EnqueueRequest{Jobs: []store.NewJob{member, held}, Open: []string{member.Group}})
	require.NoError(w, err)
	_, err = w.store.FetchAndClaim(w.Context(), store.ClaimRequest{Queue: "held", Worker: "mailer-1", TTL: time.Minute, Limit: 1})
	require.NoError(w, err)
}

// contents are all that the store has.
func (w *world) contents() []any {
	w.Helper()
	jobs, err := w.store.List(w.Context(), store.Filter{}, store.Page{Limit: 100})
	require.NoError(w, err)
	queues, err := w.store.Queues(w.Context())
	require.NoError(w, err)
	workers, err := store.AllWorkers(w.Context(), w.store)
	require.NoError(w, err)
	schedules, err := schedule.All(w.Context(), w.store)
	require.NoError(w, err)
	groups, err := w.store.Groups(w.Context(), store.GroupFilter{}, store.Page{Limit: 100})
	require.NoError(w, err)
	return []any{jobs, queues, workers, schedules, groups}
}

// TestReadOnlyServerStreams events and wake-ups.
func TestReadOnlyServerStreams(t *testing.T) {
	w := newWorld(t, Options{ReadOnly: true})
	events, wakeups := w.follow("GET", "/v1/events", ""), w.follow("POST", "/v1/wakeups", `{"queues":["default"]}`)
	w.api.Publish(Event{Job: 1, Event: WasDead})
	assert.Equal(t, `job {"job":"1","event":"dead"}`, events.next())
	w.furnish()
	assert.Equal(t, `wakeup {"queue":"default"}`, wakeups.next())
}

// TestSessionOfAReadOnlyServer says so, with tokens and without, and is begun and ended as ever.
func TestSessionOfAReadOnlyServer(t *testing.T) {
	open := newWorld(t, Options{ReadOnly: true})
	assert.JSONEq(t, `{"name":"","roles":["producer","worker","operator","viewer"],"open":true,"read_only":true}`, open.ask("GET", pathSession, "").text)

	v := newVisitor(t, func(o *Options) { o.ReadOnly = true })
	require.Equal(t, 204, v.login(v.secrets[Operator]).status)
	answer := call[sessionAnswer](v.world, 200, "GET", pathSession, "")
	assert.Equal(t, sessionAnswer{Name: "the operator", Roles: []Role{Operator}, CSRFToken: v.csrf, ReadOnly: true}, answer)
	f := v.ask("POST", "/v1/queues/a/pause", "", csrfHeader, v.csrf).fail(t)
	assert.Equal(t, urn+"read_only", f.Type)
	require.Equal(t, 204, v.ask(http.MethodDelete, pathSession, "", csrfHeader, v.csrf).status)
	assert.Equal(t, 401, v.ask("GET", pathSession, "").status)
}

// TestReadOnlyIsADenialForClients: a worker that is pointed at such a server by mistake must stop, and not try for ever.
func TestReadOnlyIsADenialForClients(t *testing.T) {
	assert.Equal(t, wire.ReadOnly, onlyReads.Type)
	assert.ErrorIs(t, onlyReads.Err(), store.ErrDenied)
	assert.Equal(t, urn+"unavailable", wire.FailOf(store.ErrDenied).Type, "a store that denies its server access is not the client's fault")
}
