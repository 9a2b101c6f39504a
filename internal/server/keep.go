package server

import (
	"errors"
	"os"
	"time"

	"github.com/seed-ed332417/jq/internal/retention"
	"github.com/seed-ed332417/jq/internal/store"
)

// retainLoop deletes the finished jobs that the policies of their queues keep no longer, those of queues that nobody serves
// included.
func (s *Server) retainLoop() {
	if s.o.RetainEvery < 0 {
		s.log.Info("jq: retention is off: finished jobs stay until another server deletes them")
		return
	}
	for s.sleep(s.work, spread(s.o.RetainEvery)) {
		s.retain()
	}
}

func (s *Server) retain() {
	var order []retention.Pruning
	deleted := map[retention.Pruning]int{}
	err := retention.Run(retention.Calls{
		List: s.policies,
		Delete: func(p retention.Pruning, filter store.Filter, limit int) ([]store.Outcome, error) {
			outcomes := s.prune(filter, limit)
			if len(outcomes) > 0 && deleted[p] == 0 {
				order = append(order, p)
			}
			deleted[p] += len(outcomes)
			return outcomes, nil
		},
	})
	if err != nil {
		s.logFailure("policies", err)
	}
	for _, p := range order {
		what := []any{"count", deleted[p], "state", p.State, "finished_for", p.Age}
		if p.Queue != "" {
			what = append(what, "queue", p.Queue)
		}
		s.log.Info("jq: finished jobs deleted", what...)
	}
}

// policies are the queues with their policies. None are of a store that can not tell: it has no policies, so that the defaults
// go for all its queues.
func (s *Server) policies() ([]store.Queue, error) {
	keeper, ok := s.store.(store.QueueKeeper)
	if !ok {
		return nil, nil
	}
	sent := s.clock.Now()
	ctx, cancel := s.callWhileWorking(s.o.Beat)
	defer cancel()
	queues, err := keeper.Queues(ctx)
	if errors.Is(err, errors.ErrUnsupported) { // it is a store elsewhere that can not
		return nil, nil
	}
	s.noteAnswer(sent, err)
	return queues, err
}

// prune deletes a batch. One that fails is empty, so that other queues are not kept waiting by this one.
func (s *Server) prune(filter store.Filter, limit int) []store.Outcome {
	sent := s.clock.Now()
	ctx, cancel := s.callWhileWorking(s.o.Lease)
	defer cancel()
	outcomes, err := s.store.Delete(ctx, filter, limit)
	if s.noteAnswer(sent, err); err != nil {
		s.logFailure("delete", err)
		return nil
	}
	s.health.permitted("delete")
	return outcomes
}

// registerLoop says at every beat that this worker lives, until the last result is written, and learns which queues were paused
// meanwhile.
func (s *Server) registerLoop() {
	for wait := time.Duration(0); s.sleep(s.life, wait); {
		began := s.clock.Now()
		s.register()
		if s.book.stats().Buffered > 0 {
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
	st := s.book.stats()
	sent := s.clock.Now()
	ctx, cancel := s.clock.WithTimeout(s.last, s.o.Beat)
	err := registry.Beat(ctx, store.Worker{
		Name: s.o.Name, Host: host, PID: os.Getpid(), Queues: s.scheduler.names(),
		Slots: st.Slots, Running: st.Running, StaleAfter: min(3*s.o.Beat, store.MaxDuration),
	})
	cancel()
	if s.noteAnswer(sent, err); err != nil {
		s.logFailure("register", err)
	}
}

// longestLeave is for how long a stop waits until the store knows that this worker has ended, and before that for the latest beat.
const longestLeave = 2 * time.Second

// deregister says that this worker has ended, so that nobody takes it for one that died. A store that is away is not waited for.
func (s *Server) deregister() {
	registry, ok := s.store.(store.Registry)
	if !ok || s.health.unavailable() {
		return
	}
	ctx, cancel := s.clock.WithTimeout(s.base, longestLeave)
	defer cancel()
	if err := registry.Leave(ctx, s.o.Name); err != nil {
		s.log.Info("jq: the store was not told that this worker has ended, and lists it as stale", "error", err)
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
	if s.noteAnswer(sent, err); err != nil {
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
		s.book.release(paused, s.clock.Now())
	}
}
