package linear

import (
	"context"

	"github.com/seed-ed332417/jq/internal/store"
)

// withWaiting adds a job that waits for the first two, either as a group or each by itself: so every history has two ends that may come at
// once, and somebody who needs both.
func (c *client) withWaiting(jobs []store.NewJob) []store.NewJob {
	waiting := c.plain(0)
	switch {
	case !c.h.waits:
		return jobs
	case c.h.seed%3 == 0:
		waiting.After = []store.Wait{{Item: 0}, {Item: 1}}
	default:
		jobs[0].Group, jobs[1].Group = c.h.groups[0], c.h.groups[0]
		waiting.After = []store.Wait{{Group: c.h.groups[0], Any: c.h.seed%3 == 1}}
	}
	return append(jobs, waiting)
}

// lastTwo ends two jobs at the same time for which a third one waits, as a group or each by itself, when nothing else goes on: whoever of
// the two does not see the end of the other leaves the third one blocked. In some histories one of them is cancelled, not acked.
func (h *history) lastTwo(ctx context.Context) {
	jobs := make([]store.NewJob, 3)
	for i := range jobs {
		jobs[i] = h.reader.plain(0)
		jobs[i].Queue, jobs[i].Priority = h.last, 0
	}
	if h.seed%2 == 0 {
		jobs[0].Group, jobs[1].Group = h.last, h.last
		jobs[2].After = []store.Wait{{Group: h.last}}
	} else {
		jobs[2].After = []store.Wait{{Item: 0}, {Item: 1}}
	}
	known, claims, cancel := len(h.board.ids), 2, h.seed/2%4 == 0
	if cancel {
		claims = 1
	}
	h.reader.enqueue(ctx, jobs)
	h.reader.claim(ctx, h.last, claims, 0)
	ids, leases := h.board.ids[known:], h.reader.own
	if len(ids) != len(jobs) || len(leases) != claims {
		return // an answer was lost on the way to the store
	}
	a, b := h.clients[0], h.clients[1]
	atOnce(
		func() { a.ackAll(ctx, leases[:1]) },
		func() {
			if cancel {
				b.change(ctx, store.OpCancel, ids[1])
			} else {
				b.ackAll(ctx, leases[1:])
			}
		})
}

// enqueueSome adds some jobs that wait for nothing, or a flow.
func (c *client) enqueueSome(ctx context.Context) {
	jobs, flow, draw, whatever := c.someJobs(), c.script.IntN(3) == 0, c.script.IntN(5), c.script.IntN(3) == 0
	if !c.h.waits || !flow {
		c.enqueue(ctx, jobs)
		return
	}
	var open []string
	group, last := c.h.groups[draw%2], &jobs[len(jobs)-1]
	switch draw {
	case 0: // one after the other
		jobs = append(jobs, c.waiting(store.Wait{Item: len(jobs) - 1, Any: whatever}))
	case 1: // a job that waits for one that may have ended, or be gone
		if id, _ := c.h.board.someID(c.script.IntN(recent)); id != 0 {
			last.After = []store.Wait{{ID: id, Any: whatever}}
		}
	case 2: // a batch
		last.Group = group
		jobs = append(jobs, c.waiting(store.Wait{Group: group, Any: whatever}))
		if c.h.keeper != nil {
			open = []string{group}
		}
	case 3: // one more job of a group
		last.Group = group
	default: // one more that waits for a group, and for a job
		jobs = append(jobs, c.waiting(store.Wait{Group: group, Any: whatever}, store.Wait{Item: len(jobs) - 1, Any: !whatever}))
	}
	c.enqueue(ctx, jobs, open...)
}

func (c *client) waiting(on ...store.Wait) store.NewJob {
	n := c.plain(0)
	n.After = on
	return n
}

func (c *client) sealSome(ctx context.Context) {
	if !c.h.waits || c.h.keeper == nil {
		c.claimSome(ctx)
		return
	}
	c.seal(ctx, c.h.groups[c.script.IntN(len(c.h.groups))])
}
