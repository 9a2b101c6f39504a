package httpapi

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// refused is what a job shows of refused writes, and whether it shows anything.
func (w *world) refused(id int64, headers ...string) string {
	w.Helper()
	got := w.ask("GET", fmt.Sprint("/v1/jobs/", id), "", headers...)
	require.Equal(w, 200, got.status, got.text)
	var fields map[string]json.RawMessage
	require.NoError(w, json.Unmarshal([]byte(got.text), &fields))
	return string(fields["refused"])
}

// TestRefusedWritesAreShownAtTheirJob, each kind once, with the latest time and how often, and as events.
func TestRefusedWritesAreShownAtTheirJob(t *testing.T) {
	w := newWorld(t, Options{})
	w.enqueue("mail", "mail")
	require.Len(t, w.claim(`{"worker":"w","queues":["mail"],"limit":2}`), 2)
	call[wire.Results](w, 200, "POST", wire.PathAck, `{"jobs":[{"id":"1","token":"1"},{"id":"1","token":"1"}]}`)
	assert.Empty(t, w.refused(1), "a repeat is no refused write")
	w.clock.Add(time.Minute)
	_, err := w.store.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 9})
	require.NoError(t, err)
	events := w.follow("GET", "/v1/events", "")
	for _, path := range []string{wire.PathNAck, wire.PathExtend, wire.PathAck, wire.PathCheckpoint, pathRelease, wire.PathAck} {
		w.clock.Add(time.Second)
		body := `{"jobs":[{"id":"77","token":"1"},{"id":"2","token":"1"}]`
		if path == wire.PathExtend {
			body += `,"lease":"1m"`
		}
		call[wire.Results](w, 200, "POST", path, body+"}")
		assert.Equal(t, `job {"job":"2","queue":"mail","event":"refused"}`, events.next())
	}
	assert.JSONEq(t, `[
		{"token":"1","op":"extend","at":"2026-01-02T03:05:07Z"},
		{"token":"1","op":"save","at":"2026-01-02T03:05:09Z"},
		{"token":"1","op":"nack","at":"2026-01-02T03:05:10Z","times":2},
		{"token":"1","op":"ack","at":"2026-01-02T03:05:11Z","times":2}]`, w.refused(2))
	assert.Empty(t, w.refused(1))
	call[wire.Results](w, 200, "POST", wire.PathAck, `{"jobs":[{"id":"2","token":"9"}]}`)
	assert.Equal(t, `job {"job":"2","event":"refused"}`, events.next(), "a token that was not given here tells no queue")
	assert.Contains(t, w.refused(2), `{"token":"9","op":"ack","at":"2026-01-02T03:05:11Z"}`, "another token is another write")
}

// TestTokensOfRefusedWritesAreHidden from whoever may not see tokens, and the writes from whoever may not see the job.
func TestTokensOfRefusedWritesAreHidden(t *testing.T) {
	h := newHouse(t, Options{})
	own, foreign := h.job(ownQueue, ""), h.job(foreignQueue, "")
	for _, j := range []store.Job{own, foreign} {
		h.api.countStale("ack", []store.Lease{j.Lease()}, []store.Outcome{{ID: j.ID, Status: store.StatusStale}})
	}
	const hidden, shown = `[{"op":"ack","at":"2026-01-02T03:04:05Z"}]`, `[{"token":"1","op":"ack","at":"2026-01-02T03:04:05Z"}]`
	for role, want := range map[Role]string{Viewer: hidden, Producer: hidden, Operator: shown} {
		assert.JSONEq(t, want, h.refused(own.ID, "Authorization", "Bearer "+h.secrets[role]), role)
		assert.Equal(t, 404, h.as(role, "GET", fmt.Sprint("/v1/jobs/", foreign.ID), "").status)
	}
}

// TestRefusedWritesAreForgotten: the latest thousand stay, and a repeat makes one the latest.
func TestRefusedWritesAreForgotten(t *testing.T) {
	var s staleWrites
	at := func(n int) wire.Time { return wire.Time{Time: start.Add(time.Duration(n) * time.Second)} }
	for n := range maxStale {
		s.add(store.Lease{ID: int64(n), Token: 1}, "ack", at(n))
	}
	s.add(store.Lease{ID: 0, Token: 1}, "ack", at(maxStale))
	s.add(store.Lease{ID: maxStale, Token: 1}, "ack", at(maxStale))
	assert.Equal(t, []refusedWrite{{Token: 1, Op: "ack", At: at(maxStale), Times: 2}}, s.of(0))
	assert.Empty(t, s.of(1), "the oldest is forgotten")
	assert.Len(t, s.of(2), 1)
	assert.Len(t, s.of(maxStale), 1)
	s.add(store.Lease{ID: 1, Token: 1}, "ack", at(maxStale))
	assert.Equal(t, []refusedWrite{{Token: 1, Op: "ack", At: at(maxStale), job: 1}}, s.of(1), "what was forgotten begins anew")
	assert.Len(t, s.all, maxStale)
}
