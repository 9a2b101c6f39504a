package server_test

import (
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/server"
	"github.com/seed-ed332417/jq/internal/store"
)

// What the witness asks of the servers, beyond what a store could refuse: that handlers run only under leases, that leases
// run out only where nobody could have kept them, and that they are recovered then.

// started notes that a handler begins, and checks that it may.
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

// returned checks that a handler that heeds its context has returned by the end of its lease. A second run may begin then.
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

// observed checks what a server says of the end of a run: it is what the store accepted, and it is said once.
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

// checkRun sees that what is written of a run has happened. The lock is held.
func (w *witness) checkRun(c *claim, ran bool) {
	if !ran {
		w.sim.problem(c.ID, "token %d was finished, and no handler had begun", c.Token)
	}
}

// leftToOthers says that the server has no handler for the kind and does what it should: it puts the job off (R40), and lets
// it fail only after it was put off for long enough. The lock is held.
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

// leastTries is how many heartbeats a server tries at least before it loses a lease: after a failure it hurries.
const leastTries = 4

// explain sees why a lease ran out, if it did: a server that works, and whose heartbeats reach the store, loses none. Nothing
// else that it waits for is an excuse. The lock is held.
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

// checkPrompt sees whether the lease was recovered in time (C5): there may be a server that could have done it before. The
// lock is held.
func (w *witness) checkPrompt(c *claim) {
	for _, m := range w.sim.serving() {
		o := m.options
		if o.RecoverEvery < 0 {
			continue
		}
		interval := o.RecoverEvery * 11 / 10
		from := c.until.Add(-interval - maxLease) // by when it has got over earlier failures
		late := now().Sub(c.until.Add(o.RecoverGrace))
		if from.Before(m.began) || !m.link.clean(from, time.Now()) {
			continue
		}
		w.longest = max(w.longest, late)
		w.sim.countNamed("recoveries that had to be prompt")
		if late > interval+slack {
			w.sim.problem(c.ID, "a lease was recovered %v after its end and the grace, though %s looks every %v", late, o.Name, o.RecoverEvery)
		}
	}
}

// slack is for some calls on their way.
const slack = 100 * time.Millisecond

// checkPatience sees that nobody who has noticed that the store was away recovers a lease, before its server could extend it
// (C1). The lock is held.
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

// beatOf is how often a server beats.
func beatOf(o server.Options) time.Duration {
	if o.Beat == 0 {
		return o.Lease / 3
	}
	return o.Beat
}
