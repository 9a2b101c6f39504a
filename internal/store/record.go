package store

import (
	"fmt"
	"time"
)

// A Record is a job as a store keeps it: the job, how its holder finished it, and its latest attempt. Its methods are the life of a
// job, row by row of [Transitions]: every store applies them, and compares with them what it does by a faster way of its own. Each
// method answers with the outcome for the item, as the contract has it.
//
// A nil *Record is a job that is not there, or no longer.
//
// Earlier attempts stand elsewhere. Claim and Requeue forget the latest one: the store moves it there. So a job that succeeds at once
// has no history but its own record.
type Record struct {
	Job

	Epoch      int64         `json:"-"` // of the store, which sets it where the token may be raised
	FinishedBy FinishedBy    // how the holder of Token ended its lease
	LeaseFor   time.Duration // how long the lease was when it was given or extended, the latest one if none is in force

	ClaimToken int64     // of the latest attempt; zero if there is none, or it has moved
	ClaimedAt  time.Time // when the latest attempt started
	EndedAt    time.Time // when the latest attempt ended
	Ending     Ending    // how the latest attempt ended
}

// FinishedBy is a way in which a holder ends its own lease. A store remembers it until the next claim, so that the same again is told
// from another way.
type FinishedBy string

// The ways. Fail, Never and After are one.
const (
	NotFinished       FinishedBy = "" // not by its holder
	FinishedByAck     FinishedBy = "ack"
	FinishedByFail    FinishedBy = "fail"
	FinishedBySnooze  FinishedBy = "snooze"
	FinishedByRelease FinishedBy = "release"
)

// FinishedBy is the way of ending a lease that the NAck is one of.
func (n NAck) FinishedBy() FinishedBy {
	switch n.Form {
	case Snooze:
		return FinishedBySnooze
	case Release:
		return FinishedByRelease
	default:
		return FinishedByFail
	}
}

// Latest is the latest attempt, and false if it is not kept in the record.
func (r *Record) Latest() (Attempt, bool) {
	if r.ClaimToken == 0 {
		return Attempt{}, false
	}
	a := Attempt{Token: r.ClaimToken, Worker: r.Worker, StartedAt: r.ClaimedAt, EndedAt: r.EndedAt, Ending: r.Ending}
	if r.Ending == EndFailed || r.Ending == EndExpired {
		a.Error = r.Error
	}
	return a, true
}

// Detail is the job with its attempts, of which the earlier ones are given.
func (r *Record) Detail(earlier []Attempt) JobDetail {
	if latest, kept := r.Latest(); kept {
		earlier = append(earlier, latest)
	}
	return JobDetail{Job: r.Job, History: earlier}
}

// Holds says whether the lease is in force.
func (r *Record) Holds(l Lease) bool { return r.State == InFlight && r.Token == l.Token }

// finishedBy says whether the holder of the lease ended it in this way.
func (r *Record) finishedBy(l Lease, by FinishedBy) bool {
	return r.State != InFlight && r.Token == l.Token && r.FinishedBy == by
}

// end closes the latest attempt and clears the lease.
func (r *Record) end(ending Ending, by FinishedBy, now time.Time) {
	r.LeaseExpiresAt = time.Time{}
	r.Ending, r.EndedAt, r.FinishedBy = ending, now, by
}

// outcome is what became of an item that is about the record.
func (r *Record) outcome(status Status) Outcome { return OutcomeOf(r.Job, status) }

// missing is the outcome for a job that is not there.
func missing(id int64) Outcome { return Outcome{ID: id, Status: StatusNotFound} }

// invalid is the outcome for an item that breaks a limit.
func invalid(id int64, err error) Outcome {
	return Outcome{ID: id, Status: StatusInvalid, Reason: err.Error()}
}

// notHeld is the outcome for a lease that is not in force: ok if its holder has ended it in the same way before.
func (r *Record) notHeld(l Lease, by FinishedBy) Outcome {
	if r.finishedBy(l, by) {
		return r.outcome(StatusOK)
	}
	return r.outcome(StatusStale)
}

// Ack ends the lease by success. Refused is a.Refused(), which takes long: a store can ask for it before it locks anything.
func (r *Record) Ack(a Ack, refused *Failure, now time.Time) Outcome {
	switch {
	case r == nil:
		return missing(a.ID)
	case !r.Holds(a.Lease):
		return r.notHeld(a.Lease, FinishedByAck)
	case refused != nil:
		r.Job = r.Failed(*refused, now)
		r.end(EndFailed, FinishedByAck, now)
		return r.outcome(StatusOK)
	}
	r.State, r.Result, r.Error, r.FinishedAt = Succeeded, nil, "", now
	if len(a.Result) > 0 {
		r.Result = a.Result
	}
	r.end(EndSucceeded, FinishedByAck, now)
	return r.outcome(StatusOK)
}

// NAck ends the lease without success. Failure is n.Failure().
func (r *Record) NAck(n NAck, failure Failure, now time.Time) Outcome {
	if err := n.Check(); err != nil {
		return invalid(n.ID, err)
	}
	switch {
	case r == nil:
		return missing(n.ID)
	case !r.Holds(n.Lease):
		return r.notHeld(n.Lease, n.FinishedBy())
	}
	ending := EndFailed
	switch n.Form {
	case Snooze:
		r.State, r.RunAt = Ready, now.Add(n.Delay.Truncate(Resolution))
		ending = EndSnoozed
	case Release:
		r.State, r.RunAt = Ready, now
		r.Attempts--
		ending = EndReleased
	default:
		r.Job = r.Failed(failure, now)
	}
	r.end(ending, n.FinishedBy(), now)
	return r.outcome(StatusOK)
}

// Extend lets the lease run from now.
func (r *Record) Extend(l Lease, ttl time.Duration, now time.Time) Outcome {
	switch {
	case r == nil:
		return missing(l.ID)
	case r.Holds(l):
		r.Lend(ttl, now)
		return r.outcome(StatusOK)
	case r.State == Cancelled:
		return r.outcome(StatusCancelled)
	case r.Token == l.Token && r.FinishedBy != NotFinished:
		return r.outcome(StatusFinished)
	}
	return r.outcome(StatusStale)
}

// Lend lets the lease that is in force run from now.
func (r *Record) Lend(ttl time.Duration, now time.Time) {
	r.LeaseFor = ttl.Truncate(Resolution)
	r.LeaseExpiresAt = now.Add(r.LeaseFor)
}

// Save keeps checkpoint and progress. Refused is s.Check(), which takes long: a store can ask for it before it locks anything.
func (r *Record) Save(s Save, refused error) Outcome {
	switch {
	case refused != nil:
		return invalid(s.ID, refused)
	case r == nil:
		return missing(s.ID)
	case !r.Holds(s.Lease):
		return r.outcome(StatusStale)
	}
	if len(s.Checkpoint) > 0 && s.Seq >= r.CheckpointSeq {
		r.Checkpoint, r.CheckpointSeq = s.Checkpoint, s.Seq
	}
	if len(s.Progress) > 0 && s.Seq >= r.ProgressSeq {
		r.Progress, r.ProgressSeq = s.Progress, s.Seq
	}
	return r.outcome(StatusOK)
}

// Recover ends a lease that has expired.
func (r *Record) Recover(now time.Time) Recovered {
	r.Job = r.Failed(LeaseExpired, now)
	r.raise()
	r.end(EndExpired, NotFinished, now)
	return Recovered{ID: r.ID, Queue: r.Queue, Kind: r.Kind, Worker: r.Worker, State: r.State, Token: r.Token, Next: r.Next()}
}

// raise gives the job its next token.
func (r *Record) raise() { r.Token = NextToken(r.Token, r.Epoch) }

// Cancel ends a job that is not terminal.
func (r *Record) Cancel(now time.Time) Outcome {
	switch r.Phase() {
	case Cancelled:
		return r.outcome(StatusOK)
	case Succeeded, Dead:
		return r.outcome(StatusWrongState)
	case InFlight:
		r.end(EndCancelled, NotFinished, now)
	}
	r.State, r.RetryAt, r.FinishedAt = Cancelled, time.Time{}, now
	r.raise()
	r.FinishedBy = NotFinished
	return r.outcome(StatusOK)
}

// Requeue makes a terminal job ready again. Holder is the id of the job that holds its unique key, or 0 if the key is free.
func (r *Record) Requeue(holder int64, now time.Time) Outcome {
	switch {
	case !r.Terminal():
		return r.outcome(StatusWrongState)
	case holder != 0 && holder != r.ID:
		duplicate := r.outcome(StatusDuplicate)
		duplicate.Reason = fmt.Sprintf("job %d holds the unique key", holder)
		return duplicate
	}
	if r.State == Succeeded {
		r.Checkpoint, r.Progress = nil, nil
		r.CheckpointSeq, r.ProgressSeq = 0, 0
	}
	r.State, r.RunAt, r.RetryAt, r.FinishedAt = Ready, now, time.Time{}, time.Time{}
	r.Retries, r.Error, r.Result = 0, "", nil
	r.raise()
	r.FinishedBy = NotFinished
	r.ClaimToken, r.ClaimedAt, r.EndedAt, r.Ending = 0, time.Time{}, time.Time{}, Running
	return r.outcome(StatusOK)
}

// Delete says whether the store may remove the job.
func (r *Record) Delete() Outcome {
	if !r.Terminal() {
		return r.outcome(StatusWrongState)
	}
	return Outcome{ID: r.ID, Status: StatusOK}
}

// Claim gives a lease on a job that is due.
func (r *Record) Claim(req ClaimRequest, now time.Time) {
	r.State, r.RetryAt = InFlight, time.Time{}
	r.raise()
	r.Attempts++
	r.Lend(req.TTL, now)
	r.Worker = req.Worker
	r.CheckpointSeq, r.ProgressSeq = 0, 0
	r.FinishedBy = NotFinished
	r.ClaimToken, r.ClaimedAt, r.EndedAt, r.Ending = r.Token, now, time.Time{}, Running
}

// MustHold says why a call that is strict about leases, as in a caller's transaction, does not take the job under this one. A lease
// that its holder has ended in another way is both finished and stale.
func (r *Record) MustHold(l Lease, by FinishedBy) error {
	switch {
	case r == nil:
		return ErrNotFound
	case r.Holds(l):
		return nil
	case r.finishedBy(l, by):
		return ErrAlreadyFinished
	case r.State != InFlight && r.Token == l.Token && r.FinishedBy != NotFinished:
		return fmt.Errorf("%w, in another way: %w", ErrAlreadyFinished, ErrStaleLease)
	default:
		return ErrStaleLease
	}
}
