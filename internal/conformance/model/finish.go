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
	return s.under(a.Lease, store.OpAck, now, func(j job) job {
		if s.broken(AckUnlocked) {
			s.letOthersIn()
		}
		return s.acked(j, a, now)
	})
}

// acked is the job after the Ack: succeeded, or dead where the result can not be kept.
func (s *Store) acked(j job, a store.Ack, now time.Time) job {
	j.endedBy = store.OpAck
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
	return s.under(n.Lease, store.Op(n.Form), now, func(j job) job { return s.nacked(j, n, now) })
}

// wayOf is how the store remembers an operation that ends a lease: Fail, Never and After are one way.
func wayOf(op store.Op) store.Op {
	if op == store.OpNever || op == store.OpAfter {
		return store.OpFail
	}
	return op
}

// nacked is the job after the NAck.
func (s *Store) nacked(j job, n store.NAck, now time.Time) job {
	j.endedBy = wayOf(store.Op(n.Form))
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
	refused := s.leaseFits(store.CheckExtend(leases, ttl), ttl)
	ttl = ttl.Truncate(store.Resolution)
	return onLeases(ctx, s, refused, leases, func(l store.Lease, now time.Time) store.Outcome {
		return s.under(l, store.OpExtend, now, func(j job) job {
			from := now
			if s.broken(ExtendAddsUp) {
				from = j.LeaseExpiresAt
			}
			j.lent, j.LeaseExpiresAt = ttl, from.Add(ttl)
			return j
		})
	})
}

// Save is part of the contract.
func (s *Store) Save(ctx context.Context, saves []store.Save) ([]store.Outcome, error) {
	return onLeases(ctx, s, store.CheckSaves(saves), saves, s.save)
}

func (s *Store) save(v store.Save, now time.Time) store.Outcome {
	if err := v.Check(); err != nil && !s.broken(SaveUnchecked) {
		return s.invalid(v.ID, err)
	}
	return s.under(v.Lease, store.OpSave, now, func(j job) job { return s.saved(j, v) })
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

// under does the operation to the job while it is held under the lease. It answers how the job is otherwise: an operation
// that ends a lease is ok again for the holder who has ended it in the same way.
func (s *Store) under(l store.Lease, op store.Op, now time.Time, do func(job) job) store.Outcome {
	before, found := s.find(l.ID)
	switch {
	case !found:
		return s.missing(l.ID)
	case s.holds(op, before, l, now):
		return ok(s.write(op, before, do(before)))
	case s.endedSo(op, before, l):
		return ok(before)
	case op == store.OpExtend && before.State == store.Cancelled && !s.broken(CancelUnseenByExtend):
		return store.OutcomeOf(before.Job, store.StatusCancelled)
	case op == store.OpExtend && before.Token == l.Token && before.endedBy != "" && !s.broken(FinishUnseenByExtend):
		return store.OutcomeOf(before.Job, store.StatusFinished)
	default:
		return store.OutcomeOf(before.Job, store.StatusStale)
	}
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

// endedSo says that the operation ends a lease, and the holder of this one has ended it in the same way before.
func (s *Store) endedSo(op store.Op, j job, l store.Lease) bool {
	ends := op != store.OpExtend && op != store.OpSave
	same := j.endedBy == wayOf(op) || s.broken(OtherWayIsOK) && j.endedBy != ""
	return ends && same && j.State != store.InFlight && j.Token == l.Token && !s.broken(RepeatIsStale)
}

// onLeases runs a call on leases: the items one after another, each on what the ones before it have left.
func onLeases[T any](
	ctx context.Context, s *Store, refused error, items []T, apply func(item T, now time.Time) store.Outcome,
) ([]store.Outcome, error) {
	return call(ctx, s, refused, func(now time.Time) ([]store.Outcome, error) {
		before := slices.Clone(s.jobs)
		outcomes := make([]store.Outcome, len(items))
		for i := range items {
			if s.broken(ItemsReversed) {
				i = len(items) - 1 - i
			}
			outcomes[i] = apply(items[i], now)
		}
		return s.orNothing(StaleSpoilsCall, store.StatusStale, outcomes, before), nil
	})
}

// orNothing takes the call back, for a fault, where an outcome has the status.
func (s *Store) orNothing(spoils Fault, status store.Status, outcomes []store.Outcome, before []job) []store.Outcome {
	if s.broken(spoils) && slices.ContainsFunc(outcomes, func(o store.Outcome) bool { return o.Status == status }) {
		s.jobs = before
	}
	return outcomes
}

// invalid is the outcome for an item that breaks a limit.
func (s *Store) invalid(id int64, why error) store.Outcome {
	o := store.Outcome{ID: id, Status: store.StatusInvalid}
	if !s.broken(InvalidUnexplained) {
		o.Reason = why.Error()
	}
	return o
}
