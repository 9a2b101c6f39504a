package server

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/tally"
	"github.com/seed-ed332417/jq/internal/timeout"
)

// launch starts a goroutine for each run. A stop does not wait for these goroutines as such: it waits until every run has ended or is
// abandoned.
func (s *Server) launch(started []*Run) {
	for _, r := range started {
		go s.runSlot(r)
	}
}

// runSlot runs one job after the other, as long as there is one. A handler that ends its goroutine ends this one too; the next job then
// gets a new one.
func (s *Server) runSlot(r *Run) {
	alive := false
	defer func() {
		if !alive {
			v := confirmIfFinished(r, fail("handler ended its goroutine (runtime.Goexit)"))
			if r = s.book.finish(r, v, s.clock.Now()); r != nil {
				go s.runSlot(r)
			}
		}
	}()
	for r != nil {
		alive = false
		v := s.perform(r)
		alive = true
		r = s.book.finish(r, v, s.clock.Now())
	}
}

func (s *Server) perform(r *Run) verdict {
	defer r.cancel(context.Canceled)
	handler, ok := s.lookup(r.Kind)
	if !ok {
		return s.unknown(r)
	}
	waited := tally.WaitOf(r.Job)
	if r.seen != nil {
		s.o.Observer.Started(*r.seen, waited)
	}
	s.tally.Waited(r.Queue, r.Kind, waited)
	return r.execute(handler)
}

// noHandler begins the reason why a job of an unknown kind is put off, and in the end fails.
const noHandler = "no handler for kind "

// unknown leaves a job whose kind has no handler here to a server that has one: during a deployment there may be both. Only
// when it has gone from hand to hand for long, it fails.
func (s *Server) unknown(r *Run) verdict {
	reason := noHandler + r.Kind
	since := s.unknownSince(r, reason)
	log := s.log.With("job", r.ID, "queue", r.Queue, "kind", r.Kind, "for", since)
	if since >= s.o.UnknownKindTimeout {
		log.Error("jq: no handler for this kind on any server; the job fails")
		return fail(reason)
	}
	delay := s.o.UnknownKindTimeout / (store.MaxAttemptsKept / 2) // so that the history reaches back far enough
	log.Warn("jq: no handler for this kind here; the job is left to other servers", "again_in", delay)
	return verdict{op: nack, form: store.Snooze, delay: delay, reason: reason}
}

// unknownSince returns for how long servers have put the job off, one after the other, for this reason.
func (s *Server) unknownSince(r *Run, reason string) time.Duration {
	sent := s.clock.Now()
	ctx, cancel := timeout.Of(&r.ctx, s.clock, s.o.Lease.Duration)
	defer cancel()
	detail, err := s.store.Get(ctx, r.ID)
	if s.recordAnswer(sent, err); err != nil || len(detail.History) == 0 {
		return 0
	}
	last := len(detail.History) - 1 // the attempt that runs
	first := last
	for first > 0 && detail.History[first-1].Ending == store.EndSnoozed && detail.History[first-1].Error == reason {
		first--
	}
	return detail.History[last].StartedAt.Sub(detail.History[first].StartedAt)
}
