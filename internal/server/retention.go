package server

import (
	"errors"

	"github.com/seed-ed332417/jq/internal/retention"
	"github.com/seed-ed332417/jq/internal/store"
)

// retainLoop deletes finished jobs that the policies of their queues no longer keep, even in queues that no server works on.
func (s *Server) retainLoop() {
	if s.o.Retention.Interval < 0 {
		s.log.Info("jq: retention is off: finished jobs stay until another server deletes them")
		return
	}
	for s.sleep(s.work, spread(s.o.Retention.Interval)) {
		s.deleteFinished()
	}
}

func (s *Server) deleteFinished() {
	var order []retention.Pruning
	deleted := map[retention.Pruning]int{}
	err := retention.Run(retention.Calls{
		List: s.policies,
		Delete: func(p retention.Pruning, filter store.Filter, limit int) ([]store.Outcome, error) {
			outcomes := s.deleteBatch(filter, limit)
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

// policies returns the queues with their policies. A store that lacks the ability has no policies, so the defaults apply to all of its
// queues.
func (s *Server) policies() ([]store.Queue, error) {
	keeper, ok := s.store.(store.QueueKeeper)
	if !ok {
		return nil, nil
	}
	sent := s.clock.Now()
	ctx, cancel := s.callWhileWorking(s.o.Lease.Heartbeat)
	defer cancel()
	queues, err := keeper.Queues(ctx)
	if errors.Is(err, errors.ErrUnsupported) { // a remote store behind which the ability is missing
		return nil, nil
	}
	s.recordAnswer(sent, err)
	return queues, err
}

// deleteBatch deletes one batch. If that fails it returns an empty batch, so that other queues do not wait for this one.
func (s *Server) deleteBatch(filter store.Filter, limit int) []store.Outcome {
	sent := s.clock.Now()
	ctx, cancel := s.callWhileWorking(s.o.Lease.Duration)
	defer cancel()
	outcomes, err := s.store.Delete(ctx, filter, limit)
	if s.recordAnswer(sent, err); err != nil {
		s.logFailure("delete", err)
		return nil
	}
	s.health.permitted("delete")
	return outcomes
}
