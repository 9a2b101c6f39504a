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
	"github.com/seed-ed332417/jq/internal/race"
)

// How often each fault comes where the server fails over.
var (
	onPair = map[string]int{killWorker: 8, endWorker: 2, stopWorker: 6, killProducer: 4, failOver: 2}
	onTrio = map[string]int{killWorker: 2, endWorker: 1, stopWorker: 4, killProducer: 1, failOver: 3} // one failover of each kind
)

// A group is the standbys of a primary, behind PgBouncer with it.
type group struct {
	many        int  // standbys
	synchronous bool // commits wait for one of them
	pooler      *pgtest.Pooler
	standbys    []*pgtest.Cluster // alive or dead, in the order of their starts

	returns []time.Duration // from the moment at which PgBouncer leads to the new primary until calls that began later are answered
}

func (g *group) place() string {
	switch {
	case !g.synchronous:
		return "Postgres with a standby that lags behind PgBouncer"
	case g.many == 1:
		return "Postgres with a synchronous standby behind PgBouncer"
	default:
		return "Postgres with two standbys, one of which must have each commit, behind PgBouncer"
	}
}

// R62, with the server killed for good, and its standby promoted: nothing that was acknowledged is lost, no write of an older run
// is accepted, and no lease is given twice. Before every other death the standby is cut off for a while.
func TestFailoverToASynchronousStandby(t *testing.T) {
	t.Parallel()
	s := newGroup(t, 1, true)
	s.weather(onPair)
	assert.Empty(t, s.ledger.losses)
	s.printOutages(onPair)
}

// The same with two standbys, one of which must have each commit. The one that has received the most is promoted, and the other one
// follows it. One time one of them has died before, and calls went on to be answered; one time both were cut off, one after the other.
func TestFailoverToOneOfTwoSynchronousStandbys(t *testing.T) {
	if race.Enabled {
		t.Skip("the same processes meet the same faults under the race detector in TestFailoverToASynchronousStandby: this one is about the servers")
	}
	t.Parallel()
	s := newGroup(t, 2, true)
	s.weather(onTrio)
	assert.Empty(t, s.ledger.losses)
	s.printOutages(onTrio)
}

// What an asynchronous standby has not received is lost with its primary. Of all else jq keeps what it promises, and nobody has to
// run anything: no pair of job and token is given twice, no id is, and every job that is there ends.
func TestFailoverToAStandbyThatLags(t *testing.T) {
	t.Parallel()
	s := newGroup(t, 1, false)
	j := s.weather(onPair)
	s.printOutages(onPair)
	assert.Positive(t, j.forgotten+s.ledger.replaced, "acknowledged jobs were lost by the database")
	assert.Positive(t, j.forgottenRuns, "claims were lost by the database")
	figures.Print(t, "%s: the database lost %d acknowledged jobs, of which %d were enqueued again by their request keys, and %d claims that were run; "+
		"no lease was given twice", s.group.place(), j.forgotten+s.ledger.replaced, s.ledger.replaced, j.forgottenRuns)
	figures.Count(t, "jobs that only the dead primary had", j.forgotten+s.ledger.replaced)
}

func (s *storm) printOutages(faults map[string]int) {
	s.Helper()
	require.Len(s, s.outages, faults[failOver])
	figures.Print(s, "%s: enqueueing goes on %v after the death of the primary at most, %v after PgBouncer was told of the new one; "+
		"PgBouncer ended by itself %d times", s.group.place(),
		slices.Max(s.outages).Round(time.Millisecond), slices.Max(s.group.returns).Round(time.Millisecond), s.group.pooler.Restarts())
}

// newGroup starts a storm on a primary and its standbys.
func newGroup(t *testing.T, standbys int, synchronous bool) *storm {
	t.Helper()
	primary, err := pgtest.Start(t.Context(), pgtest.Options{Settings: []string{"synchronous_commit=on"}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, primary.Stop()) })
	g := &group{many: standbys, synchronous: synchronous, pooler: pgtest.NewPooler(t, primary.DSN)}
	g.follow(t, primary)
	s := newStorm(t, role{dsn: g.pooler.DSN + " application_name=chaos", pooled: true}, primary)
	s.group = g
	return s
}

// follow lets the standbys follow the server, those that have died too, and starts those that are missing.
func (g *group) follow(t *testing.T, primary *pgtest.Cluster) {
	t.Helper()
	for _, standby := range g.standbys {
		if !standby.Running() {
			require.NoError(t, standby.Revive(t.Context()))
		}
		require.NoError(t, standby.Follow(t.Context(), primary))
	}
	for len(g.standbys) < g.many {
		standby, err := primary.Standby(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, standby.Stop()) })
		g.standbys = append(g.standbys, standby)
	}
	switch {
	case !g.synchronous:
		return
	case g.many == 1:
		require.NoError(t, primary.Synchronous(t.Context(), true))
	default:
		require.NoError(t, primary.AnyOf(t.Context(), g.standbys...))
	}
	for _, standby := range g.standbys {
		require.NoError(t, standby.CaughtUp(t.Context()))
	}
}

// failOver kills the primary for good, promotes a standby, and gives that the other ones and a new one.
func (s *storm) failOver(st step) {
	if s.patroni != nil {
		s.failOverByItself(st)
		return
	}
	g, turn := s.group, s.done[failOver]
	switch {
	case !g.synchronous:
		s.lag()
	case g.many == 1 && turn%2 == 1:
		s.cutOff(st)
	case g.many > 1 && turn%3 == 1:
		s.loseStandby(st)
	case g.many > 1 && turn%3 == 2:
		s.cutOff(st)
	}
	died := time.Now()
	require.NoError(s, s.server.Crash(s.Context()))
	if !g.synchronous {
		s.ledger.died()
	}
	<-time.After(st.outage)
	heir := s.furthest()
	require.NoError(s, heir.Promote(s.Context()))
	s.server = heir
	require.NoError(s, g.pooler.PointAt(s.Context(), s.server.DSN))
	led := time.Now()
	s.answered(2) // one may have been answered before, and not have been told of
	s.outages, g.returns = append(s.outages, time.Since(died)), append(g.returns, time.Since(led))
	s.done[st.fault]++
	g.follow(s.T, s.server)
	if !g.synchronous {
		s.ledger.ends()
	}
}

// furthest takes the standby that has received the most from those that are alive: what the others have, it has too.
func (s *storm) furthest() *pgtest.Cluster {
	s.Helper()
	best, most := -1, int64(0)
	for i, standby := range s.group.standbys {
		if !standby.Running() {
			continue
		}
		received, err := standby.Received(s.Context())
		require.NoError(s, err)
		if received > most {
			best, most = i, received
		}
	}
	require.GreaterOrEqual(s, best, 0, "no standby is alive")
	heir := s.group.standbys[best]
	s.group.standbys = slices.Delete(s.group.standbys, best, best+1)
	return heir
}

// lag lets the standby receive nothing while jobs are enqueued and run.
func (s *storm) lag() {
	s.Helper()
	s.ledger.begins()
	require.NoError(s, s.group.standbys[0].CaughtUp(s.Context())) // with all that was acknowledged before
	require.NoError(s, s.group.standbys[0].Detach(s.Context()))
	s.answered(5)
	s.after(20)
}

// loseStandby kills one of the standbys. Calls go on to be answered, because another one has their commits.
func (s *storm) loseStandby(st step) {
	s.Helper()
	lost := s.group.standbys[st.pick%len(s.group.standbys)]
	require.NoError(s, lost.Crash(s.Context()))
	s.answered(5)
	s.after(10)
}

// cutOff cuts off the standbys, one after the other. Calls go on to be answered while one is left. Then the commits wait for a standby
// that does not come, until calls have given up and are in doubt.
func (s *storm) cutOff(st step) {
	s.Helper()
	for i := range s.group.standbys {
		if i > 0 {
			s.answered(5)
			s.after(10)
		}
		require.NoError(s, s.group.standbys[(st.pick+i)%len(s.group.standbys)].Detach(s.Context()))
	}
	_, err := s.server.WaitingCommits(s.Context(), 1)
	require.NoError(s, err)
	s.ledger.mayRunAhead(math.MaxInt) // for no worker can claim either
	defer s.ledger.mayRunAhead(usually)
	s.ledger.mu.Lock()
	failed := func() int { return s.ledger.doubts + s.ledger.unavailable } // in doubt, or without a connection: others wait on all of them
	target, doubts, calls := failed()+3, s.ledger.doubts, len(s.ledger.calls)
	s.ledger.mu.Unlock()
	require.True(s, s.ledger.until(patience, func() bool { return failed() >= target && s.ledger.doubts > doubts }), "calls of the producer fail, and one is in doubt")
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	require.LessOrEqual(s, len(s.ledger.calls), calls+1, "calls that no standby has are not answered, but for one whose answer was on its way")
}

// answered waits until so many more calls of the producer are acknowledged.
func (s *storm) answered(calls int) {
	s.Helper()
	s.ledger.mu.Lock()
	target := len(s.ledger.calls) + calls
	s.ledger.mu.Unlock()
	require.True(s, s.ledger.until(patience, func() bool { return len(s.ledger.calls) >= target }), "the producer is not answered any more")
}
