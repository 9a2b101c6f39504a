package server

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// launch gives each run that was started a goroutine. They are not waited for as such: a stop waits until every run is
// finished or given up.
func (s *Server) launch(started []*Run) {
	for _, r := range started {
		go s.slot(r)
	}
}

// slot runs one job after the other, as long as there is one. A handler that ends its goroutine takes the slot's along; the
// next job then gets a new one.
func (s *Server) slot(r *Run) {
	alive := false
	defer func() {
		if !alive {
			v := unlessFinished(r, fail("handler ended its goroutine (runtime.Goexit)"))
			if r = s.book.next(r, v, s.clock.Now()); r != nil {
				go s.slot(r)
			}
		}
	}()
	for r != nil {
		alive = false
		v := s.perform(r)
		alive = true
		r = s.book.next(r, v, s.clock.Now())
	}
}

func (s *Server) perform(r *Run) verdict {
	defer r.cancel(context.Canceled)
	handler, ok := s.lookup(r.Kind)
	if !ok {
		return s.unknown(r)
	}
	s.o.Observer.Started(r.Job, waited(r.Job, s.o.Lease))
	return r.judged(handler)
}

// waited is how long the job was due before it was claimed, by the store's clock alone: a claim sets the lease to run from
// its own now. The due time of a retry is not kept.
func waited(j store.Job, lease time.Duration) time.Duration {
	if j.Retries > 0 {
		return -1
	}
	return max(0, j.LeaseExpiresAt.Sub(j.RunAt)-lease.Truncate(store.Resolution))
}

// unknown leaves a job whose kind has no handler here to a server that has one: during a deployment there may be both. Only
// when it has gone from hand to hand for long, it fails.
func (s *Server) unknown(r *Run) verdict {
	delay := s.o.UnknownFor / (store.MaxAttemptsKept / 2) // so that the history reaches back far enough
	since := s.unknownSince(r, delay)
	log := s.log.With("job", r.ID, "queue", r.Queue, "kind", r.Kind, "for", since)
	if since >= s.o.UnknownFor {
		log.Error("jq: no handler for this kind on any server; the job fails")
		return fail("no handler for kind " + r.Kind)
	}
	log.Warn("jq: no handler for this kind here; the job is left to other servers", "again_in", delay)
	return verdict{op: nack, form: store.Snooze, delay: delay}
}

// unknownSince is for how long the job has been put off again and again because nobody knew its kind. A handler may snooze as
// well, elsewhere, and the history does not tell why. But whoever was put off for that was due after just this delay, and came
// back neither sooner nor much later.
func (s *Server) unknownSince(r *Run, delay time.Duration) time.Duration {
	sent := s.clock.Now()
	ctx, cancel := s.clock.WithTimeout(&r.ctx, s.o.Lease)
	defer cancel()
	detail, err := s.store.Get(ctx, r.ID)
	if s.noteAnswer(sent, err); err != nil {
		return 0
	}
	delay = delay.Truncate(store.Resolution)
	last := len(detail.History) - 1
	if last < 1 || r.RunAt.Sub(detail.History[last-1].EndedAt) != delay {
		return 0
	}
	first := last
	for ; first > 0; first-- {
		before := detail.History[first-1]
		gone := detail.History[first].StartedAt.Sub(before.EndedAt)
		if before.Ending != store.EndSnoozed || gone < delay || gone > 2*delay+s.o.Lease {
			break
		}
	}
	return detail.History[last].StartedAt.Sub(detail.History[first].StartedAt)
}
