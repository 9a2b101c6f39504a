package server_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ed332417/jq/internal/bubble"
	"github.com/seed-ed332417/jq/internal/server"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
)

// A simulation plays one scenario: real servers on one memory store, each behind its own connection that fails, in a bubble of virtual
// time.
type simulation struct {
	*scenario
	broken  breakage
	began   time.Time
	witness *witness
	effects *effects
	answers sync.Map // what the producer of each job was answered, by its number

	pending  atomic.Int64   // tasks that may still change something
	handlers atomic.Int64   // that run
	tasks    sync.WaitGroup // people, calls that come late, servers that stop
	readers  sync.WaitGroup // of wake-ups

	mu       sync.Mutex // guards what follows
	fleet    []*member  // the latest life of each server
	links    []*link    // of servers of all lives, and of people
	outage   span       // the latest death of the store
	counts   map[string]int
	problems []problem
	entries  []entry
}

// A problem is something that must not happen.
type problem struct {
	job  int64 // or zero
	text string
}

// An entry is a line of the story that is printed when something went wrong.
type entry struct {
	at   time.Duration
	job  int64 // zero for what concerns all
	who  string
	what string
	how  string
	arg  time.Duration // or a token
}

func (e entry) String() string {
	arg := e.arg.String()
	if e.how == "token" {
		arg = fmt.Sprint(int64(e.arg))
	}
	return fmt.Sprintf("%12v  job %-3d  %-12s %-14s %s %s", e.at, e.job, e.who, e.what, e.how, arg)
}

// A result is what a simulation has found.
type result struct {
	scenario *scenario
	problems []problem
	entries  []entry
	counts   map[string]int
	lasted   time.Duration // of virtual time
	after    time.Duration // the last job ended so long after the last fault
	longest  time.Duration // the longest that an expired lease waited after the faults
}

// The limits at which a simulation ends that does not settle.
const patience = 5 * time.Minute

// simulate plays the scenario of the seed.
func simulate(t *testing.T, seed uint64, b breakage) (found result) {
	t.Helper()
	s := &simulation{scenario: newScenario(seed), broken: b, counts: map[string]int{}}
	defer func() {
		if p := recover(); p != nil { // of the bubble itself: goroutines are left in it
			s.problem(0, "the simulation did not end: %v", p)
		}
		found.scenario, found.problems, found.entries, found.counts = s.scenario, s.problems, s.entries, s.counts
	}()
	bubble.Test(t, func(t *testing.T) {
		s.run(t.Context())
		found.lasted = time.Since(s.began)
		found.after, found.longest = max(0, s.lastEnd().Sub(s.faultsEnd())), s.witness.longest
	})
	return found
}

func (s *simulation) run(ctx context.Context) {
	s.began = time.Now()
	mem := memory.New(memory.Options{})
	var b backend = mem
	if s.broken.store != nil {
		b = s.broken.store(mem)
	}
	s.witness, s.effects = newWitness(s, b), newEffects(s)
	if _, err := b.SetPolicy(ctx, queues[0], s.policy()); err != nil {
		s.problem(0, "the limits can not be set: %v", err)
	}
	s.dieFor(s.awayAtFirst)
	for i := range s.servers {
		s.fleet = append(s.fleet, s.start(i, 0))
	}
	s.spawn(s.checkNotReady)
	for i := range s.producers {
		s.spawn(func() { s.produce(ctx, i) })
	}
	for i, f := range s.flows {
		s.spawn(func() { s.produceFlow(ctx, i, f) })
	}
	s.direct(ctx)
	pause(ctx, time.Until(s.faultsEnd()))
	s.settle(ctx)
	last := int(s.seed) % len(s.fleet)
	for i, m := range s.fleet {
		if i != last {
			s.retire(ctx, m)
		}
	}
	s.checkServes(ctx, s.fleet[last])
	s.retire(ctx, s.fleet[last])
	s.tasks.Wait()
	s.check(ctx)
	s.sum()
	_ = mem.Close()
	s.readers.Wait()
}

// checkNotReady checks that servers which started without a store are not ready.
func (s *simulation) checkNotReady() {
	servers := s.serving()
	pause(context.Background(), s.awayAtFirst/2)
	for _, m := range servers {
		if s.awayAtFirst > 0 && m.server.Ready() == nil {
			s.problem(0, "%s calls itself ready, and the store is away since it began", m.options.Name)
		}
	}
}

// settle waits until nothing can happen any more except what happens for ever.
func (s *simulation) settle(ctx context.Context) {
	deadline, resumed := s.faultsEnd().Add(patience), time.Time{}
	for s.pending.Load() > 0 || s.handlers.Load() > 0 || s.witness.live() > 0 {
		if time.Now().After(deadline) {
			s.problem(0, "%v after the last fault there are %d jobs that have not ended, %d handlers, %d calls or people",
				patience, s.witness.live(), s.handlers.Load(), s.pending.Load())
			return
		}
		if s.pending.Load() > 0 {
			resumed = time.Time{}
		} else if resumed.IsZero() {
			s.resumeAll(ctx)
			resumed = time.Now()
		}
		s.checkBusy(resumed)
		pause(ctx, 100*time.Millisecond)
	}
	s.resumeAll(ctx)
}

// resumeAll resumes all queues: a pause that got no answer may have been applied after its end.
func (s *simulation) resumeAll(ctx context.Context) {
	for _, q := range queues {
		if err := s.witness.SetPaused(ctx, q, false); err != nil {
			s.problem(0, "a queue can not be resumed: %v", err)
		}
	}
}

// checkBusy checks whether a server is idle although there is a job for it, since all queues were resumed.
func (s *simulation) checkBusy(resumed time.Time) {
	due := s.witness.dueSince()
	if due.IsZero() || resumed.IsZero() {
		return
	}
	for _, m := range s.serving() {
		if m.server.Stats() != (server.Stats{Slots: m.options.Slots}) {
			m.busyAt = time.Now()
		}
		recovered := latest(s.faultsEnd(), m.link.hangsUntil()).Add(maxLease) // the first recovery may have had to wait
		since := latest(latest(due, m.busyAt), latest(resumed, recovered))
		if idle := time.Since(since); idle > m.options.Claim.PollInterval+3*slack {
			s.problem(0, "%s lies idle although a job is due since %v", m.options.Name, idle)
			m.busyAt = time.Now() // which is said once in a while
		}
	}
}

// spawn starts a task that may still change something.
func (s *simulation) spawn(task func()) {
	s.pending.Add(1)
	s.tasks.Go(func() {
		defer s.pending.Add(-1)
		task()
	})
}

func (s *simulation) faultsEnd() time.Time { return s.began.Add(s.faultsFor) }

func (s *simulation) faulty() bool { return !s.calm && time.Now().Before(s.faultsEnd()) }

// lastEnd returns when the last lease ended.
func (s *simulation) lastEnd() time.Time {
	last := s.began
	for _, c := range s.witness.claims {
		last = latest(last, c.ended)
	}
	return last
}

func (s *simulation) problem(job int64, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems = append(s.problems, problem{job, fmt.Sprintf(format, args...)})
}

func (s *simulation) count(what fault) { s.countNamed(string(what)) }

func (s *simulation) countNamed(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what]++
}

func (s *simulation) trace(job int64, who, what, how string, arg time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = append(s.entries, entry{time.Since(s.began), job, who, what, how, arg})
}

// sum counts what the records hold at the end.
func (s *simulation) sum() {
	w := s.witness
	add := func(what string, n int) { s.counts[what] += n }
	add("jobs", len(w.records))
	add("claims", len(w.claims))
	add("ends told again", w.repeats)
	add("effects refused", s.effects.refused)
	for op, n := range w.stale {
		add("stale: "+string(op), n)
	}
	for ending, n := range w.ends {
		add("leases that have "+string(ending), n)
	}
}

// longestStory is how many lines of a story are printed: the last ones.
const longestStory = 200

// story returns what went wrong, and what happened to the first job that it went wrong with.
func (r result) story() string {
	var b strings.Builder
	for i, p := range r.problems {
		if i == 10 {
			fmt.Fprintf(&b, "  and %d more\n", len(r.problems)-i)
			break
		}
		fmt.Fprintf(&b, "  job %d: %s\n", p.job, p.text)
	}
	at := max(0, slices.IndexFunc(r.problems, func(p problem) bool { return p.job != 0 }))
	job := r.problems[at].job
	fmt.Fprintln(&b, "What happened to it:")
	entries := slices.DeleteFunc(slices.Clone(r.entries), func(e entry) bool { return e.job != job && e.job != 0 })
	for _, e := range entries[max(0, len(entries)-longestStory):] {
		fmt.Fprintln(&b, e)
	}
	fmt.Fprintf(&b, "The scenario: calm %t, %d servers, wake-ups %t, at most %d in flight and %d of a key, in order %t, %d claimed in %v, faults for %v at rates %v\n",
		r.scenario.calm, r.scenario.servers, r.scenario.wakeups, r.scenario.maxInFlight, r.scenario.maxPerKey, r.scenario.ordered, r.scenario.pace.N, r.scenario.pace.Per, r.scenario.faultsFor, r.scenario.rates)
	for _, p := range r.scenario.plans {
		fmt.Fprintln(&b, " ", p)
	}
	return b.String()
}
