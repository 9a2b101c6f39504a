//go:build unix

package chaos

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
)

// usually is how many jobs may be enqueued that have not been run yet.
const usually = 40

// A ledger is the world outside the queue. It is told of what processes do before they go on, and refuses what comes from an
// older run than one that it has heard of.
type ledger struct {
	seed     uint64
	listener net.Listener
	all      sync.WaitGroup // the listener and what it has accepted

	mu       sync.Mutex // guards what follows; while it is held, no process gets an answer
	changed  chan struct{}
	moment   int // grows with each message
	conns    map[net.Conn]bool
	calls    [][]answer    // the acknowledged ones, in their order
	late     map[int64]int // the jobs that are committed late: the moment by which they were, or unknown
	asked    int           // how many calls producers were asked for: one of them may not be acknowledged yet
	jobsIn   int           // of all calls
	repeated map[string]bool
	losses   []loss // where the database may have forgotten what it had acknowledged
	enough   bool   // the producer has done its part, but for a call that it was asked for
	ahead    int    // how many jobs may be enqueued that have not been run yet
	over     bool   // nothing is waited for any more

	jobs    map[int64]*page
	running map[string]map[jq.Lease]plan // by worker
	orphans map[int64]time.Time          // the jobs that a dead worker was running, since its death

	runs, accepted, refusedStarts, refusedEffects int
	staleWrites, repeats, doubts, unavailable     int
	replaced                                      int             // jobs of lost calls that were made again
	waits                                         []time.Duration // from the death of a worker to the next run of a job that it was running
	problems                                      []string

	window     []time.Duration // how long jobs were due before their runs, since it was looked at
	goroutines map[string]int  // by worker
}

// A page is what the ledger knows of one job.
type page struct {
	plan      plan
	greatest  int64 // token
	runs      []run
	effects   []effect // the accepted ones
	cancelled int      // the moment at which the store has said so, or 0
}

// A loss is the time for which a database lost its transactions: the calls that were acknowledged then, and the moments. What the
// database does not know of it is no fault of the queue's.
type loss struct {
	firstCall, lastCall int
	from, to            int // moments; to is 0 while it lasts
}

// begins opens a loss, of what is acknowledged from now on.
func (l *ledger) begins() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.losses = append(l.losses, loss{firstCall: len(l.calls), lastCall: -1, from: l.moment})
}

// died notes that the database can acknowledge no further call. One answer may be on its way.
func (l *ledger) died() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.losses[len(l.losses)-1].lastCall = len(l.calls)
}

// ends closes the loss: whoever has an old lease has been told by now.
func (l *ledger) ends() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.losses[len(l.losses)-1].to = l.moment
}

// lostCall says whether what the call was answered may be forgotten. The caller holds the lock.
func (l *ledger) lostCall(call int) bool {
	return slices.ContainsFunc(l.losses, func(one loss) bool {
		return call >= one.firstCall && (call <= one.lastCall || one.lastCall < 0)
	})
}

// lostAt says whether what the ledger was told then may be forgotten. The caller holds the lock.
func (l *ledger) lostAt(moment int) bool {
	return slices.ContainsFunc(l.losses, func(one loss) bool { return moment >= one.from && (moment <= one.to || one.to == 0) })
}

type run struct {
	token  int64
	worker string
	moment int // at which it began
	ended  int // the moment at which its handler returned, or 0
}

type effect struct {
	token  int64
	moment int
}

func openLedger(t *testing.T, seed uint64) *ledger {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &ledger{
		seed: seed, ahead: usually, goroutines: map[string]int{}, listener: listener, changed: make(chan struct{}), conns: map[net.Conn]bool{}, repeated: map[string]bool{},
		jobs: map[int64]*page{}, late: map[int64]int{}, running: map[string]map[jq.Lease]plan{}, orphans: map[int64]time.Time{},
	}
	l.all.Go(l.accept)
	return l
}

func (l *ledger) accept() {
	for {
		conn, err := l.listener.Accept()
		if err != nil {
			return // it is closed
		}
		l.mu.Lock()
		l.conns[conn] = true
		l.mu.Unlock()
		l.all.Go(func() { l.serve(conn) })
	}
}

// serve answers one process, until that ends.
func (l *ledger) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	for {
		var m message
		if err := in.Decode(&m); err != nil {
			return
		}
		if err := out.Encode(l.answer(m)); err != nil {
			return
		}
	}
}

// close ends all talk. The processes have ended before.
func (l *ledger) close() {
	_ = l.listener.Close()
	l.mu.Lock()
	l.over, l.enough = true, true
	for conn := range l.conns {
		_ = conn.Close()
	}
	l.note()
	l.mu.Unlock()
	l.all.Wait()
}

// note wakes who waits for a change.
func (l *ledger) note() {
	l.moment++
	close(l.changed)
	l.changed = make(chan struct{})
}

// mayRunAhead says how many jobs may be enqueued that have not been run yet.
func (l *ledger) mayRunAhead(jobs int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ahead = jobs
	l.note()
}

// until waits for the condition, which is looked at after each message, and says whether it came true in time.
func (l *ledger) until(most time.Duration, holds func() bool) bool {
	late := time.After(most)
	for {
		l.mu.Lock()
		ok, over, changed := holds(), l.over, l.changed
		l.mu.Unlock()
		if ok || over {
			return ok
		}
		select {
		case <-changed:
		case <-late:
			return false
		}
	}
}

// blame is problem for those who do not hold the lock.
func (l *ledger) blame(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.problem(format, args...)
}

func (l *ledger) problem(format string, args ...any) {
	l.problems = append(l.problems, fmt.Sprintf(format, args...))
}

func (l *ledger) answer(m message) reply {
	if m.Op == opNext {
		return l.next(m.Name)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.note()
	switch m.Op {
	case opStart:
		return reply{OK: l.start(m)}
	case opEffect:
		return reply{OK: l.effect(m)}
	case opEnd:
		l.end(m)
	case opStale:
		l.staleWrites++
	case opFailed:
		if m.Doubt {
			l.doubts++
		} else {
			l.unavailable++
		}
	case opAdded:
		l.added(m)
	case opCancel:
		if p := l.page(m.Job, planOf(l.seed, m.N)); m.OK {
			p.cancelled = l.moment
		}
	default:
		l.problem("%s says %q", m.Name, m.Op)
	}
	return reply{OK: true}
}

func (l *ledger) page(id int64, p plan) *page {
	known := l.jobs[id]
	if known == nil {
		known = &page{plan: p}
		l.jobs[id] = known
	}
	if known.plan.n != p.n {
		l.problem("job %d is number %d and number %d", id, known.plan.n, p.n)
	}
	return known
}

// start writes down that a run has begun, which no other may have done under its token.
func (l *ledger) start(m message) bool {
	p := l.page(m.Job, planOf(l.seed, m.N))
	for _, r := range p.runs {
		if r.token == m.Token {
			l.problem("job %d was run under token %d by %s, and again by %s", m.Job, m.Token, r.worker, m.Name)
		}
	}
	l.runs++
	if l.goroutines[m.Name] = m.Goroutines; m.Waited >= 0 {
		l.window = append(l.window, m.Waited)
	}
	p.runs = append(p.runs, run{token: m.Token, worker: m.Name, moment: l.moment})
	if m.Token < p.greatest {
		l.refusedStarts++
		return false
	}
	p.greatest = m.Token
	if since, ok := l.orphans[m.Job]; ok {
		l.waits = append(l.waits, time.Since(since))
		delete(l.orphans, m.Job)
	}
	if l.running[m.Name] == nil {
		l.running[m.Name] = map[jq.Lease]plan{}
	}
	l.running[m.Name][jq.Lease{ID: m.Job, Token: m.Token}] = p.plan
	return true
}

// end writes down that the handler of a run has returned. Its worker has not told the store yet.
func (l *ledger) end(m message) {
	delete(l.running[m.Name], jq.Lease{ID: m.Job, Token: m.Token})
	runs := l.jobs[m.Job].runs
	for i, r := range runs {
		if r.token == m.Token && r.worker == m.Name {
			runs[i].ended = l.moment
		}
	}
}

// effect accepts an effect, unless a younger run of its job was here before.
func (l *ledger) effect(m message) bool {
	p := l.page(m.Job, planOf(l.seed, m.N))
	if m.Token < p.greatest {
		l.refusedEffects++
		return false
	}
	l.accepted++
	p.effects = append(p.effects, effect{m.Token, l.moment})
	return true
}

// next says what is to be enqueued next, when it is time for it. A new process begins with the last call that its predecessor
// was answered: the store has to answer the same. Then it makes the one that its predecessor was asked for and did not live to tell
// of: the store may have applied it.
func (l *ledger) next(name string) reply {
	var r reply
	l.until(time.Hour, func() bool {
		if !l.repeated[name] && len(l.calls) > 0 {
			l.repeated[name] = true
			r = reply{OK: true, Call: len(l.calls) - 1}
			return true
		}
		l.repeated[name] = true
		r = reply{OK: l.asked > len(l.calls), Call: len(l.calls)}
		if !r.OK && !l.enough && l.jobsIn-l.lostJobs()-l.runs < l.ahead {
			l.asked++
			r.OK = true
		}
		return r.OK || l.enough
	})
	return r
}

// lostJobs are those of lost calls: nobody may ever run them.
func (l *ledger) lostJobs() (n int) {
	for _, one := range l.losses {
		for i := one.firstCall; i < len(l.calls) && (i <= one.lastCall || one.lastCall < 0); i++ {
			n += len(l.calls[i])
		}
	}
	return n
}

// added writes down what the store has acknowledged.
func (l *ledger) added(m message) {
	if m.Call < len(l.calls) {
		l.repeats++
		same := slices.Equal(l.calls[m.Call], m.Answers)
		if !same && !l.lostCall(m.Call) {
			l.problem("call %d was answered %v, and with the same request key %v", m.Call, l.calls[m.Call], m.Answers)
		}
		if same || !l.lostCall(m.Call) {
			return
		}
		l.replaced += len(l.calls[m.Call])
		l.calls[m.Call] = m.Answers
	} else {
		l.calls = append(l.calls, m.Answers)
		l.jobsIn += len(m.Answers)
	}
	for i, p := range callOf(l.seed, m.Call) {
		a := m.Answers[i]
		if !a.Duplicate {
			l.page(a.ID, p)
			continue
		}
		if holder := l.jobs[a.ID]; holder == nil || p.key == "" || holder.plan.key != p.key {
			l.problem("number %d is called a duplicate of job %d, which does not hold its key", p.n, a.ID)
		}
	}
}

// bury takes note of the death of a worker, and of the jobs that it was running.
func (l *ledger) bury(worker string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for lease := range l.running[worker] {
		if lease.Token == l.jobs[lease.ID].greatest {
			l.orphans[lease.ID] = time.Now()
		}
	}
	delete(l.running, worker)
	l.note()
}

// runsOf are the runs that the worker is in the middle of, of the kinds, or of any, and not overtaken. The caller holds the lock.
func (l *ledger) runsOf(worker string, kinds ...string) []jq.Lease {
	var leases []jq.Lease
	for lease, p := range l.running[worker] {
		overtaken := lease.Token < l.jobs[lease.ID].greatest
		if !overtaken && (len(kinds) == 0 || slices.Contains(kinds, p.kind)) {
			leases = append(leases, lease)
		}
	}
	return leases
}
