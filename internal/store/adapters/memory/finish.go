package memory

import (
	"bytes"
	"context"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Ack finishes jobs whose work is done.
func (s *Store) Ack(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
	refusals := refusedResults(acks)
	now, err := s.enter(ctx, store.CheckAcks(acks))
	if err != nil {
		return nil, err
	}
	defer s.leave()
	outcomes := make([]store.Outcome, len(acks))
	for i, a := range acks {
		outcomes[i] = s.ack(a, refusals[i], now)
	}
	return outcomes, nil
}

// NAck ends leases without success.
func (s *Store) NAck(ctx context.Context, nacks []store.NAck) ([]store.Outcome, error) {
	failures := failuresOf(nacks)
	now, err := s.enter(ctx, store.CheckNAcks(nacks))
	if err != nil {
		return nil, err
	}
	defer s.leave()
	outcomes := make([]store.Outcome, len(nacks))
	for i, n := range nacks {
		outcomes[i] = s.nack(n, failures[i], now)
	}
	return outcomes, nil
}

// Extend is the heartbeat. It is never busy: it waits for an open transaction.
func (s *Store) Extend(ctx context.Context, leases []store.Lease, ttl time.Duration) ([]store.Outcome, error) {
	now, err := s.enter(ctx, store.CheckLease(store.CheckExtend(leases, ttl), ttl, s.maxLease))
	if err != nil {
		return nil, err
	}
	defer s.leave()
	outcomes := make([]store.Outcome, len(leases))
	for i, l := range leases {
		outcomes[i] = s.extend(l, ttl, now)
	}
	return outcomes, nil
}

// Save keeps checkpoints and progress.
func (s *Store) Save(ctx context.Context, saves []store.Save) ([]store.Outcome, error) {
	refusals := refusedSaves(saves)
	_, err := s.enter(ctx, store.CheckSaves(saves))
	if err != nil {
		return nil, err
	}
	defer s.leave()
	outcomes := make([]store.Outcome, len(saves))
	for i, save := range saves {
		outcomes[i] = s.save(save, refusals[i])
	}
	return outcomes, nil
}

// A standing is how a lease stands to its job.
type standing int

const (
	gone     standing = iota // there is no such job, or no longer
	lost                     // someone else ended the lease
	finished                 // its holder ended it
	held                     // the job is in flight under it
)

func (s *Store) find(l store.Lease) (*job, standing) {
	j := s.jobs.get(l.ID)
	switch {
	case j == nil:
		return nil, gone
	case j.Token != l.Token:
		return j, lost
	case j.State == store.InFlight:
		return j, held
	case j.finishedBy != nobody:
		return j, finished
	default:
		return j, lost
	}
}

func (s *Store) ack(a store.Ack, refused *store.Failure, now time.Time) store.Outcome {
	j, standing := s.find(a.Lease)
	if standing != held {
		return notHeld(a.Lease, j, standing, byAck)
	}
	s.pick(j)
	j.finishedBy = byAck
	if refused != nil {
		j.fail(*refused, store.EndFailed, now)
	} else {
		j.State, j.FinishedAt, j.LeaseExpiresAt = store.Succeeded, now, time.Time{}
		j.Result, j.Error = bytes.Clone(a.Result), ""
		j.end(store.EndSucceeded, "", now)
	}
	s.settle(j)
	return store.OutcomeOf(j.Job, store.StatusOK)
}

func (s *Store) nack(n store.NAck, f store.Failure, now time.Time) store.Outcome {
	if err := n.Check(); err != nil {
		return invalid(n.ID, err)
	}
	j, standing := s.find(n.Lease)
	if standing != held {
		return notHeld(n.Lease, j, standing, wayOf(n.Form))
	}
	s.pick(j)
	j.finishedBy = wayOf(n.Form)
	switch n.Form {
	case store.Snooze:
		j.wait(now.Add(n.Delay.Truncate(store.Resolution)))
		j.end(store.EndSnoozed, "", now)
	case store.Release:
		j.wait(now)
		j.Attempts--
		j.end(store.EndReleased, "", now)
	default:
		j.fail(f, store.EndFailed, now)
	}
	s.settle(j)
	return store.OutcomeOf(j.Job, store.StatusOK)
}

func (s *Store) extend(l store.Lease, ttl time.Duration, now time.Time) store.Outcome {
	j, standing := s.find(l)
	switch {
	case standing == gone:
		return store.Outcome{ID: l.ID, Status: store.StatusNotFound}
	case j.State == store.Cancelled:
		return store.OutcomeOf(j.Job, store.StatusCancelled)
	case standing == lost:
		return store.OutcomeOf(j.Job, store.StatusStale)
	case standing == finished:
		return store.OutcomeOf(j.Job, store.StatusFinished)
	}
	s.pick(j)
	s.lend(j, ttl, now)
	s.place(j)
	return store.OutcomeOf(j.Job, store.StatusOK)
}

func (s *Store) save(save store.Save, refused error) store.Outcome {
	if refused != nil {
		return invalid(save.ID, refused)
	}
	j, standing := s.find(save.Lease)
	switch standing {
	case gone:
		return store.Outcome{ID: save.ID, Status: store.StatusNotFound}
	case lost, finished:
		return store.OutcomeOf(j.Job, store.StatusStale)
	}
	if len(save.Checkpoint) > 0 && save.Seq >= j.CheckpointSeq {
		j.Checkpoint, j.CheckpointSeq = bytes.Clone(save.Checkpoint), save.Seq
	}
	if len(save.Progress) > 0 && save.Seq >= j.ProgressSeq {
		j.Progress, j.ProgressSeq = bytes.Clone(save.Progress), save.Seq
	}
	return store.OutcomeOf(j.Job, store.StatusOK)
}

// fail lets the one retry policy decide what becomes of the job.
func (j *job) fail(f store.Failure, ending store.Ending, now time.Time) {
	j.Job = j.Failed(f, now)
	j.end(ending, f.Reason, now)
}

// wait makes the job ready again.
func (j *job) wait(due time.Time) {
	j.State, j.RunAt, j.LeaseExpiresAt = store.Ready, due, time.Time{}
}

// settle places a job whose lease has ended.
func (s *Store) settle(j *job) {
	if j.Terminal() {
		s.release(j)
	}
	s.place(j)
}

// wayOf is the way of ending that the form is one of.
func wayOf(form store.Form) finishedBy {
	switch form {
	case store.Snooze:
		return bySnooze
	case store.Release:
		return byRelease
	default:
		return byFail
	}
}

// notHeld is the outcome for a lease that is not in force: ok if its holder ended it in the same way before.
func notHeld(l store.Lease, j *job, standing standing, by finishedBy) store.Outcome {
	switch {
	case standing == gone:
		return store.Outcome{ID: l.ID, Status: store.StatusNotFound}
	case standing == finished && j.finishedBy == by:
		return store.OutcomeOf(j.Job, store.StatusOK)
	default:
		return store.OutcomeOf(j.Job, store.StatusStale)
	}
}

func invalid(id int64, err error) store.Outcome {
	return store.Outcome{ID: id, Status: store.StatusInvalid, Reason: err.Error()}
}
