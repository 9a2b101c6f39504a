package server

import (
	"os"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/timeout"
)

// registerLoop updates the row of this worker at every heartbeat interval, until the last verdict is written. It also learns which queues
// were paused meanwhile.
func (s *Server) registerLoop() {
	for wait := time.Duration(0); s.sleep(s.life, wait); {
		began := s.clock.Now()
		s.register()
		if s.book.stats().Buffered > 0 {
			s.releasePaused()
		}
		wait = s.o.Lease.Heartbeat - s.clock.Since(began)
	}
}

func (s *Server) register() {
	registry, ok := s.store.(store.Registry)
	if !ok {
		return
	}
	host, _ := os.Hostname() // empty if it is unknown
	st, queues := s.book.stats(), s.scheduler.names()
	if len(queues) == 0 {
		st.Slots = 0 // it only recovers jobs and fires schedules
	}
	sent := s.clock.Now()
	ctx, cancel := timeout.Of(s.registration, s.clock, s.o.Lease.Heartbeat)
	err := registry.Beat(ctx, store.Worker{
		Name: s.o.Name, Host: host, PID: os.Getpid(), Queues: queues,
		Slots: st.Slots, Running: st.Running, StaleAfter: min(3*s.o.Lease.Heartbeat, store.MaxDuration),
	})
	cancel()
	if s.recordAnswer(sent, err); err != nil {
		s.logFailure("register", err)
	}
}

// leaveTimeout is how long a stop waits for the call of Leave, and before that for a call of Beat under way.
const leaveTimeout = 2 * time.Second

// deregister removes this worker from the list, so that it does not look like one that died. It does not wait for an unreachable store.
func (s *Server) deregister() {
	registry, ok := s.store.(store.Registry)
	if !ok || s.health.unavailable() {
		return
	}
	ctx, cancel := timeout.Of(s.handlerBase, s.clock, leaveTimeout)
	defer cancel()
	if err := registry.Leave(ctx, s.o.Name); err != nil {
		s.log.Info("jq: could not remove this worker from the list; the store lists it as stale", "error", err)
	}
}

// releasePaused releases the buffered runs of queues that were paused after the claim.
func (s *Server) releasePaused() {
	keeper, ok := s.store.(store.QueueKeeper)
	if !ok {
		return
	}
	sent := s.clock.Now()
	ctx, cancel := s.callWhileWorking(s.o.Lease.Heartbeat)
	queues, err := keeper.Queues(ctx)
	cancel()
	if s.recordAnswer(sent, err); err != nil {
		s.logFailure("queues", err)
		return
	}
	paused := map[string]bool{}
	for _, q := range queues {
		if q.Paused {
			paused[q.Name] = true
		}
	}
	if len(paused) > 0 {
		s.book.releaseQueues(paused, s.clock.Now())
	}
}
