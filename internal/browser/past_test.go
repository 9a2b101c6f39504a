package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/schedule"
	"github.com/seed-ed332417/jq/sqlite"
)

// How long the past is, and the troubles of its last minutes.
const (
	pastLength = 26 * time.Hour
	closeUp    = 90 * time.Minute // the last part of the past happens minute by minute, what is before in steps of five
	mailStops  = 14 * time.Minute // since when nobody takes the jobs of the queue mail
	billStops  = 22 * time.Minute // since when the queue billing is paused
	workerDies = 4 * time.Minute  // since when the worker reports-2 is dead
)

// A past is a store whose clock moves as fast as its events can be written. What it holds at the end is what a day of work leaves.
type past struct {
	store  *sqlite.Store
	clock  *moving
	random *rand.Rand // with a fixed seed, so that each run has the same past
	now    time.Time  // where the past ends
	events []event
	n      int // how many jobs the flows have enqueued
	did    map[did]contract.Activity
}

// did names the sums of what servers did.
type did struct{ queue, kind string }

// An event of the past happens at a time.
type event struct {
	at time.Time
	do func(ctx context.Context) error
}

// A moving clock is set by its owner. Its timers are those of the system.
type moving struct {
	clock.Clock
	mu sync.Mutex
	at time.Time
}

func (m *moving) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at
}

func (m *moving) set(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at = at
}

// history makes the past once, and returns the folder of its file.
var history = sync.OnceValues(func() (string, error) {
	at := filepath.Join(folder, "past")
	if err := os.Mkdir(at, 0o700); err != nil {
		return "", err
	}
	return at, write(context.Background(), filepath.Join(at, "jobs.db"))
})

// lived returns the URL of a store with a past, which belongs to the test.
func lived(t *testing.T) string {
	t.Helper()
	from, err := history()
	require.NoError(t, err)
	to := t.TempDir()
	require.NoError(t, os.CopyFS(to, os.DirFS(from)))
	return "sqlite:" + filepath.Join(to, "jobs.db")
}

// original is lived without the copy. A store that finds itself copied takes larger ids and tokens, which look odd in a picture.
func original(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "jobs.db")
	require.NoError(t, write(t.Context(), file))
	return "sqlite:" + file
}

func write(ctx context.Context, file string) error {
	now := time.Now().UTC().Truncate(time.Second)
	p := &past{clock: &moving{Clock: clock.New(), at: now.Add(-pastLength)}, random: rand.New(rand.NewPCG(1, 2)), now: now, did: map[did]contract.Activity{}}
	var err error
	p.store, err = sqlite.Open(ctx, file, &sqlite.Options{Clock: p.clock, Synchronous: sqlite.Normal, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	p.plan()
	for len(p.events) > 0 && err == nil {
		next := p.events[0]
		p.events = p.events[1:]
		if next.at.After(now) {
			continue
		}
		if next.at.After(p.clock.Now()) {
			p.clock.set(next.at)
		}
		err = next.do(ctx)
	}
	return errors.Join(err, p.store.Close())
}

// at plans an event. Events of the same time happen in the order in which they were planned.
func (p *past) at(at time.Time, do func(ctx context.Context) error) {
	i, _ := slices.BinarySearchFunc(p.events, at, func(e event, at time.Time) int {
		if e.at.After(at) {
			return 1
		}
		return -1
	})
	p.events = slices.Insert(p.events, i, event{at, do})
}

// ago plans an event before the end of the past.
func (p *past) ago(before time.Duration, do func(ctx context.Context) error) {
	p.at(p.now.Add(-before), do)
}

// plan plans everything. The flows plan more when their jobs are claimed.
func (p *past) plan() {
	p.at(p.now.Add(-pastLength), p.schedules)
	for at := -pastLength; at < 0; {
		step := time.Minute
		if at < -closeUp {
			step = 5 * time.Minute
		}
		p.at(p.now.Add(at), p.fire)
		p.report(at)
		p.at(p.now.Add(at+step-time.Microsecond), p.tell)
		for _, f := range flows {
			p.flow(f, at, step)
		}
		at += step
	}
	p.ago(billStops, func(ctx context.Context) error { return p.store.SetPaused(ctx, "billing", true) })
	p.odds()
	p.lost()
}

// enqueue adds jobs, with the defaults of the library.
func (p *past) enqueue(ctx context.Context, jobs ...jq.NewJob) ([]jq.Enqueued, error) {
	for i := range jobs {
		if jobs[i].MaxRetries == 0 {
			jobs[i].MaxRetries = 4
		}
		if jobs[i].Backoff == (jq.Backoff{}) {
			jobs[i].Backoff = jq.Backoff{Base: 2 * time.Minute, Cap: time.Hour, Jitter: 10}
		}
	}
	return p.store.Enqueue(ctx, jq.EnqueueRequest{Jobs: jobs})
}

// fire enqueues the jobs of the schedules that are due.
func (p *past) fire(ctx context.Context) error {
	all, err := schedule.All(ctx, p.store)
	if err != nil {
		return err
	}
	for _, s := range all {
		firing, due, err := schedule.Due(s, p.clock.Now())
		if err != nil {
			return err
		}
		if due {
			if _, err := p.store.Fire(ctx, []contract.Firing{firing}); err != nil {
				return err
			}
		}
	}
	return nil
}

// tell writes what servers did since it was called last, as each server does.
func (p *past) tell(ctx context.Context) error {
	all := slices.Collect(maps.Values(p.did))
	clear(p.did)
	return p.store.AddActivity(ctx, all)
}

// note adds the end of a run to what servers did.
func (p *past) note(job jq.Job, count func(a *contract.Activity)) {
	key := did{job.Queue, job.Kind}
	a := p.did[key]
	a.Queue, a.Kind = key.queue, key.kind
	if job.Retries == 0 {
		a.Waited.Add(job.ClaimedAt.Sub(job.RunAt))
	}
	a.Ran.Add(p.clock.Now().Sub(job.ClaimedAt))
	count(&a)
	p.did[key] = a
}

func document(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps and strings can always be encoded
	}
	return text
}

func person(n int) string {
	names := []string{"ada", "grace", "edsger", "barbara", "donald", "leslie", "frances", "alan", "radia", "tony"}
	return fmt.Sprintf("%s.%d@example.org", names[n%len(names)], 100+n%900)
}
