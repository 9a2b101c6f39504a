package server

import (
	"context"
	"time"
)

// watchLoop cancels handlers when their timeout ends, or when their lease expires because no heartbeat reached the store. One timer serves
// all runs.
func (s *Server) watchLoop() {
	for {
		now := s.clock.Now()
		started, cancelled, again := s.book.checkDeadlines(now)
		s.cancelHandlers(cancelled, "")
		s.launch(started)
		for _, c := range cancelled {
			s.logOverdue(c)
		}
		if !s.sleepUntil(s.life, again, s.book.watch) {
			return
		}
	}
}

func (s *Server) logOverdue(c cancellation) {
	log := s.log.With("job", c.run.ID, "queue", c.run.Queue, "kind", c.run.Kind)
	if c.cause == nil {
		log.Warn("jq: handler did not return after cancellation; abandoning it", "after", s.o.Abandon.Timeout, "cause", c.run.cancelCause())
		return
	}
	log.Warn("jq: cancelling handler", "cause", c.cause)
}

// sleepUntil waits for the time, where zero means never, or for the signal. It returns false when the context has ended.
func (s *Server) sleepUntil(ctx context.Context, at time.Time, or signal) bool {
	var due <-chan time.Time
	if !at.IsZero() {
		wait := at.Sub(s.clock.Now())
		if wait <= 0 {
			return ctx.Err() == nil
		}
		timer := s.clock.Timer(wait)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-due:
	case <-or:
	}
	return true
}
