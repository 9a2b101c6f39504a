package server_test

import (
	"slices"

	"github.com/seed-ed332417/jq/internal/store"
)

// What the witness asks of an ordered queue: that each job of a limit key waits for those before it.

// putInOrder makes the first queue ordered. Its jobs with a key can have no priority then.
func (sc *scenario) putInOrder() {
	sc.ordered = true
	for _, p := range sc.plans {
		if sc.inOrder(p) {
			p.Priority = 0
		}
	}
}

// inOrder reports whether the job stands in an order.
func (sc *scenario) inOrder(p *plan) bool {
	return sc.ordered && p.Queue == queues[0] && p.LimitKey != ""
}

// before returns a live job of the same limit key that the job must wait for: the one with the smallest id, or one in flight. The lock is held.
func (w *witness) before(r *record) *record {
	var found *record
	for _, other := range w.records {
		if other == r || !w.sim.inOrder(r.plan) || !w.sim.inOrder(other.plan) || other.plan.LimitKey != r.plan.LimitKey || slices.Contains(terminal, other.state) {
			continue
		}
		if (other.id < r.id || other.state == store.InFlight) && (found == nil || other.id < found.id) {
			found = other
		}
	}
	return found
}

// checkOrder checks that a job which is claimed need not wait for another one. The lock is held.
func (w *witness) checkOrder(r *record) {
	if other := w.before(r); other != nil {
		w.sim.problem(r.id, "a job was claimed out of order: job %d of its limit key is %s", other.id, other.state)
	}
}

// countPassedOver counts a claim on the queue that had to leave out a due job, because one before it waits. The lock is held.
func (w *witness) countPassedOver(queue string) {
	for _, r := range w.records {
		due := (r.state == store.Ready || r.state == store.Retrying) && !r.due.After(now())
		if other := w.before(r); r.plan.Queue == queue && due && other != nil && other.state != store.InFlight {
			w.sim.countNamed(claimsInOrder)
			return
		}
	}
}

// claimsInOrder is the name of the count of claims that left out a job for the sake of the order alone.
const claimsInOrder = "claims that left out a job behind one that waits"
