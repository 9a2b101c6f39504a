package server

import (
	"context"
	"slices"

	"github.com/seed-ed332417/jq/internal/store"
)

// beatLoop extends every held lease until the last verdict is written. After a failure it tries again sooner, because the lease is still in
// force for a while.
func (s *Server) beatLoop() {
	for wait := s.o.Lease.Heartbeat; s.sleep(s.life, wait); {
		began := s.clock.Now()
		err := s.beat()
		if wait = s.o.Lease.Heartbeat / 4; err == nil {
			wait = s.o.Lease.Heartbeat - s.clock.Since(began) // a slow answer does not delay the next heartbeat
		}
	}
}

// beat extends all leases once. It gives up a call early enough to make another one within the heartbeat interval, because recovery waits
// for one interval after an outage.
func (s *Server) beat() error {
	for runs := range slices.Chunk(s.book.extendable(), store.MaxItems) {
		sent := s.clock.Now()
		ctx, cancel := s.call(s.o.Lease.Heartbeat * 2 / 3)
		outcomes, err := s.extend(ctx, runs)
		cancel()
		if s.recordAnswer(sent, err); err != nil {
			s.o.Observer.BeatFailed()
			s.log.Warn("jq: heartbeat failed", "leases", len(runs), "error", err)
			return err
		}
		started, cancelled := s.book.extended(runs, outcomes, sent.Add(s.o.Lease.Duration), s.clock.Now())
		s.cancelHandlers(cancelled, "extend")
		s.launch(started)
	}
	return nil
}

// extend sends one heartbeat for the runs. The committer also calls it, to learn which verdicts are written and which rows are locked.
func (s *Server) extend(ctx context.Context, runs []*Run) ([]store.Outcome, error) {
	leases := make([]store.Lease, len(runs))
	for i, r := range runs {
		leases[i] = r.Lease()
	}
	return s.store.Extend(ctx, leases, s.o.Lease.Duration)
}
