//go:build unix

package chaos

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/race"
)

// The faults, in the words of the figures.
const (
	killWorker   = "workers killed"
	endWorker    = "workers told to end"
	stopWorker   = "workers stopped for longer than their leases"
	killProducer = "producers killed"
	killServer   = "deaths of the server"
	endSession   = "sessions ended"
	cutNetwork   = "networks cut"
	holdNetwork  = "networks held up for longer than leases"
	failOver     = "failovers"
)

// How often each fault comes.
var (
	onFile = map[string]int{killWorker: 18, endWorker: 8, stopWorker: 8, killProducer: 8}
	onNet  = map[string]int{
		killWorker: 9, endWorker: 4, stopWorker: 4, killProducer: 4, killServer: 3, endSession: 6, cutNetwork: 6, holdNetwork: 4,
	}
)

// longestPause is how many runs are waited for, at most, between two faults: fewer under the race detector, where they take long.
func longestPause() int {
	if race.Enabled {
		return 10
	}
	return 26
}

// A step is a fault, and what was drawn for it.
type step struct {
	fault  string
	runs   int // that are waited for before
	pick   int // of whom it meets
	coin   bool
	outage time.Duration
}

// drawn is the storm in its order.
func drawn(seed uint64, faults map[string]int) []step {
	rng := rand.New(rand.NewPCG(seed, seed))
	var steps []step
	for _, fault := range []string{killWorker, endWorker, stopWorker, killProducer, killServer, endSession, cutNetwork, holdNetwork, failOver} {
		for range faults[fault] {
			steps = append(steps, step{
				fault, 1 + rng.IntN(longestPause()), rng.IntN(1000), rng.IntN(2) == 0, time.Duration(rng.IntN(600)) * time.Millisecond,
			})
		}
	}
	rng.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
	return steps
}

// A storm is what happens to a fleet.
type storm struct {
	*fleet
	store     database        // of the test, which nothing disturbs but the death of the server
	server    *pgtest.Cluster // nil where there is a file
	group     *group          // of which the server is one, if the test makes it fail over
	patroni   *pgtest.Patroni // likewise, if it fails over by itself
	outages   []time.Duration // from the death of a primary until calls that began later are answered
	comebacks []time.Duration // from the start of a dead node until it follows
	held      sync.WaitGroup  // who undoes what can be undone

	done      map[string]int
	holding   atomic.Int64 // who is held up just now
	overtaken atomic.Int64 // who was held up, and lost a job to another
	probes    int          // of who holds the unique keys
}

// failsOver says whether another server can take the place of the one that accepts writes.
func (s *storm) failsOver() bool { return s.group != nil || s.patroni != nil }

// rage lets the storm happen.
func (s *storm) rage(steps []step) {
	do := map[string]func(step){
		killWorker: s.killWorker, endWorker: s.endWorker, stopWorker: s.stopWorker, killProducer: s.killProducer,
		killServer: s.killServer, endSession: s.endSession, cutNetwork: s.cutNetwork, holdNetwork: s.holdNetwork,
		failOver: s.failOver,
	}
	for _, st := range steps {
		s.after(st.runs)
		do[st.fault](st)
		s.probe()
	}
	s.held.Wait()
}

// after waits until so many more runs have begun.
func (s *storm) after(runs int) {
	s.Helper()
	s.ledger.mu.Lock()
	target := s.ledger.runs + runs
	s.ledger.mu.Unlock()
	require.True(s, s.ledger.until(patience, func() bool { return s.ledger.runs >= target }), "nothing is run any more")
}

// busy says that the worker is in the middle of a job: else to kill it would tell little.
func (s *storm) busy(worker string) bool { return len(s.ledger.runsOf(worker)) > 0 }

func nothing(*berth, string) {}

func (s *storm) killWorker(st step) { s.strike(st, syscall.SIGKILL) }
func (s *storm) endWorker(st step)  { s.strike(st, syscall.SIGTERM) }

func (s *storm) strike(st step, signal syscall.Signal) {
	for hit := false; !hit; {
		b := s.take(st.pick, s.busy, nothing)
		hit = b.end(signal) // unless it has just died by itself
		b.free()
	}
	s.done[st.fault]++
}

func (s *storm) killProducer(st step) {
	found := s.ledger.until(patience, func() bool { return s.producer.end(syscall.SIGKILL) })
	require.True(s, found, "there is no producer")
	s.done[st.fault]++
}

// stopWorker stops a worker in the middle of a job that it will not let go of, until another has begun to run that job. When it
// goes on, it comes to the ledger with an effect that is too late.
func (s *storm) stopWorker(st step) {
	var held []jq.Lease
	b := s.take(st.pick, s.canStop, func(b *berth, worker string) {
		if s.server == nil {
			defer s.turn()()
		}
		b.stop()
		held = s.ledger.runsOf(worker, stubborn)
	})
	s.whenOvertaken(b, st.fault, held, b.resume)
}

// canStop says that the worker has an effect before it, and runs no job that ends it or has a transaction open: a process that
// is stopped in the middle of a write to an SQLite file would hold up all others.
func (s *storm) canStop(worker string) bool {
	return s.enough() && len(s.ledger.runsOf(worker, stubborn)) > 0 && len(s.ledger.runsOf(worker, deadly, within)) == 0
}

// turn takes the turn of the processes that write to the file, so that none of them is in the middle of it.
func (s *storm) turn() (done func()) {
	lock := flock.New(s.role.sqlitePath + ".lock")
	if err := lock.Lock(); err != nil {
		s.ledger.problem("taking the turn to write: %v", err)
	}
	return func() { _ = lock.Close() }
}

// stop returns when the process has stopped, with all its threads.
func (b *berth) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.child == nil {
		b.ledger.problem("%s ended while it was about to be stopped", b.name)
		return
	}
	pid := b.child.Process.Pid
	var status syscall.WaitStatus
	err := syscall.Kill(pid, syscall.SIGSTOP)
	if err == nil {
		_, err = syscall.Wait4(pid, &status, syscall.WUNTRACED, nil)
	}
	if err != nil || !status.Stopped() {
		b.ledger.problem("%s can not be stopped: %v, %v", b.name, status, err)
	}
}

func (b *berth) resume() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.child != nil {
		_ = b.child.Process.Signal(syscall.SIGCONT) // it may have been killed at the end of the test
	}
}

// whenOvertaken undoes a fault behind the storm: when one of the jobs is run by another worker, or so late that this should
// have happened. It need not: an Ack may have been on its way.
func (s *storm) whenOvertaken(b *berth, fault string, held []jq.Lease, undo func()) {
	s.done[fault]++
	s.holding.Add(1)
	s.held.Go(func() {
		defer s.holding.Add(-1)
		defer b.free()
		defer undo()
		overtaken := s.ledger.until(5*leaseTime, func() bool {
			return slices.ContainsFunc(held, func(l jq.Lease) bool { return s.ledger.jobs[l.ID].greatest > l.Token })
		})
		if overtaken {
			s.overtaken.Add(1)
		}
	})
}

// killServer ends the server's processes at once, and starts it on what they have left.
func (s *storm) killServer(st step) {
	require.NoError(s, s.server.Kill(s.Context()))
	<-time.After(st.outage)
	require.NoError(s, s.server.Revive(s.Context()))
	s.done[st.fault]++
}

// endSession ends some of the sessions of the processes, or all of them.
func (s *storm) endSession(st step) {
	most := 1 + st.pick%4
	if st.coin {
		most = 1000
	}
	for {
		var n int
		err := s.store.DB().GetContext(s.Context(), &n, `
			WITH chosen AS MATERIALIZED (
				SELECT pid
				FROM pg_stat_activity
				WHERE application_name = 'chaos'
				ORDER BY state = 'idle', random()
				LIMIT $1)
			SELECT count(*) FILTER (WHERE pg_terminate_backend(pid))
			FROM chosen`, most)
		if s.done[st.fault] += n; err == nil && n > 0 {
			return
		}
		s.after(1) // the server may have died just before
	}
}

// cutNetwork breaks all connections of one process.
func (s *storm) cutNetwork(st step) {
	all := append(slices.Clone(s.berths), s.producer)
	for i := range all {
		if all[(st.pick+i)%len(all)].proxy.cut() > 0 {
			s.done[st.fault]++
			return
		}
	}
}

// holdNetwork lets no answer reach a worker, and perhaps no request the server, until another has begun to run a job of that
// worker. Then everything comes through, or nothing of it.
func (s *storm) holdNetwork(st step) {
	var held []jq.Lease
	b := s.take(st.pick, s.canHold, func(b *berth, worker string) {
		b.proxy.hold(st.coin)
		held = s.ledger.runsOf(worker, stubborn, boastful)
	})
	s.whenOvertaken(b, st.fault, held, func() {
		if st.pick%2 == 0 {
			b.proxy.cut()
		}
		b.proxy.flow()
	})
}

// canHold says that the worker runs a job that goes on without its lease.
func (s *storm) canHold(worker string) bool {
	return s.enough() && len(s.ledger.runsOf(worker, stubborn, boastful)) > 0
}

// enough says that there will be workers to take over.
func (s *storm) enough() bool { return s.holding.Load() < workers/2 }

// probe looks who holds the unique keys just now.
func (s *storm) probe() {
	ctx, cancel := context.WithTimeout(s.Context(), callTime)
	defer cancel()
	for _, key := range uniqueKeys {
		live := jq.Filter{UniqueKey: key, States: []jq.State{jq.Ready, jq.InFlight, jq.Retrying}}
		page, err := s.store.List(ctx, live, jq.Page{Limit: 10})
		if err != nil {
			continue // it may be away
		}
		s.probes++
		if len(page.Jobs) > 1 {
			s.ledger.blame("%s has %d live holders: jobs %d, %d", key, len(page.Jobs), page.Jobs[1].ID, page.Jobs[0].ID)
		}
	}
}
