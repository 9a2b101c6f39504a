package server

import (
	"log/slog"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/await"
	"github.com/seed-ed332417/jq/internal/store"
)

// commitLoop writes the verdicts of runs in batches. Runs that end during a write form the next batch.
func (s *Server) commitLoop() {
	var runs []*Run
	var written time.Time // the latest batch
	for s.awaitBatch(written) {
		written = s.clock.Now()
		runs = s.book.takeBatch(runs[:0], written)
		s.commit(runs)
		clear(runs) // which are reused, and must not hold what has ended
	}
}

// awaitBatch waits until a batch is full, or has waited long enough, or no other run can join it soon. It returns false when the server has
// ended. Unless the server stops, a batch that is not full waits until the interval since the latest one is over.
func (s *Server) awaitBatch(latest time.Time) bool {
	var due time.Time // when the pending batch must be written, or zero
	for {
		now := s.clock.Now()
		n, full, alone, later := s.book.pending(now)
		if n > 0 && due.IsZero() {
			due = now.Add(s.o.Commit.MaxDelay)
		}
		again := later
		if n > 0 {
			again = due
			if alone {
				again = now
			}
			if apart := latest.Add(s.o.Commit.Interval); s.o.Commit.Interval > 0 && apart.After(again) && s.work.Err() == nil {
				again = apart
			}
			if full || n >= s.o.Commit.Size || !again.After(now) {
				return true
			}
		}
		if !s.sleepUntil(s.life, again, s.book.commit) {
			return false
		}
	}
}

// commit writes the verdicts of the runs: one call for each operation. Delayed writes are made one by one.
func (s *Server) commit(runs []*Run) {
	acked := func(r *Run) bool { return r.verdict.op == ack && r.trouble == nil }
	if slices.IndexFunc(runs, func(r *Run) bool { return !acked(r) }) < 0 {
		for part := range splitByLimits(runs) {
			s.writeBatch(ack, part)
		}
		return
	}
	byOp, delayed := map[writeOp][]*Run{}, []*Run(nil)
	for _, r := range runs {
		if r.delays() > 0 {
			delayed = append(delayed, r)
		} else {
			byOp[r.verdict.op] = append(byOp[r.verdict.op], r)
		}
	}
	for _, op := range []writeOp{ack, nack, confirm} {
		for part := range splitByLimits(byOp[op]) {
			s.writeBatch(op, part)
		}
	}
	for part := range slices.Chunk(delayed, store.MaxItems) {
		s.writeDelayed(part)
	}
}

// splitByLimits splits the runs into parts that one call may carry.
func splitByLimits(runs []*Run) func(yield func([]*Run) bool) {
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

// size returns what the verdict adds to a call, as the contract counts it.
func (v *verdict) size() int {
	size := min(len(v.reason), store.MaxErrorBytes)
	if len(v.result) <= store.MaxDocBytes {
		size += len(v.result)
	}
	return size
}

// writeBatch writes the verdicts with one call. Only if that fails does retryBatch find out why.
func (s *Server) writeBatch(op writeOp, runs []*Run) {
	if s.life.Err() != nil {
		return
	}
	if err := s.tryWrite(op, runs); err != nil {
		s.retryBatch(op, runs, err)
	}
}

// tryWrite writes the verdicts with one call of the store, and applies its answers.
func (s *Server) tryWrite(op writeOp, runs []*Run) error {
	outcomes, err := s.sendBatch(op, runs)
	if err != nil {
		return err
	}
	s.recordAnswer(s.clock.Now(), nil)
	s.health.permitted(string(op))
	s.writes[op]++
	await.Tell(s.store, outcomes)
	s.applyOutcomes(op, runs, outcomes)
	return nil
}

// sendBatch calls the store to write the verdicts, which all have the same operation.
func (s *Server) sendBatch(op writeOp, runs []*Run) ([]store.Outcome, error) {
	ctx, cancel := s.call(s.o.Lease.Duration)
	defer cancel()
	switch op {
	case ack:
		return s.store.Ack(ctx, acksOf(runs))
	case nack:
		return s.store.NAck(ctx, nacksOf(runs))
	default: // confirm: a heartbeat shows whether the handler's transaction was committed
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

// applyOutcomes handles the answers of the store, one for each run.
func (s *Server) applyOutcomes(op writeOp, runs []*Run, outcomes []store.Outcome) {
	done := make([]*Run, 0, len(runs))
	for i, r := range runs {
		switch o := outcomes[i]; {
		case o.Status == store.StatusBusy:
			s.delayWrites(r)
		case o.Status == store.StatusInvalid:
			s.handleRefusal(r, o.Err(), s.writes[op])
		case op == confirm && o.Status == store.StatusOK:
			s.book.replaceVerdict(r, *r.verdict.otherwise)
		default:
			s.reportEnd(op, r, o)
			done = append(done, r)
		}
	}
	s.book.remove(done)
}

// reportEnd tells the observer and the log how a run ended.
func (s *Server) reportEnd(op writeOp, r *Run, o store.Outcome) {
	switch o.Status {
	case store.StatusOK, store.StatusFinished:
		phase := store.PhaseOf(&store.Job{State: o.State, RetryAt: o.Next})
		ending := r.verdict.ending()
		if op == ack && o.State == store.Failed {
			ending = store.EndFailed // the store refused the result
			s.log.Error("jq: the store refused a result; the job failed", "job", r.ID, "queue", r.Queue, "kind", r.Kind, "bytes", len(r.verdict.result))
		}
		if r.seen != nil {
			s.o.Observer.Ended(*r.seen, ending, phase, r.ran)
		}
		s.tally.Ended(r.Queue, r.Kind, ending, phase, r.ran)
		if op == nack && ending == store.EndFailed {
			s.failures.ended(r, phase, o)
		}
		if s.log.Enabled(s.life, slog.LevelDebug) { // otherwise every job would pay for the arguments
			s.log.Debug("jq: job ended", "job", r.ID, "queue", r.Queue, "kind", r.Kind, "ending", ending, "phase", phase)
		}
	case store.StatusStale:
		s.staleWrite(string(op), r, o)
	default:
		s.log.Info("jq: a result arrived too late", "op", op, "job", r.ID, "queue", r.Queue, "kind", r.Kind, "status", o.Status)
	}
}
