package server

import (
	"math/rand/v2"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// recoverLoop ends expired leases: all there are before the first fetch, and from then on at every interval.
func (s *Server) recoverLoop() {
	off := s.o.RecoverEvery < 0
	drain := s.recovered
	if off {
		s.log.Warn("jq: recovery is off: jobs of workers that died stay in flight until another server recovers them")
		drain = s.probe
	}
	for wait := firstRetry; !drain(); wait = min(2*wait, s.o.Beat) {
		if !s.sleep(s.work, spread(wait)) {
			return
		}
	}
	close(s.drained)
	for !off && s.sleep(s.work, spread(s.o.RecoverEvery)) {
		s.recovered()
	}
}

// spread is the time, up to a fifth less, so that servers do not do the same all at once.
func spread(d time.Duration) time.Duration {
	return d - rand.N(d/5+1)
}

// recovered ends expired leases, batch by batch, until there are no more. It is false if the store did not let it. Where the
// store was away, or a clock has jumped, it first gives the living their time.
func (s *Server) recovered() bool {
	for waited := false; ; {
		s.lookAtClocks()
		doubtful := s.health.unavailable() || s.health.spareLeft(s.clock.Now()) < s.o.Beat/2
		if doubtful && !s.probe() {
			return false
		}
		if left := s.health.recoveryDelay(waited, s.clock.Now()); left > 0 {
			if waited = true; !s.sleep(s.work, left) {
				return false
			}
			continue
		}
		request := store.RecoverRequest{Limit: s.o.RecoverLimit, Grace: s.o.RecoverGrace}
		list, err := s.recoverBatch(request, s.health.spareLeft(s.clock.Now()))
		switch {
		case err != nil:
			return false
		case len(list) < s.o.RecoverLimit:
			return true
		}
	}
}

func (s *Server) lookAtClocks() {
	now := s.clock.Now()
	if s.health.jumped(now.Round(0), now.Sub(s.health.began), now) { // the wall alone, and the monotonic clock
		s.log.Warn("jq: the clock has jumped; recovery waits", "for", s.o.Beat)
	}
}

// probe sees whether the store answers, by a recovery that finds nothing.
func (s *Server) probe() bool {
	_, err := s.recoverBatch(store.RecoverRequest{Limit: 1, Grace: store.MaxDuration}, s.health.spare)
	return err == nil
}

// recoverBatch recovers once. The call is given up before leases of the living can have run out: else one that hangs through
// an outage would end them when it arrives at last.
func (s *Server) recoverBatch(req store.RecoverRequest, atMost time.Duration) ([]store.Recovered, error) {
	sent := s.clock.Now()
	ctx, cancel := s.callWhileWorking(atMost)
	list, err := s.store.RecoverExpiredLeases(ctx, req)
	cancel()
	if s.noteAnswer(sent, err); err != nil {
		s.logFailure("recover", err)
		s.stopIfDenied(err)
		return nil, err
	}
	s.health.permitted("recover")
	if len(list) > 0 {
		s.o.Observer.Recovered(list)
		s.failures.recovered(list)
		dead := 0
		for _, r := range list {
			if r.Next.IsZero() {
				dead++
			}
		}
		s.log.Warn("jq: expired leases recovered", "count", len(list), "retried", len(list)-dead, "dead", dead)
	}
	return list, nil
}
