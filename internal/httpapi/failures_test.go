package httpapi

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
	"github.com/seed-ed332417/jq/internal/wire"
)

func (w *world) failures(query string, headers ...string) failuresAnswer {
	w.Helper()
	return call[failuresAnswer](w, 200, "GET", "/v1/errors"+query, "", headers...)
}

// A fault is a job that fails, for good or not.
type fault struct {
	queue, kind, err string
	dead             bool
}

// fail makes jobs that have failed, behind the back of the API.
func (w *world) fail(faults ...fault) {
	w.Helper()
	for part := range slices.Chunk(faults, 500) {
		var jobs []store.NewJob
		queues := map[string]int{}
		for _, f := range part {
			jobs = append(jobs, store.NewJob{Queue: f.queue, Kind: f.kind, Payload: []byte(`{}`), MaxRetries: 3, Backoff: store.Backoff{Base: time.Minute, Cap: time.Minute}})
			queues[f.queue]++
		}
		added, err := w.store.Enqueue(w.Context(), store.EnqueueRequest{Jobs: jobs})
		require.NoError(w, err)
		by := map[int64]fault{}
		for i, a := range added {
			by[a.ID] = part[i]
		}
		var nacks []store.NAck
		for queue, n := range queues {
			claimed, err := w.store.FetchAndClaim(w.Context(), store.ClaimRequest{Queue: queue, Limit: n, Worker: "w", TTL: time.Hour})
			require.NoError(w, err)
			for _, j := range claimed {
				f, ours := by[j.ID]
				require.True(w, ours)
				form := store.Fail
				if f.dead {
					form = store.Never
				}
				nacks = append(nacks, store.NAck{Lease: j.Lease(), Form: form, Error: f.err})
			}
		}
		_, err = w.store.NAck(w.Context(), nacks)
		require.NoError(w, err)
	}
}

func TestErrorPatterns(t *testing.T) {
	for _, c := range [][2]string{
		{"", ""},
		{"timeout", "timeout"},
		{"dial tcp 10.0.0.7:5432: connection refused", "dial tcp <n>: connection refused"},
		{"dial tcp 10.0.0.7: connection refused", "dial tcp <n>: connection refused"},
		{"status 503 after 1.5s", "status <n> after <n>s"},
		{"at 2026-01-02T03:04:05.678Z", "at <n>T<n>Z"},
		{"worker-7, utf8 and HTTP/2", "worker-<n>, utf<n> and HTTP/<n>"},
		{"order 6ba7b810-9dad-11d1-80b4-00c04fd430c8 is gone", "order <uuid> is gone"},
		{"order 6BA7B810-9DAD-11D1-80B4-00C04FD430C8 is gone", "order <uuid> is gone"},
		{"at 0xc000014a40 and 0XFF", "at <hex> and <hex>"},
		{"commit 3e4dfa2 of a94a8fe5ccb19ba61c4c0873d391e987982fbbd3", "commit <hex> of <hex>"},
		{"the facade was effaced", "the facade was effaced"},
		{"123456789 rows", "<n> rows"},
		{`no user "ada" in 'mail' or ` + "`list`", "no user <text> in <text> or <text>"},
		{`"a \" b" is it`, "<text> is it"},
		{`an open " stays`, `an open " stays`},
		{"can't open the user's file", "can't open the user's file"},
		{"grüße 5 ☃", "grüße <n> ☃"},
		{"<n> is no number 4", "<n> is no number <n>"},
	} {
		assert.Equal(t, c[1], errorPattern(c[0]), c[0])
		assert.Equal(t, c[1], errorPattern(c[1]), "a pattern is its own pattern")
	}
}

func TestFirstLinesOfErrors(t *testing.T) {
	assert.Equal(t, "panic: odd", firstLine("\n  panic: odd\r\ngoroutine 7\n"))
	assert.Empty(t, firstLine(" \n "))
	long := strings.Repeat("x", maxErrorLine)
	assert.Equal(t, long, firstLine(long))
	assert.Equal(t, long+"…", firstLine(long+"y"))
	cut := firstLine("x" + strings.Repeat("ü", maxErrorLine))
	assert.True(t, utf8.ValidString(cut))
	assert.Len(t, cut, maxErrorLine-1+len("…"))
}

// TestErrorsAreGrouped by queue, kind and cause, the largest group first.
func TestErrorsAreGrouped(t *testing.T) {
	w := newWorld(t, Options{})
	w.fail(fault{"mail", "send", "dial tcp 10.0.0.7:25: refused\nstack 1", true})
	w.clock.Add(time.Minute / 2)
	w.enqueue("mail") // and does not fail
	w.claim(`{"worker":"w","queues":["mail"]}`)
	w.fail(fault{"mail", "other", "dial tcp 10.0.0.9:25: refused", true}, fault{"bulk", "send", "dial tcp 10.0.0.9:25: refused", true})
	w.clock.Add(time.Second)
	w.fail(fault{"mail", "send", "dial tcp 10.0.0.8:25: refused\nstack 2", false}, fault{"mail", "send", "", true})
	assert.JSONEq(t, `{"now":"2026-01-02T03:04:36Z","looked_at":5,"more":false,"groups":[
		{"error":"dial tcp <n>: refused","example":"dial tcp 10.0.0.8:25: refused","queue":"mail","kind":"send","jobs":2,"dead":1,"retrying":1,
			"newest":{"id":"5","at":"2026-01-02T03:04:36Z"},"oldest":{"id":"1","at":"2026-01-02T03:04:05Z"},"ids":["5","1"]},
		{"error":"","example":"","queue":"mail","kind":"send","jobs":1,"dead":1,"retrying":0,
			"newest":{"id":"6","at":"2026-01-02T03:04:36Z"},"oldest":{"id":"6","at":"2026-01-02T03:04:36Z"},"ids":["6"]},
		{"error":"dial tcp <n>: refused","example":"dial tcp 10.0.0.9:25: refused","queue":"bulk","kind":"send","jobs":1,"dead":1,"retrying":0,
			"newest":{"id":"4","at":"2026-01-02T03:04:35Z"},"oldest":{"id":"4","at":"2026-01-02T03:04:35Z"},"ids":["4"]},
		{"error":"dial tcp <n>: refused","example":"dial tcp 10.0.0.9:25: refused","queue":"mail","kind":"other","jobs":1,"dead":1,"retrying":0,
			"newest":{"id":"3","at":"2026-01-02T03:04:35Z"},"oldest":{"id":"3","at":"2026-01-02T03:04:35Z"},"ids":["3"]}]}`,
		w.ask("GET", "/v1/errors", "").text)
	for query, jobs := range map[string]int{
		"?state=dead": 4, "?state=retrying": 1, "?state=dead&state=retrying": 5, "?queue=bulk": 1, "?kind=other": 1, "?queue=mail&kind=send": 3,
		"?queue=none": 0, "?last=31s": 5, "?last=30999999us": 4, "?last=1s": 4, "?last=1ns": 2,
	} {
		n := 0
		for _, g := range w.failures(query).Groups {
			n += g.Jobs
			assert.Len(t, g.IDs, g.Jobs)
			assert.Equal(t, g.Jobs, g.Dead+g.Retrying)
		}
		assert.Equal(t, jobs, n, query)
	}
}

// TestTimesOfFailures: a dead job failed when it ended. Of a retrying one, the time at which its latest run began is known.
func TestTimesOfFailures(t *testing.T) {
	w := newWorld(t, Options{})
	w.enqueue("mail", "mail")
	w.clock.Add(time.Second)
	w.claim(`{"worker":"w","queues":["mail"],"limit":2}`)
	w.clock.Add(time.Second)
	w.ask("POST", "/v1/nack", `{"jobs":[{"id":"1","token":"1","error":"a"},{"id":"2","token":"1","error":"b","form":"never"}]}`)
	for _, g := range w.failures("").Groups {
		want := map[string]time.Time{"a": start.Add(time.Second), "b": start.Add(2 * time.Second)}[g.Error]
		assert.Equal(t, want, g.Newest.At.Time, g.Error)
	}
}

// TestErrorsLookAtTheNewestThousand, a hundred at a time, and say that there are more.
func TestErrorsLookAtTheNewestThousand(t *testing.T) {
	var limits []int
	w := newWorld(t, Options{}, func(s *memory.Store) store.Store {
		return &meddled{Store: s, paging: func(page store.Page) { limits = append(limits, page.Limit) }}
	})
	var faults []fault
	for n := range maxFailures {
		faults = append(faults, fault{"mail", "send", fmt.Sprint("error ", n), true})
	}
	w.fail(faults...)
	answer := w.failures("")
	assert.Equal(t, []any{maxFailures, false}, []any{answer.LookedAt, answer.More})
	assert.Equal(t, slices.Repeat([]int{failuresPage}, 10), limits)
	w.fail(fault{"mail", "send", "error x", true})
	answer = w.failures("")
	assert.Equal(t, []any{maxFailures, true}, []any{answer.LookedAt, answer.More})
	require.Len(t, answer.Groups, 2)
	assert.Equal(t, []any{"error <n>", maxFailures - 1, wire.ID(maxFailures), wire.ID(2)},
		[]any{answer.Groups[0].Error, answer.Groups[0].Jobs, answer.Groups[0].IDs[0], answer.Groups[0].IDs[maxFailures-2]})
	body := `{"action":"requeue","filter":{"ids":["` + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(answer.Groups[0].IDs)), `","`), "[]") + `"]}}`
	assert.Len(t, call[wire.Results](w, 200, "POST", wire.PathBulk, body).Results, maxFailures-1, "all of a group, in one call")
}

// TestErrorsOfATokenForSomeQueues has no jobs of others.
func TestErrorsOfATokenForSomeQueues(t *testing.T) {
	h := newHouse(t, Options{})
	h.fail(fault{ownQueue, "k", "odd", true}, fault{foreignQueue, "k", "odd", true}, fault{"mailbox", "k", "odd", true})
	for _, role := range []Role{Viewer, Operator} {
		for query, jobs := range map[string]int{"": 1, "?queue=" + foreignQueue: 0, "?queue=" + ownQueue: 1} {
			got := h.failures(query, "Authorization", "Bearer "+h.secrets[role])
			assert.Equal(t, jobs, got.LookedAt, query)
			assert.Len(t, got.Groups, jobs)
		}
	}
	h.api.SetTokens(&Tokens{})
	assert.Equal(t, 401, h.as(Viewer, "GET", "/v1/errors", "").status)
}

// TestErrorsHoldAPageInMemory: however large the payloads are, what is reserved does not add up, and all of it is given back.
func TestErrorsHoldAPageInMemory(t *testing.T) {
	most := int64(0)
	var w *world
	w = newWorld(t, Options{MaxBytes: 4 << 20}, func(s *memory.Store) store.Store {
		return &meddled{Store: s, paging: func(store.Page) { most = max(most, w.api.all.bytes.used.Load()) }}
	})
	payload := []byte(`"` + strings.Repeat("x", 5000) + `"`)
	for range 3 {
		var jobs []store.NewJob
		for range failuresPage {
			jobs = append(jobs, store.NewJob{Queue: "mail", Kind: "k", Payload: payload})
		}
		_, err := w.store.Enqueue(t.Context(), store.EnqueueRequest{Jobs: jobs})
		require.NoError(t, err)
		claimed, err := w.store.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "mail", Limit: failuresPage, Worker: "w", TTL: time.Hour})
		require.NoError(t, err)
		_, err = w.store.NAck(t.Context(), wire.Each(claimed, func(j store.Job) store.NAck { return store.NAck{Lease: j.Lease(), Form: store.Never, Error: "odd"} }))
		require.NoError(t, err)
	}
	assert.Equal(t, 3*failuresPage, w.failures("").LookedAt)
	assert.Zero(t, most, "between pages nothing is held")
	assert.Zero(t, w.api.all.bytes.used.Load())
	w.hold(w.api.all.bytes.limit(true) - failuresPage*5000)
	assert.Equal(t, urn+"busy", w.ask("GET", "/v1/errors", "").fail(t).Type, "there is no room for a page")
}
