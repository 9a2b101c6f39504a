package server

import (
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// claimLoop claims jobs for free slots. It sleeps while there is no room or every queue pauses. Freed slots and wake-ups end that sleep.
func (s *Server) claimLoop() {
	select {
	case <-s.recoveryDone: // the jobs of dead workers come first
	case <-s.work.Done():
		return
	}
	if !s.declare() {
		return
	}
	for s.work.Err() == nil {
		room := s.book.room()
		next, found, again := claimPlan{}, false, time.Time{}
		if room > 0 {
			next, found, again = s.scheduler.next(room, s.book.inQueue, s.clock.Now())
		}
		if !found {
			s.sleepUntil(s.work, again, s.book.claim)
			continue
		}
		s.claim(next)
	}
}

// claim makes one claim. A stop does not cancel the call: the jobs that it claims are then released at once, rather than when their leases
// expire.
func (s *Server) claim(o claimPlan) {
	s.cancels.claim(o.name)
	defer s.cancels.claim("")
	sent := s.clock.Now()
	ctx, cancel := s.call(s.o.Lease.Duration)
	req := store.ClaimRequest{Queue: o.name, Limit: o.limit, RetryQuota: o.quota, Worker: s.o.Name, TTL: s.o.Lease.Duration, Room: s.room}
	jobs, err := s.store.FetchAndClaim(ctx, req)
	cancel()
	s.room = jobs[:0] // empty after an error
	defer clear(jobs) // their runs have copies
	s.recordAnswer(sent, err)
	now := s.clock.Now()
	if err != nil {
		s.scheduler.claimFailed(o, now)
		s.logFailure("claim", err)
		s.stopIfDenied(err)
		return
	}
	s.health.permitted("claim")
	s.scheduler.claimed(o, len(jobs), req.MayLeave(jobs), now)
	if len(jobs) == 0 {
		return
	}
	s.o.Observer.Claimed(o.name, len(jobs))
	runs := newRuns(s.handlerBase, s.slab, s, jobs, s.o.Timeout)
	if s.observed {
		for i, job := range jobs {
			runs[i].seen = &job
		}
	}
	s.launch(s.book.add(runs, sent.Add(s.o.Lease.Duration), now))
}

// listenLoop receives the wake-ups of a store that has them. The server works without them: it looks into every queue after its pause, and
// its heartbeats show which jobs are cancelled, and it settles after each recovery. A server that stops still listens, because its handlers
// may be cancelled.
func (s *Server) listenLoop() {
	notifier, ok := s.store.(store.Notifier)
	if !ok || len(s.o.Queues) == 0 && s.o.Recovery.Interval < 0 {
		return
	}
	least := min(s.o.Claim.PollInterval, DefaultPollInterval)
	for wait := least; ; {
		wakeups, err := notifier.Subscribe(s.life, s.scheduler.names())
		if err == nil {
			wait = least
			s.scheduler.wake("") // for the wake-ups missed in between
			s.book.claim.send()
			for w := range wakeups {
				switch {
				case w.Settle && s.o.Recovery.Interval < 0: // left to servers that recover
				case w.Settle:
					s.left.send()
				case w.Cancelled:
					s.cancels.tell(w.Queue)
				default:
					s.scheduler.wake(w.Queue)
					s.book.claim.send()
				}
			}
		} else {
			s.logFailure("subscribe", err)
		}
		if !s.sleep(s.life, spread(wait)) {
			return
		}
		wait = min(2*wait, s.o.Lease.Duration)
	}
}
