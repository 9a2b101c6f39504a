package wire_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// A program that encodes a type of the library with encoding/json gets the same JSON as from the API, and can read it back.
func TestNounsAreWrittenAsTheAPIDoes(t *testing.T) {
	noun(t, wire.JobOf)
	noun(t, wire.DetailOf)
	noun(t, func(b store.Backoff) store.BackoffJSON { return wire.JobOf(store.Job{Backoff: b}).Backoff })
	noun(t, wire.NewJobOf)
	noun(t, wire.ScheduleOf)
	noun(t, wire.FiringOf)
	noun(t, wire.LeaseOf)
	noun(t, wire.FilterOf)
	noun(t, func(p store.JobPage) wire.Jobs { return wire.Jobs{Jobs: wire.JobsOf(p.Jobs).Jobs, Next: p.Next} })
	noun(t, func(p store.Policy) wire.Policy {
		out := wire.Policy{
			RetainSucceeded: wire.Retention(p.RetainSucceeded), RetainCancelled: wire.Retention(p.RetainCancelled),
			RetainDead: wire.Retention(p.RetainDead), MaxInFlight: p.MaxInFlight, MaxPerKey: p.MaxPerKey, Fair: p.Fair, Ordered: p.Ordered,
			Rate: wire.Rate{N: p.Rate.N, Per: wire.Duration(p.Rate.Per)}, Declared: p.Declared, Version: p.Version,
		}
		if p.Owner != "" || p.Declared != 0 {
			out.Owner = &p.Owner
		}
		return out
	}, store.Policy{RetainSucceeded: 48 * time.Hour, RetainCancelled: 90 * time.Minute, RetainDead: store.KeepForEver, Version: 3},
		store.Policy{Rate: store.Rate{N: 100, Per: time.Minute}, Version: 4}, store.Policy{Fair: true, Version: 4}, store.Policy{Ordered: true, Version: 4},
		store.Policy{Owner: "billing", Declared: 3, Version: 5}, store.Policy{Declared: 3, Version: 6})
	noun(t, func(w store.Worker) wire.Worker {
		return wire.Worker{
			Name: w.Name, Host: w.Host, PID: w.PID, Queues: w.Queues, Slots: w.Slots, Running: w.Running,
			StaleAfter: wire.Duration(w.StaleAfter), BeatAt: wire.Time{Time: w.BeatAt}, Stale: w.Stale,
		}
	})
}

// noun compares the JSON of values with the JSON of the API: a value with every field set, an empty one, and others.
func noun[A, B any](t *testing.T, of func(A) B, others ...A) {
	t.Helper()
	var empty A
	for _, v := range append([]A{filled[A](t), compact(filled[A](t)), empty}, others...) {
		want, err := wire.Marshal(of(v))
		require.NoError(t, err)
		got, err := json.Marshal(v)
		require.NoError(t, err)
		assert.JSONEq(t, string(want), string(got), "%T", v)
		var back A
		require.NoError(t, json.Unmarshal(got, &back), "%T", v)
		again, err := json.Marshal(back)
		require.NoError(t, err)
		assert.Equal(t, string(got), string(again), "%T", v)
		if !reflect.ValueOf(v).IsZero() {
			assert.Equal(t, v, back, "%T", v)
		}
	}
}

// compact gives v documents without white space, so that no second field is needed for their exact text.
func compact[A any](v A) A {
	for _, field := range reflect.ValueOf(&v).Elem().Fields() {
		if doc, ok := reflect.TypeAssert[*[]byte](field.Addr()); ok {
			*doc = []byte(`{"a":1}`)
		}
	}
	return v
}

// Other programs read this JSON, so the test has all of it.
func TestJobInJSON(t *testing.T) {
	text, err := json.Marshal(store.Job{
		ID: 7, Queue: "mail", Kind: "welcome", Payload: []byte(`{"name":"Ada"}`), State: store.Retrying, RunAt: aTime, RetryAt: aTime.Add(time.Second),
		Attempts: 1, Retries: 1, MaxRetries: 20, Backoff: store.Backoff{Base: time.Second, Cap: time.Hour, Jitter: 10},
		Timeout: 90 * time.Second, Token: 1, Result: []byte("[1, 2]"),
	})
	require.NoError(t, err)
	assert.JSONEq(t, `{
		"id": "7", "queue": "mail", "kind": "welcome", "payload": {"name": "Ada"}, "state": "retrying",
		"run_at": "2026-01-02T03:04:05.000006Z", "retry_at": "2026-01-02T03:04:06.000006Z",
		"attempts": 1, "retries": 1, "max_retries": 20, "backoff": {"base": "1s", "cap": "1h0m0s", "jitter": 10},
		"timeout": "1m30s", "token": "1", "result": [1, 2], "result_text": "[1, 2]"
	}`, string(text))
}
