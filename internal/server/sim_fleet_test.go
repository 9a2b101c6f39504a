package server_test

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/internal/server"
	"github.com/seed-ed332417/jq/internal/store"
)

// A member is one life of a server.
type member struct {
	server.NopObserver
	sim     *simulation
	number  int
	life    int
	options server.Options
	link    *link
	server  *server.Server
	began   time.Time

	running atomic.Int64 // handlers that heed their context

	leaving bool      // it was told to stop, or killed; guarded by the simulation's lock
	busyAt  time.Time // when it was last seen to hold anything, by settle
}

// start starts a new life of the server with the number.
func (s *simulation) start(number, life int) *member {
	o := s.options(number, life)
	m := &member{sim: s, number: number, life: life, link: s.connect(o.Name), began: time.Now()}
	m.link.options = o
	o.Observer, o.Logger = m, slog.New(slog.DiscardHandler)
	m.options = o
	var st store.Store = m.link
	switch {
	case s.broken.link != nil:
		st = s.broken.link(m.link)
	case s.wakeups:
		st = ableLink{m.link}
	}
	var err error
	if m.server, err = server.New(st, m.lookup, o); err == nil {
		err = m.server.Start(context.Background())
	}
	if err != nil {
		s.problem(0, "a server did not start: %v", err)
	}
	s.trace(0, o.Name, "starts", "with a lease of", o.Lease.Duration)
	return m
}

// connect returns a new connection to the store.
func (s *simulation) connect(name string) *link {
	l := newLink(s, name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links = append(s.links, l)
	if s.outage.to.After(time.Now()) {
		l.cut(s.outage, false)
	}
	return l
}

// lookup knows all kinds, except for the new one on servers that were not upgraded.
func (m *member) lookup(kind string) (server.Handler, bool) {
	if kind == rare && !m.sim.knowsRare(m.number, m.life) {
		m.sim.countNamed("jobs left to servers that know their kind")
		return nil, false
	}
	return m.handle, true
}

// Ended is told by the server how runs ended.
func (m *member) Ended(j store.Job, ending store.Ending, _ store.State, _ time.Duration) {
	m.sim.witness.observed(j.Lease(), ending)
}

// forever is longer than any simulation.
const forever = 24 * time.Hour

// die kills the process: no later call reaches the store, but calls that were sent before still may. Its handlers end a while later, so
// that some of them have effects outside while their jobs run elsewhere.
func (s *simulation) die(m *member, e event) {
	m.link.sever(forever, e.hang)
	s.tasks.Go(func() {
		pause(context.Background(), e.lasts*3)
		ended, end := context.WithCancel(context.Background())
		end()
		_ = m.server.Stop(ended) // what it could not write is the others' now
	})
	s.succeed(m, e)
}

// serving returns the servers that are not stopping.
func (s *simulation) serving() []*member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.fleet), func(m *member) bool { return m.leaving })
}

// succeed starts a new life of the server after a while.
func (s *simulation) succeed(m *member, e event) {
	pause(context.Background(), e.lasts)
	successor := s.start(m.number, m.life+1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fleet[m.number] = successor
}

// stop stops a server while it works, as in a deployment, and starts a new life.
func (s *simulation) stop(m *member, e event) {
	patience := forever
	if e.hang {
		patience = e.lasts / 2
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = s.halt(ctx, m) // what it has left is the others'
	s.succeed(m, e)
}

// halt stops a server and checks that it stops in time, and that it left nothing behind if it says so.
func (s *simulation) halt(ctx context.Context, m *member) error {
	o := m.options
	began := time.Now()
	s.trace(0, o.Name, "stops", "with a drain time of", o.Shutdown.DrainTimeout)
	m.link.mu.Lock()
	m.link.stopping = began
	m.link.mu.Unlock()
	err := m.server.Stop(ctx)
	s.trace(0, o.Name, "has stopped", "after", time.Since(began))
	m.checkStop(began)
	if err != nil {
		s.countNamed("stops that left something behind")
		m.link.trouble("", forever) // its leases run out
		return err
	}
	if left := m.server.Stats(); left != (server.Stats{Slots: o.Slots}) {
		s.problem(0, "%s has stopped, and holds %+v", o.Name, left)
	}
	s.witness.leftBehind(m)
	return nil
}

// lastWrites is how long a stop waits for results that cannot be written.
const finalWriteTimeout = 10 * time.Second

// checkStop checks that a stop which has just ended took no longer than it may.
func (m *member) checkStop(began time.Time) {
	latestEnd := began.Add(m.options.Shutdown.DrainTimeout + m.options.Abandon.Timeout + slack)
	if !m.link.clean(began.Add(-maxLease), time.Now()) {
		m.link.mu.Lock()
		latestEnd = latest(latestEnd.Add(finalWriteTimeout), m.link.deafUntil.Add(slack))
		m.link.mu.Unlock()
	}
	if over := time.Since(latestEnd); over > 0 {
		m.sim.problem(0, "%s took %v longer to stop than it may", m.options.Name, over)
	}
}

// leftBehind finds leases of a server that has stopped and said that it left nothing.
func (w *witness) leftBehind(m *member) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.claims {
		switch {
		case c.worker != m.options.Name || !w.holds(c) || c.record.plan.Kind == stubborn && c.started:
		case c.link != nil:
			w.sim.problem(c.ID, "%s has stopped, and said nothing of the lease that it left: token %d", m.options.Name, c.Token)
		case m.link.clean(c.from.Add(-slack), time.Now()):
			w.sim.problem(c.ID, "%s has stopped, and did not wait for the claim that it had sent: token %d", m.options.Name, c.Token)
		}
	}
}

// retire stops a server at the end, when nothing is wrong any more.
func (s *simulation) retire(ctx context.Context, m *member) {
	s.checkRests(ctx, m)
	if err := s.halt(ctx, m); err != nil {
		s.problem(0, "%s did not stop cleanly, long after the last fault: %v", m.options.Name, err)
	}
}

// checkRests checks that a server without work is ready and holds nothing, as soon as its last hanging call has ended.
func (s *simulation) checkRests(ctx context.Context, m *member) {
	pause(ctx, time.Until(latest(m.link.hangsUntil(), s.faultsEnd().Add(slack))))
	idle := server.Stats{Slots: m.options.Slots}
	for bound := time.Now().Add(maxStall + maxLease); m.server.Ready() != nil || m.server.Stats() != idle; pause(ctx, 10*time.Millisecond) {
		if time.Now().After(bound) {
			s.problem(0, "%s is not at rest, long after the last fault and the last job: ready %v, holding %+v",
				m.options.Name, m.server.Ready(), m.server.Stats())
			break
		}
	}
}

// checkServes checks that a server which is left alone still serves every queue, after all its faults.
func (s *simulation) checkServes(ctx context.Context, m *member) {
	s.checkRests(ctx, m)
	s.witness.mu.Lock()
	room := s.witness.roomOfRate()
	s.witness.mu.Unlock()
	pause(ctx, time.Until(room)) // the jobs that ended last may have used up the rate
	for _, p := range s.plans {
		if p.last {
			s.answers.Store(p.n, s.enqueue(ctx, m.link, store.EnqueueRequest{Jobs: []store.NewJob{p.NewJob}})[0])
		}
	}
	o := m.options
	if pause(ctx, o.Claim.PollInterval+o.Claim.Interval+o.Commit.Interval+3*slack); s.witness.live() > 0 {
		s.problem(0, "%s, left alone, does not serve every queue: %d jobs are left", o.Name, s.witness.live())
	}
}
