package linear

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/seed-ed332417/jq/internal/store"
)

// A client makes calls, one after another, and records them.
type client struct {
	h       *history
	number  int
	lossy   bool          // some of its calls do not arrive, and some answers do not
	script  *rand.Rand    // of the present step
	own     []store.Lease // that its claims got
	records []record
	err     error // what no client can go on after
}

// How often a call is made until it is answered, and what keeps a lossy client from being answered, in percent of its calls.
const (
	attempts    = 3
	lostAnswers = 8
	lostCalls   = 4
	maxDoubts   = 6 // lost answers in a history: the search for an order doubles with each
)

// send makes a call and records it. The events in doubt enter the history if the answer is lost; answer makes the call and
// says what it did. It says whether there was an answer.
func (c *client) send(doubt []event, answer func() ([]event, error)) bool {
	r := record{client: c.number, op: doubt[0].op, queue: doubt[0].queue}
	var now span
	r.call, now.lo = c.h.enter()
	events, err := c.through(answer)
	r.ret, now.hi = c.h.leave()

	switch {
	case errors.Is(err, store.ErrUnavailable):
		return false
	case errors.Is(err, store.ErrInDoubt):
		r.lost, events = true, doubt
	case err != nil:
		c.err = errors.Join(c.err, fmt.Errorf("%s: %w", r.op, err))
		return true
	}
	for i := range events {
		events[i].now, events[i].lost = now, r.lost
	}
	r.events = events
	c.records = append(c.records, r)
	if !r.lost {
		c.learn(events)
	}
	return !r.lost
}

// through is the line between client and store, on which calls and answers get lost.
func (c *client) through(answer func() ([]event, error)) ([]event, error) {
	fate := 100
	if c.lossy {
		fate = c.script.IntN(100)
	}
	if fate < lostCalls {
		return nil, store.ErrUnavailable
	}
	events, err := answer()
	if err == nil && fate < lostCalls+lostAnswers && c.h.doubts.Add(1) <= maxDoubts {
		return nil, store.ErrInDoubt
	}
	return events, err
}

func (c *client) learn(events []event) {
	c.h.board.learn(events)
	for _, e := range events {
		if e.op == store.OpClaim {
			c.own = append(c.own, store.Lease{ID: e.id, Token: e.seen.token})
		}
	}
}

// repeat makes a call again until it is answered, as the contract allows, but not for ever.
func repeat(send func() bool) {
	for range attempts {
		if send() {
			return
		}
	}
}

// enqueue adds jobs. Each try has marks of its own, so that one can tell which of them was applied.
func (c *client) enqueue(ctx context.Context, jobs []store.NewJob) {
	repeat(func() bool {
		items := make([]item, len(jobs))
		marked := make([]store.NewJob, len(jobs))
		for i, n := range jobs {
			n.Kind = c.h.named(fmt.Sprintf("c%d.%d.%d", c.number, len(c.records), i))
			marked[i] = n
			items[i].job = &marked[i]
		}
		return c.send([]event{{op: opEnqueue, items: items}}, func() ([]event, error) {
			answers, err := c.h.store.Enqueue(ctx, store.EnqueueRequest{Jobs: marked})
			if err == nil && len(answers) != len(marked) {
				err = fmt.Errorf("%d answers for %d jobs", len(answers), len(marked))
			}
			answered := make([]item, len(answers))
			for i, a := range answers {
				answered[i] = item{job: items[i].job, Enqueued: a}
			}
			return []event{{op: opEnqueue, items: answered}}, err
		})
	})
}

func (c *client) claim(ctx context.Context, queue string, limit, quota int) {
	doubt := event{op: store.OpClaim, queue: queue, worker: fmt.Sprintf("w%d", c.number), length: ttl}
	req := store.ClaimRequest{Queue: queue, Limit: limit, RetryQuota: quota, Worker: doubt.worker, TTL: ttl}
	repeat(func() bool {
		return c.send([]event{doubt}, func() ([]event, error) {
			jobs, err := c.h.store.FetchAndClaim(ctx, req)
			if len(jobs) > limit {
				err = fmt.Errorf("%d jobs, the limit is %d", len(jobs), limit)
			}
			var events []event
			for _, j := range jobs {
				e := doubt
				e.id, e.status, e.seen = j.ID, store.StatusOK, sightOfRow(j)
				events = append(events, e)
			}
			return events, err
		})
	})
}

func (c *client) recover(ctx context.Context, req store.RecoverRequest) {
	doubt := event{op: store.OpRecover, length: req.Grace}
	repeat(func() bool {
		return c.send([]event{doubt}, func() ([]event, error) {
			list, err := c.h.store.RecoverExpiredLeases(ctx, req)
			if len(list) > req.Limit {
				err = fmt.Errorf("%d jobs, the limit is %d", len(list), req.Limit)
			}
			var events []event
			for _, r := range list {
				e := doubt
				e.id, e.status = r.ID, store.StatusOK
				e.seen = sight{state: r.State, token: r.Token, next: r.Next, kind: r.Kind}
				events = append(events, e)
			}
			return events, err
		})
	})
}

// get reads one job. An answer that is lost is no event.
func (c *client) get(ctx context.Context, id int64) {
	repeat(func() bool {
		e := event{op: opGet, id: id, status: store.StatusOK}
		return c.send([]event{e}, func() ([]event, error) {
			detail, err := c.h.store.Get(ctx, id)
			if errors.Is(err, store.ErrNotFound) {
				e.status = store.StatusNotFound
				return []event{e}, nil
			}
			e.seen = sightOfRow(detail.Job)
			e.seen.runs = len(detail.History)
			return []event{e}, err
		})
	})
}

// outcomes makes a call that has an outcome for each item; items says what each asks for.
func (c *client) outcomes(items []event, call func() ([]store.Outcome, error)) {
	repeat(func() bool {
		return c.send(append([]event(nil), items...), func() ([]event, error) {
			outcomes, err := call()
			if err == nil && len(outcomes) != len(items) {
				err = fmt.Errorf("%d outcomes for %d items", len(outcomes), len(items))
			}
			var events []event
			for i, o := range outcomes {
				e := items[i]
				e.status, e.seen = o.Status, sightOf(o)
				events = append(events, e)
			}
			return events, err
		})
	})
}
