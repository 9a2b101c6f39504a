package server

import (
	"errors"
	"maps"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Not every failed write means that the store is away: one locked job, or one verdict that the store can not take, fails the
// whole call in which it stands. What follows finds such a run, and writes the others without it. But where no write of a
// sort comes through, the fault may not be in the runs: then all of them wait, but not for ever.

const (
	firstRetry     = 50 * time.Millisecond // the pause before the second try, doubled for each further one
	mostFailures   = 16                    // in a row, until the search for runs at fault is broken off; more than 1,000 take to be halved
	mostRefusals   = 10                    // of a single run, while others are written, until its verdict is given up
	longestRefusal = time.Hour             // from when on its refusals count also where no others are written
)

// retry repeats a failed call until the store has answered: to repeat is safe. It returns early when the server ends.
func (s *Server) retry(op writeOp, runs []*Run, err error) {
	s.logFailure(string(op), err)
	s.sleep(s.life, firstRetry) // most failures pass
	for wait := min(2*firstRetry, s.o.Beat); len(runs) > 0 && s.life.Err() == nil; wait = min(2*wait, s.o.Beat) {
		if err = s.attempt(op, runs); err == nil {
			return
		}
		s.logFailure(string(op), err)
		switch open, there := s.unlocked(runs); {
		case !there:
			s.sleep(s.life, wait)
		case len(open) < len(runs):
			runs = open
		default:
			s.isolate(op, runs, err)
			return
		}
	}
}

// isolate writes the halves of what could not be written as a whole, and their halves, down to the runs at fault.
func (s *Server) isolate(op writeOp, runs []*Run, err error) {
	type part struct {
		runs []*Run
		err  error // of the try, or nil before it
	}
	parts, before := []part{{runs, err}}, s.wrote[op]
	for failures := 0; len(parts) > 0; {
		p := parts[len(parts)-1]
		parts = parts[:len(parts)-1]
		if p.err == nil && failures < mostFailures {
			if p.err = s.attempt(op, p.runs); p.err == nil {
				failures = 0
				continue
			}
			failures++
		}
		switch half := len(p.runs) / 2; {
		case s.life.Err() != nil:
			return
		case p.err == nil:
			s.putOff(p.runs...)
		case half == 0:
			s.unwritable(p.runs[0], p.err, before)
		default:
			parts = append(parts, part{runs: p.runs[half:]}, part{runs: p.runs[:half]})
		}
	}
}

// writeAgain writes runs that were put off before, each alone, so that none of them can spoil the others.
func (s *Server) writeAgain(runs []*Run) {
	open, there := s.unlocked(runs)
	if !there {
		s.putOff(runs...)
		return
	}
	failures, failed, before := 0, map[*Run]error{}, maps.Clone(s.wrote)
	for len(open) > 0 && failures < mostFailures && s.life.Err() == nil {
		r := open[0]
		open = open[1:]
		if err := s.attempt(r.verdict.op, []*Run{r}); err != nil {
			failed[r] = err
			failures++
		} else {
			failures = 0
		}
	}
	s.putOff(open...) // before those that have had their turn
	for r, err := range failed {
		s.unwritable(r, err, before[r.verdict.op])
	}
}

// unlocked asks, without waiting for the locks of others, whether the store is there and which of the runs are still to be
// written. Those that somebody has locked are put off, and those whose verdict has arrived before, with its answer lost, are
// done.
func (s *Server) unlocked(runs []*Run) (open []*Run, there bool) {
	sent := s.clock.Now()
	ctx, cancel := s.call(s.o.Beat)
	defer cancel()
	outcomes, err := s.extend(ctx, runs)
	if s.noteAnswer(sent, err); err != nil {
		return nil, false
	}
	var done []*Run
	for i, r := range runs {
		switch outcomes[i].Status {
		case store.StatusBusy:
			s.putOff(r)
		case store.StatusFinished:
			s.report(r.verdict.op, r, outcomes[i])
			done = append(done, r)
		default:
			open = append(open, r)
		}
	}
	s.book.written(done)
	return open, true
}

// putOff lets runs wait, each the longer the more often it was put off, and at most for a beat. Meanwhile their leases are
// extended like all others.
func (s *Server) putOff(runs ...*Run) {
	now := s.clock.Now()
	for _, r := range runs {
		s.book.putOff(r, now.Add(min(firstRetry<<min(r.tries, 10), s.o.Beat)))
	}
}

// unwritable deals with a single verdict that the store refuses, and had written so many of its sort before. Unless it is
// invalid, it is tried again, until it was refused often enough while others were written, or after so long that there may be
// no others; then the job fails with a reason that says so. If not even that can be written, the lease is left to run out.
func (s *Server) unwritable(r *Run, err error, before int) {
	log := s.log.With("op", r.verdict.op, "job", r.ID, "queue", r.Queue, "kind", r.Kind, "error", err)
	now := s.clock.Now()
	switch {
	case r.refused == 0:
		r.refused, r.refusedAt, r.wroteThen = 1, now, before
		log.Warn("jq: a result can not be written yet")
	case r.verdict.substitute || s.wrote[r.verdict.op] > r.wroteThen || now.Sub(r.refusedAt) >= longestRefusal:
		r.refused++
	}
	switch {
	case !errors.Is(err, store.ErrInvalid) && r.refused < mostRefusals:
		s.putOff(r)
	case r.verdict.substitute:
		log.Error("jq: not even a failure can be written; the job is left until its lease has run out")
		s.book.written([]*Run{r})
	default:
		log.Error("jq: a result can not be written; its job fails instead")
		s.book.rewrite(r, substitute(r.verdict, err))
	}
}

// substitute is the failure that stands for a verdict which can not be written.
func substitute(v verdict, err error) verdict {
	reason := "its end could not be written: " + err.Error()
	if v.reason != "" {
		reason = v.reason + "\nand that could not be written: " + err.Error()
	}
	failure := fail(reason)
	failure.substitute = true
	return failure
}
