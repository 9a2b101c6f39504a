package server

import (
	"context"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// beatLoop extends every lease that is held, until the last result is written. After a failure it tries again sooner: the
// lease has room for it.
func (s *Server) beatLoop() {
	for wait := s.o.Beat; s.sleep(s.life, wait); {
		began := s.clock.Now()
		err := s.beat()
		if wait = s.o.Beat / 4; err == nil {
			wait = s.o.Beat - s.clock.Since(began) // a slow answer delays no beat
		}
	}
}

// beat extends once. A call that was lost on the way is given up early enough for another one to be sent within a beat: for
// so long recovery waits after an outage.
func (s *Server) beat() error {
	for runs := range slices.Chunk(s.held.extendable(), store.MaxItems) {
		sent := s.clock.Now()
		ctx, cancel := s.call(s.o.Beat * 2 / 3)
		outcomes, err := s.extend(ctx, runs)
		cancel()
		if s.heard(sent, err); err != nil {
			s.o.Observer.BeatFailed()
			s.log.Warn("jq: heartbeat failed", "leases", len(runs), "error", err)
			return err
		}
		started, stopped := s.held.extended(runs, outcomes, sent.Add(s.o.Lease), s.clock.Now())
		s.stop(stopped, "extend")
		s.launch(started)
	}
	return nil
}

// extend is one heartbeat for the runs. The committer sends some as well, to be told what became of jobs, and which are locked.
func (s *Server) extend(ctx context.Context, runs []*Run) ([]store.Outcome, error) {
	leases := make([]store.Lease, len(runs))
	for i, r := range runs {
		leases[i] = r.Lease()
	}
	return s.store.Extend(ctx, leases, s.o.Lease)
}

// stop tells handlers to stop, and says which writes were refused.
func (s *Server) stop(stopped []stop, op string) {
	for _, st := range stopped {
		if st.outcome.Status == store.StatusStale {
			s.stale(op, st.run, st.outcome)
		}
		if st.cause != nil {
			st.run.cancel(st.cause)
		}
	}
}

// stale warns of a write that came too late: whoever reads it wants to know which job had two runs.
func (s *Server) stale(op string, r *Run, o store.Outcome) {
	s.o.Observer.StaleWrite(op)
	s.log.Warn("jq: stale write refused", "op", op, "job", r.ID, "queue", r.Queue, "kind", r.Kind, "token", r.Token, "current_token", o.Token)
}

// lost is told by a run that the store has refused one of its writes.
func (s *Server) lost(r *Run, op string, o store.Outcome) {
	s.stop(s.held.lost(r, o, s.clock.Now()), op)
}

// contract is the store, for what runs write themselves.
func (s *Server) contract() store.Store { return s.store }

// extendable are the runs whose leases are to be extended: all that are held, but for those that are known to be gone.
func (h *held) extendable() []*Run {
	h.mu.Lock()
	defer h.mu.Unlock()
	runs := make([]*Run, 0, len(h.runs))
	for _, r := range h.runs {
		if !r.settled {
			runs = append(runs, r)
		}
	}
	return runs
}

// A stop is a handler that has to be told to stop, and why.
type stop struct {
	run     *Run
	cause   error         // nil if it was given up: it was told before
	outcome store.Outcome // of the call by which the lease was found to be lost, if any
}

// extended notes the answers to a heartbeat. It returns the runs that can start now, and those that have to stop.
func (h *held) extended(runs []*Run, outcomes []store.Outcome, until, now time.Time) (started []*Run, stopped []stop) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, o := range outcomes {
		r := runs[i]
		if !h.runs.has(r) {
			continue // written meanwhile
		}
		switch o.Status {
		case store.StatusOK:
			r.leaseUntil = until
		case store.StatusFinished: // by its handler in a transaction, or by an Ack whose answer is not here yet
			if r.settled = true; r.stage == buffered {
				h.forget(r)
			}
		case store.StatusCancelled:
			stopped = append(stopped, h.lose(r, ErrCancelled, o, now)...)
		case store.StatusStale, store.StatusNotFound:
			stopped = append(stopped, h.lose(r, ErrLeaseLost, o, now)...)
		}
	}
	return h.fill(now), stopped
}

// lost is lose for a run whose own write was refused.
func (h *held) lost(r *Run, o store.Outcome, now time.Time) []stop {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lose(r, lossOf(o), o, now)
}

// lossOf is why a handler is told to stop whose write was refused.
func lossOf(o store.Outcome) error {
	if o.State == store.Cancelled {
		return ErrCancelled
	}
	return ErrLeaseLost
}

// lose notes that a lease is gone. A buffered run is forgotten; one that has ended is left to the committer, whom the store
// will tell the same. The lock is held.
func (h *held) lose(r *Run, cause error, o store.Outcome, now time.Time) []stop {
	if r.settled || !h.runs.has(r) || r.stage == ended {
		return nil
	}
	r.settled, r.lost = true, true
	if r.stage == buffered {
		h.forget(r)
	} else {
		h.tell(r, cause, now)
	}
	return []stop{{r, cause, o}}
}

// forget takes a run out of the buffer that must not start. The lock is held.
func (h *held) forget(r *Run) {
	h.queued = slices.DeleteFunc(h.queued, func(other *Run) bool { return other == r })
	h.leaveQueue(r)
	h.runs.remove(r)
	h.fetch.send()
	h.rest.send()
}
