package server_test

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// What the witness records about the ends of leases, and about what people do to jobs.

// Ack records which runs have succeeded.
func (w *witness) Ack(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.follow()
	outcomes, err := w.backend.Ack(ctx, acks)
	for i, o := range outcomes {
		if !w.accepted(acks[i].Lease, o, store.OpAck) {
			continue
		}
		c := w.claims[acks[i].Lease]
		w.checkRun(c, c.started)
		c.result = string(acks[i].Result)
		if acks[i].Refused() != nil {
			w.end(c, store.EndFailed, store.OpAck)
			w.failed(c.record, true, time.Time{})
			continue
		}
		w.end(c, store.EndSucceeded, store.OpAck)
		c.record.state = store.Succeeded
	}
	return outcomes, err
}

// NAck records which runs have ended otherwise.
func (w *witness) NAck(ctx context.Context, nacks []store.NAck) ([]store.Outcome, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.follow()
	outcomes, err := w.backend.NAck(ctx, nacks)
	for i, o := range outcomes {
		w.nacked(nacks[i], o)
	}
	return outcomes, err
}

func (w *witness) nacked(n store.NAck, o store.Outcome) {
	verb := store.OpFail
	if n.Form == store.Snooze || n.Form == store.Release {
		verb = store.Op(n.Form)
	}
	if !w.accepted(n.Lease, o, verb) {
		return
	}
	c := w.claims[n.Lease]
	r := c.record
	w.checkRun(c, c.started || n.Form == store.Release || w.leftToOthers(c, n))
	if c.interrupted && verb == store.OpFail {
		w.sim.problem(c.ID, "a run that was interrupted for its server's sake is counted as failed, token %d: %s", c.Token, n.Error)
	}
	switch n.Form {
	case store.Snooze:
		w.end(c, store.EndSnoozed, verb)
		r.state, r.due = store.Ready, now().Add(n.Delay.Truncate(store.Resolution))
	case store.Release:
		w.end(c, store.EndReleased, verb)
		r.state, r.due = store.Ready, now()
		r.attempts--
	default:
		w.end(c, store.EndFailed, verb)
		w.failed(r, n.Form == store.Never, o.Next)
	}
}

// failed records one more retry. The caller holds the lock.
func (w *witness) failed(r *record, forGood bool, next time.Time) {
	r.retries++
	if r.state, r.due = store.Retrying, next; forGood || r.retries > r.plan.MaxRetries {
		r.state = store.Dead
	}
}

// RecoverExpiredLeases records which leases were ended, and asks why they expired.
func (w *witness) RecoverExpiredLeases(ctx context.Context, req store.RecoverRequest) ([]store.Recovered, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.follow()
	list, err := w.backend.RecoverExpiredLeases(ctx, req)
	by, _ := ctx.Value(linkKey{}).(*link)
	for _, r := range list {
		w.recovered(r, req.Grace, by)
	}
	return list, err
}

func (w *witness) recovered(o store.Recovered, grace time.Duration, by *link) {
	r := w.records[o.ID]
	c := r.current()
	switch {
	case c == nil:
		w.sim.problem(o.ID, "a job was recovered that was %s", r.state)
		return
	case c.until.Add(grace).After(now()):
		w.sim.problem(o.ID, "a live lease was recovered, %v before its end", c.until.Sub(now()))
	case o.Token <= r.token:
		w.sim.problem(o.ID, "the token did not grow with a recovery: %d after %d", o.Token, r.token)
	}
	w.explain(c)
	w.end(c, store.EndExpired, store.OpRecover)
	w.failed(r, false, o.Next)
	r.token = o.Token
	w.checkPrompt(c)
	w.checkPatience(c, by)
}

// Cancel records which jobs are cancelled.
func (w *witness) Cancel(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.follow()
	outcomes, err := w.backend.Cancel(ctx, filter, limit)
	for _, o := range outcomes {
		r := w.records[o.ID]
		if o.Status != store.StatusOK || r.state == store.Cancelled {
			continue
		}
		if c := r.current(); c != nil {
			w.end(c, store.EndCancelled, store.OpCancel)
		}
		w.sim.trace(o.ID, "people", "cancel", "token", time.Duration(o.Token))
		w.sim.count(jobCancelled)
		r.state, r.token = store.Cancelled, o.Token
		w.makesRoom(r)
	}
	return outcomes, err
}

// Requeue records which jobs start again.
func (w *witness) Requeue(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.follow()
	outcomes, err := w.backend.Requeue(ctx, filter, limit)
	for _, o := range outcomes {
		if o.Status != store.StatusOK {
			continue
		}
		r := w.records[o.ID]
		if r.state == store.Succeeded {
			r.saved = 0
		}
		w.sim.trace(o.ID, "people", "requeue", "token", time.Duration(o.Token))
		w.sim.count(jobRequeued)
		r.state, r.token, r.due, r.retries, r.runs, r.why = store.Ready, o.Token, now(), 0, 0, ""
		w.beginsAgain(r)
	}
	return outcomes, err
}
