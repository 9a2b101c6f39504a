package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/schedule"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
	"github.com/seed-ed332417/jq/internal/wire"
)

// produce says for each status of failure how to bring an operation to it. The world is fresh, but for its options.
var produce = map[string]struct {
	tokens bool
	before func(*memory.Store) store.Store
	ask    func(w *world, r request) answered
	kind   string
}{
	"400": {ask: func(w *world, r request) answered {
		if r.method == "GET" && strings.Contains(r.path, "/jobs/") {
			return w.ask(r.method, strings.Replace(r.path, "/jobs/1", "/jobs/one", 1), "")
		} else if r.operation == "policy" || r.operation == "schedule" || r.operation == "group" {
			return w.ask(r.method, strings.NewReplacer("reports", "%ff", "poll-feeds", "%ff", "import-2026-01", "%ff").Replace(r.path), "")
		} else if r.method == "GET" {
			return w.ask(r.method, r.path+"?colour=red", "")
		}
		return w.ask(r.method, r.path, `{"colour":"red"}`)
	}, kind: "invalid"},
	"401": {tokens: true, ask: func(w *world, r request) answered { return w.ask(r.method, r.path, r.body) }, kind: "unauthorized"},
	"403": {ask: func(w *world, r request) answered {
		if r.method == "GET" { // which may come from the page of another site: it changes nothing
			role := Worker
			if allowed(r.operation, Worker) {
				role = Producer
			}
			f := w.ask(r.method, r.path, r.body, "Authorization", "Bearer "+w.onlyToken(role, w.api.all))
			require.Equal(w, urn+"forbidden", f.fail(w).Type)
			return f
		}
		return w.ask(r.method, r.path, r.body, "Sec-Fetch-Site", "cross-site")
	}},
	"404": {ask: func(w *world, r request) answered { return w.ask(r.method, r.path, r.body) }},
	"409": {ask: func(w *world, r request) answered {
		w.enqueue("default")
		if strings.HasPrefix(r.path, wire.PathSchedules) {
			s := aSchedule()
			if r.operation == "resume-schedule" {
				s.Paused, s.NextAt = true, time.Time{}
			}
			_, err := w.store.SetSchedule(w.Context(), s)
			require.NoError(w, err)
		}
		if r.operation == "run-schedule" {
			call[store.Enqueued](w, 200, r.method, r.path, r.body)
		}
		if r.operation == "cancel" {
			w.claim(`{"worker":"w"}`)
			call[wire.Results](w, 200, "POST", wire.PathAck, `{"jobs":[{"id":"1","token":"1"}]}`)
		}
		if r.operation == "reschedule" {
			w.claim(`{"worker":"w"}`)
		}
		if r.operation == "waited-for" { // for job 3, which nobody has claimed
			w.enqueue("default", "default")
		}
		if r.operation == "set-policy" {
			call[wire.Policy](w, 200, r.method, r.path, `{"retain_dead":"720h"}`)
		}
		return w.ask(r.method, r.path, r.body)
	}},
	"413": {ask: func(w *world, r request) answered {
		most := wire.MaxBrief
		if slices.Contains([]string{"enqueue", "checkpoint", "ack", "fail", "release", "snooze", "nack"}, r.operation) { // whose bodies have documents
			most = wire.MaxBody
		}
		return w.direct(r.method, r.path, tooLong()[:most+1]) // a socket is left lingering for half a second
	}, kind: "invalid"},
	"415": {ask: func(w *world, r request) answered {
		return w.ask(r.method, r.path, r.body, "Content-Type", "text/plain")
	}, kind: "media_type"},
	"429": {ask: func(w *world, r request) answered {
		if r.operation == "login" {
			secret := w.onlyToken(Operator, w.api.all)
			for n := range maxSessions {
				ctx, end := context.WithCancelCause(w.Context())
				w.api.sessions.all[[32]byte{byte(n), byte(n >> 8)}] = &session{ends: start.Add(time.Hour), life: ctx, end: end}
			}
			return w.ask(r.method, r.path, `{"token":"`+secret+`"}`)
		}
		full, waits := map[string]room{"claim": w.api.all.polls, "wakeups": w.api.all.streams, "events": w.api.all.streams}[r.operation]
		if !waits {
			switch r.operation {
			case "job", "graph":
				w.enqueue("default")
			case "schedule":
				_, err := w.store.SetSchedule(w.Context(), aSchedule())
				require.NoError(w, err)
			case "group":
				w.openGroup()
			}
			others := newShare(Options{MaxReads: 1, MaxBytes: 1}, 1)
			require.True(w, others.bytes.take(1, false), "other calls of the token take up its share")
			secret := w.onlyToken(Operator, others)
			return w.ask(r.method, r.path, r.body, "Authorization", "Bearer "+secret)
		}
		for range cap(full) {
			require.True(w, full.enter())
			defer full.leave()
		}
		return w.ask(r.method, r.path, r.body)
	}},
	"500": {before: failing(fmt.Errorf("%w: secret.internal", store.ErrInDoubt)), ask: func(w *world, r request) answered { return w.ask(r.method, r.path, r.body) }, kind: "in_doubt"},
	"501": {before: withoutAbilities, ask: func(w *world, r request) answered { return w.ask(r.method, r.path, r.body) }, kind: "unsupported"},
	"503": {before: failing(fmt.Errorf("%w: secret.internal", store.ErrUnavailable)), ask: func(w *world, r request) answered {
		if r.operation == "events" { // which asks no store
			require.NoError(w, w.api.Close())
		} else if r.path == pathSession {
			w.hold(w.api.all.bytes.most)
		}
		return w.ask(r.method, r.path, r.body)
	}},
}

// tooLong is a byte more than any body may have. It is made once: under the race detector, to make or copy so much takes long.
var tooLong = sync.OnceValue(func() string { return strings.Repeat(" ", wire.MaxBody+1) })

// TestEveryFailureIsAProblem brings every operation to every failure that is documented for it.
func TestEveryFailureIsAProblem(t *testing.T) {
	for key, op := range theBook().operations() {
		for status := range op["responses"].(map[string]any) {
			if status < "400" {
				continue
			}
			one := example(key, op)
			t.Run(one.operation+"/"+status, func(t *testing.T) {
				p, known := produce[status]
				require.True(t, known, "no test produces it")
				options, before := Options{}, []func(*memory.Store) store.Store{}
				if p.tokens {
					options.Tokens = &Tokens{}
				}
				if p.before != nil {
					before = append(before, p.before)
				}
				if status == "409" && strings.HasPrefix(one.path, wire.PathSchedules) && one.operation != "run-schedule" {
					before = append(before, changing)
				}
				if one.operation == "metrics" && status == "500" {
					options.Metrics = always(func(http.ResponseWriter, *http.Request) { panic("odd") })
				}
				w := newWorld(t, options, before...)
				got := p.ask(w, one)
				require.Equal(t, status, fmt.Sprint(got.status), got.text)
				f := got.fail(t)
				switch {
				case (one.operation == "set-policy" || strings.HasSuffix(one.operation, "-schedule") && one.operation != "run-schedule") && status == "409":
					assert.Equal(t, urn+"conflict", f.Type)
				case status == "429":
					assert.Contains(t, []string{urn + "too_many_waiting", urn + "too_many_sessions", urn + "too_much_at_once"}, f.Type)
					assert.Equal(t, "1", got.header.Get("Retry-After"))
				case one.operation == "waited-for" && status == "409":
					assert.Equal(t, urn+"stale", f.Type)
				case status == "409":
					assert.Equal(t, urn+"wrong_state", f.Type)
				case p.kind != "":
					assert.Equal(t, urn+p.kind, f.Type)
				}
				assert.NotContains(t, got.text, "secret", "what failed inside is for the log")
				if status == "500" && one.operation != "metrics" {
					assert.Contains(t, w.logged.String(), "secret.internal")
				}
				if status != "409" && !slices.Contains([]string{"job429", "graph429", "group429"}, one.operation+status) {
					assert.Empty(t, w.counts(), "nothing is left behind")
				}
			})
		}
	}
}

// aSchedule is that of the examples.
func aSchedule() store.Schedule {
	return store.Schedule{
		Name: "poll-feeds", Cron: "*/15 * * * *", Overlap: store.OverlapSkip, NextAt: start.Add(time.Hour),
		Job: store.NewJob{Queue: "default", Kind: "feed.poll", Payload: []byte(`{"feed":7}`), MaxRetries: 20},
	}
}

// changing is a store in which others change each schedule at the same time.
func changing(s *memory.Store) store.Store {
	return &meddled{Store: s, setting: func(store.Schedule) error { return store.ErrConflict }}
}

// Bodies that are wrong in a way that each call has in common.
const deep = 20_000

func tooManyJobs() string {
	return `{"jobs":[` + strings.TrimSuffix(strings.Repeat(`{"kind":"k"},`, 1001), ",") + `]}`
}

func tooManyLeases() string {
	return `{"jobs":[` + strings.TrimSuffix(strings.Repeat(`{"id":"1","token":"1"},`, 1001), ",") + `]`
}

// TestBadInput: whatever is wrong with a request has a status and a problem that names the field, and leaves nothing behind.
func TestBadInput(t *testing.T) {
	big := `"` + strings.Repeat("x", 1<<20-2) + `"`
	nine := `{"jobs":[` + strings.TrimSuffix(strings.Repeat(`{"kind":"k","payload":`+big+`},`, 9), ",") + `]}`
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		field, rule              string
	}{
		{"Malformed", "POST", "/v1/jobs", `{"jobs":[}`, 400, "body", "must be JSON: invalid character '}' looking for beginning of value (byte 10)"},
		{"Truncated", "POST", "/v1/jobs", `{"jobs":[{"kind":"k"`, 400, "body", "must be JSON: it ends too early"},
		{"Trailing", "POST", "/v1/jobs", `{"jobs":[{"kind":"k"}]}{}`, 400, "body", "must be one JSON value, with nothing behind it"},
		{"NoObject", "POST", "/v1/jobs", `[]`, 400, "body", "must be an object"},
		{"UnknownField", "POST", "/v1/jobs", `{"jobs":[{"kind":"k","colour":"red"}]}`, 400, "colour", "is not known here"},
		{"WrongType", "POST", "/v1/jobs", `{"jobs":[{"kind":7}]}`, 400, "jobs.kind", "must be a string"},
		{"BeyondInt64", "POST", "/v1/jobs", `{"jobs":[{"kind":"k","priority":9223372036854775808}]}`, 400, "jobs.priority", "must be a whole number that fits int"},
		{"IDBeyondInt64", "POST", "/v1/ack", `{"jobs":[{"id":"9223372036854775808","token":"1"}]}`, 400, "jobs.id", "must be a string with a number"},
		{"Deep", "POST", "/v1/jobs", `{"jobs":[{"kind":"k","payload":` + strings.Repeat("[", deep) + strings.Repeat("]", deep) + `}]}`, 400, "body", "must be JSON: invalid character '[' exceeded max depth (byte 10029)"},
		{"InvalidUTF8", "POST", "/v1/jobs", "{\"jobs\":[{\"kind\":\"\xff\"}]}", 400, "body", "must be valid UTF-8"},
		{"TooManyJobs", "POST", "/v1/jobs", tooManyJobs(), 400, "jobs", "must be at most 1000 a call"},
		{"TooManyAcks", "POST", "/v1/ack", tooManyLeases() + "}", 400, "jobs", "must be at most 1000 a call"},
		{"TooManyNAcks", "POST", "/v1/nack", tooManyLeases() + "}", 400, "jobs", "must be at most 1000 a call"},
		{"TooManyReleases", "POST", "/v1/release", tooManyLeases() + "}", 400, "jobs", "must be at most 1000 a call"},
		{"TooManyLeases", "POST", "/v1/extend", tooManyLeases() + `,"lease":"1s"}`, 400, "jobs", "must be at most 1000 a call"},
		{"TooManyCheckpoints", "POST", "/v1/checkpoint", tooManyLeases() + "}", 400, "jobs", "must be at most 1000 a call"},
		{"NineMiB", "POST", "/v1/jobs", nine, 413, "call", "must have at most 8388608 bytes in all"},
		{"BodyTooLarge", "POST", "/v1/jobs", tooLong(), 413, "body", "must have at most 17825792 bytes"},
		{"BriefTooLarge", "POST", "/v1/jobs/list", tooLong()[:wire.MaxBrief+1], 413, "body", "must have at most 2097152 bytes"},
		{"EmptyTooLarge", "POST", "/v1/queues/q/pause", tooLong()[:wire.MaxBrief+1], 413, "body", "must have at most 2097152 bytes"},
		{"OneBadOfTwo", "POST", "/v1/jobs", `{"jobs":[{"kind":"k"},{"kind":""}]}`, 400, "kind", "must not be empty"},
		{"RunAtAndDelay", "POST", "/v1/jobs", `{"jobs":[{"kind":"k","run_at":"2030-01-01T00:00:00Z","delay":"1s"}]}`, 400, "delay", "and run_at exclude each other"},
		{"NegativeDelay", "POST", "/v1/jobs", `{"jobs":[{"kind":"k","delay":"-1s"}]}`, 400, "delay", "must be 0 to 87600h0m0s"},
		{"BareDuration", "POST", "/v1/jobs", `{"jobs":[{"kind":"k","delay":30}]}`, 400, "jobs.delay", `must be a duration such as "30s"`},
		{"NoTime", "POST", "/v1/jobs", `{"jobs":[{"kind":"k","run_at":"tomorrow"}]}`, 400, "jobs.run_at", `must be a time such as "2006-01-02T15:04:05Z"`},
		{"NoSuchFault", "POST", "/v1/ack", `{"jobs":[{"id":"1","token":"1","result_fault":"ugly"}]}`, 400, "result_fault", "must be too_long or not_json"},

		{"NoWorker", "POST", "/v1/claim", `{}`, 400, "worker", "must not be empty"},
		{"NegativeLease", "POST", "/v1/claim", `{"worker":"w","lease":"-1s"}`, 400, "lease", "must be 1µs to 87600h0m0s"},
		{"NegativeExtension", "POST", "/v1/extend", `{"jobs":[{"id":"1","token":"1"}],"lease":"-1s"}`, 400, "lease", "must be 1µs to 87600h0m0s"},
		{"NoExtension", "POST", "/v1/extend", `{"jobs":[{"id":"1","token":"1"}]}`, 400, "lease", "must be 1µs to 87600h0m0s"},
		{"WaitOfADay", "POST", "/v1/claim", `{"worker":"w","wait":"24h"}`, 400, "wait", "must be 0 to 1m0s"},
		{"NegativeWait", "POST", "/v1/claim", `{"worker":"w","wait":"-1s"}`, 400, "wait", "must be 0 to 1m0s"},
		{"WaitForAnEndOverAMinute", "GET", "/v1/jobs/1?wait=60.000001s", ``, 400, "wait", "must be 0 to 1m0s"},
		{"WaitForAnEndOfThePast", "GET", "/v1/jobs/1?wait=-1ns", ``, 400, "wait", "must be 0 to 1m0s"},
		{"WaitForAnEndInNumbers", "GET", "/v1/jobs/1?wait=30", ``, 400, "wait", `must be a duration such as "30s"`},
		{"WaitForAnEndOfNothing", "GET", "/v1/jobs/1?wait=", ``, 400, "wait", "must not be empty: leave it out"},
		{"WaitForAnEndTwice", "GET", "/v1/jobs/1?wait=1s&wait=2s", ``, 400, "wait", "must be given once"},
		{"UnknownParameterOfAJob", "GET", "/v1/jobs/1?wiat=1s", ``, 400, "wiat", "is not known here"},
		{"LimitOfAJob", "GET", "/v1/jobs/1?limit=1", ``, 400, "limit", "is not known here"},
		{"CursorOfAJob", "GET", "/v1/jobs/1?cursor=a", ``, 400, "cursor", "is not known here"},
		{"LimitOfNothing", "POST", "/v1/claim", `{"worker":"w","limit":0}`, 400, "limit", "must be 1 to 1000"},
		{"QuotaBeyondLimit", "POST", "/v1/claim", `{"worker":"w","retry_quota":2}`, 400, "retry_quota", "must be 0 to 1"},
		{"EmptyQueue", "POST", "/v1/claim", `{"worker":"w","queues":["a",""]}`, 400, "queues", "must not be empty"},
		{"QueueTwice", "POST", "/v1/claim", `{"worker":"w","queues":["a","b","a"]}`, 400, "queues", "must have each queue once"},
		{"TooManyQueues", "POST", "/v1/claim", `{"worker":"w","queues":["a"` + strings.Repeat(`,"a"`, 100) + `]}`, 400, "queues", "must be at most 100"},
		{"LongQueue", "POST", "/v1/wakeups", `{"queues":["` + strings.Repeat("q", 256) + `"]}`, 400, "queues", "must have at most 255 bytes"},
		{"TooManyWakeups", "POST", "/v1/wakeups", `{"queues":["a"` + strings.Repeat(`,"a"`, 1000) + `]}`, 400, "queues", "must be at most 1000 a call"},
		{"SettleNothing", "POST", "/v1/settle", `{"limit":0}`, 400, "limit", "must be 1 to 1000"},
		{"ExpiresBeforeDue", "POST", "/v1/jobs", `{"jobs":[{"kind":"k","delay":"1h","expires_at":"2026-01-02T03:05:00Z"}]}`, 400, "expires_at", "must be later than the time at which the job becomes due"},
		{"AfterNothing", "POST", "/v1/jobs", `{"jobs":[{"kind":"k","after":[]}]}`, 400, "after", "must not be empty: leave it out"},
		{"AfterNoJob", "POST", "/v1/jobs", `{"jobs":[{"kind":"k","after":[{}]}]}`, 400, "after", "must name each job either by its id or by its item, and each group by its name"},
		{"AfterZero", "POST", "/v1/jobs", `{"jobs":[{"kind":"k","after":[{"id":"0"}]}]}`, 400, "after", "must name each job either by its id or by its item, and each group by its name"},
		{"AfterTwoNames", "POST", "/v1/jobs", `{"jobs":[{"kind":"k"},{"kind":"k","after":[{"id":"1","item":0}]}]}`, 400, "after", "must name each job either by its id or by its item, and each group by its name"},
		{"AfterAnIDBelowZero", "POST", "/v1/jobs", `{"jobs":[{"kind":"k","after":[{"id":"-1"}]}]}`, 400, "after", "must have ids of jobs"},
		{"AfterABareID", "POST", "/v1/jobs", `{"jobs":[{"kind":"k","after":["1"]}]}`, 400, "jobs.after", "must be an object"},
		{"AfterANumber", "POST", "/v1/jobs", `{"jobs":[{"kind":"k","after":[{"id":1}]}]}`, 400, "jobs.after.id", "must be a string with a number"},
		{"AfterItself", "POST", "/v1/jobs", `{"jobs":[{"kind":"k","after":[{"item":0}]}]}`, 400, "after", "must name an earlier item of the call"},
		{"AfterAnUnknownJob", "POST", "/v1/jobs", `{"jobs":[{"kind":"k"},{"kind":"k","after":[{"item":0},{"id":"7"}]}]}`, 400, "after", "names job 7, which does not exist"},
		{"AfterTooMany", "POST", "/v1/jobs", `{"jobs":[{"kind":"k","after":[{"id":"1"}` + strings.Repeat(`,{"id":"1"}`, store.MaxWaits) + `]}]}`, 400, "after", "must be at most 64 a job"},
		{"RecoverNothing", "POST", "/v1/recover", `{"limit":0}`, 400, "limit", "must be 1 to 1000"},

		{"IDNoNumber", "GET", "/v1/jobs/seven", ``, 400, "id", "must be a number"},
		{"IDWithPlus", "GET", "/v1/jobs/+7", ``, 400, "id", "must be a number"},
		{"IDTooGreat", "DELETE", "/v1/jobs/9223372036854775808", ``, 400, "id", "must be a number"},
		{"CancelNoNumber", "POST", "/v1/jobs/0x1/cancel", ``, 400, "id", "must be a number"},
		{"BodyOfNoUse", "POST", "/v1/jobs/1/cancel", `{"colour":1}`, 400, "colour", "is not known here"},
		{"CursorOfAnother", "GET", "/v1/jobs?queue=a&cursor=" + store.Filter{Queue: "b"}.Cursor(7), ``, 400, "cursor", "must come from the page before, by the same filter"},
		{"CursorOfNone", "POST", "/v1/jobs/list", `{"cursor":"x"}`, 400, "cursor", "must come from the page before, by the same filter"},
		{"DocumentsNotFalse", "GET", "/v1/jobs?documents=true", ``, 400, "documents", "must be false: leave it out for jobs with their documents"},
		{"UnknownParameter", "GET", "/v1/jobs?colour=red", ``, 400, "colour", "is not known here"},
		{"ParameterTwice", "GET", "/v1/jobs?queue=a&queue=b", ``, 400, "queue", "must be given once"},
		{"EmptyParameter", "GET", "/v1/jobs?queue=", ``, 400, "queue", "must not be empty: leave it out"},
		{"BadQuery", "GET", "/v1/jobs?queue=%zz", ``, 400, "query", "must be written as name=value, with & in between"},
		{"BadLimit", "GET", "/v1/jobs?limit=many", ``, 400, "limit", "must be a number"},
		{"GreatLimit", "GET", "/v1/jobs?limit=4294967297", ``, 400, "limit", "must be 1 to 1000"},
		{"UnknownState", "GET", "/v1/jobs?state=sleepy", ``, 400, "state", "must be blocked, ready, in_flight, succeeded, failed, retrying, dead or cancelled"},
		{"QueryNoUTF8", "GET", "/v1/jobs?queue=%ff", ``, 400, "queue", "must be valid UTF-8 without NUL"},
		{"EmptyFilter", "POST", "/v1/jobs/bulk", `{"action":"delete","filter":{}}`, 400, "filter", "must not be empty: it would mean every job"},
		{"NoAction", "POST", "/v1/jobs/bulk", `{"action":"eat","filter":{"queue":"a"}}`, 400, "action", "must be cancel, requeue, reschedule or delete"},
		{"CancelAtATime", "POST", "/v1/jobs/bulk", `{"action":"cancel","filter":{"queue":"a"},"run_at":"2026-01-02T03:04:05Z"}`, 400, "run_at", "goes with reschedule only"},
		{"RescheduleAfterAllTime", "POST", "/v1/jobs/bulk", `{"action":"reschedule","filter":{"queue":"a"},"run_at":"9999-12-31T23:59:59-01:00"}`, 400, "run_at", "must lie in the years 1 to 9999"},
		{"RescheduleOneAfterAllTime", "POST", "/v1/jobs/1/reschedule", `{"run_at":"9999-12-31T23:59:59-01:00"}`, 400, "run_at", "must lie in the years 1 to 9999"},
		{"RescheduleInWords", "POST", "/v1/jobs/1/reschedule", `{"run_at":"tomorrow"}`, 400, "run_at", "must be a time such as \"2006-01-02T15:04:05Z\""},
		{"RescheduleColour", "POST", "/v1/jobs/1/reschedule", `{"colour":1}`, 400, "colour", "is not known here"},
		{"QueueNoUTF8", "POST", "/v1/queues/%ff/pause", ``, 400, "name", "must be valid UTF-8 without NUL"},
		{"GroupNoUTF8", "POST", "/v1/groups/%ff/seal", ``, 400, "group", "must be valid UTF-8 without NUL"},
		{"GroupIsNotOpen", "POST", "/v1/groups/g/seal", ``, 400, "group", `"g" is not open`},
		{"GroupsOpenFor", "GET", "/v1/groups?open_for=long", ``, 400, "open_for", `must be a duration such as "1h"`},
		{"GroupsOpenForLess", "GET", "/v1/groups?open_for=-1s", ``, 400, "open_for", "must be 0 to 87600h0m0s"},
		{"AfterGroupAndItem", "POST", "/v1/jobs", `{"jobs":[{"kind":"k","after":[{"group":"g","item":0}]}]}`, 400, "after", "must name each job either by its id or by its item, and each group by its name"},
		{"AfterOwnGroup", "POST", "/v1/jobs", `{"jobs":[{"kind":"k","group":"g","after":[{"group":"g"}]}]}`, 400, "after", "must not wait for a group that waits for the job itself"},
		{"OpenOfNoJob", "POST", "/v1/jobs", `{"jobs":[],"open":["g"]}`, 400, "open", "needs a job in the same call"},
		{"ScheduleInGroup", "PUT", "/v1/schedules/s", `{"cron":"@daily","job":{"kind":"k","group":"g"}}`, 400, "job.group", "must not be set: a group is one run, and a schedule runs again and again"},
		{"PolicyTooShort", "PUT", "/v1/queues/q/policy", `{"retain_dead":"59m"}`, 400, "retain_dead", "must be 1h0m0s to 87600h0m0s, or for ever"},
		{"PolicyTooLong", "PUT", "/v1/queues/q/policy", `{"retain_succeeded":"87600h1us"}`, 400, "retain_succeeded", "must be 1h0m0s to 87600h0m0s, or for ever"},
		{"PolicyOfNothing", "PUT", "/v1/queues/q/policy", `{"retain_cancelled":"0s"}`, 400, "retain_cancelled", `must be a duration such as "48h", or "keep"`},
		{"NegativePolicy", "PUT", "/v1/queues/q/policy", `{"retain_cancelled":"-1us"}`, 400, "retain_cancelled", `must be a duration such as "48h", or "keep"`},
		{"PolicyInNumbers", "PUT", "/v1/queues/q/policy", `{"retain_dead":48}`, 400, "retain_dead", `must be a duration such as "48h", or "keep"`},
		{"PolicyOfLater", "PUT", "/v1/queues/q/policy", `{"flavour":"mint"}`, 400, "flavour", "is not known here"},
		{"FairInWords", "PUT", "/v1/queues/q/policy", `{"fair":"yes"}`, 400, "fair", "must be true or false"},
		{"OrderedInNumbers", "PUT", "/v1/queues/q/policy", `{"ordered":1}`, 400, "ordered", "must be true or false"},
		{"PolicyBelowItsLimit", "PUT", "/v1/queues/q/policy", `{"max_in_flight":-1}`, 400, "max_in_flight", "must be 0 to 10000"},
		{"PolicyAboveItsLimit", "PUT", "/v1/queues/q/policy", `{"max_per_key":1001}`, 400, "max_per_key", "must be 0 to 1000"},
		{"RateOfNothing", "PUT", "/v1/queues/q/policy", `{"rate":{"per":"1m"}}`, 400, "rate.n", "must be 1 to 1000"},
		{"RateAboveItsLimit", "PUT", "/v1/queues/q/policy", `{"rate":{"n":1001,"per":"1m"}}`, 400, "rate.n", "must be 1 to 1000"},
		{"RateInNoTime", "PUT", "/v1/queues/q/policy", `{"rate":{"n":1}}`, 400, "rate.per", "must be 100ms to 24h0m0s"},
		{"RateOfDays", "PUT", "/v1/queues/q/policy", `{"rate":{"n":1,"per":"25h"}}`, 400, "rate.per", "must be 100ms to 24h0m0s"},
		{"RateInNumbers", "PUT", "/v1/queues/q/policy", `{"rate":{"n":1,"per":60}}`, 400, "rate.per", `must be a duration such as "30s"`},
		{"RateInWords", "PUT", "/v1/queues/q/policy", `{"rate":"100/1m"}`, 400, "rate", "must be an object"},
		{"RateOfLater", "PUT", "/v1/queues/q/policy", `{"rate":{"n":1,"per":"1m","burst":3}}`, 400, "burst", "is not known here"},
		{"DeclaredByNobody", "PUT", "/v1/queues/q/policy", `{"declared":3}`, 400, "declared", "needs the owner, who declares the policy"},
		{"DeclaredBelowZero", "PUT", "/v1/queues/q/policy", `{"owner":"billing","declared":-1}`, 400, "declared", "must not be negative"},
		{"LongOwner", "PUT", "/v1/queues/q/policy", `{"owner":"` + strings.Repeat("x", 256) + `","declared":1}`, 400, "owner", "must have at most 255 bytes"},
		{"OwnerInNumbers", "PUT", "/v1/queues/q/policy", `{"owner":7}`, 400, "owner", "must be a string"},
		{"NegativeVersion", "PUT", "/v1/queues/q/policy", `{"version":-1}`, 400, "version", "must be that of the policy to replace, or 0 where none was set"},
		{"PolicyNoUTF8", "PUT", "/v1/queues/%ff/policy", `{}`, 400, "name", "must be valid UTF-8 without NUL"},
		{"ScheduleWithoutATime", "PUT", "/v1/schedules/s", `{"cron":"0 0 31 2 *","job":{"kind":"k"}}`, 400, "cron", "must have a time within five years, and this has none"},
		{"ScheduleOfNonsense", "PUT", "/v1/schedules/s", `{"cron":"61 * * * *","job":{"kind":"k"}}`, 400, "cron", "must have five fields (minute, hour, day of month, month, day of week), six with seconds first, or be @hourly, @daily, @weekly, @monthly, @yearly or @every and a duration: end of range (61) above maximum (59): 61"},
		{"ScheduleWithoutCron", "PUT", "/v1/schedules/s", `{"job":{"kind":"k"}}`, 400, "cron", "must not be empty"},
		{"ScheduleLongCron", "PUT", "/v1/schedules/s", `{"cron":"` + strings.Repeat("*", 256) + `","job":{"kind":"k"}}`, 400, "cron", "must have at most 255 bytes"},
		{"ScheduleOnMars", "PUT", "/v1/schedules/s", `{"cron":"@daily","timezone":"Mars/Olympus","job":{"kind":"k"}}`, 400, "timezone", `must be the name of a time zone such as Europe/Berlin, or empty for UTC, and "Mars/Olympus" is none`},
		{"ScheduleWithRunAt", "PUT", "/v1/schedules/s", `{"cron":"@daily","job":{"kind":"k","run_at":"2030-01-01T00:00:00Z"}}`, 400, "job.run_at", "must not be set: the schedule decides when its jobs run"},
		{"ScheduleWithAfter", "PUT", "/v1/schedules/s", `{"cron":"@daily","job":{"kind":"k","after":[{"id":"1"}]}}`, 400, "job.after", "must not be set: a schedule's job waits for no other"},
		{"ScheduleOfColour", "PUT", "/v1/schedules/s", `{"cron":"@daily","job":{"kind":"k"},"colour":"red"}`, 400, "colour", "is not known here"},
		{"ScheduleWithoutKind", "PUT", "/v1/schedules/s", `{"cron":"@daily"}`, 400, "job.kind", "must not be empty"},
		{"ScheduleOfMuch", "PUT", "/v1/schedules/s", `{"cron":"@daily","job":{"kind":"k","payload":` + big[:65<<10] + `"}}`, 400, "job.payload", "must have at most 65536 bytes in a schedule"},
		{"ScheduleBeyondTheBody", "PUT", "/v1/schedules/s", tooLong()[:wire.MaxBrief+1], 413, "body", "must have at most 2097152 bytes"},
		{"ScheduleCatchUp", "PUT", "/v1/schedules/s", `{"cron":"@daily","job":{"kind":"k"},"catch_up":"all"}`, 400, "catch_up", "must be one or skip"},
		{"ScheduleOverlap", "PUT", "/v1/schedules/s", `{"cron":"@daily","job":{"kind":"k"},"overlap":"queue"}`, 400, "overlap", "must be allow or skip"},
		{"ScheduleNamedTwice", "PUT", "/v1/schedules/s", `{"name":"s","cron":"@daily","job":{"kind":"k"}}`, 400, "name", "stands in the path: leave it out"},
		{"ScheduleOfPast", "PUT", "/v1/schedules/s", `{"cron":"@daily","job":{"kind":"k"},"last_at":"2026-01-02T03:04:05Z"}`, 400, "last_at", "is set by the store: leave it out"},
		{"ScheduleOfPastJob", "PUT", "/v1/schedules/s", `{"cron":"@daily","job":{"kind":"k"},"last_job":"1"}`, 400, "last_job", "is set by the store: leave it out"},
		{"ScheduleRedacted", "PUT", "/v1/schedules/s", `{"cron":"@daily","job":{"kind":"k"},"redacted":true}`, 400, "redacted", "says that the payload was left out: read the schedule as an operator"},
		{"ScheduleOfItsOwnTime", "PUT", "/v1/schedules/s", `{"cron":"@daily","job":{"kind":"k"},"next_at":"2026-01-02T03:04:05Z"}`, 400, "next_at", "goes with revision only: leave it out, and the server computes it"},
		{"ScheduleRevision", "PUT", "/v1/schedules/s", `{"cron":"@daily","job":{"kind":"k"},"revision":"-1"}`, 400, "revision", "must be that of the schedule to replace, or 0 where there is none"},
		{"ScheduleVersion", "PUT", "/v1/schedules/s", `{"cron":"@daily","job":{"kind":"k"},"version":-1}`, 400, "version", "must not be negative"},
		{"ScheduleLongName", "PUT", "/v1/schedules/" + strings.Repeat("n", 256), `{"cron":"@daily","job":{"kind":"k"}}`, 400, "name", "must have at most 255 bytes"},
		{"ScheduleNoUTF8", "PUT", "/v1/schedules/%ff", `{"cron":"@daily","job":{"kind":"k"}}`, 400, "name", "must be valid UTF-8 without NUL"},
		{"DeleteNoUTF8", "DELETE", "/v1/schedules/%ff", ``, 400, "name", "must be valid UTF-8 without NUL"},
		{"RunNoUTF8", "POST", "/v1/schedules/%00/run", ``, 400, "name", "must be valid UTF-8 without NUL"},
		{"SchedulesWithin", "GET", "/v1/schedules?within=1s", ``, 400, "within", "goes with due only"},
		{"SchedulesDue", "GET", "/v1/schedules?due=false", ``, 400, "due", "must be true: leave it out for all schedules"},
		{"SchedulesWithinSoon", "GET", "/v1/schedules?due=true&within=soon", ``, 400, "within", `must be a duration such as "30s"`},
		{"SchedulesBack", "GET", "/v1/schedules?due=true&within=-1s", ``, 400, "within", "must be 0 to 87600h0m0s"},
		{"SchedulesOfNone", "GET", "/v1/schedules?cursor=x", ``, 400, "cursor", "must come from the page before, by the same filter"},
		{"SchedulesByQueue", "GET", "/v1/schedules?queue=a", ``, 400, "queue", "is not known here"},
		{"ActivityOfLongAgo", "GET", "/v1/activity?last=169h", ``, 400, "last", "must be 1m to 168h"},
		{"ActivityLately", "GET", "/v1/activity?last=lately", ``, 400, "last", `must be a duration such as "1h"`},
		{"ActivityBySecond", "GET", "/v1/activity?step=1s", ``, 400, "step", "must be whole minutes, and at most last"},
		{"ActivityByHalfHours", "GET", "/v1/activity?last=25h&step=30m", ``, 400, "step", "must be whole hours if last is longer than 24h"},
		{"ActivityStep", "GET", "/v1/activity?step=0", ``, 400, "step", `must be a duration such as "1m"`},
		{"ActivityByWorker", "GET", "/v1/activity?by=worker", ``, 400, "by", "must be queue or kind"},
		{"ActivityByStep", "GET", "/v1/activity?by=kind&step=1m", ``, 400, "by", "and step exclude each other"},
		{"ActivityOfTwoKinds", "GET", "/v1/activity?kind=a&kind=b", ``, 400, "kind", "must be given once"},
		{"ActivityOfNoQueue", "GET", "/v1/activity?queue=", ``, 400, "queue", "must be names of 1 to 255 bytes without NUL, in valid UTF-8, or beginnings of names with a * behind them"},
		{"ActivityOfQueues", "GET", "/v1/activity?queues=a", ``, 400, "queues", "is not known here"},
		{"ActivityQuery", "GET", "/v1/activity?last=%zz", ``, 400, "query", "must be written as name=value, with & in between"},
		{"FireTooMany", "POST", "/v1/schedules/fire", `{"firings":[{"name":"s"}` + strings.Repeat(`,{"name":"s"}`, 100) + `]}`, 400, "firings", "must be at most 100 a call"},
		{"FireUnnamed", "POST", "/v1/schedules/fire", `{"firings":[{}]}`, 400, "name", "must not be empty"},
		{"PreviewOfNothing", "POST", "/v1/schedules/preview", `{"cron":"@daily","count":0}`, 400, "count", "must be 1 to 1000"},
		{"PreviewOfMuch", "POST", "/v1/schedules/preview", `{"cron":"@daily","count":1001}`, 400, "count", "must be 1 to 1000"},
		{"PreviewWithoutATime", "POST", "/v1/schedules/preview", `{"cron":"0 0 31 2 *"}`, 400, "cron", "must have a time within five years, and this has none"},
		{"PreviewLong", "POST", "/v1/schedules/preview", `{"cron":"` + strings.Repeat("*", 256) + `"}`, 400, "cron", "must have at most 255 bytes"},
		{"PreviewLongZone", "POST", "/v1/schedules/preview", `{"cron":"@daily","timezone":"` + strings.Repeat("*", 256) + `"}`, 400, "timezone", "must have at most 255 bytes"},
		{"ErrorsOfAState", "GET", "/v1/errors?state=failed", ``, 400, "state", "must be dead or retrying"},
		{"ErrorsOfNever", "GET", "/v1/errors?last=0s", ``, 400, "last", "must be more than 0"},
		{"ErrorsOfTheFuture", "GET", "/v1/errors?last=-1h", ``, 400, "last", "must be more than 0"},
		{"ErrorsOfLately", "GET", "/v1/errors?last=lately", ``, 400, "last", `must be a duration such as "30s"`},
		{"ErrorsByWorker", "GET", "/v1/errors?worker=w", ``, 400, "worker", "is not known here"},
		{"ErrorsByPage", "GET", "/v1/errors?limit=1", ``, 400, "limit", "is not known here"},
		{"ErrorsNoUTF8", "GET", "/v1/errors?queue=%ff", ``, 400, "queue", "must be valid UTF-8 without NUL"},
		{"WorkersByQueue", "GET", "/v1/workers?queue=a", ``, 400, "queue", "is not known here"},
		{"WorkersByState", "GET", "/v1/workers?state=ready", ``, 400, "state", "is not known here"},
		{"WorkersNamedTwice", "GET", "/v1/workers?name=a&name=a", ``, 400, "name", "must be given once"},
		{"WorkersOfTwoPages", "GET", "/v1/workers?cursor=a&cursor=b", ``, 400, "cursor", "must be given once"},
		{"WorkersOfNoName", "GET", "/v1/workers?name=", ``, 400, "name", "must not be empty: leave it out"},
		{"WorkersOfNoCursor", "GET", "/v1/workers?cursor=", ``, 400, "cursor", "must not be empty: leave it out"},
		{"WorkersNoUTF8", "GET", "/v1/workers?name=%ff", ``, 400, "name", "must be valid UTF-8 without NUL"},
		{"WorkersNUL", "GET", "/v1/workers?name=%00", ``, 400, "name", "must be valid UTF-8 without NUL"},
		{"WorkersOfALongName", "GET", "/v1/workers?name=" + strings.Repeat("x", 256), ``, 400, "name", "must have at most 255 bytes"},
		{"WorkersBadQuery", "GET", "/v1/workers?name=%zz", ``, 400, "query", "must be written as name=value, with & in between"},
		{"WorkersBadLimit", "GET", "/v1/workers?limit=1e2", ``, 400, "limit", "must be a number"},
		{"WorkersNoLimit", "GET", "/v1/workers?limit=0", ``, 400, "limit", "must be 1 to 1000"},
		{"WorkersGreatLimit", "GET", "/v1/workers?limit=1001", ``, 400, "limit", "must be 1 to 1000"},
		{"WorkersOfABadCursor", "GET", "/v1/workers?cursor=w", ``, 400, "cursor", "must come from the page before, by the same filter"},
		{"WorkersOfAnother", "GET", "/v1/workers?name=b&cursor=" + store.WorkerFilter{Name: "a"}.Cursor("a"), ``, 400, "cursor", "must come from the page before, by the same filter"},
		{"WorkersAfterJobs", "GET", "/v1/workers?cursor=" + store.Filter{}.Cursor(7), ``, 400, "cursor", "must come from the page before, by the same filter"},
		{"JobsAfterWorkers", "GET", "/v1/jobs?cursor=" + store.WorkerFilter{}.Cursor("w"), ``, 400, "cursor", "must come from the page before, by the same filter"},
		{"WorkerNamedTwice", "PUT", "/v1/workers/w", `{"name":"v","slots":1,"running":0}`, 400, "name", "stands in the path: leave it out"},
		{"WorkerWithTime", "PUT", "/v1/workers/w", `{"beat_at":"2026-01-02T03:04:05Z"}`, 400, "beat_at", "is set by the store: leave it out"},
		{"WorkerStale", "PUT", "/v1/workers/w", `{"stale":true}`, 400, "stale", "is set by the store: leave it out"},
		{"WorkerWithNUL", "PUT", "/v1/workers/w%00", `{}`, 400, "name", "must be valid UTF-8 without NUL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, Options{})
			got := w.ask(c.method, c.path, c.body)
			f := got.fail(t)
			assert.Equal(t, c.status, got.status)
			assert.Equal(t, urn+"invalid", f.Type)
			assert.Equal(t, c.field, f.Field)
			assert.Equal(t, c.rule, f.Rule)
			assert.Empty(t, w.counts(), "nothing is left behind")
			queues, err := w.store.Queues(t.Context())
			require.NoError(t, err)
			assert.Empty(t, queues)
			workers, err := store.AllWorkers(t.Context(), w.store)
			require.NoError(t, err)
			assert.Empty(t, workers)
			schedules, err := schedule.All(t.Context(), w.store)
			require.NoError(t, err)
			assert.Empty(t, schedules)
		})
	}
}

// TestChunkedBodyIsLimited: a body whose length is not said before is refused when it is too long.
func TestChunkedBodyIsLimited(t *testing.T) {
	w := newWorld(t, Options{})
	req, err := http.NewRequestWithContext(t.Context(), "POST", w.url+"/v1/jobs", struct{ *strings.Reader }{strings.NewReader(tooLong())})
	require.NoError(t, err)
	req.ContentLength = -1
	req.Header.Set("Content-Type", wire.JSON)
	resp, err := w.client.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	assert.Equal(t, 413, resp.StatusCode)
}

// TestTokenOfAnotherJobIsStale: a bad item has its outcome, and spoils no other.
func TestTokenOfAnotherJobIsStale(t *testing.T) {
	for _, path := range []string{wire.PathAck, wire.PathNAck, pathRelease, wire.PathCheckpoint, wire.PathExtend} {
		w := newWorld(t, Options{})
		w.enqueue("default", "default")
		require.Len(t, w.claim(`{"worker":"w","limit":2}`), 2)
		_, err := w.store.Cancel(t.Context(), store.Filter{IDs: []int64{2}}, 1) // its token is 2 now, and that of job 1 still 1
		require.NoError(t, err)
		body := `{"jobs":[{"id":"1","token":"2"},{"id":"7","token":"1"},{"id":"1","token":"1"}]`
		if path == wire.PathExtend {
			body += `,"lease":"1m"`
		}
		got := call[wire.Results](w, 200, "POST", path, body+"}")
		var statuses []store.Status
		for _, o := range got.Results {
			statuses = append(statuses, o.Status)
		}
		assert.Equal(t, []store.Status{store.StatusStale, store.StatusNotFound, store.StatusOK}, statuses, path)
	}
}

// TestRequestKey: a repeat with the same key gets the first answer, and other jobs under it are refused.
func TestRequestKey(t *testing.T) {
	w := newWorld(t, Options{})
	job, key := `{"jobs":[{"kind":"k"}]}`, "order 7, 100%"
	first := w.ask("POST", "/v1/jobs", job, wire.RequestKeyHeader, wire.KeyHeader(key))
	assert.Equal(t, first.text, w.ask("POST", "/v1/jobs", job, wire.RequestKeyHeader, wire.KeyHeader(key)).text)
	for value, rule := range map[string]string{
		"": "must not be empty: leave the header out", "100%": "must have a percent sign as %25",
		strings.Repeat("k", 256): "must have at most 255 bytes", "%00": "must be valid UTF-8 without NUL",
	} {
		f := w.ask("POST", "/v1/jobs", job, wire.RequestKeyHeader, value).fail(t)
		assert.Equal(t, []any{400, "request_key", rule}, []any{f.Status, f.Field, f.Rule}, value)
	}
	f := w.ask("POST", "/v1/jobs", `{"jobs":[{"kind":"other"}]}`, wire.RequestKeyHeader, wire.KeyHeader(key)).fail(t)
	assert.Equal(t, []any{400, "request_key"}, []any{f.Status, f.Field})
	assert.Equal(t, map[store.State]int64{store.Ready: 1}, w.counts())
}

// TestContentType: browsers' forms can not pass for JSON, nor can what has no type.
func TestContentType(t *testing.T) {
	w := newWorld(t, Options{})
	for kind, status := range map[string]int{
		"application/json": 201, "application/json; charset=utf-8": 201, "Application/JSON": 201,
		"": 415, "text/plain": 415, "application/x-www-form-urlencoded": 415, "multipart/form-data": 415, "application/jsonx": 415,
	} {
		assert.Equal(t, status, w.ask("POST", "/v1/jobs", `{"jobs":[]}`, "Content-Type", kind).status, kind)
	}
}

// TestFenceTakesNoBodyHoweverFramed: a client that does not know beforehand that it has nothing to send says no length.
func TestFenceTakesNoBodyHoweverFramed(t *testing.T) {
	w := newWorld(t, Options{})
	fence := func(body string, headers ...string) answered {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/v1/fence", io.MultiReader(strings.NewReader(body)))
		require.NoError(t, err)
		require.Zero(t, req.ContentLength)
		for i := 0; i+1 < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err := w.client.Do(req)
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return answered{resp.StatusCode, resp.Header, string(text)}
	}
	got := fence("")
	assert.Equal(t, 200, got.status, got.text)
	assert.JSONEq(t, `{"epoch":"1"}`, got.text)
	got = fence("", "Content-Type", wire.JSON)
	assert.JSONEq(t, `{"epoch":"2"}`, got.text)
	assert.Equal(t, 415, fence("{}").status, "what has no type")
	got = fence(`{"epoch":"7"}`, "Content-Type", wire.JSON)
	assert.JSONEq(t, `{"epoch":"7"}`, got.text)
}

// TestNoSuchCall: paths and methods that do not exist have problems too, and nobody is sent elsewhere.
func TestNoSuchCall(t *testing.T) {
	w := newWorld(t, Options{})
	for path, methods := range map[string]string{
		"/v1/claim": "POST", "/v1/jobs": "GET, HEAD, POST", "/v1/jobs/7": "DELETE, GET, HEAD", "/v1/workers/w": "DELETE, PUT", "/v1/queues/q/pause": "POST", "/": "GET, HEAD",
	} {
		got := w.ask("PATCH", path, "")
		assert.Equal(t, 405, got.status, path)
		assert.Equal(t, urn+"no_such_method", got.fail(t).Type)
		assert.Equal(t, methods, got.header.Get("Allow"), path)
	}
	for _, path := range []string{"/v2/jobs", "/v1", "/v1/jobs/", "/v1/jobs/7/", "/v1//jobs", "/v1/./jobs", "/docs/x", "/v1/jobs/7/eat", "/v1/queues//pause"} {
		got := w.ask("GET", path, "")
		assert.Equal(t, 404, got.status, path)
		assert.Equal(t, urn+"no_such_call", got.fail(t).Type, path)
	}
}

// TestNamesInPathsAreEscaped: any name can stand in a path.
func TestNamesInPathsAreEscaped(t *testing.T) {
	w := newWorld(t, Options{})
	want := []string{}
	for path, name := range map[string]string{"a%2Fb": "a/b", "%2E": ".", "%2E%2E": "..", "a%20b": "a b", "%C3%BC": "ü", "100%25": "100%", "a+b": "a+b"} {
		assert.Equal(t, 204, w.ask("POST", "/v1/queues/"+path+"/pause", "").status, path)
		assert.Equal(t, 204, w.ask("PUT", "/v1/workers/"+path, "{}").status, path)
		want = append(want, name)
	}
	queues := call[wire.Queues](w, 200, "GET", "/v1/queues", "")
	workers := call[store.WorkerPage](w, 200, "GET", "/v1/workers", "")
	var gotQueues, gotWorkers []string
	for i := range queues.Queues {
		gotQueues, gotWorkers = append(gotQueues, queues.Queues[i].Name), append(gotWorkers, workers.Workers[i].Name)
	}
	slices.Sort(want)
	assert.Equal(t, want, gotQueues)
	assert.Equal(t, want, gotWorkers)
}

// TestStoreThatDoesNotAnswer: a call ends after its time, and says so.
func TestStoreThatDoesNotAnswer(t *testing.T) {
	asked := make(chan struct{})
	w := newWorld(t, Options{}, func(s *memory.Store) store.Store {
		return bare{&meddled{Store: s, any: func(ctx context.Context) error {
			asked <- struct{}{}
			<-ctx.Done()
			return errors.Join(store.ErrUnavailable, ctx.Err())
		}}}
	})
	got := make(chan answered)
	go func() { got <- w.ask("GET", "/v1/stats", "") }()
	<-asked
	w.clock.Add(30 * time.Second)
	f := (<-got).fail(t)
	assert.Equal(t, 503, f.Status)
	assert.Equal(t, "it took longer than 30s", f.Detail)
}

// TestPanicIsAProblem: a handler that panics breaks nothing else, and leaves its trace in the log alone.
func TestPanicIsAProblem(t *testing.T) {
	w := newWorld(t, Options{}, func(s *memory.Store) store.Store {
		return &meddled{Store: s, fetch: func(context.Context, store.ClaimRequest) ([]store.Job, error) { panic("odd and secret") }}
	})
	got := w.ask("POST", "/v1/claim", `{"worker":"w"}`)
	assert.Equal(t, urn+"in_doubt", got.fail(t).Type)
	assert.NotContains(t, got.text, "odd")
	assert.Contains(t, w.logged.String(), "odd and secret")
	assert.Equal(t, 200, w.ask("GET", "/v1/stats", "").status)
}
