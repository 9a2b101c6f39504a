package bbolt

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
)

// Ack finishes jobs whose work is done.
func (s *Store) Ack(ctx context.Context, acks []jq.Ack) ([]jq.Outcome, error) {
	return write(ctx, s, contract.CheckAcks(acks), func(t *txn) []jq.Outcome { return each(acks, t.ack) })
}

// NAck ends leases without success.
func (s *Store) NAck(ctx context.Context, nacks []jq.NAck) ([]jq.Outcome, error) {
	return write(ctx, s, contract.CheckNAcks(nacks), func(t *txn) []jq.Outcome { return each(nacks, t.nack) })
}

// Extend is the heartbeat. No caller's transaction can lock a job here, so it is never busy.
func (s *Store) Extend(ctx context.Context, held []jq.Lease, ttl time.Duration) ([]jq.Outcome, error) {
	return write(ctx, s, contract.CheckLease(contract.CheckExtend(held, ttl), ttl, s.maxLease), func(t *txn) []jq.Outcome {
		return each(held, func(l jq.Lease) jq.Outcome { return t.extend(l, ttl) })
	})
}

// Save keeps checkpoints and progress.
func (s *Store) Save(ctx context.Context, saves []jq.Save) ([]jq.Outcome, error) {
	return write(ctx, s, contract.CheckSaves(saves), func(t *txn) []jq.Outcome { return each(saves, t.keep) })
}

func each[T any](items []T, do func(T) jq.Outcome) []jq.Outcome {
	outcomes := make([]jq.Outcome, len(items))
	for i, item := range items {
		outcomes[i] = do(item)
	}
	return outcomes
}

// A standing is how a lease stands to its job.
type standing int

const (
	gone     standing = iota // there is no such job, or no longer
	lost                     // someone else ended the lease
	finished                 // its holder ended it
	held                     // the job is in flight under it
)

func (t *txn) find(l jq.Lease) (*job, standing) {
	j := t.job(l.ID)
	switch {
	case j == nil:
		return nil, gone
	case j.Token != l.Token:
		return j, lost
	case j.State == jq.InFlight:
		return j, held
	case j.Ended != none:
		return j, finished
	default:
		return j, lost
	}
}

func (t *txn) ack(a jq.Ack) jq.Outcome {
	j, standing := t.find(a.Lease)
	if standing != held {
		return notHeld(a.Lease, j, standing, acked)
	}
	j.Ended = acked
	if refused := a.Refused(); refused != nil {
		t.failedWith(j, *refused, contract.EndFailed)
	} else {
		j.State, j.FinishedAt, j.LeaseExpiresAt = jq.Succeeded, t.now, time.Time{}
		j.Result, j.Error = a.Result, ""
		t.end(j, contract.EndSucceeded, "")
	}
	t.settle(j)
	return contract.OutcomeOf(j.Job, contract.StatusOK)
}

func (t *txn) nack(n jq.NAck) jq.Outcome {
	if err := n.Check(); err != nil {
		return invalid(n.ID, err)
	}
	j, standing := t.find(n.Lease)
	if standing != held {
		return notHeld(n.Lease, j, standing, wayOf(n.Form))
	}
	j.Ended = wayOf(n.Form)
	switch n.Form {
	case contract.Snooze:
		j.wait(t.now.Add(n.Delay.Truncate(contract.Resolution)))
		t.end(j, contract.EndSnoozed, "")
	case contract.Release:
		j.wait(t.now)
		j.Attempts--
		t.end(j, contract.EndReleased, "")
	default:
		t.failedWith(j, n.Failure(), contract.EndFailed)
	}
	t.settle(j)
	return contract.OutcomeOf(j.Job, contract.StatusOK)
}

// wayOf is the way of ending that the form is one of.
func wayOf(form jq.Form) way {
	switch form {
	case contract.Snooze:
		return snoozed
	case contract.Release:
		return released
	default:
		return failed
	}
}

func (t *txn) extend(l jq.Lease, ttl time.Duration) jq.Outcome {
	j, standing := t.find(l)
	switch {
	case standing == gone:
		return jq.Outcome{ID: l.ID, Status: contract.StatusNotFound}
	case j.State == jq.Cancelled:
		return contract.OutcomeOf(j.Job, contract.StatusCancelled)
	case standing == lost:
		return contract.OutcomeOf(j.Job, contract.StatusStale)
	case standing == finished:
		return contract.OutcomeOf(j.Job, contract.StatusFinished)
	}
	t.lend(j, ttl)
	t.save(j)
	return contract.OutcomeOf(j.Job, contract.StatusOK)
}

func (t *txn) keep(s jq.Save) jq.Outcome {
	if err := s.Check(); err != nil {
		return invalid(s.ID, err)
	}
	j, standing := t.find(s.Lease)
	switch standing {
	case gone:
		return jq.Outcome{ID: s.ID, Status: contract.StatusNotFound}
	case lost, finished:
		return contract.OutcomeOf(j.Job, contract.StatusStale)
	}
	if len(s.Checkpoint) > 0 && s.Seq >= j.CheckpointSeq {
		j.Checkpoint, j.CheckpointSeq = s.Checkpoint, s.Seq
	}
	if len(s.Progress) > 0 && s.Seq >= j.ProgressSeq {
		j.Progress, j.ProgressSeq = s.Progress, s.Seq
	}
	t.save(j)
	return contract.OutcomeOf(j.Job, contract.StatusOK)
}

// notHeld is the outcome for a lease that is not in force: ok if its holder ended it in the same way before.
func notHeld(l jq.Lease, j *job, standing standing, again way) jq.Outcome {
	switch {
	case standing == gone:
		return jq.Outcome{ID: l.ID, Status: contract.StatusNotFound}
	case standing == finished && j.Ended == again:
		return contract.OutcomeOf(j.Job, contract.StatusOK)
	default:
		return contract.OutcomeOf(j.Job, contract.StatusStale)
	}
}

func invalid(id int64, err error) jq.Outcome {
	return jq.Outcome{ID: id, Status: contract.StatusInvalid, Reason: err.Error()}
}
