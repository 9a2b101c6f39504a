package server

import "github.com/seed-ed332417/jq/internal/store"

// A cancellation is a handler to cancel or to abandon.
type cancellation struct {
	run     *Run
	cause   error         // nil if the handler is abandoned: it was cancelled before
	outcome store.Outcome // of the call that found the lease lost, if any
}

// cancelHandlers cancels the handlers, and logs the writes that the store refused. op is the call that it refused.
func (s *Server) cancelHandlers(cancelled []cancellation, op string) {
	for _, c := range cancelled {
		if c.outcome.Status == store.StatusStale {
			s.staleWrite(op, c.run, c.outcome)
		}
		if c.cause != nil {
			c.run.cancel(c.cause)
		}
	}
}

// staleWrite logs a write that the store refused because of its old token. Operators want to know which job ran twice.
func (s *Server) staleWrite(op string, r *Run, o store.Outcome) {
	s.o.Observer.StaleWrite(op)
	s.tally.Stale(r.Queue, r.Kind)
	s.log.Warn("jq: stale write refused", "op", op, "job", r.ID, "queue", r.Queue, "kind", r.Kind, "token", r.Token, "current_token", o.Token)
}

// writeRefused cancels a run whose own write the store refused.
func (s *Server) writeRefused(r *Run, op string, o store.Outcome) {
	s.cancelHandlers(s.book.writeRefused(r, o, s.clock.Now()), op)
}

// backend returns the store, for the writes of the runs themselves.
func (s *Server) backend() store.Store { return s.store }

// causeOf returns why a handler is cancelled whose write was refused with the outcome.
func causeOf(o store.Outcome) error {
	if o.State == store.Cancelled {
		return ErrCancelled
	}
	return ErrLeaseLost
}
