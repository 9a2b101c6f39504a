package server

import (
	"log/slog"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// commitLoop writes down how runs ended, many at once. What ends while a write is under way is gathered for the next one.
func (s *Server) commitLoop() {
	for s.awaitEnded() {
		s.commit(s.book.takeEnded(s.clock.Now()))
	}
}

// awaitEnded waits until there is something to write: enough of it, or for long enough, or nothing more that could join it.
func (s *Server) awaitEnded() bool {
	var due time.Time // of what has gathered, or zero
	for {
		now := s.clock.Now()
		n, alone, later := s.book.gathered(now)
		if n > 0 && due.IsZero() {
			due = now.Add(s.o.CommitAfter)
		}
		if n >= s.o.CommitSize || n > 0 && (alone || !due.After(now)) {
			return true
		}
		again := due
		if n == 0 {
			again = later
		}
		if !s.sleepUntil(again, s.book.commit) {
			return false
		}
	}
}

// commit writes the verdicts of the runs: those of the same sort together, and one by one those that were put off before.
func (s *Server) commit(runs []*Run) {
	fresh, again := map[writeOp][]*Run{}, []*Run(nil)
	for _, r := range runs {
		if r.tries > 0 {
			again = append(again, r)
		} else {
			fresh[r.verdict.op] = append(fresh[r.verdict.op], r)
		}
	}
	for _, op := range []writeOp{ack, nack, confirm} {
		for part := range parts(fresh[op]) {
			s.deliver(op, part)
		}
	}
	for part := range slices.Chunk(again, store.MaxItems) {
		s.writeAgain(part)
	}
}

// parts cuts the runs into as many as one call may carry.
func parts(runs []*Run) func(yield func([]*Run) bool) {
	return func(yield func([]*Run) bool) {
		from, size := 0, 0
		for i, r := range runs {
			weight := r.verdict.size()
			if i > from && (i-from == store.MaxItems || size+weight > store.MaxCallBytes) {
				if !yield(runs[from:i]) {
					return
				}
				from, size = i, 0
			}
			size += weight
		}
		if from < len(runs) {
			yield(runs[from:])
		}
	}
}

// size is what the verdict adds to a call, as the contract counts it.
func (v verdict) size() int {
	size := min(len(v.reason), store.MaxErrorBytes)
	if len(v.result) <= store.MaxDocBytes {
		size += len(v.result)
	}
	return size
}

// deliver writes the verdicts with one call. Only where that fails, retry finds out why.
func (s *Server) deliver(op writeOp, runs []*Run) {
	if s.life.Err() != nil {
		return
	}
	if err := s.attempt(op, runs); err != nil {
		s.retry(op, runs, err)
	}
}

// attempt calls the store once, and takes its answers.
func (s *Server) attempt(op writeOp, runs []*Run) error {
	outcomes, err := s.send(op, runs)
	if err != nil {
		return err
	}
	s.noteAnswer(s.clock.Now(), nil)
	s.health.permitted(string(op))
	s.wrote[op]++
	s.apply(op, runs, outcomes)
	return nil
}

// send writes the verdicts of some runs, all of the same sort, with one call of the store.
func (s *Server) send(op writeOp, runs []*Run) ([]store.Outcome, error) {
	ctx, cancel := s.call(s.o.Lease)
	defer cancel()
	switch op {
	case ack:
		return s.store.Ack(ctx, acksOf(runs))
	case nack:
		return s.store.NAck(ctx, nacksOf(runs))
	default: // what became of jobs that their handlers have finished is told by a heartbeat
		return s.extend(ctx, runs)
	}
}

func acksOf(runs []*Run) []store.Ack {
	acks := make([]store.Ack, len(runs))
	for i, r := range runs {
		acks[i] = store.Ack{Lease: r.Lease(), Result: r.verdict.result}
	}
	return acks
}

func nacksOf(runs []*Run) []store.NAck {
	nacks := make([]store.NAck, len(runs))
	for i, r := range runs {
		nacks[i] = store.NAck{Lease: r.Lease(), Form: r.verdict.form, Delay: r.verdict.delay, Error: r.verdict.reason}
	}
	return nacks
}

// apply takes the store's answers to a call.
func (s *Server) apply(op writeOp, runs []*Run, outcomes []store.Outcome) {
	done := make([]*Run, 0, len(runs))
	for i, r := range runs {
		switch o := outcomes[i]; {
		case o.Status == store.StatusBusy:
			s.putOff(r)
		case o.Status == store.StatusInvalid:
			s.unwritable(r, o.Err(), s.wrote[op])
		case op == confirm && o.Status == store.StatusOK:
			s.book.rewrite(r, *r.verdict.otherwise)
		default:
			s.report(op, r, o)
			done = append(done, r)
		}
	}
	s.book.written(done)
}

// report tells what became of a run in the end.
func (s *Server) report(op writeOp, r *Run, o store.Outcome) {
	switch o.Status {
	case store.StatusOK, store.StatusFinished:
		phase := store.Job{State: o.State, RetryAt: o.Next}.Phase()
		ending := r.verdict.ending()
		if op == ack && o.State == store.Failed {
			ending = store.EndFailed // the result was refused
			s.log.Error("jq: a result was refused and its job has failed", "job", r.ID, "queue", r.Queue, "kind", r.Kind, "bytes", len(r.verdict.result))
		}
		s.o.Observer.Ended(r.Job, ending, phase, r.ran)
		if op == nack && ending == store.EndFailed {
			s.failures.ended(r, phase, o)
		}
		if s.log.Enabled(s.life, slog.LevelDebug) { // else its arguments would cost every job
			s.log.Debug("jq: job ended", "job", r.ID, "queue", r.Queue, "kind", r.Kind, "ending", ending, "phase", phase)
		}
	case store.StatusStale:
		s.staleWrite(string(op), r, o)
	default:
		s.log.Info("jq: a result came too late", "op", op, "job", r.ID, "queue", r.Queue, "kind", r.Kind, "status", o.Status)
	}
}
