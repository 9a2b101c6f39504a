//go:build unix

package chaos

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/pgtest"
)

// onPair is how often each fault comes where the server fails over.
var onPair = map[string]int{killWorker: 8, endWorker: 2, stopWorker: 6, killProducer: 4, failOver: 2}

// A pair is a primary and its standby behind PgBouncer.
type pair struct {
	synchronous bool // commits wait for the standby
	pooler      *pgtest.Pooler
	standby     *pgtest.Cluster

	outages []time.Duration // from the death of the primary until calls that began later are answered
	returns []time.Duration // the same, from the moment at which PgBouncer leads to the new primary
}

func (p *pair) place() string {
	if p.synchronous {
		return "Postgres with a synchronous standby behind PgBouncer"
	}
	return "Postgres with a standby that lags behind PgBouncer"
}

// R62, with the server killed for good, and its standby promoted: nothing that was acknowledged is lost, no write of an older run
// is accepted, and no lease is given twice. Before every other death the standby is cut off for a while.
func TestFailoverToASynchronousStandby(t *testing.T) {
	t.Parallel()
	s := newPair(t, true)
	s.weather(onPair)
	assert.Empty(t, s.ledger.losses)
	s.printOutages()
}

// What an asynchronous standby has not received is lost with its primary. Of all else jq keeps what it promises, and nobody has to
// run anything: no pair of job and token is given twice, no id is, and every job that is there ends.
func TestFailoverToAStandbyThatLags(t *testing.T) {
	t.Parallel()
	s := newPair(t, false)
	j := s.weather(onPair)
	s.printOutages()
	assert.Positive(t, j.forgotten+s.ledger.replaced, "acknowledged jobs were lost by the database")
	assert.Positive(t, j.forgottenRuns, "claims were lost by the database")
	figures.Print(t, "%s: the database lost %d acknowledged jobs, of which %d were enqueued again by their request keys, and %d claims that were run; "+
		"no lease was given twice", s.pair.place(), j.forgotten+s.ledger.replaced, s.ledger.replaced, j.forgottenRuns)
	figures.Count(t, "jobs that only the dead primary had", j.forgotten+s.ledger.replaced)
}

func (s *storm) printOutages() {
	s.Helper()
	require.Len(s, s.pair.outages, onPair[failOver])
	figures.Print(s, "%s: enqueueing goes on %v after the death of the primary at most, %v after PgBouncer was told of the new one; "+
		"PgBouncer ended by itself %d times", s.pair.place(),
		slices.Max(s.pair.outages).Round(time.Millisecond), slices.Max(s.pair.returns).Round(time.Millisecond), s.pair.pooler.Restarts())
}

// newPair starts a storm on a pair.
func newPair(t *testing.T, synchronous bool) *storm {
	t.Helper()
	primary, err := pgtest.Start(t.Context(), pgtest.Options{Settings: []string{"synchronous_commit=on"}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, primary.Stop()) })
	p := &pair{synchronous: synchronous, pooler: pgtest.NewPooler(t, primary.DSN)}
	p.follow(t, primary)
	s := newStorm(t, role{dsn: p.pooler.DSN + " application_name=chaos", pooled: true}, primary)
	s.pair = p
	return s
}

// follow starts a standby of the server.
func (p *pair) follow(t *testing.T, primary *pgtest.Cluster) {
	t.Helper()
	standby, err := primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, standby.Stop()) })
	p.standby = standby
	if p.synchronous {
		require.NoError(t, primary.Synchronous(t.Context(), true))
		require.NoError(t, standby.CaughtUp(t.Context()))
	}
}

// failOver kills the primary for good, promotes the standby, and gives that a standby of its own.
func (s *storm) failOver(st step) {
	switch {
	case !s.pair.synchronous:
		s.lag()
	case s.done[failOver]%2 == 1:
		s.cutOff()
	}
	died := time.Now()
	require.NoError(s, s.server.Crash(s.Context()))
	if !s.pair.synchronous {
		s.ledger.died()
	}
	<-time.After(st.outage)
	require.NoError(s, s.pair.standby.Promote(s.Context()))
	s.server = s.pair.standby
	require.NoError(s, s.pair.pooler.PointAt(s.Context(), s.server.DSN))
	led := time.Now()
	s.answered(2) // one may have been answered before, and not have been told of
	s.pair.outages, s.pair.returns = append(s.pair.outages, time.Since(died)), append(s.pair.returns, time.Since(led))
	s.done[st.fault]++
	s.pair.follow(s.T, s.server)
	if !s.pair.synchronous {
		s.ledger.ends()
	}
}

// lag lets the standby receive nothing while jobs are enqueued and run.
func (s *storm) lag() {
	s.Helper()
	s.ledger.begins()
	require.NoError(s, s.pair.standby.CaughtUp(s.Context())) // with all that was acknowledged before
	require.NoError(s, s.pair.standby.Detach(s.Context()))
	s.answered(5)
	s.after(20)
}

// cutOff lets the commits wait for a standby that does not come, until calls have given up.
func (s *storm) cutOff() {
	s.Helper()
	require.NoError(s, s.pair.standby.Detach(s.Context()))
	_, err := s.server.WaitingCommits(s.Context(), 1)
	require.NoError(s, err)
	s.ledger.mayRunAhead(math.MaxInt) // for no worker can claim either
	defer s.ledger.mayRunAhead(usually)
	s.ledger.mu.Lock()
	failed := func() int { return s.ledger.doubts + s.ledger.unavailable } // in doubt, or without a connection: others wait on all of them
	target := failed() + 3
	s.ledger.mu.Unlock()
	require.True(s, s.ledger.until(patience, func() bool { return failed() >= target }), "calls of the producer fail")
}

// answered waits until so many more calls of the producer are acknowledged.
func (s *storm) answered(calls int) {
	s.Helper()
	s.ledger.mu.Lock()
	target := len(s.ledger.calls) + calls
	s.ledger.mu.Unlock()
	require.True(s, s.ledger.until(patience, func() bool { return len(s.ledger.calls) >= target }), "the producer is not answered any more")
}
