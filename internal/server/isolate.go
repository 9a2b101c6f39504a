package server

import (
	"errors"
	"maps"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A failed write does not always mean that the store is unreachable: one locked job, or one verdict that the store cannot accept, fails the
// whole call. The functions below find that run, and write the others without it. But if no write of an operation succeeds, the fault may
// lie elsewhere: then all runs wait, but not for ever.
const (
	firstRetryDelay = 50 * time.Millisecond // the pause before the second try; it doubles each time
	maxFailures     = 16                    // failures in a row that end the search for failing runs; more than halving 1,000 runs takes
	maxRefusals     = 10                    // of one verdict, while others are written, before the job fails instead
	maxRefusalTime  = time.Hour             // after this time, refusals count even if no others are written
)

// retryBatch repeats a failed call until the store has answered; repeating it is safe. It returns early when the server ends.
func (s *Server) retryBatch(op writeOp, runs []*Run, err error) {
	s.logFailure(string(op), err)
	s.sleep(s.life, firstRetryDelay) // most failures pass
	for wait := min(2*firstRetryDelay, s.o.Lease.Heartbeat); len(runs) > 0 && s.life.Err() == nil; wait = min(2*wait, s.o.Lease.Heartbeat) {
		if err = s.tryWrite(op, runs); err == nil {
			return
		}
		s.logFailure(string(op), err)
		switch open, reachable := s.stillUnwritten(runs); {
		case !reachable:
			s.sleep(s.life, wait)
		case len(open) < len(runs):
			runs = open
		default:
			s.isolate(op, runs, err)
			return
		}
	}
}

// isolate splits a batch that cannot be written as a whole, and writes the halves and their halves, down to the runs that fail.
func (s *Server) isolate(op writeOp, runs []*Run, err error) {
	type part struct {
		runs []*Run
		err  error // of the latest try, or nil
	}
	parts, before := []part{{runs, err}}, s.writes[op]
	for failures := 0; len(parts) > 0; {
		p := parts[len(parts)-1]
		parts = parts[:len(parts)-1]
		if p.err == nil && failures < maxFailures {
			if p.err = s.tryWrite(op, p.runs); p.err == nil {
				failures = 0
				continue
			}
			failures++
		}
		switch half := len(p.runs) / 2; {
		case s.life.Err() != nil:
			return
		case p.err == nil:
			s.delayWrites(p.runs...)
		case half == 0:
			s.handleRefusal(p.runs[0], p.err, before)
		default:
			parts = append(parts, part{runs: p.runs[half:]}, part{runs: p.runs[:half]})
		}
	}
}

// writeDelayed writes delayed runs one by one, so that none of them can fail the others.
func (s *Server) writeDelayed(runs []*Run) {
	open, reachable := s.stillUnwritten(runs)
	if !reachable {
		s.delayWrites(runs...)
		return
	}
	failures, failed, before := 0, map[*Run]error{}, maps.Clone(s.writes)
	for len(open) > 0 && failures < maxFailures && s.life.Err() == nil {
		r := open[0]
		open = open[1:]
		if err := s.tryWrite(r.verdict.op, []*Run{r}); err != nil {
			failed[r] = err
			failures++
		} else {
			failures = 0
		}
	}
	s.delayWrites(open...) // first, so that they are written before those that have just failed
	for r, err := range failed {
		s.handleRefusal(r, err, before[r.verdict.op])
	}
}

// stillUnwritten asks the store, by a heartbeat, which of the runs still need a write; a heartbeat does not wait for row locks. It delays
// the runs whose jobs are locked, and finishes those whose verdict was written by a call that got no answer. It returns false if the store
// is unreachable.
func (s *Server) stillUnwritten(runs []*Run) (open []*Run, reachable bool) {
	sent := s.clock.Now()
	ctx, cancel := s.call(s.o.Lease.Heartbeat)
	defer cancel()
	outcomes, err := s.extend(ctx, runs)
	if s.recordAnswer(sent, err); err != nil {
		return nil, false
	}
	var done []*Run
	for i, r := range runs {
		switch outcomes[i].Status {
		case store.StatusBusy:
			s.delayWrites(r)
		case store.StatusFinished:
			s.reportEnd(r.verdict.op, r, outcomes[i])
			done = append(done, r)
		default:
			open = append(open, r)
		}
	}
	s.book.remove(done)
	return open, true
}

// delayWrites delays the writes of runs: a run waits longer each time, up to one heartbeat interval. Heartbeats extend its lease meanwhile.
func (s *Server) delayWrites(runs ...*Run) {
	now := s.clock.Now()
	for _, r := range runs {
		s.book.delayWrite(r, now.Add(min(firstRetryDelay<<min(r.delays(), 10), s.o.Lease.Heartbeat)))
	}
}

// handleRefusal handles one verdict that the store refused. before is how many writes of the same operation had succeeded before the call.
// An invalid verdict is replaced at once. Any other is tried again, until the store has refused it often enough while it accepted others,
// or for so long that there may be no others. Then the job fails instead, with a reason that says so. If the store refuses even that, the
// lease is left to expire.
func (s *Server) handleRefusal(r *Run, err error, before int) {
	log := s.log.With("op", r.verdict.op, "job", r.ID, "queue", r.Queue, "kind", r.Kind, "error", err)
	now, t := s.clock.Now(), r.troubled()
	switch {
	case t.refusals == 0:
		t.refusals, t.firstRefusalAt, t.writesBefore = 1, now, before
		log.Warn("jq: could not write a result; trying again")
	case r.verdict.substitute || s.writes[r.verdict.op] > t.writesBefore || now.Sub(t.firstRefusalAt) >= maxRefusalTime:
		t.refusals++
	}
	switch {
	case !errors.Is(err, store.ErrInvalid) && t.refusals < maxRefusals:
		s.delayWrites(r)
	case r.verdict.substitute:
		log.Error("jq: could not write the failure either; the job waits until its lease expires")
		s.book.remove([]*Run{r})
	default:
		log.Error("jq: could not write a result; the job fails instead")
		s.book.replaceVerdict(r, asFailure(*r.verdict, err))
	}
}

// asFailure returns the failure that replaces a verdict which cannot be written.
func asFailure(v verdict, err error) verdict {
	reason := "the result could not be written: " + err.Error()
	if v.reason != "" {
		reason = v.reason + "\nthis could not be written: " + err.Error()
	}
	failure := fail(reason)
	failure.substitute = true
	return failure
}
