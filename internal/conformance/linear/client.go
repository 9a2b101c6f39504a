package linear

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

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
	details map[int64]store.JobDetail // that it got
	err     error                     // what no client can go on after
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
		r.lost, events = true, slices.Clone(doubt)
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

// call makes a call again until it is answered, as the contract allows, but not for ever.
func (c *client) call(doubt []event, answer func() ([]event, error)) {
	for range attempts {
		if c.send(doubt, answer) {
			return
		}
	}
}

// enqueue adds jobs and opens groups. Each try has marks of its own, so that one can tell which of them was applied. It is refused if it
// names a job that was deleted.
func (c *client) enqueue(ctx context.Context, jobs []store.NewJob, open ...string) {
	for range attempts {
		items, marked := make([]item, len(jobs)), slices.Clone(jobs)
		for i := range jobs {
			marked[i].Kind = c.h.named(fmt.Sprintf("c%d.%d.%d", c.number, len(c.records), i))
			items[i].job = &marked[i]
		}
		answered := c.send([]event{{op: opEnqueue, items: items, open: open}}, func() ([]event, error) {
			answers, err := c.h.store.Enqueue(ctx, store.EnqueueRequest{Jobs: marked, Open: open})
			if c.h.waits && errors.Is(err, store.ErrInvalid) {
				return nil, nil
			}
			if err == nil && len(answers) != len(marked) {
				return nil, fmt.Errorf("%d answers for %d jobs", len(answers), len(marked))
			}
			list := make([]item, len(answers))
			for i, a := range answers {
				list[i] = item{job: items[i].job, Enqueued: a}
			}
			return []event{{op: opEnqueue, items: list, open: open}}, err
		})
		if answered {
			return
		}
	}
}

// take makes a call that takes as many jobs as it finds, up to a limit.
func take[T any](c *client, doubt event, limit int, call func() ([]T, error), show func(taken T) (id int64, seen sight)) {
	c.call([]event{doubt}, func() ([]event, error) {
		list, err := call()
		if len(list) > limit {
			err = fmt.Errorf("%d jobs, the limit is %d", len(list), limit)
		}
		events := slices.Repeat([]event{doubt}, len(list))
		for i, taken := range list {
			events[i].status = store.StatusOK
			events[i].id, events[i].seen = show(taken)
		}
		return events, err
	})
}

func (c *client) claim(ctx context.Context, queue string, limit, quota int) {
	worker := fmt.Sprintf("w%d", c.number)
	req := store.ClaimRequest{Queue: queue, Limit: limit, RetryQuota: quota, Worker: worker, TTL: ttl}
	take(c, event{op: store.OpClaim, queue: queue, worker: worker, length: ttl}, limit,
		func() ([]store.Job, error) { return c.h.store.FetchAndClaim(ctx, req) },
		func(j store.Job) (int64, sight) { return j.ID, sightOfRow(j) })
}

func (c *client) recover(ctx context.Context, req store.RecoverRequest) {
	take(c, event{op: store.OpRecover, length: req.Grace}, req.Limit,
		func() ([]store.Recovered, error) { return c.h.store.RecoverExpiredLeases(ctx, req) },
		func(r store.Recovered) (int64, sight) {
			return r.ID, sight{state: r.State, token: r.Token, next: r.Next, kind: r.Kind}
		})
}

// get reads one job. An answer that is lost is no event.
func (c *client) get(ctx context.Context, id int64) {
	e := event{op: opGet, id: id, status: store.StatusOK}
	c.call([]event{e}, func() ([]event, error) {
		detail, err := c.h.store.Get(ctx, id)
		seen := e
		if errors.Is(err, store.ErrNotFound) {
			seen.status = store.StatusNotFound
			return []event{seen}, nil
		}
		seen.seen = sightOfRow(detail.Job)
		seen.seen.runs = len(detail.History)
		if err == nil {
			c.details[id] = detail
		}
		return []event{seen}, err
	})
}

// seal seals a group, which may not be open.
func (c *client) seal(ctx context.Context, group string) {
	e := event{op: opSeal, group: group, status: store.StatusOK}
	c.call([]event{e}, func() ([]event, error) {
		err := c.h.keeper.SealGroup(ctx, group)
		if errors.Is(err, store.ErrInvalid) {
			return nil, nil
		}
		return []event{e}, err
	})
}

// settle is no event of a job by itself: what it does may come at any time after the call that has caused it.
func (c *client) settle(ctx context.Context) (settled int, answered bool) {
	answered = c.send([]event{{op: opSettle}}, func() ([]event, error) {
		list, err := c.h.store.Settle(ctx, store.MaxItems)
		settled = len(list)
		return nil, err
	})
	return settled, answered
}

// outcomes makes a call that has an outcome for each item; items says what each asks for.
func (c *client) outcomes(items []event, call func() ([]store.Outcome, error)) {
	c.call(items, func() ([]event, error) {
		outcomes, err := call()
		if err == nil && len(outcomes) != len(items) {
			return nil, fmt.Errorf("%d outcomes for %d items", len(outcomes), len(items))
		}
		events := slices.Clone(items)
		for i, o := range outcomes {
			events[i].status, events[i].seen = o.Status, sight{state: o.State, token: o.Token, next: o.Next}
		}
		return events, err
	})
}
