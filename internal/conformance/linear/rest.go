package linear

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-ed332417/jq/internal/store"
)

// A rest is what the reader has read when all was quiet: the jobs by their ids, and whether all groups are sealed.
type rest struct {
	jobs   map[int64]store.JobDetail
	sealed bool
}

// A flaw is what a job must not be at rest.
type flaw struct {
	id   int64
	what string
}

// rest remembers the jobs as the reader has read them. If some of them are still blocked, it then lets all jobs end, for a store that has
// missed something may only show it now.
func (h *history) rest(ctx context.Context) {
	jobs := h.reader.details
	h.rests = append(h.rests, rest{jobs: maps.Clone(jobs)})
	if !slices.ContainsFunc(slices.Collect(maps.Values(jobs)), func(d store.JobDetail) bool { return d.State == store.Blocked }) {
		return
	}
	if h.unended = h.reader.drain(ctx); h.unended == 0 {
		h.rests = append(h.rests, rest{jobs: jobs, sealed: true})
	}
}

// drains is how often the reader lets all jobs go on. A chain of jobs takes as many times as it is long, and answers get lost on the way.
const drains = 20

// drain seals the groups and acks all jobs, until only blocked ones are left. It returns the id of a job that does not end, if there is one.
func (c *client) drain(ctx context.Context) (unended int64) {
	for _, group := range c.h.groups {
		if c.h.keeper != nil {
			c.seal(ctx, group)
		}
	}
	for range drains {
		c.settleAll(ctx)
		if unended = c.readLive(ctx); unended == 0 {
			c.readWaiting(ctx)
			return 0
		}
		c.h.clock.Add(window + ttl)
		c.recover(ctx, store.RecoverRequest{Limit: store.MaxItems})
		for _, queue := range c.h.queues {
			known := len(c.own)
			c.claim(ctx, queue, store.MaxItems, store.MaxItems)
			c.ackAll(ctx, c.own[known:])
		}
	}
	return unended
}

func (c *client) ackAll(ctx context.Context, leases []store.Lease) {
	if len(leases) == 0 {
		return
	}
	var acks []store.Ack
	var items []event
	for _, lease := range leases {
		acks = append(acks, store.Ack{Lease: lease, Result: []byte("0")})
		items = append(items, event{op: store.OpAck, id: lease.ID, token: lease.Token, doc: "0"})
	}
	c.outcomes(items, func() ([]store.Outcome, error) { return c.h.store.Ack(ctx, acks) })
}

// settleAll settles until nothing follows any more, and an answer says so.
func (c *client) settleAll(ctx context.Context) {
	for range drains {
		if n, answered := c.settle(ctx); answered && n == 0 {
			return
		}
	}
}

// readLive reads the rows of all jobs, and returns the id of one that is not blocked and has not ended, if there is one.
func (c *client) readLive(ctx context.Context) (live int64) {
	for _, j := range c.list(ctx) {
		c.details[j.ID] = store.JobDetail{Job: j, Waits: c.details[j.ID].Waits}
		if !j.Terminal() && j.State != store.Blocked {
			live = j.ID
		}
	}
	return live
}

// readWaiting reads jobs that wait, or have waited, for others.
func (c *client) readWaiting(ctx context.Context) {
	for _, id := range slices.Sorted(maps.Keys(c.details)) {
		if len(c.details[id].Waits) > 0 {
			c.get(ctx, id)
		}
	}
}

// flaws are what was wrong with jobs at rest.
func (h *history) flaws() []flaw {
	var all []flaw
	for _, r := range h.rests {
		for _, id := range slices.Sorted(maps.Keys(r.jobs)) {
			if what := r.flawOf(r.jobs[id], h.links); what != "" {
				all = append(all, flaw{id, what})
			}
		}
	}
	if h.unended != 0 {
		all = append(all, flaw{h.unended, fmt.Sprintf("has not ended after %d rounds of claims and acks", drains)})
	}
	return all
}

// flawOf says what is wrong with the job, if anything is.
func (r rest) flawOf(d store.JobDetail, l *links) string {
	unmet := slices.DeleteFunc(slices.Clone(d.Waits), func(w store.Waiting) bool { return r.met(w, l) })
	switch {
	case len(d.Waits) == 0:
		return ""
	case d.State == store.Blocked && len(unmet) == 0:
		return "is blocked although its waits are met"
	case d.State == store.Blocked && l.first(d.ID, 0, store.Ready) == never && slices.ContainsFunc(d.Waits, lostFor):
		return "is blocked although what it needs is cancelled"
	case d.State == store.Cancelled && strings.Contains(d.Error, neededReason) && !l.explains(d):
		return "is cancelled because of what it does not need, or what nobody has cancelled"
	case d.State != store.Cancelled && d.State != store.Blocked && slices.ContainsFunc(d.Waits, func(w store.Waiting) bool { return !w.Met }):
		return fmt.Sprintf("is %s although a wait of it is not met", d.Phase())
	}
	return ""
}

// met says whether the wait is met, by what the store shows of it or of the other jobs.
func (r rest) met(w store.Waiting, l *links) bool {
	on, found := r.jobs[w.ID]
	switch {
	case w.Met:
		return true
	case w.Group != "":
		return r.sealed && r.done(w, l)
	case found:
		return on.State == store.Succeeded || w.Any && on.Terminal()
	default:
		return w.Any && w.State == ""
	}
}

// done says whether the jobs in a sealed group meet the wait for it.
func (r rest) done(w store.Waiting, l *links) bool {
	for _, d := range r.jobs {
		if d.Group() == w.Group && d.State != store.Succeeded && !(w.Any && d.Terminal()) {
			return false
		}
	}
	return w.Any || l.spoiled(w.Group, 0) == never
}

// lostFor says that a job which needs this is cancelled, unless it was requeued since.
func lostFor(w store.Waiting) bool { return !w.Any && !w.Met && w.State == store.Cancelled }

// explains says whether the error of a cancelled job names what it needs, and what somebody may have cancelled or deleted.
func (l *links) explains(d store.JobDetail) bool {
	return slices.ContainsFunc(d.Waits, func(w store.Waiting) bool {
		switch {
		case w.Any:
			return false
		case w.Group != "":
			return strings.HasPrefix(d.Error, fmt.Sprintf("group %q,", w.Group)) && l.spoiled(w.Group, 0) != never
		default:
			return strings.HasPrefix(d.Error, fmt.Sprintf("job %d,", w.ID)) && l.first(w.ID, 0, store.Cancelled, store.Gone) != never
		}
	})
}
