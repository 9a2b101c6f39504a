package doctor_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/doctor"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
)

// A patient is the store to examine, with a clock that the test moves.
type patient struct {
	*testing.T
	*memory.Store
	clock *clock.Mock
}

func newPatient(t *testing.T) patient {
	t.Helper()
	clk := clock.NewMock()
	clk.Set(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	s := memory.New(memory.Options{Clock: clk})
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return patient{t, s, clk}
}

func (p patient) enqueue() { p.enqueueTo("q") }

func (p patient) enqueueTo(queue string) {
	p.Helper()
	_, err := p.Enqueue(p.Context(), store.EnqueueRequest{Jobs: []store.NewJob{{Queue: queue, Kind: "k", Payload: []byte("1")}}})
	require.NoError(p, err)
}

func (p patient) beat(queue string) { p.beatOf("anna", queue) }

func (p patient) beatOf(worker, queue string) {
	p.Helper()
	require.NoError(p, p.Beat(p.Context(), store.Worker{Name: worker, Queues: []string{queue}, Slots: 1, StaleAfter: time.Minute}))
}

// findings returns the details of all findings by name.
func (p patient) findings() map[string]string {
	p.Helper()
	found, err := doctor.Examine(p.Context(), p.Store, p.clock.Now)
	require.NoError(p, err)
	said := map[string]string{}
	for _, f := range found {
		assert.NotEmpty(p, f.Advice)
		said[f.Name] = f.Detail
	}
	return said
}

func TestHealthyStoreHasNoFindings(t *testing.T) {
	p := newPatient(t)
	assert.Empty(t, p.findings())
	p.enqueue()
	p.beat("q")
	assert.Empty(t, p.findings())
}

func TestUnrecoveredLeases(t *testing.T) {
	p := newPatient(t)
	p.enqueue()
	_, err := p.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "q", Limit: 1, Worker: "bob", TTL: 30 * time.Second})
	require.NoError(t, err)
	p.clock.Add(90*time.Second - time.Microsecond)
	assert.Empty(t, p.findings(), "recovery may be on its way")
	p.clock.Add(time.Microsecond)
	assert.Equal(t, map[string]string{
		"unrecovered_leases": "the leases of 1 job in flight have expired, the oldest 1m0s ago (job 1 of worker bob): no server recovers them",
	}, p.findings())
}

func TestQueueWithoutAWorker(t *testing.T) {
	p := newPatient(t)
	p.enqueue()
	p.beat("another")
	assert.Equal(t, map[string]string{
		"no_worker": "no living worker works on the queue q, with 1 job waiting, the oldest for 0s",
	}, p.findings())
}

func TestSilentWorker(t *testing.T) {
	p := newPatient(t)
	p.beat("q")
	p.clock.Add(time.Minute)
	assert.Equal(t, map[string]string{"silent_workers": "no heartbeat for longer than they announced, and no sign-off: anna"}, p.findings())
}

// After a crash, nobody must do anything once other workers have taken over: doctor would otherwise fail for a day.
func TestReplacedWorkerIsNotMissed(t *testing.T) {
	p := newPatient(t)
	p.enqueueTo("a")
	_, err := p.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "a", Limit: 1, Worker: "anna", TTL: time.Hour})
	require.NoError(t, err)
	require.NoError(t, p.Beat(t.Context(), store.Worker{Name: "anna", Queues: []string{"a", "b"}, Slots: 1, StaleAfter: time.Minute}))
	p.clock.Add(time.Minute)
	silent := map[string]string{"silent_workers": "no heartbeat for longer than they announced, and no sign-off: anna"}
	assert.Equal(t, silent, p.findings(), "nobody is alive")
	p.beatOf("zoe", "a")
	assert.Equal(t, silent, p.findings(), "its queue b has nobody")
	p.beatOf("berta", "b")
	assert.Equal(t, silent, p.findings(), "it still holds a lease")
	_, err = p.Cancel(t.Context(), store.Filter{IDs: []int64{1}}, 1)
	require.NoError(t, err)
	assert.Empty(t, p.findings())
}

func TestSilentWorkerWithoutQueues(t *testing.T) {
	p := newPatient(t)
	require.NoError(t, p.Beat(t.Context(), store.Worker{Name: "anna", StaleAfter: time.Minute}))
	p.clock.Add(time.Minute)
	assert.Contains(t, p.findings(), "silent_workers", "nobody is alive")
	p.beat("q")
	p.beatOf("berta", "q")
	assert.Empty(t, p.findings())
}

func TestSlowQueue(t *testing.T) {
	p := newPatient(t)
	p.enqueue()
	p.clock.Add(5 * time.Minute)
	p.beat("q")
	assert.Equal(t, map[string]string{"slow_queue": "the queue q has 1 job waiting, the oldest for 5m0s"}, p.findings())
}

func TestFullQueue(t *testing.T) {
	p := newPatient(t)
	p.enqueue()
	_, err := p.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "q", Limit: 1, Worker: "w", TTL: time.Hour})
	require.NoError(t, err)
	p.enqueue()
	_, err = p.SetPolicy(t.Context(), "q", store.Policy{MaxInFlight: 1})
	require.NoError(t, err)
	p.clock.Add(5 * time.Minute)
	p.beat("q")
	assert.Equal(t, map[string]string{"full_queue": "the queue q has as many jobs in flight as its policy allows, and 1 job waiting, the oldest for 5m0s"}, p.findings())
	_, err = p.SetPolicy(t.Context(), "q", store.Policy{MaxInFlight: 2, Version: 1})
	require.NoError(t, err)
	assert.Contains(t, p.findings(), "slow_queue")
}

// More workers would not help a queue that runs what its rate allows. A queue that runs less is slow. So is one that has run more: its rate is
// too new to be the reason.
func TestThrottledQueue(t *testing.T) {
	for name, k := range map[string]struct {
		rate  store.Rate
		each  time.Duration // so often runs end
		runs  int64         // so many
		found string
	}{
		"each second":         {store.Rate{N: 2, Per: time.Second}, time.Minute, 115, "throttled_queue"},
		"half of each second": {store.Rate{N: 2, Per: time.Second}, time.Minute, 60, "slow_queue"},
		"each minute":         {store.Rate{N: 10, Per: time.Minute}, time.Minute, 10, "throttled_queue"},
		"each third minute":   {store.Rate{N: 10, Per: 3 * time.Minute}, 3 * time.Minute, 10, "throttled_queue"},
		"each hour":           {store.Rate{N: 100, Per: time.Hour}, time.Hour, 100, "throttled_queue"},
		"less each hour":      {store.Rate{N: 100, Per: time.Hour}, time.Hour, 50, "slow_queue"},
		"each day":            {store.Rate{N: 100, Per: 24 * time.Hour}, 24 * time.Hour, 100, "throttled_queue"},
		"more before":         {store.Rate{N: 10, Per: time.Minute}, time.Minute, 50, "slow_queue"},
		"without a rate":      {store.Rate{}, time.Minute, 10, "slow_queue"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPatient(t)
			_, err := p.SetPolicy(t.Context(), "q*", store.Policy{Rate: k.rate})
			require.NoError(t, err)
			p.enqueueTo("q*")
			for at := time.Duration(0); at < 10*time.Minute; at += k.each {
				require.NoError(t, p.AddActivity(t.Context(), []store.Activity{
					{Queue: "q*", Kind: "k", Succeeded: k.runs / 2, Retried: k.runs - k.runs/2}, {Queue: "q1", Kind: "k", Dead: 1000},
				}))
				p.clock.Add(min(k.each, 10*time.Minute-at))
			}
			p.beat("q*")
			found := p.findings()
			require.Len(t, found, 1)
			assert.Contains(t, found, k.found)
			if k.found == "throttled_queue" {
				assert.Equal(t, "the queue q* runs about as many jobs as its rate allows, and has 1 job waiting, the oldest for 10m0s", found[k.found])
			}
		})
	}
}

// A key without room is named, since more workers would not help.
func TestFullKeys(t *testing.T) {
	p := newPatient(t)
	enqueue := func(keys ...string) {
		for _, key := range keys {
			_, err := p.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{{Queue: "q", Kind: "k", Payload: []byte("1"), LimitKey: key}}})
			require.NoError(t, err)
		}
	}
	claim := func(n int, worker string) {
		claimed, err := p.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "q", Limit: n, Worker: worker, TTL: time.Hour})
		require.NoError(t, err)
		require.Len(t, claimed, n)
		p.clock.Add(time.Minute)
	}
	_, err := p.SetPolicy(t.Context(), "q", store.Policy{MaxPerKey: 2})
	require.NoError(t, err)
	enqueue("ada", "ada", "grace", "grace", "")
	claim(1, "first")
	claim(4, "second")
	enqueue("ada", "ada", "ada")
	p.clock.Add(5 * time.Minute)
	enqueue("grace", "", "")
	p.beat("q")
	assert.Equal(t, map[string]string{
		"full_keys": "the limit key ada of the queue q has as many jobs in flight as its policy allows, the oldest for 7m0s (job 1 of worker first), and 3 jobs waiting, the oldest for 5m0s",
	}, p.findings())
	p.clock.Add(5 * time.Minute)
	p.beat("q")
	assert.Equal(t, map[string]string{
		"full_keys": "2 limit keys have as many jobs in flight as the policies of their queues allow, and 4 jobs waiting, the oldest for 10m0s: ada in q, grace in q",
	}, p.findings())
	_, err = p.SetPolicy(t.Context(), "q", store.Policy{MaxPerKey: 3, Version: 1})
	require.NoError(t, err)
	assert.Contains(t, p.findings(), "slow_queue")
	assert.NotContains(t, p.findings(), "full_keys")
	_, err = p.SetPolicy(t.Context(), "q", store.Policy{MaxPerKey: 2, MaxInFlight: 5, Version: 2})
	require.NoError(t, err)
	assert.Contains(t, p.findings(), "full_queue")
	assert.NotContains(t, p.findings(), "full_keys")
}

// If a job that its key does not hold back has waited longest, the queue is slow as well.
func TestFullKeyOfASlowQueue(t *testing.T) {
	p := newPatient(t)
	_, err := p.SetPolicy(t.Context(), "q", store.Policy{MaxPerKey: 1})
	require.NoError(t, err)
	for i, key := range []string{"ada", "", "ada"} {
		_, err := p.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{{Queue: "q", Kind: "k", Payload: []byte("1"), LimitKey: key}}})
		require.NoError(t, err)
		if i == 0 {
			_, err = p.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "q", Limit: 1, Worker: "w", TTL: time.Hour})
			require.NoError(t, err)
		}
		p.clock.Add(time.Second)
	}
	p.clock.Add(5 * time.Minute)
	p.beat("q")
	found := p.findings()
	assert.Contains(t, found["full_keys"], "the limit key ada of the queue q")
	assert.Contains(t, found["slow_queue"], "the queue q has 2 jobs waiting")
}

// Few keys are counted, however many are full: those first from which nothing was claimed for the longest time.
func TestFewKeysAreCounted(t *testing.T) {
	p := newPatient(t)
	var jobs []store.NewJob
	for i := range 50 {
		jobs = append(jobs, store.NewJob{Queue: "q", Kind: "k", Payload: []byte("1"), LimitKey: fmt.Sprintf("key %02d", i)})
	}
	_, err := p.Enqueue(t.Context(), store.EnqueueRequest{Jobs: jobs})
	require.NoError(t, err)
	for range jobs {
		_, err = p.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "q", Limit: 1, Worker: "w", TTL: time.Hour})
		require.NoError(t, err)
		p.clock.Add(time.Second)
	}
	_, err = p.Enqueue(t.Context(), store.EnqueueRequest{Jobs: jobs})
	require.NoError(t, err)
	_, err = p.SetPolicy(t.Context(), "q", store.Policy{MaxPerKey: 1})
	require.NoError(t, err)
	p.clock.Add(30 * time.Minute)
	p.beat("q")
	assert.Equal(t, map[string]string{
		"full_keys": "20 limit keys have as many jobs in flight as the policies of their queues allow, and 20 jobs waiting, the oldest for 30m0s: " +
			"key 00 in q, key 01 in q, key 02 in q, key 03 in q, key 04 in q, and 15 more",
	}, p.findings())
}

func TestPausedQueue(t *testing.T) {
	p := newPatient(t)
	p.enqueue()
	require.NoError(t, p.SetPaused(t.Context(), "q", true))
	assert.Equal(t, map[string]string{"paused_queue": "the queue q is paused, with 1 job waiting, the oldest for 0s"}, p.findings())
}

// Many queues or workers with the same problem are one finding, with their number and a few names: those that wait longest first.
func TestFindingsAreGatheredByKind(t *testing.T) {
	p := newPatient(t)
	for i := range 300 {
		p.enqueueTo(fmt.Sprintf("idle-%03d", 299-i))
		p.clock.Add(time.Second)
	}
	for _, queue := range []string{"slow-a", "slow-b"} {
		p.enqueueTo(queue)
		p.enqueueTo(queue)
	}
	p.clock.Add(time.Hour)
	for i := range 6 {
		queue := fmt.Sprintf("paused-%d", i)
		p.enqueueTo(queue)
		require.NoError(t, p.SetPaused(t.Context(), queue, true))
		p.beatOf(fmt.Sprintf("silent-%d", i), "x")
	}
	p.clock.Add(time.Minute)
	p.beatOf("anna", "slow-a")
	p.beatOf("berta", "slow-b")
	found, err := doctor.Examine(t.Context(), p.Store, p.clock.Now)
	require.NoError(t, err)
	for i := range found {
		assert.NotEmpty(t, found[i].Advice)
		found[i].Advice = ""
	}
	assert.Equal(t, []store.Finding{
		{Name: "silent_workers", Count: 6, Examples: []string{"silent-0", "silent-1", "silent-2", "silent-3", "silent-4"},
			Detail: "no heartbeat for longer than they announced, and no sign-off: silent-0, silent-1, silent-2, silent-3, silent-4, and 1 more"},
		{Name: "paused_queue", Count: 6, Examples: []string{"paused-0", "paused-1", "paused-2", "paused-3", "paused-4"},
			Detail: "6 queues are paused, with 6 jobs waiting, the oldest for 1m0s: paused-0, paused-1, paused-2, paused-3, paused-4, and 1 more"},
		{Name: "no_worker", Count: 300, Examples: []string{"idle-299", "idle-298", "idle-297", "idle-296", "idle-295"},
			Detail: "no living worker works on 300 queues, with 300 jobs waiting, the oldest for 1h6m0s: idle-299, idle-298, idle-297, idle-296, idle-295, and 295 more"},
		{Name: "slow_queue", Count: 2, Examples: []string{"slow-a", "slow-b"},
			Detail: "2 queues have 4 jobs waiting, the oldest for 1h1m0s: slow-a, slow-b"},
	}, found)
}

// examined is a store that finds something itself.
type examined struct {
	*memory.Store
	found []store.Finding
}

func (e examined) Examine(context.Context) ([]store.Finding, error) { return e.found, nil }

// Findings of the store are gathered too, unless their advice differs.
func TestFindingsOfTheStoreAreGathered(t *testing.T) {
	p := newPatient(t)
	index := func(name string) store.Finding {
		return store.Finding{Name: "missing_index", Detail: name + " is missing", Advice: "create it"}
	}
	dead := func(table string) store.Finding {
		return store.Finding{Name: "dead_rows", Detail: table + " has dead rows", Advice: "vacuum " + table}
	}
	found, err := doctor.Examine(t.Context(), examined{p.Store, []store.Finding{
		index("a"), dead("jobs"), index("b"), dead("keys"), index("c"), index("d"), index("e"), index("f"),
	}}, p.clock.Now)
	require.NoError(t, err)
	assert.Equal(t, []store.Finding{
		{Name: "missing_index", Count: 6, Advice: "create it",
			Detail: "a is missing; b is missing; c is missing; d is missing; e is missing; and 1 more"},
		dead("jobs"), dead("keys"),
	}, found)
}

func TestClockSkew(t *testing.T) {
	for _, off := range []time.Duration{-2 * time.Second, 2 * time.Second} {
		p := newPatient(t)
		found, err := doctor.Examine(t.Context(), p.Store, func() time.Time { return p.clock.Now().Add(off) })
		require.NoError(t, err)
		require.Len(t, found, 1)
		assert.Equal(t, "the store's clock and that of this machine differ by 2s", found[0].Detail)
	}
}

// schedule keeps a schedule that fires next after so long.
func (p patient) schedule(cron string, after time.Duration) {
	p.Helper()
	_, err := p.SetSchedule(p.Context(), store.Schedule{
		Name: "s", Cron: cron, Job: store.NewJob{Queue: "q", Kind: "k", Payload: []byte("1")}, NextAt: p.clock.Now().Add(after),
	})
	require.NoError(p, err)
}

func TestSchedules(t *testing.T) {
	for name, c := range map[string]struct {
		cron  string
		after time.Duration
		want  string
	}{
		"":                    {"@every 1h", time.Hour, ""},
		"just due":            {"@hourly", time.Microsecond - time.Minute, ""},
		"just fired":          {"* * * * * *", 2 * time.Second, ""},
		"late_schedule":       {"@hourly", -time.Minute, "the schedule s was due 1m0s ago, and no server has fired it"},
		"schedule_ahead":      {"@every 1h", time.Hour + time.Minute + time.Second, "the schedule s waits until 2026-01-02T04:05:06Z"},
		"unreadable_schedule": {"0 0 31 2 *", time.Hour, "the schedule s never fires: "},
	} {
		p := newPatient(t)
		p.schedule(c.cron, c.after)
		found := p.findings()
		if c.want == "" {
			assert.Empty(t, found, c.cron)
			continue
		}
		assert.Len(t, found, 1)
		assert.Contains(t, found[name], c.want)
	}
}

// TestOpenGroups: a group that has been open for an hour is named, and no other.
func TestOpenGroups(t *testing.T) {
	p := newPatient(t)
	open := func(names ...string) {
		_, err := p.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{{Queue: "q", Kind: "k", Payload: []byte("1"), Delay: 10 * time.Hour}}, Open: names})
		require.NoError(t, err)
	}
	open("a")
	p.clock.Add(time.Hour - store.Resolution)
	open("b")
	assert.Empty(t, p.findings())
	p.clock.Add(store.Resolution)
	assert.Contains(t, p.findings()["open_groups"], "the group a has been open for long, since 2026-01-02T03:04:05Z at the earliest")
	p.clock.Add(time.Hour)
	assert.Contains(t, p.findings()["open_groups"], "2 groups have been open for long")
	for _, name := range []string{"a", "b"} {
		require.NoError(t, p.SealGroup(t.Context(), name))
	}
	assert.Empty(t, p.findings())
}
