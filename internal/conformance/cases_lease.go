package conformance

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// leaseOps are what is done under a lease, finishOps those of them that end it.
var (
	leaseOps = []store.Op{
		store.OpExtend, store.OpSave, store.OpAck, store.OpFail, store.OpNever, store.OpAfter, store.OpSnooze, store.OpRelease,
	}
	finishOps = leaseOps[2:]
)

// What underLease writes.
const (
	savedDoc   = `{"by": "underLease"}`
	savedSeq   = 1 << 40 // so that no number in force keeps a save out that should be refused for its token
	resultDoc  = `{"done": true}`
	failReason = "boom"
	givenDelay = 90 * time.Second
)

// underLease does the operation under one lease.
func underLease(c *C, op store.Op, l store.Lease) store.Outcome {
	return c.One(underLeases(c, op, l), nil)
}

// mostBusy is how often a heartbeat may find its job locked, by calls that each end soon.
const mostBusy = 1000

// untilDecided asks again where the answer is that the job is locked by somebody who is about to end the lease, or not to. A store
// that says so for ever fails.
func untilDecided(c *C, op store.Op, l store.Lease) store.Outcome {
	for range mostBusy {
		outcome := underLease(c, op, l)
		if outcome.Status != store.StatusBusy || op != store.OpExtend {
			return outcome
		}
		runtime.Gosched()
	}
	c.Fatalf("%s under %v was answered busy %d times, one after the other, while no call holds the job for long", op, l, mostBusy)
	return store.Outcome{}
}

// underLeases does the operation under several leases in one call, and ends the case if it fails.
func underLeases(c *C, op store.Op, leases ...store.Lease) []store.Outcome {
	outcomes, err := tryUnderLeases(c, op, leases...)
	c.OK(err, "%s under %v", op, leases)
	if len(outcomes) != len(leases) {
		c.Fatalf("%s under %d leases: got %d outcomes: %+v", op, len(leases), len(outcomes), outcomes)
	}
	return outcomes
}

// many are the outcomes of a call on several items, which must not fail.
func (c *C) many(outcomes []store.Outcome, err error) []store.Outcome {
	c.OK(err, "a call on several items")
	return outcomes
}

func tryUnderLeases(c *C, op store.Op, leases ...store.Lease) ([]store.Outcome, error) {
	items := make([]Item, len(leases))
	for i, l := range leases {
		n := nackOf(op, l)
		items[i] = Item{Op: op, Lease: l, Delay: n.Delay, Error: n.Error}
		switch op {
		case store.OpSave:
			items[i].Seq, items[i].Doc, items[i].Progress = savedSeq, []byte(savedDoc), []byte(savedDoc)
		case store.OpAck:
			items[i].Doc = []byte(resultDoc)
		}
	}
	return Under(c.Ctx, c.Store, op, ttl, items)
}

func nackOf(op store.Op, l store.Lease) store.NAck {
	n := store.NAck{Lease: l, Form: store.Form(op)}
	if op == store.OpAfter || op == store.OpSnooze {
		n.Delay = givenDelay
	}
	if wayOf(op) == store.OpFail || op == store.OpSnooze {
		n.Error = failReason
	}
	return n
}

// wayOf is how a finishing operation is remembered: fail, never and after are one way.
func wayOf(op store.Op) store.Op {
	if op == store.OpNever || op == store.OpAfter {
		return store.OpFail
	}
	return op
}

// holding returns n jobs in flight in a queue of their own, with a checkpoint, and a second after their claim.
func holding(c *C, name string, n int) []store.JobDetail {
	c.Enqueue(slices.Repeat([]store.NewJob{plainBut(func(n *store.NewJob) { n.Queue = name })}, n)...)
	claimed := c.ClaimBy(store.ClaimRequest{Queue: name, Limit: n, Worker: worker, TTL: ttl})
	if len(claimed) != n {
		c.Fatalf("claiming %d jobs of a queue of their own: got %d", n, len(claimed))
	}
	c.many(c.Store.Save(c.Ctx, each(claimed, func(j store.Job) store.Save {
		return store.Save{Lease: j.Lease(), Seq: 3, Checkpoint: []byte(`"kept"`), Progress: []byte(`"seen"`)}
	})))
	c.Advance(time.Second)
	return each(claimed, func(j store.Job) store.JobDetail { return c.Get(j.ID) })
}

// takes does the operation under the lease of the job, which is good, and checks that the job becomes what the table says.
func takes(c *C, op store.Op, before store.JobDetail, when string, args ...any) {
	want := becomes(op, before, c.Now())
	c.Equal(underLease(c, op, before.Lease()), store.OutcomeOf(want.Job, store.StatusOK), "the outcome of %s %s", op, fmt.Sprintf(when, args...))
	c.Equal(c.Get(before.ID), want, "the job, after %s %s", op, fmt.Sprintf(when, args...))
}

// refuses checks that every operation under the lease answers stale and leaves row and history as they are.
func refuses(c *C, l store.Lease, ops ...store.Op) {
	before := c.Get(l.ID)
	for _, op := range ops {
		status := store.StatusStale
		if op == store.OpExtend && before.State == store.Cancelled {
			status = store.StatusCancelled
		}
		c.Equal(underLease(c, op, l), store.OutcomeOf(before.Job, status), "%s with token %d on a job with token %d", op, l.Token, before.Token)
		c.Equal(c.Get(l.ID), before, "a job with token %d, after %s with token %d", before.Token, op, l.Token)
	}
}

// becomes is a job after a legal operation at now, as the table says it; underLease tells what is saved, kept and waited for.
func becomes(op store.Op, d store.JobDetail, now time.Time) store.JobDetail {
	if op == store.OpReschedule && !d.Next().After(now) {
		return d // due already
	}
	i := slices.IndexFunc(store.Transitions, func(t store.Transition) bool { return t.Op == op })
	row, was := store.Transitions[i], d.Phase()
	j := d.Job
	j.Token = counted(row.Token, j.Token)
	j.Attempts = int(counted(row.Attempts, int64(j.Attempts)))
	j.Retries = int(counted(row.Retries, int64(j.Retries)))
	switch op {
	case store.OpExtend:
		j.LeaseExpiresAt = now.Add(ttl)
		return store.JobDetail{Job: j, History: d.History, Waits: d.Waits}
	case store.OpSave:
		j.Checkpoint, j.CheckpointSeq, j.Progress, j.ProgressSeq = []byte(savedDoc), savedSeq, []byte(savedDoc), savedSeq
		return store.JobDetail{Job: j, History: d.History, Waits: d.Waits}
	case store.OpReschedule: // to now
		if was == store.Retrying {
			j.RetryAt = now
		} else {
			j.RunAt = now
		}
		return store.JobDetail{Job: j, History: d.History, Waits: d.Waits}
	case store.OpUnblock:
		j.State, j.RunAt = store.Ready, later(now, j.RunAt)
		return store.JobDetail{Job: j, History: d.History, Waits: metBy(d.Waits, store.Succeeded)}
	}
	j.LeaseExpiresAt, j.RetryAt, j.FinishedAt = time.Time{}, time.Time{}, time.Time{}
	switch op {
	case store.OpClaim:
		j.State, j.Worker, j.ClaimedAt, j.LeaseExpiresAt = store.InFlight, worker, now, now.Add(ttl)
		j.CheckpointSeq, j.ProgressSeq = 0, 0
	case store.OpAck:
		j.State, j.FinishedAt, j.Result, j.Error = store.Succeeded, now, []byte(resultDoc), ""
	case store.OpSnooze:
		j.State, j.RunAt = store.Ready, now.Add(givenDelay)
	case store.OpRelease:
		j.State, j.RunAt = store.Ready, now
	case store.OpCancel:
		j.State, j.FinishedAt = store.Cancelled, now
	case store.OpRequeue:
		j.State, j.RunAt, j.Error, j.Result, j.Extras = store.Ready, now, "", nil, j.Extras.WithExpiresAt(time.Time{})
		if was == store.Succeeded {
			j.Checkpoint, j.Progress, j.CheckpointSeq, j.ProgressSeq = nil, nil, 0, 0
		}
	default:
		j = failedBy(op, j, now)
	}
	return store.JobDetail{Job: j, History: historyAfter(op, d, j, now), Waits: d.Waits}
}

// failedBy spells the retry policy out for jobs with the backoff of plain, rather than to ask the code that stores use.
func failedBy(op store.Op, j store.Job, now time.Time) store.Job {
	j.State, j.Error = store.Failed, failReason
	if op == store.OpRecover {
		j.Error = store.LeaseExpired.Reason
	}
	switch {
	case op == store.OpNever || j.Retries > j.MaxRetries:
		j.FinishedAt = now
	case op == store.OpAfter:
		j.RetryAt = now.Add(givenDelay)
	default:
		j.RetryAt = now.Add(min(time.Second<<(j.Retries-1), time.Minute))
	}
	return j
}

var endingOf = map[store.Op]store.Ending{
	store.OpAck: store.EndSucceeded, store.OpFail: store.EndFailed, store.OpNever: store.EndFailed, store.OpAfter: store.EndFailed,
	store.OpSnooze: store.EndSnoozed, store.OpRelease: store.EndReleased, store.OpRecover: store.EndExpired, store.OpCancel: store.EndCancelled,
}

func historyAfter(op store.Op, d store.JobDetail, j store.Job, now time.Time) []store.Attempt {
	history := slices.Clone(d.History)
	if op == store.OpClaim {
		return append(history, store.Attempt{Token: j.Token, Worker: j.Worker, StartedAt: now})
	}
	if d.State == store.InFlight {
		last := &history[len(history)-1]
		last.EndedAt, last.Ending = now, endingOf[op]
		switch last.Ending {
		case store.EndFailed, store.EndExpired:
			last.Error = j.Error
		case store.EndSnoozed:
			last.Error = failReason
		}
	}
	return history
}

func counted(change store.Change, n int64) int64 {
	switch change {
	case store.Plus:
		return n + 1
	case store.Minus:
		return n - 1
	case store.Reset:
		return 0
	default:
		return n
	}
}

// lookAt is Get for a job that may be gone.
func lookAt(c *C, id int64) (store.JobDetail, bool) {
	d, err := c.Store.Get(c.Ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return store.JobDetail{}, false
	}
	c.OK(err, "Get %d", id)
	return d, true
}
