// Package migratetest tries what a store with a schema does while programs of several versions use it. A program of another version
// is this one with fewer or more steps.
package migratetest

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// An Adapter is a kind of store under test.
type Adapter struct {
	Steps              []sqlkit.Migration // of this program
	Additive, Breaking string             // statements that might be the next step: one adds a column to jobs, the other takes one away

	// New returns a function that opens always the same store, which is missing at first. The test's end closes what was opened.
	New func(t *testing.T) func(o Opening) (Store, error)

	// Narrow drops the column least from the table of migrations, which programs of before that column have made without it.
	Narrow func(s Store) error
}

// A Store is a store with a schema.
type Store interface {
	store.Store
	store.Registry
	store.Monitor
}

// An Opening is the options that this package needs.
type Opening struct {
	Steps     []sqlkit.Migration
	Clock     clock.Clock
	Logger    *slog.Logger
	NoMigrate bool
	Wait      time.Duration
	Force     bool
}

// A trial is one store, and programs that know its schema: of this version, and of the next, which is compatible or not.
type trial struct {
	Adapter
	clock              *clock.Mock
	open               func(o Opening) (Store, error)
	additive, breaking []sqlkit.Migration
}

// Run tries everything.
func Run(t *testing.T, a Adapter) {
	t.Helper()
	for name, try := range map[string]func(t *testing.T, r *trial){
		"Compatible": compatible, "Incompatible": incompatible, "NewStore": newStore, "Refused": refused, "Waits": waits, "GivesUp": givesUp,
		"Forced": forced, "TwoSteps": twoSteps, "OfAProgramWithoutLeast": withoutLeast,
	} {
		t.Run(name, func(t *testing.T) {
			last := a.Steps[len(a.Steps)-1]
			next := func(sql string, least int) sqlkit.Migration {
				return sqlkit.Migration{Version: last.Version + 1, Name: "next", SQL: sql, Least: least}
			}
			r := &trial{
				Adapter: a, clock: clock.NewMock(), open: a.New(t),
				additive: append(slices.Clone(a.Steps), next(a.Additive, last.Least)),
				breaking: append(slices.Clone(a.Steps), next(a.Breaking, last.Version+1)),
			}
			r.clock.Set(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
			try(t, r)
		})
	}
}

func (r *trial) opened(t *testing.T, o Opening) Store {
	t.Helper()
	o.Clock = r.clock
	s, err := r.open(o)
	require.NoError(t, err)
	return s
}

// works tries whether a program can use the store.
func works(t *testing.T, s Store) {
	t.Helper()
	require.NoError(t, s.Ping(t.Context()))
	_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{{Queue: "q", Kind: "k", Payload: []byte(`{}`)}}})
	require.NoError(t, err)
	finish(t, s, claim(t, s))
}

func claim(t *testing.T, s Store) store.Lease {
	t.Helper()
	jobs, err := s.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "q", Limit: 1, Worker: "claims", TTL: time.Minute})
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	return jobs[0].Lease()
}

func finish(t *testing.T, s Store, l store.Lease) {
	t.Helper()
	done, err := s.Ack(t.Context(), []store.Ack{{Lease: l}})
	require.NoError(t, err)
	require.Equal(t, store.StatusOK, done[0].Status)
}

// A program continues, and can be started again, after a newer one has added to the schema.
func compatible(t *testing.T, r *trial) {
	before := r.opened(t, Opening{})
	works(t, before)
	require.NoError(t, before.Beat(t.Context(), store.Worker{Name: "w", PID: 1, StaleAfter: time.Minute}))
	works(t, r.opened(t, Opening{Steps: r.additive})) // it waits for nobody
	works(t, before)
	works(t, r.opened(t, Opening{}))
	works(t, r.opened(t, Opening{NoMigrate: true}))
}

// A program that a newer one has replaced can not be started any more, and says so where it still runs.
func incompatible(t *testing.T, r *trial) {
	before := r.opened(t, Opening{})
	works(t, before)
	after := r.opened(t, Opening{Steps: r.breaking})
	require.NoError(t, after.Ping(t.Context()))
	err := before.Ping(t.Context())
	require.ErrorIs(t, err, sqlkit.ErrNewer)
	require.ErrorIs(t, err, store.ErrUnavailable)
	for _, o := range []Opening{{}, {NoMigrate: true}, {Force: true}} {
		_, err := r.open(o)
		require.ErrorIs(t, err, sqlkit.ErrNewer)
		require.NotErrorIs(t, err, store.ErrUnavailable, "it does not pass")
		assert.ErrorContains(t, err, "update the program")
	}
}

// Nobody uses a new store, so nobody is looked for.
func newStore(t *testing.T, r *trial) {
	require.NoError(t, r.opened(t, Opening{Steps: r.breaking}).Ping(t.Context()))
}

// busy opens the store as a program of this version, which works there from then on.
func (r *trial) busy(t *testing.T) (Store, store.Lease) {
	t.Helper()
	s := r.opened(t, Opening{})
	works(t, s)
	_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{{Queue: "q", Kind: "k", Payload: []byte(`{}`)}}})
	require.NoError(t, err)
	require.NoError(t, s.Beat(t.Context(), store.Worker{Name: "beats", Host: "one.example", PID: 4711, StaleAfter: 30 * time.Second}))
	return s, claim(t, s)
}

// refused: by default, opening does not wait. It has changed nothing, names everybody, and succeeds once heartbeats and leases are over.
func refused(t *testing.T, r *trial) {
	before, lease := r.busy(t)
	_, err := r.open(Opening{Steps: r.breaking, Clock: r.clock})
	busy := new(sqlkit.BusyError)
	require.ErrorAs(t, err, &busy)
	require.NotErrorIs(t, err, store.ErrUnavailable)
	assert.Equal(t, []sqlkit.Busy{{Name: "beats", Host: "one.example", PID: 4711}, {Name: "claims", Jobs: 1}}, busy.Busy)
	assert.ErrorContains(t, err, `these still run: beats (host one.example, pid 4711), claims (jobs in flight: 1): stop them and run jobq migrate up`)
	assert.NotContains(t, err.Error(), "\n")
	works(t, r.opened(t, Opening{NoMigrate: true}))

	r.clock.Add(31 * time.Second)
	_, err = r.open(Opening{Steps: r.breaking, Clock: r.clock})
	require.ErrorAs(t, err, &busy)
	assert.Equal(t, []sqlkit.Busy{{Name: "claims", Jobs: 1}}, busy.Busy, "a worker without a heartbeat was killed, but its leases are in force")
	finish(t, before, lease)
	r.opened(t, Opening{Steps: r.breaking})
}

// A said is a log that is read while it is written.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// Those who are waited for can finish their jobs meanwhile.
func waits(t *testing.T, r *trial) {
	before, lease := r.busy(t)
	log := &said{}
	done := make(chan error, 1)
	go func() {
		_, err := r.open(Opening{Steps: r.breaking, Clock: r.clock, Wait: time.Minute, Logger: slog.New(slog.NewTextHandler(log, nil))})
		done <- err
	}()
	heard := func(want string) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.Contains(log.String(), want) }, 30*time.Second, time.Millisecond, "it says %s", want)
	}
	heard("4711")
	heard("claims")
	finish(t, before, lease)
	require.NoError(t, before.Leave(t.Context(), "beats"))
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(30 * time.Second):
		t.Fatal("nobody is left, and it still waits")
	}
	require.ErrorIs(t, before.Ping(t.Context()), sqlkit.ErrNewer)
}

func givesUp(t *testing.T, r *trial) {
	before, _ := r.busy(t)
	begin := time.Now()
	_, err := r.open(Opening{Steps: r.breaking, Clock: r.clock, Wait: 50 * time.Millisecond})
	busy := new(sqlkit.BusyError)
	require.ErrorAs(t, err, &busy)
	assert.GreaterOrEqual(t, time.Since(begin), 50*time.Millisecond)
	works(t, before)
}

func forced(t *testing.T, r *trial) {
	before, _ := r.busy(t)
	r.opened(t, Opening{Steps: r.breaking, Force: true})
	require.ErrorIs(t, before.Ping(t.Context()), sqlkit.ErrNewer)
}

// A step that adds, before one that breaks, is not applied before all can be.
func twoSteps(t *testing.T, r *trial) {
	r.busy(t)
	last := r.breaking[len(r.breaking)-1]
	last.Version, last.Least = last.Version+1, last.Version+1
	both := append(slices.Clone(r.additive), last)
	_, err := r.open(Opening{Steps: both, Clock: r.clock})
	busy := new(sqlkit.BusyError)
	require.ErrorAs(t, err, &busy)
	_, err = r.open(Opening{Steps: r.additive, NoMigrate: true})
	require.ErrorIs(t, err, sqlkit.ErrOlder, "no step was applied")
	r.opened(t, Opening{Steps: both, Force: true})
}

// A store of a program that recorded no least compatible versions is like any other, before and after the next migration.
func withoutLeast(t *testing.T, r *trial) {
	before := r.opened(t, Opening{})
	require.NoError(t, r.Narrow(before))
	works(t, before)
	works(t, r.opened(t, Opening{}))
	works(t, r.opened(t, Opening{NoMigrate: true}))
	works(t, r.opened(t, Opening{Steps: r.additive}))
	works(t, r.opened(t, Opening{}))
	works(t, before)
}
