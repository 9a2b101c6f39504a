package memory

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Cancel ends jobs that are not terminal.
func (s *Store) Cancel(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	live := func(j *job) bool { return !j.phase.terminal() }
	return s.operate(ctx, filter, limit, filter.CheckBulk(limit), live, s.cancel)
}

// Requeue makes terminal jobs ready again.
func (s *Store) Requeue(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	var waiting []*job
	apply := func(j *job, now time.Time) store.Outcome {
		o := s.requeue(j, now)
		if o.Status == store.StatusOK && len(s.waits[j.ID]) > 0 {
			waiting = append(waiting, j)
		}
		return o
	}
	return s.operateAndThen(ctx, filter, limit, filter.CheckBulk(limit), terminal, apply, func(outcomes []store.Outcome) {
		s.blockAgain(waiting, outcomes)
	})
}

// blockAgain blocks jobs that were requeued and wait for others, by rising id.
func (s *Store) blockAgain(waiting []*job, outcomes []store.Outcome) {
	if len(waiting) > 0 {
		s.hear(math.MaxInt, s.last) // what was before must not count afterwards
	}
	slices.SortFunc(waiting, func(a, b *job) int { return cmp.Compare(a.ID, b.ID) })
	for _, j := range waiting {
		if !store.LookAgain(s.waits[j.ID], s.awaits()) {
			continue
		}
		r := s.record(j)
		r.State = store.Blocked
		s.change(j, r)
		for i := range outcomes {
			if o := &outcomes[i]; o.ID == j.ID && o.Status == store.StatusOK {
				*o = store.OutcomeOf(s.record(j).Job, o.Status)
			}
		}
	}
}

// Reschedule gives jobs that wait another due time.
func (s *Store) Reschedule(ctx context.Context, filter store.Filter, at time.Time, limit int) ([]store.Outcome, error) {
	waits := func(j *job) bool { return j.phase.waits() }
	return s.operate(ctx, filter, limit, filter.CheckReschedule(at, limit), waits, func(j *job, now time.Time) store.Outcome {
		r := s.record(j)
		o := r.Reschedule(at, now)
		if r.Token != j.token {
			s.change(j, r)
		}
		return o
	})
}

// Delete removes terminal jobs with their history.
func (s *Store) Delete(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return s.operate(ctx, filter, limit, filter.CheckBulk(limit), terminal, s.delete)
}

func terminal(j *job) bool { return j.phase.terminal() }

// operate applies an operation to the ids of the filter. If the filter has no ids, it applies the operation to the first jobs
// that match and can be changed.
func (s *Store) operate(
	ctx context.Context, f store.Filter, limit int, invalid error, can func(*job) bool, apply func(*job, time.Time) store.Outcome,
) ([]store.Outcome, error) {
	return s.operateAndThen(ctx, f, limit, invalid, can, apply, func([]store.Outcome) {})
}

// operateAndThen is operate, and does something with all outcomes at the end of the call.
func (s *Store) operateAndThen(
	ctx context.Context, f store.Filter, limit int, invalid error, can func(*job) bool, apply func(*job, time.Time) store.Outcome,
	then func([]store.Outcome),
) (outcomes []store.Outcome, err error) {
	now, err := s.enter(ctx, invalid)
	if err != nil {
		return nil, err
	}
	defer s.leave()
	defer func() { then(outcomes) }()
	if len(f.IDs) > 0 {
		return s.operateOnIDs(f, apply, now), nil
	}
	var chosen []*job // chosen before any is changed, so that no changed job is chosen again
	for j := range s.rising(f) {
		if len(chosen) == limit {
			break
		}
		if can(j) && s.matches(f, j, now) {
			chosen = append(chosen, j)
		}
	}
	outcomes = make([]store.Outcome, len(chosen))
	for i, j := range chosen {
		outcomes[i] = apply(j, now)
	}
	return outcomes, nil
}

func (s *Store) operateOnIDs(f store.Filter, apply func(*job, time.Time) store.Outcome, now time.Time) []store.Outcome {
	matching := make([]bool, len(f.IDs)) // before any is changed
	for i, id := range f.IDs {
		matching[i] = s.matchesWaits(f, id)
	}
	rest := f.WithoutWaits()
	rest.IDs = nil
	outcomes := make([]store.Outcome, len(f.IDs))
	for i, id := range f.IDs {
		if j := s.jobs.get(id); j != nil && matching[i] && s.matches(rest, j, now) {
			outcomes[i] = apply(j, now)
		} else {
			outcomes[i] = store.Outcome{ID: id, Status: store.StatusNotFound}
		}
	}
	return outcomes
}

func (s *Store) cancel(j *job, now time.Time) store.Outcome {
	r := s.record(j)
	o := r.Cancel(now)
	if j.phase == inFlight {
		s.wake(store.Wakeup{Queue: j.queue.name, Cancelled: true})
	}
	if o.Status == store.StatusOK && j.phase != cancelled {
		s.change(j, r)
	}
	return o
}

func (s *Store) requeue(j *job, now time.Time) store.Outcome {
	s.forget(now)
	var holder int64
	if terminal(j) {
		holder = s.holderOf(j.rares().uniqueKey, now)
	}
	r := s.record(j)
	o := r.Requeue(holder, now)
	if o.Status != store.StatusOK {
		return o
	}
	if has := j.rares(); has.uniqueKey != "" && has.uniqueFor == 0 {
		s.hold(j)
	}
	s.change(j, r)
	return o
}

func (s *Store) delete(j *job, _ time.Time) store.Outcome {
	o := s.record(j).Delete()
	if o.Status == store.StatusOK {
		r := s.record(j)
		e, gone := store.GoneOf(&r.Job)
		s.ended(e, gone)
		s.remove(j)
		if gone {
			s.leaves(&r.Job, true)
		}
	}
	return o
}
