package model

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Ack is part of the contract.
func (s *Store) Ack(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
	return onLeases(ctx, s, store.CheckAcks(acks), acks, s.ack)
}

func (s *Store) ack(a store.Ack, now time.Time) store.Outcome {
	before, found := s.find(a.ID)
	switch {
	case !found:
		return s.missing(a.ID)
	case s.holds(store.OpAck, before, a.Lease, now):
		if s.broken(AckUnlocked) {
			s.letOthersIn()
		}
		return ok(s.write(store.OpAck, before, s.acked(before, a, now)))
	case s.endedSo(before, a.Lease, byAck):
		return ok(before)
	default:
		return stale(before)
	}
}

// acked is the job after the Ack: succeeded, or dead where the result can not be kept.
func (s *Store) acked(j job, a store.Ack, now time.Time) job {
	j.endedBy = byAck
	if refused := a.Refused(); refused != nil && !s.broken(ResultUnchecked) {
		j.Job = j.Failed(*refused, now)
		j.history = s.ended(j, store.EndFailed, j.Error, now)
		return j
	}
	j.State = store.Succeeded
	j.LeaseExpiresAt = time.Time{}
	j.FinishedAt = now
	j.Error = ""
	j.Result = bytes.Clone(a.Result)
	j.history = s.ended(j, store.EndSucceeded, "", now)
	return j
}

// NAck is part of the contract.
func (s *Store) NAck(ctx context.Context, nacks []store.NAck) ([]store.Outcome, error) {
	return onLeases(ctx, s, store.CheckNAcks(nacks), nacks, s.nack)
}

func (s *Store) nack(n store.NAck, now time.Time) store.Outcome {
	if err := n.Check(); err != nil {
		return s.invalid(n.ID, err)
	}
	op := store.Op(n.Form)
	before, found := s.find(n.ID)
	switch {
	case !found:
		return s.missing(n.ID)
	case s.holds(op, before, n.Lease, now):
		return ok(s.write(op, before, s.nacked(before, n, now)))
	case s.endedSo(before, n.Lease, wayOf(n.Form)):
		return ok(before)
	default:
		return stale(before)
	}
}

// wayOf is the way of ending that the form belongs to.
func wayOf(form store.Form) way {
	switch form {
	case store.Snooze:
		return bySnooze
	case store.Release:
		return byRelease
	default:
		return byFailing
	}
}

// nacked is the job after the NAck.
func (s *Store) nacked(j job, n store.NAck, now time.Time) job {
	j.endedBy = wayOf(n.Form)
	switch n.Form {
	case store.Snooze:
		j.State, j.LeaseExpiresAt = store.Ready, time.Time{}
		j.RunAt = now.Add(n.Delay.Truncate(store.Resolution))
		j.history = s.ended(j, store.EndSnoozed, store.CleanError(n.Error), now)
	case store.Release:
		j.State, j.LeaseExpiresAt = store.Ready, time.Time{}
		j.RunAt = now
		j.Attempts--
		j.history = s.ended(j, store.EndReleased, "", now)
	default:
		failure := n.Failure()
		if s.broken(ErrorUncut) {
			failure.Reason = n.Error
		}
		j.Job = j.Failed(failure, now)
		j.history = s.ended(j, store.EndFailed, j.Error, now)
	}
	return j
}

// Extend is part of the contract.
func (s *Store) Extend(ctx context.Context, leases []store.Lease, ttl time.Duration) ([]store.Outcome, error) {
	extend := func(l store.Lease, now time.Time) store.Outcome {
		return s.extend(l, ttl.Truncate(store.Resolution), now)
	}
	return onLeases(ctx, s, s.leaseFits(store.CheckExtend(leases, ttl), ttl), leases, extend)
}

func (s *Store) extend(l store.Lease, ttl time.Duration, now time.Time) store.Outcome {
	before, found := s.find(l.ID)
	switch {
	case !found:
		return s.missing(l.ID)
	case s.holds(store.OpExtend, before, l, now):
		after := before
		after.lent, after.LeaseExpiresAt = ttl, now.Add(ttl)
		if s.broken(ExtendAddsUp) {
			after.LeaseExpiresAt = before.LeaseExpiresAt.Add(ttl)
		}
		return ok(s.write(store.OpExtend, before, after))
	case before.State == store.Cancelled && !s.broken(CancelUnseenByExtend):
		return store.OutcomeOf(before.Job, store.StatusCancelled)
	case before.Token == l.Token && before.endedBy != "" && !s.broken(FinishUnseenByExtend):
		return store.OutcomeOf(before.Job, store.StatusFinished)
	default:
		return stale(before)
	}
}

// Save is part of the contract.
func (s *Store) Save(ctx context.Context, saves []store.Save) ([]store.Outcome, error) {
	return onLeases(ctx, s, store.CheckSaves(saves), saves, s.save)
}

func (s *Store) save(v store.Save, now time.Time) store.Outcome {
	if err := v.Check(); err != nil && !s.broken(SaveUnchecked) {
		return s.invalid(v.ID, err)
	}
	before, found := s.find(v.ID)
	switch {
	case !found:
		return s.missing(v.ID)
	case s.holds(store.OpSave, before, v.Lease, now):
		return ok(s.write(store.OpSave, before, s.saved(before, v)))
	default:
		return stale(before)
	}
}

// saved is the job with what the save brings that is not older than what it has.
func (s *Store) saved(j job, v store.Save) job {
	newCheckpoint, newProgress := v.Seq >= j.CheckpointSeq, v.Seq >= j.ProgressSeq
	switch {
	case s.broken(OlderSaveWins):
		newCheckpoint, newProgress = true, true
	case s.broken(EqualSaveIgnored):
		newCheckpoint, newProgress = v.Seq > j.CheckpointSeq, v.Seq > j.ProgressSeq
	case s.broken(SaveNumbersShared):
		newCheckpoint, newProgress = newCheckpoint && newProgress, newCheckpoint && newProgress
	}
	if len(v.Checkpoint) > 0 && newCheckpoint {
		j.Checkpoint, j.CheckpointSeq = bytes.Clone(v.Checkpoint), v.Seq
	}
	if len(v.Progress) > 0 && newProgress {
		j.Progress, j.ProgressSeq = bytes.Clone(v.Progress), v.Seq
	}
	if s.broken(NilClears) {
		j.Checkpoint, j.Progress = bytes.Clone(v.Checkpoint), bytes.Clone(v.Progress)
	}
	return j
}

// holds says that the job is in flight under the lease. Whether the lease has run out does not matter.
func (s *Store) holds(op store.Op, j job, l store.Lease, now time.Time) bool {
	if s.broken(lateRefused[op]) && !j.LeaseExpiresAt.After(now) {
		return false
	}
	inFlight := j.State == store.InFlight || s.broken(stateUnchecked[op])
	fits := j.Token == l.Token || s.broken(tokenUnchecked[op]) ||
		s.broken(WorkerIsGuard) && slices.ContainsFunc(j.history, func(a store.Attempt) bool {
			return a.Token == l.Token && a.Worker == j.Worker
		})
	return inFlight && fits
}

// endedSo says that the holder of the lease has ended it in this way before.
func (s *Store) endedSo(j job, l store.Lease, by way) bool {
	if s.broken(RepeatIsStale) {
		return false
	}
	return j.State != store.InFlight && j.Token == l.Token && (j.endedBy == by || s.broken(OtherWayIsOK) && j.endedBy != "")
}

// onLeases runs a call on leases: the items one after another, each on what the ones before it have left.
func onLeases[T any](
	ctx context.Context, s *Store, invalid error, items []T, apply func(item T, now time.Time) store.Outcome,
) ([]store.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	if invalid != nil {
		return nil, invalid
	}
	before := slices.Clone(s.jobs)
	outcomes := make([]store.Outcome, len(items))
	for i := range items {
		if s.broken(ItemsReversed) {
			i = len(items) - 1 - i
		}
		outcomes[i] = apply(items[i], now)
	}
	isStale := func(o store.Outcome) bool { return o.Status == store.StatusStale }
	if s.broken(StaleSpoilsCall) && slices.ContainsFunc(outcomes, isStale) {
		s.jobs = before
	}
	return outcomes, nil
}

// invalid is the outcome for an item that breaks a limit.
func (s *Store) invalid(id int64, why error) store.Outcome {
	o := store.Outcome{ID: id, Status: store.StatusInvalid}
	if !s.broken(InvalidUnexplained) {
		o.Reason = why.Error()
	}
	return o
}
