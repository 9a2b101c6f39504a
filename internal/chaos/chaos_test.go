//go:build unix

package chaos

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/pgtest"
)

const (
	workers      = 4
	mostProblems = 20 // that are told, of the many that one fault of a store has
)

// R62: workers, producers and the database are killed at random, and every job ends as it may.
func TestChaosOnSQLite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "jobs.db")
	s := newStorm(t, role{sqlitePath: path}, nil)
	s.weather(onFile)
}

// R62, as above, with a server and a network that fail as well. What the server was killed with is on the disk: it only does not
// survive a loss of power.
func TestChaosOnPostgres(t *testing.T) {
	t.Parallel()
	c, err := pgtest.Start(t.Context(), pgtest.Options{Network: true, Settings: []string{"synchronous_commit=on"}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Stop()) })
	s := newStorm(t, role{dsn: "user=postgres dbname=postgres sslmode=disable application_name=chaos"}, c)
	s.weather(onNet)
}

// seedOf is the seed of the test: drawn, unless one is named.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv(envSeed)
	if text == "" {
		return rand.Uint64()
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, "the variable "+envSeed)
	return seed
}

// newStorm starts everything that the storm will meet.
func newStorm(t *testing.T, r role, c *pgtest.Cluster) *storm {
	t.Helper()
	r.seed = seedOf(t)
	t.Logf("%s=%d has the same faults again", envSeed, r.seed)
	l := openLedger(t, r.seed)
	t.Cleanup(l.close)
	r.ledger = l.listener.Addr().String()
	f := &fleet{T: t, ledger: l, role: r, logs: t.TempDir()}
	s := &storm{fleet: f, server: c, done: map[string]int{}}
	var err error
	own := r
	if c != nil && !r.pooled {
		own.dsn = c.DSN
	}
	s.store, err = openStore(t.Context(), own, 0)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.store.Close()) })
	_, err = s.store.DB().ExecContext(t.Context(), effects)
	require.NoError(t, err)
	s.limit()
	t.Cleanup(f.end)
	f.producer = f.berth(producerName, f.network(c))
	for i := range workers {
		f.berths = append(f.berths, f.berth(fmt.Sprintf("worker %d", i+1), f.network(c)))
	}
	return s
}

// network is a process' own way to the server.
func (f *fleet) network(c *pgtest.Cluster) *proxy {
	f.Helper()
	if c == nil || f.role.pooled {
		return nil
	}
	config, err := pq.NewConfig(c.TCP)
	require.NoError(f, err)
	p := openProxy(f.T, net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))))
	f.Cleanup(p.close)
	return p
}

// end ends all processes that are still there: when the test has failed.
func (f *fleet) end() {
	f.ledger.mu.Lock()
	f.ledger.over = true
	f.ledger.note()
	f.ledger.mu.Unlock()
	for _, b := range append(slices.Clone(f.berths), f.producer) {
		b.close(syscall.SIGKILL)
	}
	f.all.Wait()
}

// weather lets the storm rage, waits until every job has ended, and judges.
func (s *storm) weather(faults map[string]int) *judge {
	s.Helper()
	defer s.held.Wait()
	defer s.complain() // also where the jobs do not end
	looks := s.watch()
	began := time.Now()
	stay := s.comeLate()
	defer stay()
	s.rage(drawn(s.role.seed, faults))
	stay()
	raged := time.Since(began)
	s.calm()
	seen := looks()
	j := s.judge()
	for fault := range faults {
		assert.Positive(s, s.done[fault], fault)
	}
	assert.Positive(s, s.overtaken.Load(), "workers that were held up lost jobs to others")
	assert.Positive(s, s.ledger.refusedEffects, "effects of older runs were refused")
	assert.Positive(s, s.ledger.staleWrites, "writes of older runs were refused")
	assert.Positive(s, s.ledger.repeats, "calls were repeated with their request keys")
	assert.Positive(s, s.probes, "unique keys were looked at")
	assert.Positive(s, seen.full, "as many jobs were in flight as may be")
	assert.Positive(s, seen.fullKeys, "as many jobs of a limit key were in flight as may be")
	assert.Equal(s, claimRate.N, j.mostClaimed, "as many jobs were claimed within %v as may be", claimRate.Per)
	assert.Positive(s, seen.heldUp, "jobs that waited for their retries held up their lines")
	assert.Positive(s, j.inOrder, "jobs ran behind others of their lines")
	if s.canComeLate() {
		assert.Positive(s, j.wentNext, "jobs that were committed late went next")
	}
	assert.NotEmpty(s, s.ledger.waits, "jobs of dead workers were run by others")
	for _, phase := range []jq.State{jq.Succeeded, jq.Dead, jq.Cancelled} {
		assert.Positive(s, j.states[phase], "jobs that ended as %s", phase)
	}
	j.print(raged, time.Since(began))
	figures.Print(s, "chaos on %s: never more than %d jobs in flight at once, nor %d of a limit key, nor %d claimed within %v, as the policy of their queue says; so many in %d looks, of a key %d times",
		s.place(), most, mostPerKey, claimRate.N, claimRate.Per, seen.full, seen.fullKeys)
	figures.Print(s, "chaos on %s: in an ordered queue, %d runs began behind an earlier job of their limit key, each when it had ended; in %d looks, a job that waited for its retry held up others; %d jobs committed late went next",
		s.place(), j.inOrder, seen.heldUp, j.wentNext)
	j.count()
	return j
}

// complain tells what was blamed.
func (s *storm) complain() {
	s.Helper()
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	for i, p := range s.ledger.problems {
		if i == mostProblems {
			assert.Fail(s, "and so on", "%d problems in all", len(s.ledger.problems))
			break
		}
		assert.Fail(s, p)
	}
}

// calm ends the storm, and returns when every job has ended and every process was told to.
func (s *storm) calm() {
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
	live := jq.Filter{States: []jq.State{jq.Ready, jq.InFlight, jq.Retrying}}
	require.Eventually(s, func() bool {
		counts, err := s.store.Count(s.Context(), live)
		return err == nil && len(counts.Queues) == 0
	}, patience, 20*time.Millisecond, "every job ends")
	for _, b := range s.berths {
		b.close(syscall.SIGTERM)
	}
	s.all.Wait()
}

func (s *storm) place() string {
	switch {
	case s.group != nil:
		return s.group.place()
	case s.patroni != nil:
		return "three nodes of Postgres under Patroni"
	case s.server != nil:
		return "Postgres"
	default:
		return "one SQLite file"
	}
}

func (j *judge) print(raged, took time.Duration) {
	l := j.ledger
	var faults, ends []string
	for _, fault := range slices.Sorted(maps.Keys(j.done)) {
		faults = append(faults, fmt.Sprintf("%d %s", j.done[fault], fault))
	}
	for _, phase := range []jq.State{jq.Succeeded, jq.Dead, jq.Cancelled} {
		ends = append(ends, fmt.Sprintf("%d %s", j.states[phase], phase))
	}
	place := j.place()
	figures.Print(j, "chaos on %s for %v, at rest after %v, seed %d: %s; %d of those held up were overtaken", place,
		raged.Round(100*time.Millisecond), took.Round(100*time.Millisecond), j.role.seed, strings.Join(faults, ", "), j.overtaken.Load())
	figures.Print(j, "chaos on %s: %d jobs, %d lost (%s, %d of them worn out); %d runs, at most %d of one job that count; %d claims lost before they ran; "+
		"%d effects accepted, %d refused, and %d starts; %d stale writes refused", place, len(j.rows), j.lost, strings.Join(ends, ", "), j.worn,
		l.runs, j.mostCounted, j.unstarted, l.accepted, l.refusedEffects, l.refusedStarts, l.staleWrites)
	figures.Print(j, "chaos on %s: %d calls of the producer, %d repeated by its successor, %d in doubt, %d not applied; %d looks at unique keys; "+
		"jobs of dead workers ran again within %v (median %v of %d)", place, len(l.calls), l.repeats, l.doubts, l.unavailable, j.probes,
		slices.Max(l.waits).Round(time.Millisecond), median(l.waits).Round(time.Millisecond), len(l.waits))
}

// count adds to the sums of make chaos.
func (j *judge) count() {
	j.Helper()
	for fault, n := range j.done {
		figures.Count(j, fault, n)
	}
	figures.Count(j, "kills", j.done[killWorker]+j.done[killProducer]+j.done[killServer]+j.done[failOver])
	figures.Count(j, "jobs", len(j.rows))
	figures.Count(j, "stale writes refused", j.ledger.staleWrites)
	figures.Count(j, figures.Lost, j.lost)
}

func median(all []time.Duration) time.Duration { return slices.Sorted(slices.Values(all))[len(all)/2] }
