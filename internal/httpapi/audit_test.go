package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
	"github.com/seed-ed332417/jq/internal/wire"
)

// An audited keeps the lines of an audit.
type audited struct{ logged }

func (a *audited) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(a, nil)) }

// lines are those since the last time, without their time, level and message.
func (a *audited) lines(t *testing.T) (all []map[string]any) {
	t.Helper()
	a.mu.Lock()
	text := a.text.String()
	a.text.Reset()
	a.mu.Unlock()
	for line := range strings.Lines(text) {
		var one map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &one), line)
		require.Equal(t, "jq: audit", one["msg"])
		require.True(t, strings.HasPrefix(one["address"].(string), "127.0.0.1:"), line)
		for _, name := range []string{"time", "level", "msg", "address"} {
			delete(one, name)
		}
		all = append(all, one)
	}
	return all
}

// TestRoutesSayWhatIsAudited: each call says what it does. What is for operators alone, and changes something, is audited.
func TestRoutesSayWhatIsAudited(t *testing.T) {
	documented := theBook().operations()
	for _, r := range table() {
		assert.Equal(t, documented[r.method+" "+strings.TrimSuffix(r.path, "{$}")]["operationId"], r.name)
		switch r.effect {
		case reads:
			assert.Contains(t, []string{"jobs", "list", "count", "job", "graph", "stats", "overview", "activity", "errors", "session", "queues", "policy", "due", "workers", "schedules", "schedule", "groups", "group", "waited-for", "preview", "wakeups", "events", "alive", "ready", "metrics", "openapi", "docs", "home"}, r.name)
		case works:
			assert.Contains(t, []string{"enqueue", "claim", "ack", "nack", "extend", "checkpoint", "release", "recover", "settle", "beat", "fire", "seal"}, r.name)
		case operates:
			assert.NotEqual(t, http.MethodGet, r.method, r.name)
		default:
			t.Errorf("%s does not say what it does", r.name)
		}
		if r.method != http.MethodGet && r.roles != nil && len(r.roles) == 0 {
			assert.Equal(t, operates, r.effect, r.name)
		}
	}
}

// TestEveryActLeavesALine, and nothing else does: where it is done, where a token has not the role, and where the store fails.
func TestEveryActLeavesALine(t *testing.T) {
	known, secrets := tokens(t)
	for _, r := range table() {
		if r.name == "events" || r.name == "wakeups" || r.name == "login" {
			continue // answers without an end, which TestRoutesSayWhatIsAudited knows; see TestSession for the other
		}
		t.Run(r.name, func(t *testing.T) {
			var audit audited
			w := newWorld(t, Options{Tokens: known, Audit: audit.logger(), Metrics: always(metricsText)})
			call := examples()[r.name]
			call.body = setField(call.body, "wait", "0s", "")
			for _, role := range []Role{Operator, Viewer} {
				got := w.ask(call.method, call.path, call.body, "Authorization", "Bearer "+secrets[role], "X-Forwarded-For", "203.0.113.1")
				lines := audit.lines(t)
				if r.effect != operates {
					assert.Empty(t, lines)
					continue
				}
				require.Len(t, lines, 1)
				assert.Equal(t, []any{"the " + string(role), r.name, float64(got.status)}, []any{lines[0]["name"], lines[0]["operation"], lines[0]["status"]})
				if got.status >= 400 {
					assert.Equal(t, got.fail(t).Type, urn+lines[0]["problem"].(string))
				}
			}
			w.ask(call.method, call.path, call.body)
			assert.Empty(t, audit.lines(t), "whoever has no token writes no lines")
			assert.NotContains(t, w.logged.String(), "203.0.113.1")
		})
		if r.effect == operates && r.name != "logout" { // which asks no store
			t.Run(r.name+" fails", func(t *testing.T) {
				var audit audited
				w := newWorld(t, Options{Audit: audit.logger()}, failing(fmt.Errorf("%w: secret.internal", store.ErrInDoubt)))
				call := examples()[r.name]
				require.Equal(t, 500, w.ask(call.method, call.path, call.body).status)
				lines := audit.lines(t)
				require.Len(t, lines, 1)
				assert.Equal(t, []any{"in_doubt", 500.0, nil, nil}, []any{lines[0]["problem"], lines[0]["status"], lines[0]["changed"], lines[0]["name"]})
				assert.NotContains(t, fmt.Sprint(lines), "secret.internal")
			})
		}
	}
}

// TestLinesOfTheAudit have what was asked for and how much was changed.
func TestLinesOfTheAudit(t *testing.T) {
	var audit audited
	w := newWorld(t, Options{Audit: audit.logger()})
	w.enqueue("a", "a", "b", "mail")
	ask := func(method, path, body string) map[string]any {
		t.Helper()
		w.ask(method, path, body)
		lines := audit.lines(t)
		require.Len(t, lines, 1)
		return lines[0]
	}
	assert.Equal(t, map[string]any{
		"operation": "bulk", "status": 200.0, "changed": 2.0, "request": map[string]any{"action": "cancel", "filter": map[string]any{"queue": "a"}},
	}, ask("POST", wire.PathBulk, `{"action":"cancel","filter":{"queue":"a"}}`))
	assert.Equal(t, map[string]any{"operation": "cancel", "status": 200.0, "changed": 1.0, "job": "3"}, ask("POST", "/v1/jobs/3/cancel", ""))
	assert.Equal(t, map[string]any{"operation": "delete", "status": 404.0, "changed": 0.0, "job": "77", "problem": "not_found"}, ask("DELETE", "/v1/jobs/77", ""))
	assert.Equal(t, map[string]any{"operation": "delete", "status": 400.0, "job": "x", "problem": "invalid"}, ask("DELETE", "/v1/jobs/x", ""))
	assert.Equal(t, map[string]any{"operation": "pause", "status": 204.0, "queue": "mail"}, ask("POST", "/v1/queues/mail/pause", ""))
	assert.Equal(t, map[string]any{"operation": "leave", "status": 204.0, "worker": "w"}, ask("DELETE", "/v1/workers/w", ""))
	assert.Equal(t, map[string]any{"operation": "set-policy", "status": 200.0, "queue": "mail", "request": map[string]any{"retain_dead": "1h0m0s", "version": 0.0}},
		ask("PUT", "/v1/queues/mail/policy", `{"retain_dead":"1h"}`))
	assert.Equal(t, map[string]any{"operation": "set-schedule", "status": 200.0, "schedule": "s", "request": map[string]any{
		"cron": "@daily", "job": map[string]any{"kind": "k", "queue": "mail"}, "redacted": true,
	}}, ask("PUT", "/v1/schedules/s", `{"cron":"@daily","job":{"kind":"k","queue":"mail","payload":"secret"}}`))
	assert.Equal(t, map[string]any{"operation": "run-schedule", "status": 200.0, "schedule": "s"}, ask("POST", "/v1/schedules/s/run", ""))
	assert.Equal(t, map[string]any{"operation": "delete-schedule", "status": 204.0, "schedule": "s"}, ask("DELETE", "/v1/schedules/s", ""))
	assert.Equal(t, map[string]any{"operation": "fence", "status": 200.0, "request": map[string]any{"end_leases": true}}, ask("POST", "/v1/fence", `{"end_leases":true}`))
	large := ask("POST", wire.PathBulk, `{"action":"cancel","filter":{"kind":"`+strings.Repeat("x", maxAuditedRequest)+`"}}`)
	assert.Equal(t, map[string]any{"left_out_bytes": float64(maxAuditedRequest + len(`{"action":"cancel","filter":{"kind":""}}`))}, large["request"])
	assert.InDelta(t, 400, large["status"], 0)
	long := ask("POST", "/v1/queues/"+strings.Repeat("ü", 1000)+"/pause", "")
	assert.Equal(t, strings.Repeat("ü", store.MaxNameBytes/2)+"…", long["queue"])
}

// TestForeignActsAreAudited: what a token may do, though not for this queue, says so.
func TestForeignActsAreAudited(t *testing.T) {
	var audit audited
	h := newHouse(t, Options{Audit: audit.logger()})
	h.as(Operator, "POST", "/v1/queues/billing/pause", "")
	h.as(Operator, "POST", "/v1/fence", "")
	lines := audit.lines(t)
	require.Len(t, lines, 2)
	assert.Equal(t, map[string]any{
		"name": "operator", "operation": "pause", "queue": "billing", "status": 403.0, "problem": "forbidden", "detail": "the token is for the queues mail, mail-*",
	}, lines[0])
	assert.Equal(t, []any{"fence", 403.0}, []any{lines[1]["operation"], lines[1]["status"]})
}

// TestHostileNamesStayInTheirLine: each name comes back as it was, and makes no second line.
func TestHostileNamesStayInTheirLine(t *testing.T) {
	var audit audited
	w := newWorld(t, Options{Audit: audit.logger()})
	for _, name := range []string{"a\nb", "a\r\n{\"msg\":\"jq: audit\"}", "\x1b[2J", "\x00", "\u2028", "\u009b", `"`, "<&>", "\x7f", "\u202e"} {
		w.ask("POST", "/v1/queues/"+url.PathEscape(name)+"/pause", "")
		text, err := json.Marshal(name)
		require.NoError(t, err)
		w.ask("POST", wire.PathBulk, `{"action":"cancel","filter":{"kind":`+string(text)+`}}`)
		assert.Equal(t, 2, strings.Count(audit.String(), "\n"), "%q", name)
		lines := audit.lines(t)
		assert.Equal(t, name, lines[0]["queue"])
		assert.Equal(t, map[string]any{"kind": name}, lines[1]["request"].(map[string]any)["filter"])
	}
	w.ask("POST", "/v1/queues/%ff%fe/pause", "")
	assert.Equal(t, "\ufffd\ufffd", audit.lines(t)[0]["queue"])

	plain := newWorld(t, Options{}) // the lines go to its log
	plain.ask("POST", "/v1/queues/"+url.PathEscape("a\nb\x1b")+"/pause", "")
	assert.Regexp(t, `audit=true address=.* queue="a\\nb\\x1b"\n`, plain.logged.String())
}

// TestAuditOfAPanic: a call that broke the server is told of as well.
func TestAuditOfAPanic(t *testing.T) {
	var audit audited
	var odd atomic.Bool
	w := newWorld(t, Options{Audit: audit.logger()}, func(s *memory.Store) store.Store {
		return &meddled{Store: s, any: func(context.Context) error {
			if odd.Load() {
				panic("odd")
			}
			return nil
		}}
	})
	odd.Store(true)
	require.Equal(t, 500, w.ask("POST", wire.PathBulk, `{"action":"cancel","filter":{"queue":"a"}}`).status)
	lines := audit.lines(t)
	require.Len(t, lines, 1)
	assert.Equal(t, []any{"panic", 500.0}, []any{lines[0]["problem"], lines[0]["status"]})
}

// TestActsAreEvents for operators who see all, and for nobody else.
func TestActsAreEvents(t *testing.T) {
	known, secrets := tokens(t)
	w := newWorld(t, Options{Tokens: known, Audit: new(audited).logger()})
	operator, viewer := "Bearer "+secrets[Operator], "Bearer "+secrets[Viewer]
	of, to := w.follow("GET", "/v1/events", "", "Authorization", operator), w.follow("GET", "/v1/events", "", "Authorization", viewer)
	require.Equal(t, 204, w.ask("POST", "/v1/queues/a/pause", "", "Authorization", operator).status)
	ids := strings.Repeat(`"1",`, 999) + `"1"`
	require.Equal(t, 400, w.ask("POST", wire.PathBulk, `{"action":"x","filter":{"ids":[`+ids+`]}}`, "Authorization", operator).status)
	w.api.Publish(Event{Job: 1, Event: WasDead})
	assert.Regexp(t, `^audit \{"name":"the operator","address":"127\.0\.0\.1:\d+","operation":"pause","queue":"a","status":204\}$`, of.next())
	assert.Regexp(t, `^audit .*"operation":"bulk","request":\{"left_out_bytes":\d+\},"status":400`, of.next())
	assert.Equal(t, `job {"job":"1","event":"dead"}`, of.next())
	assert.Equal(t, `job {"job":"1","event":"dead"}`, to.next())

	h := newHouse(t, Options{})
	of = h.follow("GET", "/v1/events", "", "Authorization", "Bearer "+h.secrets[Operator])
	require.Equal(t, 204, h.as(Operator, "POST", "/v1/queues/mail/pause", "").status)
	h.api.Publish(Event{Job: 1, Queue: "mail", Event: WasDead})
	assert.Equal(t, `job {"job":"1","queue":"mail","event":"dead"}`, of.next())
}

// from makes a request without a socket, from an address.
func (w *world) from(address, secret string) int {
	req := httptest.NewRequestWithContext(w.Context(), "POST", "/v1/fence", nil)
	req.RemoteAddr = address
	req.Header.Set("Authorization", "Bearer "+secret)
	req.Header.Set("X-Forwarded-For", "203.0.113.1")
	told := httptest.NewRecorder()
	w.api.ServeHTTP(told, req)
	return told.Code
}

// TestFailedLoginsAreLoggedAtABoundedRate: one line a second of each network, ten in all, and then how many were left out.
func TestFailedLoginsAreLoggedAtABoundedRate(t *testing.T) {
	known, _ := tokens(t)
	var count tally
	w := newWorld(t, Options{Tokens: known, Counter: &count, PollPause: time.Hour})
	lines := func(what string) int { return strings.Count(w.logged.String(), what) }
	for range 3 {
		for _, address := range []string{"192.0.2.1:5", "192.0.2.1:6", "[::ffff:192.0.2.1]:7", "192.0.2.2:5", "[2001:db8::1]:5", "[2001:db8::2]:5", "@"} {
			require.Equal(t, 401, w.from(address, "jq_guessed"))
		}
		w.clock.Add(time.Second / 4)
	}
	assert.Equal(t, 4, lines(requestRefused))
	assert.Contains(t, w.logged.String(), `reason=unauthorized address=192.0.2.1:5 call="POST /v1/fence"`)
	assert.Equal(t, map[string]int{"refused unauthorized": 21}, count.taken())
	w.clock.Add(time.Second/4 - 1)
	require.Equal(t, 401, w.from("192.0.2.1:5", "x"))
	assert.Equal(t, 4, lines(requestRefused), "a nanosecond too early")
	w.clock.Add(1)
	for n := range 12_000 {
		require.Equal(t, 401, w.from(fmt.Sprintf("10.%d.%d.1:1", n/256, n%256), "jq_guessed"))
	}
	assert.Equal(t, 4+maxRefusals, lines(requestRefused))
	assert.LessOrEqual(t, cap(w.api.refusals.told), 2*maxRefusals, "no more is remembered")
	assert.Zero(t, lines(refusalsLeftOut))
	w.clock.Add(2 * time.Hour)
	w.eventually("it is told how many were left out", func() bool {
		return strings.Contains(w.logged.String(), fmt.Sprintf("%q count=%d", refusalsLeftOut, 12_000+22-4-maxRefusals))
	})
	w.clock.Add(-time.Hour)
	w.from("192.0.2.9:5", "x")
	assert.Contains(t, w.logged.String(), "192.0.2.9", "a clock that goes back silences nobody")
	for _, secret := range []string{"jq_guessed", "203.0.113.1"} {
		assert.NotContains(t, w.logged.String(), secret)
	}
}

// TestRefusalsAreCounted by their reason; pages of other sites are logged, too.
func TestRefusalsAreCounted(t *testing.T) {
	known, secrets := tokens(t)
	var count tally
	w := newWorld(t, Options{Tokens: known, Counter: &count})
	require.Equal(t, 403, w.ask("POST", "/v1/fence", "", "Sec-Fetch-Site", "cross-site").status)
	assert.Contains(t, w.logged.String(), "reason=cross_origin")
	require.Equal(t, 403, w.ask("POST", "/v1/fence", "", "Authorization", "Bearer "+secrets[Viewer]).status)
	require.Equal(t, 401, w.ask("POST", "/v1/fence", "").status)
	require.Equal(t, 404, w.ask("POST", "/v1/jobs/1/cancel", "", "Authorization", "Bearer "+secrets[Operator]).status)
	assert.Equal(t, map[string]int{"refused forbidden": 2, "refused unauthorized": 1}, count.taken())
}

// TestOneLineSaysWhoWasRefused: that of the audit for calls of operators, and one of the log for all others.
func TestOneLineSaysWhoWasRefused(t *testing.T) {
	var audit audited
	h := newHouse(t, Options{Audit: audit.logger()})
	h.as(Operator, "POST", "/v1/queues/billing/pause", "")
	h.as(Viewer, "POST", "/v1/fence", "")
	assert.Len(t, audit.lines(t), 2)
	assert.NotContains(t, h.logged.String(), requestRefused)
	for role, ask := range map[Role][2]string{
		Producer: {wire.PathJobs, `{"jobs":[{"kind":"k","queue":"billing"}]}`},
		Worker:   {wire.PathClaim, `{"worker":"w","queues":["billing"]}`},
		Viewer:   {wire.PathClaim, `{"worker":"w"}`},
	} {
		require.Equal(t, 403, h.as(role, "POST", ask[0], ask[1]).status)
		assert.Contains(t, h.logged.String(), fmt.Sprintf(`call="POST %s" name=%s`, ask[0], role))
		h.clock.Add(time.Second) // one line a second of each network
	}
	assert.Empty(t, audit.lines(t))
}
