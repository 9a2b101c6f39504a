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
		s.commit(s.held.takeEnded(s.clock.Now()))
	}
}

// awaitEnded waits until there is something to write: enough of it, or for long enough, or nothing more that could join it.
func (s *Server) awaitEnded() bool {
	var due time.Time // of what has gathered, or zero
	for {
		now := s.clock.Now()
		n, alone, later := s.held.gathered(now)
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
		if !s.sleepUntil(again, s.held.commit) {
			return false
		}
	}
}

// commit writes the verdicts of the runs: those of the same sort together, and one by one those that were put off before.
func (s *Server) commit(runs []*Run) {
	fresh, again := map[write][]*Run{}, []*Run(nil)
	for _, r := range runs {
		if r.tries > 0 {
			again = append(again, r)
		} else {
			fresh[r.verdict.write] = append(fresh[r.verdict.write], r)
		}
	}
	for _, w := range []write{ack, nack, confirm} {
		for part := range parts(fresh[w]) {
			s.write(w, part)
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

// send writes the verdicts of some runs, all of the same sort, with one call of the store.
func (s *Server) send(w write, runs []*Run) ([]store.Outcome, error) {
	ctx, cancel := s.call(s.o.Lease)
	defer cancel()
	switch w {
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

// written takes the store's answers to a call.
func (s *Server) written(w write, runs []*Run, outcomes []store.Outcome) {
	done := make([]*Run, 0, len(runs))
	for i, r := range runs {
		switch o := outcomes[i]; {
		case o.Status == store.StatusBusy:
			s.putOff(r)
		case o.Status == store.StatusInvalid:
			s.unwritable(r, o.Err(), s.wrote[w])
		case w == confirm && o.Status == store.StatusOK:
			s.held.rewrite(r, *r.verdict.otherwise)
		default:
			s.report(w, r, o)
			done = append(done, r)
		}
	}
	s.held.written(done)
}

// report tells what became of a run in the end.
func (s *Server) report(w write, r *Run, o store.Outcome) {
	switch o.Status {
	case store.StatusOK, store.StatusFinished:
		phase := store.Job{State: o.State, RetryAt: o.Next}.Phase()
		ending := r.verdict.ending()
		if w == ack && o.State == store.Failed {
			ending = store.EndFailed // the result was refused
			s.log.Error("jq: a result was refused and its job has failed", "job", r.ID, "queue", r.Queue, "kind", r.Kind, "bytes", len(r.verdict.result))
		}
		s.o.Observer.Ended(r.Job, ending, phase, r.ran)
		if w == nack && ending == store.EndFailed {
			s.failures.ended(r, phase, o)
		}
		if s.log.Enabled(s.life, slog.LevelDebug) { // else its arguments would cost every job
			s.log.Debug("jq: job ended", "job", r.ID, "queue", r.Queue, "kind", r.Kind, "ending", ending, "phase", phase)
		}
	case store.StatusStale:
		s.stale(string(w), r, o)
	default:
		s.log.Info("jq: a result came too late", "op", w, "job", r.ID, "queue", r.Queue, "kind", r.Kind, "status", o.Status)
	}
}

// gathered is how many runs wait to be written, whether no other can join them soon, and when the next of those is due that
// were put off.
func (h *held) gathered(now time.Time) (n int, alone bool, later time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n = len(h.ended)
	for _, r := range h.later {
		switch {
		case !r.tryAt.After(now):
			n++
		case later.IsZero() || r.tryAt.Before(later):
			later = r.tryAt
		}
	}
	return n, h.running == len(h.unreplaced) && len(h.queued) == 0, later
}

// takeEnded hands over the runs that are to be written now.
func (h *held) takeEnded(now time.Time) []*Run {
	h.mu.Lock()
	defer h.mu.Unlock()
	runs := h.ended
	h.ended = nil
	h.later = slices.DeleteFunc(h.later, func(r *Run) bool {
		if r.tryAt.After(now) {
			return false
		}
		runs = append(runs, r)
		return true
	})
	return runs
}

// putOff hands the run to the committer once more, when the time has come.
func (h *held) putOff(r *Run, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.tries++
	r.tryAt = at
	h.later = append(h.later, r)
}

// rewrite hands the run to the committer with another verdict.
func (h *held) rewrite(r *Run, v verdict) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.verdict, r.refused = v, 0
	h.ended = append(h.ended, r)
	h.commit.send()
}

// written forgets runs that the store has answered for.
func (h *held) written(runs []*Run) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range runs {
		h.runs.remove(r)
	}
	if h.uncommitted -= len(runs); h.uncommitted < h.maxUncommitted {
		h.fullSince = time.Time{}
	}
	h.fetch.send()
	h.rest.send()
}
