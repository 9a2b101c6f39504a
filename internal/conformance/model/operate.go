package model

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Cancel is part of the contract.
func (s *Store) Cancel(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	outcomes, err := s.operate(ctx, filter, limit, filter.CheckBulk(limit), s.cancellable, s.cancel)
	if err == nil && len(filter.IDs) == 0 && s.broken(OutcomesOfOthers) {
		outcomes = append(outcomes, s.cancelledWith(outcomes)...)
	}
	return outcomes, err
}

// cancelledWith returns the outcomes of jobs that were cancelled because of the jobs that a call has cancelled.
func (s *Store) cancelledWith(outcomes []store.Outcome) (others []store.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		because := func(w wait) bool {
			return slices.ContainsFunc(outcomes, func(o store.Outcome) bool { return o.ID == w.on && o.Status == store.StatusOK })
		}
		if j.State == store.Cancelled && slices.ContainsFunc(j.waits, because) {
			others = append(others, ok(j))
		}
	}
	return others
}

func (s *Store) cancellable(j job) bool { return !j.Terminal() || s.broken(CancelOverwrites) }

func (s *Store) cancel(before job, now time.Time) store.Outcome {
	switch {
	case before.State == store.Cancelled && !s.broken(CancelRepeatRefused):
		return ok(before)
	case !s.cancellable(before):
		return store.OutcomeOf(before.Job, store.StatusWrongState)
	case before.State == store.InFlight && s.broken(CancelSparesInFlight):
		return store.OutcomeOf(before.Job, store.StatusWrongState)
	}
	j := before
	j.State = store.Cancelled
	j.Token = s.raised(j, CancelForgetsEpoch)
	j.LeaseExpiresAt, j.RetryAt = time.Time{}, time.Time{}
	j.FinishedAt = now
	j.endedBy = ""
	j.history = s.ended(j, store.EndCancelled, "", now)
	return ok(s.write(store.OpCancel, before, j))
}

// Requeue is part of the contract.
func (s *Store) Requeue(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return s.operateAndThen(ctx, filter, limit, filter.CheckBulk(limit), s.requeueable, s.requeue, s.lookAgain)
}

func (s *Store) requeueable(j job) bool { return j.Terminal() || s.broken(RequeueOfLive) }

func (s *Store) requeue(before job, now time.Time) store.Outcome {
	if !s.requeueable(before) {
		return store.OutcomeOf(before.Job, store.StatusWrongState)
	}
	if holder, held := s.holder(before.Job, now); held && !s.broken(RequeueIgnoresKey) {
		duplicate := store.OutcomeOf(before.Job, store.StatusDuplicate)
		if !s.broken(DuplicateUnexplained) {
			duplicate.Reason = fmt.Sprintf("job %d holds the unique key", holder)
		}
		return duplicate
	}
	j := before
	j.State, j.requeued = store.Ready, true
	j.Token = s.raised(j, RequeueForgetsEpoch)
	j.Retries = 0
	j.RunAt = now
	j.RetryAt, j.LeaseExpiresAt, j.FinishedAt = time.Time{}, time.Time{}, time.Time{}
	j.Error, j.Result = "", nil
	if !s.broken(RequeueKeepsExpiry) {
		j.Extras = j.Extras.WithExpiresAt(time.Time{})
	}
	if before.State == store.Succeeded {
		j.Checkpoint, j.CheckpointSeq, j.Progress, j.ProgressSeq = nil, 0, nil, 0
	}
	j.endedBy = ""
	return ok(s.write(store.OpRequeue, before, j))
}

// Reschedule is part of the contract.
func (s *Store) Reschedule(ctx context.Context, filter store.Filter, at time.Time, limit int) ([]store.Outcome, error) {
	refused := filter.CheckReschedule(at, limit)
	if filter.CheckBulk(limit) == nil {
		refused = s.unless(RescheduleUnchecked, refused)
	}
	do := func(j job, now time.Time) store.Outcome { return s.reschedule(j, at, now) }
	return s.operate(ctx, filter, limit, refused, s.reschedulable, do)
}

func (s *Store) reschedulable(j job) bool {
	return j.Phase() == store.Ready || j.Phase() == store.Retrying || j.State == store.InFlight && s.broken(RescheduleOfInFlight)
}

func (s *Store) reschedule(before job, at, now time.Time) store.Outcome {
	if !s.reschedulable(before) {
		return store.OutcomeOf(before.Job, store.StatusWrongState)
	}
	due := at.UTC().Truncate(store.Resolution)
	if s.broken(RescheduleIgnoresTime) || due.Before(now) && !s.broken(PastRescheduleKept) {
		due = now
	}
	is := before.Next()
	if is.Before(now) && !s.broken(RescheduleMovesDue) {
		is = now
	}
	if is.Equal(due) && !s.broken(RescheduleRepeatChanges) {
		return ok(before)
	}
	j := before
	if j.State == store.Failed {
		j.RetryAt = due
	} else {
		j.RunAt = due
	}
	j.Token = s.raised(j, RescheduleForgetsEpoch)
	if !s.broken(RescheduleKeepsEnding) {
		j.endedBy = ""
	}
	return ok(s.write(store.OpReschedule, before, j))
}

// Delete is part of the contract.
func (s *Store) Delete(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return s.operate(ctx, filter, limit, filter.CheckBulk(limit), s.deletable, s.delete)
}

func (s *Store) deletable(j job) bool { return j.Terminal() || s.broken(DeleteOfLive) }

func (s *Store) delete(j job, _ time.Time) store.Outcome {
	if !s.deletable(j) {
		return store.OutcomeOf(j.Job, store.StatusWrongState)
	}
	if j.Phase() == store.Dead {
		s.noteEnd(j, store.Gone)
	}
	s.jobs = s.those(func(other job) bool { return other.ID != j.ID })
	if j.Phase() == store.Dead {
		s.leaves(j, store.Gone)
	}
	s.forget()
	if s.broken(PolicyGoesWithJobs) && !slices.ContainsFunc(s.jobs, func(other job) bool { return other.Queue == j.Queue }) {
		delete(s.policies, j.Queue)
	}
	return store.Outcome{ID: j.ID, Status: store.StatusOK}
}

// operate does something to the jobs of a filter: to each one named, or to the first ones that match and can be changed.
func (s *Store) operate(
	ctx context.Context, filter store.Filter, limit int, refused error, can func(job) bool, do func(job, time.Time) store.Outcome,
) ([]store.Outcome, error) {
	return s.operateAndThen(ctx, filter, limit, refused, can, do, func([]store.Outcome, time.Time) {})
}

// operateAndThen is operate, and does something with all outcomes at the end.
func (s *Store) operateAndThen(
	ctx context.Context, filter store.Filter, limit int, refused error, can func(job) bool, do func(job, time.Time) store.Outcome,
	then func([]store.Outcome, time.Time),
) ([]store.Outcome, error) {
	if filter.Empty() {
		refused = s.unless(EmptyFilterAllowed, refused)
	}
	return call(ctx, s, refused, func(now time.Time) ([]store.Outcome, error) {
		before := slices.Clone(s.jobs)
		var outcomes []store.Outcome
		if len(filter.IDs) > 0 {
			outcomes = s.operateNamed(filter, limit, do, now)
		} else {
			outcomes = s.operateMatching(filter, limit, can, do, now)
		}
		then(outcomes, now)
		return s.orNothing(DuplicateSpoilsRequeue, store.StatusDuplicate, outcomes, before), nil
	})
}

func (s *Store) operateNamed(filter store.Filter, limit int, do func(job, time.Time) store.Outcome, now time.Time) []store.Outcome {
	var outcomes []store.Outcome
	matching := map[int64]bool{}
	for _, id := range filter.IDs {
		j, found := s.find(id)
		matching[id] = found && s.matchesWaits(filter, j) || s.broken(NeedJudgedLate)
	}
	rest := filter.WithoutWaits()
	if s.broken(NeedJudgedLate) {
		rest = filter
	}
	for _, id := range filter.IDs {
		if len(outcomes) == limit && s.broken(LimitCutsNamed) {
			break
		}
		j, found := s.find(id)
		if found && (matching[id] && s.matches(rest, j, now) || s.broken(NamedIgnoreFilter)) {
			outcomes = append(outcomes, do(j, now))
		} else {
			outcomes = append(outcomes, s.missing(id))
		}
	}
	return outcomes
}

func (s *Store) operateMatching(
	filter store.Filter, limit int, can func(job) bool, do func(job, time.Time) store.Outcome, now time.Time,
) []store.Outcome {
	chosen := s.those(func(j job) bool { return s.matches(filter, j, now) && can(j) })
	if s.broken(NewestOperatedFirst) {
		slices.Reverse(chosen)
	}
	if len(chosen) > limit && !s.broken(OperateOverLimit) {
		chosen = chosen[:limit]
	}
	var outcomes []store.Outcome
	for _, j := range chosen {
		outcomes = append(outcomes, do(j, now))
	}
	return outcomes
}
