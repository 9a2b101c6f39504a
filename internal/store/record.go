package store

import (
	"fmt"
	"time"
)

// A Record is a job as a store keeps it: the job, how its holder finished it, and its latest attempt. Its methods implement
// [Transitions], row by row. Every store applies them, and compares its own faster paths with them. Each method returns the
// outcome for the item that the contract requires.
//
// A nil *Record stands for a job that does not exist, or no longer exists.
//
// The store keeps earlier attempts elsewhere. Claim and Requeue drop the latest attempt from the record, so the store must move
// it there. A job that succeeds at once has no history beside its own record.
type Record struct {
	Job

	Epoch      int64         `json:"-"` // epoch of the store, which must set it before a call that may raise the token
	FinishedBy FinishedBy    // how the holder of Token ended its lease
	LeaseFor   time.Duration // length of the lease when it was granted or last extended; of the latest lease if none is in force

	ClaimToken int64     // token of the latest attempt; zero if there is none, or if it was moved
	EndedAt    time.Time // when the latest attempt ended
	Ending     Ending    // how the latest attempt ended
	Reason     string    // why it was put off, if it ended by Snooze: the job's Error may be that of an earlier attempt

	Links Links // for stores that would otherwise have to look whether the job waits for others, or others for it
}

// Links say how a job is linked to others. They are never taken back.
type Links int

// The links.
const (
	LinkAwaited Links = 1 << iota // another job waits for it, or has waited for it
	LinkWaits                     // it waits for another job, or has waited for one
)

// FinishedBy is a way in which a holder ends its own lease. A store remembers it until the next claim, so that it can tell a
// repeat from another way of finishing.
type FinishedBy string

// The ways of ending a lease. Fail, Never and After count as one.
const (
	NotFinished       FinishedBy = "" // not ended by its holder
	FinishedByAck     FinishedBy = "ack"
	FinishedByFail    FinishedBy = "fail"
	FinishedBySnooze  FinishedBy = "snooze"
	FinishedByRelease FinishedBy = "release"
)

// FinishedBy returns the way in which the NAck ends a lease.
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

// Latest returns the latest attempt, or false if the record does not hold it.
func (r *Record) Latest() (Attempt, bool) {
	if r.ClaimToken == 0 {
		return Attempt{}, false
	}
	a := Attempt{Token: r.ClaimToken, Worker: r.Worker, StartedAt: r.ClaimedAt, EndedAt: r.EndedAt, Ending: r.Ending}
	switch r.Ending {
	case EndFailed, EndExpired:
		a.Error = r.Error
	case EndSnoozed:
		a.Error = r.Reason
	}
	return a, true
}

// Detail returns the job with the given earlier attempts and the latest one.
func (r *Record) Detail(earlier []Attempt) JobDetail {
	if latest, kept := r.Latest(); kept {
		earlier = append(earlier, latest)
	}
	return JobDetail{Job: r.Job, History: earlier}
}

// Holds reports whether the lease is in force.
func (r *Record) Holds(l Lease) bool { return r.State == InFlight && r.Token == l.Token }

// finishedBy reports whether the holder of the lease ended it in this way.
func (r *Record) finishedBy(l Lease, by FinishedBy) bool {
	return r.State != InFlight && r.Token == l.Token && r.FinishedBy == by
}

// end closes the latest attempt and clears the lease.
func (r *Record) end(ending Ending, by FinishedBy, now time.Time) {
	r.LeaseExpiresAt = time.Time{}
	r.Ending, r.EndedAt, r.FinishedBy = ending, now, by
}

// outcome returns the outcome with the status for the record's job.
func (r *Record) outcome(status Status) Outcome {
	return Outcome{ID: r.ID, Status: status, State: r.State, Token: r.Token, Next: NextOf(&r.Job)}
}

// missing returns the outcome for a job that does not exist.
func missing(id int64) Outcome { return Outcome{ID: id, Status: StatusNotFound} }

// invalid returns the outcome for an item that breaks a limit.
func invalid(id int64, err error) Outcome {
	return Outcome{ID: id, Status: StatusInvalid, Reason: err.Error()}
}

// notHeld returns the outcome for a lease that is not in force: ok if its holder ended it in the same way before, otherwise
// stale.
func (r *Record) notHeld(l Lease, by FinishedBy) Outcome {
	if r.finishedBy(l, by) {
		return r.outcome(StatusOK)
	}
	return r.outcome(StatusStale)
}

// Ack ends the lease with success. The argument refused is a.Refused(). That call is slow, so a store can make it before it
// locks anything.
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

// NAck ends the lease without success. The argument failure is n.Failure().
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
		r.State, r.RunAt, r.Reason = Ready, now.Add(n.Delay.Truncate(Resolution)), failure.Reason
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

// Extend makes the lease run from now for ttl.
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

// Lend makes the lease in force run from now for ttl.
func (r *Record) Lend(ttl time.Duration, now time.Time) {
	r.LeaseFor = ttl.Truncate(Resolution)
	r.LeaseExpiresAt = now.Add(r.LeaseFor)
}

// Save stores checkpoint and progress. The argument refused is s.Check(). That call is slow, so a store can make it before it
// locks anything.
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
	return Recovered{ID: r.ID, Queue: r.Queue, Kind: r.Kind, Worker: r.Worker, State: r.State, Token: r.Token, Next: NextOf(&r.Job)}
}

// raise gives the job its next token.
func (r *Record) raise() { r.Token = NextToken(r.Token, r.Epoch) }

// Cancel ends a job that is not terminal.
func (r *Record) Cancel(now time.Time) Outcome {
	switch PhaseOf(&r.Job) {
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

// Requeue makes a terminal job ready again. The argument holder is the id of the job that holds its unique key, or 0 if the key
// is free.
func (r *Record) Requeue(holder int64, now time.Time) Outcome {
	switch {
	case !TerminalOf(&r.Job):
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
	r.Retries, r.Error, r.Result, r.Extras = 0, "", nil, r.Extras.WithExpiresAt(time.Time{})
	r.raise()
	r.FinishedBy = NotFinished
	r.ClaimToken, r.EndedAt, r.Ending, r.Reason = 0, time.Time{}, NotEnded, ""
	return r.outcome(StatusOK)
}

// Reschedule makes a job that waits due at the later of now and at.
func (r *Record) Reschedule(at, now time.Time) Outcome {
	phase := PhaseOf(&r.Job)
	if phase != Ready && phase != Retrying {
		return r.outcome(StatusWrongState)
	}
	due := later(now, Truncate(at))
	if later(now, NextOf(&r.Job)).Equal(due) {
		return r.outcome(StatusOK)
	}
	if phase == Ready {
		r.RunAt = due
	} else {
		r.RetryAt = due
	}
	r.raise()
	r.FinishedBy = NotFinished
	return r.outcome(StatusOK)
}

// Replace gives a job that waits the payload, priority, ExpiresAt and due time of n, which needs the unique key that it holds. It
// changes nothing and returns false if n does not ask for that, or if the job is of another queue, kind, group or limit key, does not
// wait, or has expired.
func (r *Record) Replace(n NewJob, now time.Time) bool {
	if r == nil || !n.Replace || r.Queue != n.Queue || r.Kind != n.Kind || r.Group() != n.Group || r.LimitKey() != n.LimitKey || ExpiredOf(&r.Job, now) {
		return false
	}
	row := n.Row(r.ID, now)
	switch PhaseOf(&r.Job) {
	case Ready, Blocked:
		r.RunAt = row.RunAt
	case Retrying:
		r.RetryAt = row.RunAt
	default:
		return false
	}
	r.Payload, r.Priority, r.Extras = row.Payload, row.Priority, r.Extras.WithExpiresAt(row.ExpiresAt())
	r.Checkpoint, r.Progress = nil, nil
	r.CheckpointSeq, r.ProgressSeq = 0, 0
	r.raise()
	r.FinishedBy = NotFinished
	return true
}

// Delete answers ok if the store may remove the job.
func (r *Record) Delete() Outcome {
	if !TerminalOf(&r.Job) {
		return r.outcome(StatusWrongState)
	}
	return Outcome{ID: r.ID, Status: StatusOK}
}

// Claim grants a lease on a job that is due.
func (r *Record) Claim(req ClaimRequest, now time.Time) {
	r.State, r.RetryAt = InFlight, time.Time{}
	r.raise()
	r.Attempts++
	r.Lend(req.TTL, now)
	r.ClaimedAt, r.Worker = now, req.Worker
	r.CheckpointSeq, r.ProgressSeq = 0, 0
	r.FinishedBy = NotFinished
	r.ClaimToken, r.EndedAt, r.Ending, r.Reason = r.Token, time.Time{}, NotEnded, ""
}

// MustHold returns the error of a strict call, such as a call in a caller's transaction, if the lease is not in force. If the
// holder ended the lease in another way, the error matches both ErrAlreadyFinished and ErrStaleLease.
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
