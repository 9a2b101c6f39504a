//go:build unix

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/chaos/soak"
	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/race"
)

// How long each store is soaked, and where the samples are left. make soak says so.
const (
	envSoakLength = "JQ_SOAK_LENGTH"
	envSoakFolder = "JQ_SOAK_FOLDER"
)

// shortSoak is what scripts/test-all does, so that it finds out if this does not work any more.
const shortSoak = 20 * time.Second

// A soaking is a fleet that works for long, and what is measured of it.
type soaking struct {
	*fleet
	store   database // nil in memory
	length  time.Duration
	samples []sample
	held    [2]time.Duration // from when to when a snapshot was open
	kills   int
}

// A sample is what was measured at one moment.
type sample struct {
	at         time.Duration
	memory     float64 // MB, of the process that is never killed
	files      float64 // that it has open, connections included
	goroutines float64
	sizes      []float64 // those of the store, see sizes
	p50, p99   float64   // milliseconds for which jobs were due
	rate       float64   // runs per second
}

// TestSoak lets each store work steadily, kills workers now and then, and finds that nothing grows and nothing becomes slower.
// The producer deletes jobs two seconds after they have ended, for retention leaves them for an hour at least: else a store must grow.
func TestSoak(t *testing.T) {
	if race.Enabled {
		t.Skip("left out under the race detector, which has a memory and a pace of its own")
	}
	length := shortSoak
	if text := os.Getenv(envSoakLength); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		require.NoError(t, err, envSoakLength)
	}
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		soaked(t, role{}, length) // one process, which can not be killed: its store would be gone
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		soaked(t, role{sqlitePath: filepath.Join(t.TempDir(), "jobs.db")}, length)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		c, err := pgtest.Start(t.Context(), pgtest.Options{Durable: true, Settings: []string{"autovacuum_naptime=5s"}})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Stop()) })
		soaked(t, role{dsn: c.DSN + " application_name=chaos"}, length)
	})
}

func soaked(t *testing.T, r role, length time.Duration) {
	t.Helper()
	r.seed, r.soak = seedOf(t), true
	l := openLedger(t, r.seed)
	t.Cleanup(l.close)
	r.ledger = l.listener.Addr().String()
	s := &soaking{fleet: &fleet{T: t, ledger: l, role: r, logs: t.TempDir()}, length: length}
	if r.sqlitePath != "" || r.dsn != "" {
		s.open()
	}
	t.Cleanup(s.end)
	s.producer = s.berth(producerName, nil)
	for i := range workers {
		if s.store != nil {
			s.berths = append(s.berths, s.berth(fmt.Sprintf("worker %d", i+1), nil))
		}
	}
	s.work()
	s.finish()
	s.tell()
}

func (s *soaking) open() {
	s.Helper()
	var err error
	s.store, err = openStore(s.Context(), s.role, 0)
	require.NoError(s, err)
	s.Cleanup(func() { assert.NoError(s, s.store.Close()) })
	_, err = s.store.DB().ExecContext(s.Context(), effects)
	require.NoError(s, err)
}

// work lets the time go by, and takes the samples.
func (s *soaking) work() {
	s.Helper()
	require.True(s, s.ledger.until(patience, func() bool { return s.ledger.runs > 100 }), "the processes begin")
	began, runs := time.Now(), s.look()
	every := s.length / 60
	tick := time.NewTicker(every)
	defer tick.Stop()
	kill := time.NewTicker(min(max(s.length/100, time.Second), 10*time.Second))
	defer kill.Stop()
	hold, let := time.After(s.length/3), time.After(2*s.length/3)
	var snapshot *sqlx.Tx
	before := time.Now()
	for time.Since(began) < s.length {
		select {
		case <-kill.C:
			s.kill()
		case <-hold:
			snapshot = s.snapshot()
			s.held[0] = time.Since(began)
		case <-let:
			if snapshot != nil {
				require.NoError(s, snapshot.Rollback(), "the snapshot was held until now")
			}
			s.held[1] = time.Since(began)
		case now := <-tick.C:
			taken := s.sample()
			taken.at = now.Sub(began)
			after := s.look()
			taken.rate = float64(after-runs) / now.Sub(before).Seconds()
			runs, before = after, now
			s.samples = append(s.samples, taken)
		}
	}
}

// look is how many runs there were.
func (s *soaking) look() int {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	return s.ledger.runs
}

// kill kills a worker, but never the first one: its memory is measured.
func (s *soaking) kill() {
	if len(s.berths) > 1 && s.berths[1+rand.IntN(len(s.berths)-1)].end(syscall.SIGKILL) {
		s.kills++
	}
}

// snapshot holds a snapshot open on Postgres, as a backup or a forgotten session does.
func (s *soaking) snapshot() *sqlx.Tx {
	s.Helper()
	if s.role.dsn == "" {
		return nil
	}
	tx, err := s.store.DB().BeginTxx(s.Context(), nil)
	require.NoError(s, err)
	s.Cleanup(func() { _ = tx.Rollback() })
	_, err = tx.ExecContext(s.Context(), `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET LOCAL idle_in_transaction_session_timeout = 0`)
	require.NoError(s, err)
	var jobs int
	require.NoError(s, tx.GetContext(s.Context(), &jobs, `SELECT count(*) FROM chaos_effects`))
	return tx
}

func (s *soaking) sample() sample {
	s.Helper()
	spared := s.producer
	if len(s.berths) > 0 {
		spared = s.berths[0]
	}
	spared.mu.Lock()
	require.NotNil(s, spared.child, "%s has ended", spared.name)
	name, process := spared.child.name, fmt.Sprintf("/proc/%d/", spared.child.Process.Pid)
	spared.mu.Unlock()
	files, _ := os.ReadDir(process + "fd") // there is none but on Linux
	one := sample{memory: resident(process), files: float64(len(files)), sizes: s.sizes()}
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	one.goroutines = float64(s.ledger.goroutines[name])
	if waits := slices.Sorted(slices.Values(s.ledger.window)); len(waits) > 0 {
		one.p50 = waits[len(waits)/2].Seconds() * 1000
		one.p99 = waits[len(waits)*99/100].Seconds() * 1000
	}
	s.ledger.window = nil
	return one
}

// resident is how many MB of memory the process has.
func resident(process string) float64 {
	text, _ := os.ReadFile(process + "statm")
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseFloat(fields[1], 64)
	return pages * float64(os.Getpagesize()) / (1 << 20)
}

const mega = 1 << 20

// sizes are those of the files, or of the tables and their indexes with the dead rows and the connections.
func (s *soaking) sizes() []float64 {
	s.Helper()
	switch {
	case s.role.sqlitePath != "":
		return []float64{megabytes(s.role.sqlitePath), megabytes(s.role.sqlitePath + "-wal")}
	case s.role.dsn != "":
		var all struct{ Tables, Indexes, Dead, Connections float64 }
		require.NoError(s, s.store.DB().GetContext(s.Context(), &all, `
			SELECT sum(pg_table_size(relid)) AS tables, sum(pg_indexes_size(relid)) AS indexes, sum(n_dead_tup) AS dead, (
				SELECT count(*)
				FROM pg_stat_activity
				WHERE application_name = 'chaos') AS connections
			FROM pg_stat_user_tables`))
		return []float64{all.Tables / mega, all.Indexes / mega, all.Dead, all.Connections}
	}
	return nil
}

func megabytes(path string) float64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return float64(info.Size()) / mega
}

// finish lets all jobs come to their ends, and looks whether each has had its effect.
func (s *soaking) finish() {
	s.Helper()
	s.ledger.mu.Lock()
	s.ledger.enough = true
	s.ledger.note()
	s.ledger.mu.Unlock()
	select {
	case <-s.producer.gone:
	case <-time.After(patience):
		require.Fail(s, "the producer does not end")
	}
	inside := map[int64]bool{}
	if s.store != nil {
		idle(s.T, s.store)
		var jobs []int64
		require.NoError(s, s.store.DB().SelectContext(s.Context(), &jobs, `SELECT job FROM chaos_effects`))
		for _, job := range jobs {
			inside[job] = true
		}
	}
	for _, b := range s.berths {
		b.close(syscall.SIGTERM)
	}
	s.all.Wait()
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	for id, p := range s.ledger.jobs {
		if len(p.effects) == 0 && !inside[id] && p.cancelled == 0 && !p.plan.mustDie() {
			s.ledger.problem("job %d, %s, was acknowledged, and has had no effect", id, p.plan.kind)
		}
	}
	for _, problem := range s.ledger.problems[:min(len(s.ledger.problems), mostProblems)] {
		assert.Fail(s, problem)
	}
}

// idle waits until every job has ended.
func idle(t *testing.T, s database) {
	t.Helper()
	live := jq.Filter{States: []jq.State{jq.Ready, jq.InFlight, jq.Retrying}}
	require.Eventually(t, func() bool {
		counts, err := s.Count(t.Context(), live)
		return err == nil && len(counts.Queues) == 0
	}, patience, 20*time.Millisecond, "every job ends")
}

// tell judges what was measured, and leaves it in the folder if one is named.
func (s *soaking) tell() {
	s.Helper()
	r := s.run()
	lines, ok := r.Judge()
	head := fmt.Sprintf("soak, %s: %v, %d jobs, %d kills of workers, %d problems", r.Store, s.length, len(s.ledger.jobs), s.kills,
		len(s.ledger.problems))
	figures.Print(s, "%s", head)
	text := head + "\n  " + strings.Join(lines, "\n  ")
	s.Log(text)
	assert.True(s, ok, "what is measured keeps its bounds")
	folder := os.Getenv(envSoakFolder)
	if folder == "" {
		return
	}
	name := filepath.Join(folder, filepath.Base(s.Name()))
	require.NoError(s, r.WriteCSV(name+".csv"))
	require.NoError(s, r.WriteSVG(name+".svg"))
	require.NoError(s, os.WriteFile(name+".txt", []byte(text+"\n"), 0o644))
}

// run is the samples by what they are of.
func (s *soaking) run() *soak.Run {
	r := &soak.Run{Store: filepath.Base(s.Name()), Held: s.held}
	add := func(name, unit string, b soak.Bound, of func(sample) float64) {
		series := soak.Series{Name: name, Unit: unit, Bound: b}
		for _, one := range s.samples {
			series.Values = append(series.Values, of(one))
		}
		r.Series = append(r.Series, series)
	}
	for _, one := range s.samples {
		r.Times = append(r.Times, one.at)
	}
	add("memory of a process", "MB", soak.Bound{Times: 1.25, Plus: 16}, func(o sample) float64 { return o.memory })
	add("goroutines of a process", "", soak.Bound{Times: 1.25, Plus: 10}, func(o sample) float64 { return o.goroutines })
	add("files and sockets of a process", "", soak.Bound{Times: 1.25, Plus: 5}, func(o sample) float64 { return o.files })
	size := func(i int) func(o sample) float64 { return func(o sample) float64 { return o.sizes[i] } }
	switch {
	case s.role.sqlitePath != "":
		add("file", "MB", soak.Bound{Times: 1.1, Plus: 1, Late: true}, size(0))
		add("log", "MB", soak.Bound{Times: 1.1, Plus: 20}, size(1)) // it is begun anew at 16 MB, unless somebody reads it
	case s.role.dsn != "":
		r.Held = s.held
		add("tables", "MB", soak.Bound{Times: 1.1, Plus: 1, Late: true}, size(0))
		add("indexes", "MB", soak.Bound{Times: 1.1, Plus: 1, Late: true}, size(1))
		add("dead rows", "", soak.Bound{Times: 2, Plus: 5000}, size(2))
		add("connections", "", soak.Bound{Times: 1.25, Plus: 5}, size(3))
	}
	if s.role.dsn == "" {
		r.Held = [2]time.Duration{}
	}
	add("job is due until its claim, p50", "ms", soak.Bound{Times: 2, Plus: 50}, func(o sample) float64 { return o.p50 })
	add("job is due until its claim, p99", "ms", soak.Bound{Times: 2, Plus: 250}, func(o sample) float64 { return o.p99 })
	add("runs", "per second", soak.Bound{Times: 0.5, Least: true}, func(o sample) float64 { return o.rate })
	return r
}

// alone is a process that has all in its memory: store, workers and producer.
func alone(ctx context.Context, r role, l *link) error {
	s := jq.NewMemory(nil)
	defer func() { _ = s.Close() }()
	working, stop := context.WithCancel(ctx)
	defer stop()
	worked := make(chan error, 1)
	go func() { worked <- workIn(working, r, l, s) }()
	// The producer waits for answers, during which others ask.
	own, err := dialLedger(r.name, r.ledger)
	if err != nil {
		return err
	}
	if err := produceIn(ctx, r, own, s); err != nil {
		return err
	}
	live := jq.Filter{States: []jq.State{jq.Ready, jq.InFlight, jq.Retrying}}
	for {
		counts, err := s.Count(ctx, live)
		if err != nil {
			return err
		}
		if len(counts.Queues) == 0 {
			break
		}
		<-time.After(20 * time.Millisecond)
	}
	stop()
	return <-worked
}
