package server

import (
	"os"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// retainLoop deletes what has been finished for long enough, in batches.
func (s *Server) retainLoop() {
	policies := []struct {
		state store.State
		after time.Duration
	}{
		{store.Succeeded, s.o.RetainSucceeded},
		{store.Cancelled, s.o.RetainCancelled},
		{store.Dead, s.o.RetainDead},
	}
	for s.sleep(s.work, spread(s.o.RetainEvery)) {
		for _, p := range policies {
			if p.after > 0 {
				s.prune(store.Filter{States: []store.State{p.state}, FinishedFor: p.after})
			}
		}
	}
}

const pruneLimit = 500

// prune deletes from the smallest id on, each batch behind the one before: a database may still have to walk over what is deleted.
func (s *Server) prune(filter store.Filter) {
	deleted := 0
	for batch := pruneLimit; batch == pruneLimit; deleted += batch {
		sent := s.clock.Now()
		ctx, cancel := s.callWhileWorking(s.o.Lease)
		outcomes, err := s.store.Delete(ctx, filter, pruneLimit)
		cancel()
		if s.heard(sent, err); err != nil {
			s.complain("delete", err)
			break
		}
		if batch = len(outcomes); batch > 0 {
			filter.After = outcomes[batch-1].ID
		}
	}
	if deleted > 0 {
		s.log.Info("jq: finished jobs deleted", "count", deleted, "state", filter.States[0], "finished_for", filter.FinishedFor)
	}
}

// registerLoop says at every beat that this worker lives, and learns which queues were paused meanwhile.
func (s *Server) registerLoop() {
	for wait := time.Duration(0); s.sleep(s.work, wait); {
		began := s.clock.Now()
		s.register()
		if s.held.stats().Buffered > 0 {
			s.releasePaused()
		}
		wait = s.o.Beat - s.clock.Since(began)
	}
}

func (s *Server) register() {
	registry, ok := s.store.(store.Registry)
	if !ok {
		return
	}
	host, _ := os.Hostname() // shown if it is known
	st := s.held.stats()
	sent := s.clock.Now()
	ctx, cancel := s.callWhileWorking(s.o.Beat)
	err := registry.Beat(ctx, store.Worker{
		Name: s.o.Name, Host: host, PID: os.Getpid(), Queues: s.lanes.queues(),
		Slots: st.Slots, Running: st.Running, StaleAfter: min(3*s.o.Beat, store.MaxDuration),
	})
	cancel()
	if s.heard(sent, err); err != nil {
		s.complain("register", err)
	}
}

// releasePaused gives back what is buffered of queues that were paused after it was claimed.
func (s *Server) releasePaused() {
	keeper, ok := s.store.(store.QueueKeeper)
	if !ok {
		return
	}
	sent := s.clock.Now()
	ctx, cancel := s.callWhileWorking(s.o.Beat)
	queues, err := keeper.Queues(ctx)
	cancel()
	if s.heard(sent, err); err != nil {
		s.complain("queues", err)
		return
	}
	paused := map[string]bool{}
	for _, q := range queues {
		if q.Paused {
			paused[q.Name] = true
		}
	}
	if len(paused) > 0 {
		s.held.release(paused, s.clock.Now())
	}
}
