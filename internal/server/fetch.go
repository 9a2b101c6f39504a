package server

import (
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// fetchLoop claims jobs for free slots. It sleeps while there is no room, or every queue rests; freed slots and wake-ups end
// that sleep.
func (s *Server) fetchLoop() {
	select {
	case <-s.drained: // whom other workers have left behind comes first
	case <-s.work.Done():
		return
	}
	for s.work.Err() == nil {
		room := s.book.room()
		next, found, rest := order{}, false, time.Time{}
		if room > 0 {
			next, found, rest = s.scheduler.next(room, s.book.inQueue, s.clock.Now())
		}
		if !found {
			s.awaitWork(rest)
			continue
		}
		s.fetch(next)
	}
}

// awaitWork waits until there may be something to fetch.
func (s *Server) awaitWork(rest time.Time) {
	var due <-chan time.Time
	if !rest.IsZero() {
		timer := s.clock.Timer(max(0, rest.Sub(s.clock.Now())))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-s.work.Done():
	case <-s.book.fetch:
	case <-due:
	}
}

// fetch claims once. The call outlives the wish to stop: what it claims is then given back, and not left to its leases.
func (s *Server) fetch(o order) {
	sent := s.clock.Now()
	ctx, cancel := s.call(s.o.Lease)
	req := store.ClaimRequest{Queue: o.name, Limit: o.limit, RetryQuota: o.quota, Worker: s.o.Name, TTL: s.o.Lease}
	jobs, err := s.store.FetchAndClaim(ctx, req)
	cancel()
	s.noteAnswer(sent, err)
	now := s.clock.Now()
	if err != nil {
		s.scheduler.refused(o, now)
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
	runs := make([]*Run, len(jobs))
	for i, job := range jobs {
		runs[i] = newRun(s.base, s, job, s.o.Timeout)
	}
	s.launch(s.book.take(runs, sent.Add(s.o.Lease), now))
}

// listenLoop takes the store's wake-ups, where it has any. They are a help only: without them queues are looked at after
// their pause.
func (s *Server) listenLoop() {
	notifier, ok := s.store.(store.Notifier)
	if !ok || len(s.o.Queues) == 0 {
		return
	}
	least := min(s.o.Poll, DefaultPoll)
	for wait := least; ; {
		wakeups, err := notifier.Subscribe(s.work, s.scheduler.names())
		if err == nil {
			wait = least
			s.scheduler.wake("") // what was missed meanwhile
			s.book.fetch.send()
			for w := range wakeups {
				s.scheduler.wake(w.Queue)
				s.book.fetch.send()
			}
		} else {
			s.logFailure("subscribe", err)
		}
		if !s.sleep(s.work, spread(wait)) {
			return
		}
		wait = min(2*wait, s.o.Lease)
	}
}
