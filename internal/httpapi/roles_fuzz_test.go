package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/internal/schedule"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
	"github.com/seed-ed332417/jq/internal/wire"
)

// FuzzRoles: whatever the holders of tokens call, in whatever order, none does or learns more than its token is for.
func FuzzRoles(f *testing.F) {
	if race.Enabled {
		f.Skip("left to the pass without the race detector: there is one call at a time, and TestSeedsReachEveryCall makes each of them here")
	}
	for _, seed := range roleSeeds() {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, tape []byte) { newPlay(t, tape).run() })
}

// TestSeedsReachEveryCall, as somebody who may do it for some queues alone. FuzzRoles plays the seeds that are long too. This test plays
// only those that begin with a call that is still missing.
func TestSeedsReachEveryCall(t *testing.T) {
	calls := roleCalls()
	missing := map[string]bool{}
	for _, c := range calls {
		missing[c.operation] = true
	}
	delete(missing, "fence") // which only a token for all queues may call
	for _, seed := range shortSeeds(40) {
		if !missing[calls[seed[2]].operation] {
			continue
		}
		p := newPlay(t, seed)
		p.run()
		assert.False(t, p.served["fence"])
		maps.DeleteFunc(missing, func(operation string, _ bool) bool { return p.served[operation] })
	}
	assert.Empty(t, missing)
}

// roleSeeds are some that are long, and some for every call and role.
func roleSeeds() [][]byte {
	var seeds [][]byte
	for n := range 62 {
		seeds = append(seeds, roleSeed(n, 99, 600))
	}
	return append(seeds, shortSeeds(5)...)
}

// shortSeeds begin with each call in each role, so many times.
func shortSeeds(times int) [][]byte {
	var seeds [][]byte
	for n := range times {
		for call := range roleCalls() {
			for role := range roles {
				seeds = append(seeds, roleSeed(call, role+len(roles)*n, 60, byte(role), 1, byte(call), 0))
			}
		}
	}
	return seeds
}

// roleSeed is a tape of the size, the same each time.
func roleSeed(a, b, size int, begin ...byte) []byte {
	random := rand.New(rand.NewPCG(uint64(a), uint64(b))) //nolint:gosec // the same each time
	for len(begin) < size {
		begin = append(begin, byte(random.Uint32()))
	}
	return begin
}

// roleCalls are the documented calls that need a token, with the names of parameters in their paths.
func roleCalls() []request {
	var calls []request
	for key, op := range theBook().operations() {
		if rolesOf(op) == nil {
			continue
		}
		one := example(key, op)
		_, one.path, _ = strings.Cut(key, " ")
		calls = append(calls, one)
	}
	slices.SortFunc(calls, func(a, b request) int { return strings.Compare(a.operation, b.operation) })
	return calls
}

// A play is a sequence of calls that a tape of bytes decides.
type play struct {
	*testing.T
	tape    []byte
	clock   *clock.Mock // the store's: that of the API stands still, for nothing here waits
	store   *memory.Store
	api     *API
	secrets map[Role][2]string // without and with limits
	greater map[int64]int64    // the greatest token that each job had
	leases  []store.Lease      // of jobs that have waited for others
	cursors []string           // of pages that were answered
	served  map[string]bool    // the calls that a limited token was answered
}

// What is foreign has this in all its texts, and nothing else has.
const foreignMark = "stranger"

var (
	foreignQueues = []string{foreignMark + "-1", "mail" + foreignMark}
	playQueues    = append([]string{ownQueue, "mail", "mail-2"}, foreignQueues...)
)

func newPlay(t *testing.T, tape []byte) *play {
	p := &play{T: t, tape: tape, clock: clock.NewMock(), secrets: map[Role][2]string{}, greater: map[int64]int64{}, served: map[string]bool{}}
	p.clock.Set(start)
	p.store = memory.New(memory.Options{Clock: p.clock})
	var file bytes.Buffer
	for _, role := range roles {
		free, all, err := NewToken(Token{Name: "free " + string(role), Role: role})
		require.NoError(t, err)
		limited, some, err := NewToken(Token{Name: string(role), Role: role, Queues: []string{"mail", "mail-*"}, KeyPrefix: "m/"})
		require.NoError(t, err)
		p.secrets[role] = [2]string{free, limited}
		file.Write(append(all.Line(), some.Line()...))
	}
	known, err := ReadTokens(&file)
	require.NoError(t, err)
	p.api, err = New(p.store, &Options{
		Tokens: known, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Clock: clock.NewMock(), Metrics: always(metricsText),
	})
	require.NoError(t, err)
	p.furnish()
	return p
}

// furnish adds jobs of each state to own and to foreign queues.
func (p *play) furnish() {
	for i, queue := range playQueues {
		mark := "own"
		if isForeign(queue) {
			mark = foreignMark
		}
		text := []byte(`"` + mark + ` text"`)
		var jobs []store.NewJob
		for n := range 4 {
			jobs = append(jobs, store.NewJob{
				Queue: queue, Kind: mark + " kind", Payload: text, Tags: []string{mark + " tag"}, MaxRetries: n % 2,
				UniqueKey: "m/" + strconv.Itoa(4*i+n),
			})
		}
		added, err := p.store.Enqueue(p.Context(), store.EnqueueRequest{Jobs: jobs, RequestKey: "m/r" + strconv.Itoa(i)})
		require.NoError(p, err)
		claimed, err := p.store.FetchAndClaim(p.Context(), store.ClaimRequest{Queue: queue, Worker: mark + " worker", TTL: time.Minute, Limit: 3})
		require.NoError(p, err)
		require.Len(p, claimed, 3)
		_, err = p.store.Save(p.Context(), []store.Save{{Lease: claimed[0].Lease(), Seq: 1, Checkpoint: text, Progress: text}})
		require.NoError(p, err)
		_, err = p.store.Ack(p.Context(), []store.Ack{{Lease: claimed[1].Lease(), Result: text}})
		require.NoError(p, err)
		_, err = p.store.NAck(p.Context(), []store.NAck{{Lease: claimed[2].Lease(), Form: store.Never, Error: mark + " error"}})
		require.NoError(p, err)
		if i%2 == 0 {
			p.api.held.add(claimed, p.clock.Now()) // as if they had been claimed here
		}
		// The key of a finished job is free: a job in a queue of the other side takes it.
		other := playQueues[(i+3)%len(playQueues)]
		_, err = p.store.Enqueue(p.Context(), store.EnqueueRequest{Jobs: []store.NewJob{{Queue: other, Kind: "k", Payload: []byte(`{}`), UniqueKey: jobs[1].UniqueKey}}})
		require.NoError(p, err)
		p.api.Publish(Event{Job: wire.ID(added[0].ID), Queue: queue, Event: WasEnqueued})
		p.schedule(i, mark)
		name := "w" + strconv.Itoa(i)
		require.NoError(p, p.store.Beat(p.Context(), store.Worker{Name: name, Host: mark + " host", Queues: []string{queue}, StaleAfter: time.Minute}))
	}
	p.entangle()
	p.group()
	p.past()
	both := store.Worker{Name: "both", Queues: []string{ownQueue, foreignQueues[0]}, StaleAfter: time.Minute}
	require.NoError(p, p.store.Beat(p.Context(), both))
}

// entangle lets jobs of each queue wait for jobs in flight of both sides.
func (p *play) entangle() {
	flying, err := p.store.List(p.Context(), store.Filter{States: []store.State{store.InFlight}}, store.Page{Limit: 100})
	require.NoError(p, err)
	require.Len(p, flying.Jobs, len(playQueues))
	for i, queue := range playQueues {
		near, far := flying.Jobs[len(playQueues)-1-i].ID, flying.Jobs[(len(playQueues)+1-i)%len(playQueues)].ID
		for _, after := range [][]store.Wait{{{ID: near}}, {{ID: far}}, {{ID: near, Any: true}, {ID: far, Any: true}}} {
			n := store.NewJob{Queue: queue, Kind: "k", Payload: []byte(`{}`), After: after}
			_, err := p.store.Enqueue(p.Context(), store.EnqueueRequest{Jobs: []store.NewJob{n}})
			require.NoError(p, err)
		}
	}
}

// The groups of both sides.
const ownGroupName, foreignGroupName = "m/g", "b/g"

// group adds an open group of each side, with a job in it, and jobs of each queue that wait for them.
func (p *play) group() {
	req := store.EnqueueRequest{Open: []string{ownGroupName, foreignGroupName}}
	for _, in := range [][2]string{{ownQueue, ownGroupName}, {foreignQueues[0], foreignGroupName}} {
		req.Jobs = append(req.Jobs, store.NewJob{Queue: in[0], Kind: "k", Payload: []byte(`{}`), Group: in[1]})
	}
	for _, queue := range playQueues {
		after := []store.Wait{{Group: ownGroupName}, {Group: foreignGroupName, Any: true}}
		req.Jobs = append(req.Jobs, store.NewJob{Queue: queue, Kind: "k", Payload: []byte(`{}`), After: after})
	}
	_, err := p.store.Enqueue(p.Context(), req)
	require.NoError(p, err)
}

// past adds jobs in flight, one in each queue, that have waited for jobs of both sides and for a group with jobs of both sides.
func (p *play) past() {
	urgent := func(queue, mark string, n store.NewJob) store.Job {
		n.Queue, n.Kind, n.Payload, n.Priority = queue, mark+" kind", []byte(`"`+mark+` text"`), 9
		_, err := p.store.Enqueue(p.Context(), store.EnqueueRequest{Jobs: []store.NewJob{n}})
		require.NoError(p, err)
		claimed, err := p.store.FetchAndClaim(p.Context(), store.ClaimRequest{Queue: queue, Worker: mark + " worker", TTL: time.Minute, Limit: 1})
		require.NoError(p, err)
		require.Len(p, claimed, 1)
		return claimed[0]
	}
	waits := []store.Wait{{Group: "b/done"}}
	for i, queue := range []string{ownQueue, foreignQueues[0]} {
		mark := []string{"own", foreignMark}[i]
		for _, group := range []string{"", "b/done"} {
			done := urgent(queue, mark, store.NewJob{Group: group})
			_, err := p.store.Ack(p.Context(), []store.Ack{{Lease: done.Lease(), Result: []byte(`"` + mark + ` result"`)}})
			require.NoError(p, err)
			if group == "" {
				waits = append(waits, store.Wait{ID: done.ID})
			}
		}
	}
	for _, queue := range []string{ownQueue, foreignQueues[0]} {
		p.leases = append(p.leases, urgent(queue, "own", store.NewJob{After: waits}).Lease())
	}
}

// schedule adds the schedule "s0" and so on, whose last job is one of the other side: that held its key.
func (p *play) schedule(i int, mark string) {
	other := playQueues[(i+3)%len(playQueues)]
	n := store.NewJob{Queue: other, Kind: "k", Payload: []byte(`{}`), UniqueKey: "m/s" + strconv.Itoa(i)}
	_, err := p.store.Enqueue(p.Context(), store.EnqueueRequest{Jobs: []store.NewJob{n}})
	require.NoError(p, err)
	n.Queue, n.Kind, n.Payload = playQueues[i], mark+" kind", []byte(`"`+mark+` text"`)
	s := store.Schedule{Name: "s" + strconv.Itoa(i), Cron: "@every 1m", Job: n, NextAt: start}
	if i%2 == 1 {
		s.Overlap = store.OverlapSkip
	}
	s, err = p.store.SetSchedule(p.Context(), s)
	require.NoError(p, err)
	_, err = p.store.Fire(p.Context(), []store.Firing{{Name: s.Name, Revision: s.Revision, For: start, Next: start}})
	require.NoError(p, err)
}

func isForeign(queue string) bool { return queue != "mail" && !strings.HasPrefix(queue, "mail-") }

// next is a number below n from the tape, and 0 behind its end.
func (p *play) next(n int) int {
	if len(p.tape) == 0 {
		return 0
	}
	b := p.tape[0]
	p.tape = p.tape[1:]
	return int(b) % n
}

func (p *play) pick(of ...string) string { return of[p.next(len(of))] }

func (p *play) run() {
	defer func() {
		require.NoError(p, p.api.Close())
		require.NoError(p, p.store.Close())
	}()
	calls := roleCallsOnce()
	for step := 0; len(p.tape) > 0 && step < 40; step++ {
		role, limited := roles[p.next(len(roles))], p.next(4) > 0
		one := calls[p.next(len(calls))]
		if p.next(8) == 7 {
			p.clock.Add(time.Duration(1+p.next(90)) * time.Second)
		}
		p.step(role, limited, one)
	}
}

var roleCallsOnce = sync.OnceValue(roleCalls)

// A state is what the store holds, in an order of its own.
type state struct {
	jobs    map[int64]store.Job
	queues  []store.Queue
	workers []store.Worker

	schedules []store.Schedule
	groups    []store.Group
}

func (p *play) state() state {
	now := state{jobs: map[int64]store.Job{}}
	for page := (store.Page{Limit: 1000}); ; {
		jobs, err := p.store.List(p.Context(), store.Filter{}, page)
		require.NoError(p, err)
		for _, j := range jobs.Jobs {
			now.jobs[j.ID] = j
		}
		if page.Cursor = jobs.Next; page.Cursor == "" {
			break
		}
	}
	var err error
	now.queues, err = p.store.Queues(p.Context())
	require.NoError(p, err)
	now.workers, err = store.AllWorkers(p.Context(), p.store)
	require.NoError(p, err)
	now.schedules, err = schedule.All(p.Context(), p.store)
	require.NoError(p, err)
	groups, err := p.store.Groups(p.Context(), store.GroupFilter{}, store.Page{Limit: 1000})
	require.NoError(p, err)
	now.groups = groups.Groups
	return now
}

// foreign is the part of the state that is foreign.
func (s state) foreign() state {
	out := state{jobs: maps.Clone(s.jobs)}
	maps.DeleteFunc(out.jobs, func(_ int64, j store.Job) bool { return !isForeign(j.Queue) })
	out.queues = slices.DeleteFunc(slices.Clone(s.queues), func(q store.Queue) bool { return !isForeign(q.Name) })
	out.schedules = slices.DeleteFunc(slices.Clone(s.schedules), func(s store.Schedule) bool { return !isForeign(s.Job.Queue) })
	out.workers = slices.DeleteFunc(slices.Clone(s.workers), func(w store.Worker) bool { return !slices.ContainsFunc(w.Queues, isForeign) })
	for _, g := range s.groups { // of those that are open, since their jobs may be in own queues
		if g.Open && !strings.HasPrefix(g.Name, "m/") {
			out.groups = append(out.groups, store.Group{Name: g.Name, OpenedAt: g.OpenedAt})
		}
	}
	return out
}

// step makes one call and judges it.
func (p *play) step(role Role, limited bool, one request) {
	before := p.state()
	method, path, body, key := p.fill(one, before)
	ctx, cancel := context.WithCancel(p.Context())
	defer cancel()
	req := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	if body != "" {
		req.Header.Set("Content-Type", wire.JSON)
	}
	secret := p.secrets[role][0]
	if limited {
		secret = p.secrets[role][1]
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	if key != "" {
		req.Header.Set(wire.RequestKeyHeader, wire.KeyHeader(key))
	}
	told := &brief{ResponseRecorder: httptest.NewRecorder(), end: cancel}
	if one.operation == "events" {
		req.Header.Set("Last-Event-ID", p.api.ring.id(0)) // so that there are events
	}
	p.api.ServeHTTP(told, req)
	after, answer := p.state(), told.Body.String()
	what := string(role) + " " + method + " " + path + " " + body + "\n" + strconv.Itoa(told.Code) + " " + answer

	require.Less(p, told.Code, 500, what)
	p.tokensRise(after, what)
	switch may := allowed(one.operation, role); {
	case !may:
		require.Equal(p, 403, told.Code, what)
		require.Equal(p, before, after, what)
	case role == Viewer || role == Producer && one.operation != "enqueue" && one.operation != "seal":
		require.Equal(p, before, after, "it only reads: %s", what)
	}
	seen := read(answer)
	if one.operation == "waited-for" && told.Code < 300 {
		require.True(p, before.inFlight(p, body), "only the holder of a lease may ask: %s", what)
		require.NotContains(p, seen.names, "token", what)
	}
	p.cursors = append(p.cursors, seen.cursors...)
	hidden := map[Role][]string{
		Viewer: {"payload", "payload_text", "checkpoint", "checkpoint_text", "result", "result_text", "token"}, Producer: {"payload", "payload_text", "checkpoint", "token"},
	}
	for _, name := range hidden[role] {
		require.NotContains(p, seen.names, name, what)
	}
	if !limited {
		return
	}
	if told.Code < 300 {
		p.served[one.operation] = true
	}
	p.letGo(before, after)
	if one.operation != "recover" && one.operation != "settle" {
		require.Equal(p, before.foreign(), after.foreign(), "what is foreign stays as it is: %s", what)
	}
	for id, was := range before.foreign().jobs {
		if (was.State != store.InFlight || was.LeaseExpiresAt.After(p.clock.Now())) && !store.ExpiredOf(&was, p.clock.Now()) {
			require.Equal(p, was, after.jobs[id], "neither it nor its lease has expired: %s", what)
		}
	}
	require.NotContains(p, answer, foreignMark, what)
	sent := read(body + " " + path).numbers
	for _, id := range seen.ids {
		if j, there := before.jobs[id]; there && isForeign(j.Queue) {
			require.True(p, sent[id], "job %d is foreign: %s", id, what)
		}
	}
}

// letGo takes from both states the blocked jobs that no longer wait, or were cancelled for what they need: any end of a job may cause that,
// in whatever queue.
func (p *play) letGo(before, after state) {
	for id, was := range before.jobs {
		now := after.jobs[id]
		if was.State == store.Blocked && (now.State == store.Ready || now.State == store.Cancelled && (neededJob.MatchString(now.Error) || neededGroup.MatchString(now.Error))) {
			delete(before.jobs, id)
			delete(after.jobs, id)
		}
	}
}

// tokensRise: the token of a job never falls.
func (p *play) tokensRise(now state, what string) {
	for id, j := range now.jobs {
		require.GreaterOrEqual(p, j.Token, p.greater[id], what)
		p.greater[id] = j.Token
	}
}

// brief ends a stream when something was written to it, for it has no other end.
type brief struct {
	*httptest.ResponseRecorder
	end func()
}

func (b *brief) Write(text []byte) (int, error) {
	if strings.HasPrefix(b.Header().Get("Content-Type"), wire.Events) {
		defer b.end()
	}
	return b.ResponseRecorder.Write(text)
}

// fill makes a request of an example, with what the tape chooses in place of names, ids and tokens.
func (p *play) fill(one request, now state) (method, path, body, key string) {
	method, path = one.method, one.path
	if method == http.MethodGet && p.next(8) == 7 {
		method = http.MethodHead
	}
	path = strings.Replace(path, "{id}", p.id(now), 1)
	if strings.HasPrefix(path, wire.PathWorkers) {
		path = strings.Replace(path, "{name}", p.worker(), 1)
	}
	if strings.HasPrefix(path, wire.PathSchedules) {
		path = strings.Replace(path, "{name}", p.scheduleName(), 1)
	}
	if strings.HasPrefix(path, wire.PathGroups) {
		path = strings.Replace(path, "{name}", url.PathEscape(p.groupName()), 1)
	}
	path = strings.Replace(path, "{name}", url.PathEscape(p.queue()), 1)
	if one.operation == "jobs" {
		path += "?" + p.query(now)
	}
	if one.operation == "enqueue" {
		key = p.pick("", "m/r0", "m/r3", "m/new", "b/1", wire.RandomKey())
	}
	if one.body == "" {
		return method, path, "", key
	}
	var parsed any
	require.NoError(p, json.Unmarshal([]byte(one.body), &parsed))
	if one.operation == "enqueue" && p.next(3) == 0 {
		parsed.(map[string]any)["open"] = []any{p.groupName()}
	}
	if one.operation == "list" || one.operation == "count" || one.operation == "bulk" {
		parsed.(map[string]any)["filter"] = p.filter(now)
	}
	parsed = p.mutate(parsed, now)
	if one.operation == "waited-for" {
		p.waited(parsed.(map[string]any))
	}
	text, err := json.Marshal(parsed)
	require.NoError(p, err)
	return method, path, string(text), key
}

// waited asks for one kind of waits, mostly with a lease that was given, and for a page after the first now and then.
func (p *play) waited(body map[string]any) {
	body["groups"] = p.next(2) == 0
	if p.next(4) > 0 {
		of := p.leases[p.next(len(p.leases))]
		body["id"], body["token"] = strconv.FormatInt(of.ID, 10), strconv.FormatInt(of.Token, 10)
	}
	if p.next(4) == 3 {
		body["cursor"] = p.cursor()
	}
}

// inFlight reports whether the request names a lease that is in force.
func (s state) inFlight(t testing.TB, body string) bool {
	var of wire.Lease
	require.NoError(t, json.Unmarshal([]byte(body), &of))
	j, there := s.jobs[int64(of.ID)]
	return there && j.State == store.InFlight && j.Token == int64(of.Token)
}

func (p *play) id(now state) string {
	if len(now.jobs) == 0 || p.next(16) == 15 {
		return p.pick("0", "-1", "999")
	}
	ids := slices.Sorted(maps.Keys(now.jobs))
	return strconv.FormatInt(ids[p.next(len(ids))], 10)
}

func (p *play) queue() string {
	return p.pick(append([]string{"mail-*", "mail*", "*", "mail-1/../billing"}, playQueues...)...)
}

func (p *play) groupName() string { return p.pick(ownGroupName, foreignGroupName, "m/new") }

func (p *play) scheduleName() string { return p.pick("s0", "s1", "s2", "s3", "s4", "new") }

// revision is one that a schedule has.
func (p *play) revision(now state) string {
	if len(now.schedules) == 0 {
		return "0"
	}
	return strconv.FormatInt(now.schedules[p.next(len(now.schedules))].Revision, 10)
}

func (p *play) worker() string { return p.pick("w", "w0", "w3", "both") }

func (p *play) query(now state) string {
	values := url.Values{}
	for _, name := range []string{"queue", "state", "limit", "unique_key", "group", "waits_for", "waits_for_group", "cursor", "limit_key"} {
		if p.next(3) > 0 {
			continue
		}
		switch name {
		case "queue":
			values.Set(name, p.queue())
		case "state":
			values.Set(name, p.pick("ready", "in_flight", "dead", "blocked"))
		case "limit":
			values.Set(name, p.pick("1", "3"))
		case "unique_key", "limit_key":
			values.Set(name, "m/"+strconv.Itoa(p.next(20)))
		case "group", "waits_for_group":
			values.Set(name, p.groupName())
		case "waits_for":
			values.Set(name, p.id(now))
		case "cursor":
			values.Set(name, p.cursor())
		}
	}
	return values.Encode()
}

// cursor is one that was answered, perhaps to somebody else and of another filter.
func (p *play) cursor() string {
	if len(p.cursors) == 0 {
		return "AAAA"
	}
	return p.cursors[p.next(len(p.cursors))]
}

func (p *play) filter(now state) map[string]any {
	filter := map[string]any{}
	for _, name := range []string{"ids", "queue", "queues", "kind", "tag", "worker", "unique_key", "group", "waits_for", "waits_for_group", "states", "limit_key"} {
		if p.next(4) > 0 {
			continue
		}
		switch name {
		case "ids":
			filter[name] = []any{p.id(now), p.id(now), p.id(now)}
		case "queue":
			filter[name] = p.queue()
		case "queues":
			filter[name] = []any{p.queue(), p.queue()}
		case "states":
			filter[name] = []any{p.pick("ready", "in_flight", "dead", "succeeded", "failed", "blocked", "cancelled")}
		case "unique_key", "limit_key":
			filter[name] = "m/" + strconv.Itoa(p.next(20))
		case "waits_for":
			filter[name] = p.id(now)
		case "group", "waits_for_group":
			filter[name] = p.groupName()
		default:
			filter[name] = p.pick("own ", foreignMark+" ") + name
		}
	}
	return filter
}

// mutate replaces what names something, wherever it stands. What else there is stays, or is left out now and then.
func (p *play) mutate(v any, now state) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = p.mutate(v[i], now)
		}
		if len(v) > 0 && p.next(4) == 3 {
			v = append(v, v[p.next(len(v))])
		}
		return v
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			v[name] = p.field(name, v[name], now)
			if v[name] == nil || p.next(32) == 31 {
				delete(v, name)
			}
		}
		if _, job := v["kind"]; job {
			v["queue"] = p.queue()
			if p.next(4) == 3 {
				v["group"] = p.groupName()
			}
			if p.next(4) == 3 {
				v["limit_key"] = p.pick("m/", "b/") + strconv.Itoa(p.next(3))
			}
			switch p.next(7) {
			case 3:
				v["after"] = []any{map[string]any{"group": p.groupName(), "any": p.next(2) == 0}}
			case 4:
				v["after"] = []any{map[string]any{"id": p.id(now), "any": p.next(2) == 0}}
			case 5:
				v["after"] = []any{map[string]any{"item": p.next(2)}}
			}
		}
		return v
	default:
		return v
	}
}

func (p *play) field(name string, value any, now state) any {
	switch name {
	case "id":
		return p.id(now)
	case "token":
		return p.pick("1", "2", "3", "0")
	case "queue":
		return p.queue()
	case "name":
		return p.scheduleName()
	case "revision":
		return p.revision(now)
	case "for":
		return p.clock.Now()
	case "next", "next_at":
		return p.clock.Now().Add(time.Duration(p.next(3)) * time.Hour)
	case "queues":
		return []any{p.queue()}
	case "unique_key", "limit_key":
		return p.pick("m/", "b/") + strconv.Itoa(p.next(20))
	case "group":
		return value
	case "worker":
		return p.worker()
	case "wait":
		return nil // nobody would wake it
	case "action":
		return p.pick("cancel", "requeue", "reschedule", "delete")
	case "lease":
		return p.pick("1s", "1m", "1h")
	case "limit":
		return 1 + p.next(100)
	case "filter":
		return value
	default:
		return p.mutate(value, now)
	}
}
