// Package sqlkit is what the SQL adapters share: rows and what is read from them, what each operation makes of the row of a
// job, why calls are not begun or broken off, and migrations. It writes no SQL, and knows no dialect.
package sqlkit

import (
	"fmt"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// An Entry is a job as an SQL store keeps it: the job, how its holder finished it, and its latest attempt. Earlier attempts
// stand in a table of their own, to which the latest moves when the job is claimed again or requeued, so that a job that
// succeeds at once writes no history but its own row.
type Entry struct {
	store.Job

	Epoch      int64        // of the store; read with the job where its token may be raised
	FinishedBy FinishedBy   // how the holder of Token ended its lease
	ClaimToken int64        // of the latest attempt; zero if there is none, or it has moved
	ClaimedAt  time.Time    // when the latest attempt started
	EndedAt    time.Time    // when the latest attempt ended
	Ending     store.Ending // how the latest attempt ended

	LeaseFor time.Duration // how long the lease was when it was given or extended, the latest one if none is in force
}

// FinishedBy is a way in which a holder ends its own lease.
type FinishedBy string

// The ways. Fail, Never and After are one.
const (
	Nobody    FinishedBy = "" // not ended by its holder
	ByAck     FinishedBy = "ack"
	ByFail    FinishedBy = "fail"
	BySnooze  FinishedBy = "snooze"
	ByRelease FinishedBy = "release"
)

// Latest is the latest attempt, and false if it is not kept in the entry.
func (e *Entry) Latest() (store.Attempt, bool) {
	if e.ClaimToken == 0 {
		return store.Attempt{}, false
	}
	a := store.Attempt{Token: e.ClaimToken, Worker: e.Worker, StartedAt: e.ClaimedAt, EndedAt: e.EndedAt, Ending: e.Ending}
	if e.Ending == store.EndFailed || e.Ending == store.EndExpired {
		a.Error = e.Error
	}
	return a, true
}

// holds says whether the lease is in force.
func (e *Entry) holds(l store.Lease) bool { return e.State == store.InFlight && e.Token == l.Token }

// finishedBy says whether the holder of the lease ended it in this way.
func (e *Entry) finishedBy(l store.Lease, by FinishedBy) bool {
	return e.State != store.InFlight && e.Token == l.Token && e.FinishedBy == by
}

// end closes the latest attempt and clears the lease.
func (e *Entry) end(ending store.Ending, by FinishedBy, now time.Time) {
	e.LeaseExpiresAt = time.Time{}
	e.Ending, e.EndedAt, e.FinishedBy = ending, now, by
}

// Ack does what the table of transitions says.
func (e *Entry) Ack(a store.Ack, now time.Time) store.Outcome {
	switch {
	case e.finishedBy(a.Lease, ByAck):
		return store.OutcomeOf(e.Job, store.StatusOK)
	case !e.holds(a.Lease):
		return store.OutcomeOf(e.Job, store.StatusStale)
	}
	if refused := a.Refused(); refused != nil {
		e.Job = e.Failed(*refused, now)
		e.end(store.EndFailed, ByAck, now)
		return store.OutcomeOf(e.Job, store.StatusOK)
	}
	e.State, e.Result, e.Error, e.FinishedAt = store.Succeeded, nil, "", now
	if len(a.Result) > 0 {
		e.Result = a.Result
	}
	e.end(store.EndSucceeded, ByAck, now)
	return store.OutcomeOf(e.Job, store.StatusOK)
}

// WayOf is the way of ending that the form of a NAck belongs to, and the ending that it writes.
func WayOf(form store.Form) (FinishedBy, store.Ending) {
	switch form {
	case store.Snooze:
		return BySnooze, store.EndSnoozed
	case store.Release:
		return ByRelease, store.EndReleased
	default:
		return ByFail, store.EndFailed
	}
}

// NAck does what the table of transitions says for the form. The item has been checked.
func (e *Entry) NAck(n store.NAck, now time.Time) store.Outcome {
	by, ending := WayOf(n.Form)
	switch {
	case e.finishedBy(n.Lease, by):
		return store.OutcomeOf(e.Job, store.StatusOK)
	case !e.holds(n.Lease):
		return store.OutcomeOf(e.Job, store.StatusStale)
	}
	switch n.Form {
	case store.Snooze:
		e.State, e.RunAt = store.Ready, now.Add(n.Delay.Truncate(store.Resolution))
	case store.Release:
		e.State, e.RunAt = store.Ready, now
		e.Attempts--
	default:
		e.Job = e.Failed(n.Failure(), now)
	}
	e.end(ending, by, now)
	return store.OutcomeOf(e.Job, store.StatusOK)
}

// Extend does what the table of transitions says.
func (e *Entry) Extend(l store.Lease, ttl time.Duration, now time.Time) store.Outcome {
	status := store.StatusStale
	switch {
	case e.holds(l):
		e.lend(ttl, now)
		status = store.StatusOK
	case e.State == store.Cancelled:
		status = store.StatusCancelled
	case e.Token == l.Token && e.FinishedBy != Nobody:
		status = store.StatusFinished
	}
	return store.OutcomeOf(e.Job, status)
}

// lend lets the lease run from now.
func (e *Entry) lend(ttl time.Duration, now time.Time) {
	e.LeaseFor = ttl.Truncate(store.Resolution)
	e.LeaseExpiresAt = now.Add(e.LeaseFor)
}

// Save does what the table of transitions says. The item has been checked.
func (e *Entry) Save(s store.Save) store.Outcome {
	if !e.holds(s.Lease) {
		return store.OutcomeOf(e.Job, store.StatusStale)
	}
	if len(s.Checkpoint) > 0 && s.Seq >= e.CheckpointSeq {
		e.Checkpoint, e.CheckpointSeq = s.Checkpoint, s.Seq
	}
	if len(s.Progress) > 0 && s.Seq >= e.ProgressSeq {
		e.Progress, e.ProgressSeq = s.Progress, s.Seq
	}
	return store.OutcomeOf(e.Job, store.StatusOK)
}

// Recover ends an expired lease. That it has expired was checked.
func (e *Entry) Recover(now time.Time) store.Recovered {
	e.Job = e.Failed(store.LeaseExpired, now)
	e.Token = store.NextToken(e.Token, e.Epoch)
	e.end(store.EndExpired, Nobody, now)
	return store.Recovered{ID: e.ID, Queue: e.Queue, Kind: e.Kind, Worker: e.Worker, State: e.State, Token: e.Token, Next: e.Next()}
}

// Cancel does what the table of transitions says.
func (e *Entry) Cancel(now time.Time) store.Outcome {
	switch e.Phase() {
	case store.Cancelled:
		return store.OutcomeOf(e.Job, store.StatusOK)
	case store.Succeeded, store.Dead:
		return store.OutcomeOf(e.Job, store.StatusWrongState)
	case store.InFlight:
		e.end(store.EndCancelled, Nobody, now)
	}
	e.State, e.RetryAt, e.FinishedAt = store.Cancelled, time.Time{}, now
	e.Token = store.NextToken(e.Token, e.Epoch)
	e.FinishedBy = Nobody
	return store.OutcomeOf(e.Job, store.StatusOK)
}

// Requeue does what the table of transitions says. That the unique key is free was checked, and the latest attempt has moved
// to the table of attempts.
func (e *Entry) Requeue(now time.Time) store.Outcome {
	if !e.Terminal() {
		return store.OutcomeOf(e.Job, store.StatusWrongState)
	}
	if e.State == store.Succeeded {
		e.Checkpoint, e.Progress = nil, nil
		e.CheckpointSeq, e.ProgressSeq = 0, 0
	}
	e.State, e.RunAt, e.RetryAt, e.FinishedAt = store.Ready, now, time.Time{}, time.Time{}
	e.Retries, e.Error, e.Result = 0, "", nil
	e.Token = store.NextToken(e.Token, e.Epoch)
	e.FinishedBy = Nobody
	e.ClaimToken, e.ClaimedAt, e.EndedAt, e.Ending = 0, time.Time{}, time.Time{}, store.Running
	return store.OutcomeOf(e.Job, store.StatusOK)
}

// Claim does what the table of transitions says. That the job is due was checked, and the latest attempt has moved to the
// table of attempts.
func (e *Entry) Claim(req store.ClaimRequest, now time.Time) {
	e.State, e.RetryAt = store.InFlight, time.Time{}
	e.Token = store.NextToken(e.Token, e.Epoch)
	e.Attempts++
	e.lend(req.TTL, now)
	e.Worker = req.Worker
	e.CheckpointSeq, e.ProgressSeq = 0, 0
	e.FinishedBy = Nobody
	e.ClaimToken, e.ClaimedAt, e.EndedAt, e.Ending = e.Token, now, time.Time{}, store.Running
}

// Refuse says why a call that is strict about leases, as in a caller's transaction, does not take the job under this one. A
// lease that its holder has ended in another way is both finished and stale.
func (e *Entry) Refuse(l store.Lease, by FinishedBy) error {
	switch {
	case e.holds(l):
		return nil
	case e.finishedBy(l, by):
		return store.ErrAlreadyFinished
	case e.State != store.InFlight && e.Token == l.Token && e.FinishedBy != Nobody:
		return fmt.Errorf("%w, in another way: %w", store.ErrAlreadyFinished, store.ErrStaleLease)
	default:
		return store.ErrStaleLease
	}
}
