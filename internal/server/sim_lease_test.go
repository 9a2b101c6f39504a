package server_test

import (
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/server"
	"github.com/seed-ed332417/jq/internal/store"
)

// What the witness asks of the servers, beyond what a store can refuse: that handlers run only under leases, that leases expire only if
// nobody could have extended them, and that they are recovered then.

// started records that a handler begins, and checks that it may.
func (w *witness) started(l store.Lease, saved int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.claims[l]
	if c == nil {
		w.sim.problem(l.ID, "a handler began under token %d, which was never handed out", l.Token)
		return
	}
	w.sim.trace(l.ID, c.worker, "start", "token", time.Duration(l.Token))
	switch {
	case c.link == nil:
		w.sim.problem(l.ID, "a handler began under token %d, whose claim was never answered", l.Token)
	case c.started:
		w.sim.problem(l.ID, "a handler began twice under token %d", l.Token)
	case time.Now().After(c.until.Add(store.Resolution)):
		w.sim.problem(l.ID, "a handler began under token %d, %v after its lease had run out", l.Token, time.Since(c.until))
	case w.holds(c) && saved < c.record.saved:
		w.sim.problem(l.ID, "a checkpoint was lost: a handler begins with step %d after %d was saved", saved, c.record.saved)
	}
	c.started = true
}

// returned checks that a handler which obeys its context has returned by the end of its lease. A second run may begin then.
func (w *witness) returned(l store.Lease, p *plan, interrupted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.claims[l]
	if c == nil {
		return // said when it began
	}
	c.interrupted = interrupted
	w.sim.trace(l.ID, c.worker, "return", "token", time.Duration(l.Token))
	if p.Kind == stubborn {
		return
	}
	if over := time.Since(c.until); over > store.Resolution {
		w.sim.problem(l.ID, "a handler went on for %v after its lease had run out, token %d", over, l.Token)
	}
	if c.ending == store.EndCancelled {
		if late := time.Since(c.ended); late > maxLease/3+slack && c.link.clean(c.ended, time.Now()) {
			w.sim.problem(l.ID, "a handler learnt %v after it that its job was cancelled, token %d", late, l.Token)
		}
	}
}

// observed checks what a server reports about the end of a run: the store has accepted it, and it is reported once.
func (w *witness) observed(l store.Lease, ending store.Ending) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.claims[l]
	switch {
	case c == nil:
		w.sim.problem(l.ID, "a server says that token %d, which was never handed out, has %s", l.Token, ending)
		return
	case c.ending != ending:
		w.sim.problem(l.ID, "a server says that token %d has %s, but it is %q", l.Token, ending, c.ending)
	case c.told:
		w.sim.problem(l.ID, "a server says twice that token %d has %s", l.Token, ending)
	}
	c.told = true
}

// checkRun checks that what is written about a run has happened. The caller holds the lock.
func (w *witness) checkRun(c *claim, ran bool) {
	if !ran {
		w.sim.problem(c.ID, "token %d was finished, and no handler had begun", c.Token)
	}
}

// leftToOthers says that the server has no handler for the kind and does what it must: it snoozes the job (R40), and fails it only after
// it was snoozed for long enough. The caller holds the lock.
func (w *witness) leftToOthers(c *claim, n store.NAck) bool {
	if c.record.plan.Kind != rare {
		return false
	}
	first := c
	for i := len(c.record.claims) - 2; i >= 0 && c.record.claims[i].ending == store.EndSnoozed; i-- {
		first = c.record.claims[i]
	}
	long := c.from.Sub(first.from) >= unknownFor
	return n.Form == store.Snooze || long && n.Form == store.Fail && strings.HasPrefix(n.Error, "no handler")
}

// leastTries is the least number of heartbeats that a server tries before it loses a lease: after a failure it tries sooner.
const leastTries = 4

// explain checks why a lease expired, if it did: a server that works, and whose heartbeats reach the store, loses none. Nothing else
// that it waits for is an excuse. The caller holds the lock.
func (w *witness) explain(c *claim) {
	now := time.Now()
	switch {
	case c.until.After(now):
		return
	case c.link == nil, c.granted.Equal(c.from) && c.heard.Sub(c.from) > slack/2:
		return // nobody has ever heard of it, or not in time
	case c.record.plan.Kind == stubborn && c.started:
		return // a handler that was given up: its lease is left to run out
	case c.link.outlived(c.until):
		return
	}
	failures := c.link.failed("Extend", c.granted, c.until)
	if failures < leastTries && !c.link.troubled("Extend", c.granted, c.until, span{}) {
		w.sim.problem(c.ID, "a lease of %v ran out while its server lived and reached the store, token %d: %d heartbeats had failed",
			c.until.Sub(c.granted), c.Token, failures)
	}
}

// checkPrompt checks that the lease was recovered in time (C5): another server might have done it earlier. The caller holds the lock.
func (w *witness) checkPrompt(c *claim) {
	for _, m := range w.sim.serving() {
		o := m.options
		if o.Recovery.Interval < 0 {
			continue
		}
		interval := o.Recovery.Interval * 11 / 10
		if beat := beatOf(o); o.Recovery.Interval+slack > max(o.Lease.Duration-beat, beat) {
			interval += beat // it may have heard nothing of the store for so long that it lets others extend their leases first
		}
		from := c.until.Add(-interval - maxLease) // by when it has got over earlier failures
		late := now().Sub(c.until.Add(o.Recovery.Grace))
		if from.Before(m.began) || !m.link.clean(from, time.Now()) {
			continue
		}
		w.longest = max(w.longest, late)
		w.sim.countNamed("recoveries that had to be prompt")
		if late > interval+slack {
			w.sim.problem(c.ID, "a lease was recovered %v after its end and the grace, though %s looks every %v", late, o.Name, o.Recovery.Interval)
		}
	}
}

// slack is for some calls on their way.
const slack = 100 * time.Millisecond

// checkPatience checks that no server that noticed an outage recovers a lease before the server that holds it could extend it (C1). The
// caller holds the lock.
func (w *witness) checkPatience(c *claim, by *link) {
	outage, over := w.sim.latestOutage()
	if c.link == nil || by == nil || !over || c.granted.After(outage.from) || c.until.After(time.Now()) || c.record.plan.Kind == stubborn {
		return
	}
	if !by.hasMissed(outage) {
		return
	}
	for _, l := range []*link{c.link, by} {
		if l.troubled("", c.granted, time.Now(), outage) || l.failed("", c.granted, time.Now()) > 0 {
			return
		}
	}
	if beatOf(by.options) > beatOf(c.link.options)/4+slack/2 {
		w.sim.problem(c.ID, "the lease of a server that lived was recovered by %s %v after the store was there again", by.name, time.Since(outage.to))
	}
}

// beatOf returns the heartbeat interval of a server.
func beatOf(o server.Options) time.Duration {
	if o.Lease.Heartbeat == 0 {
		return o.Lease.Duration / 3
	}
	return o.Lease.Heartbeat
}
