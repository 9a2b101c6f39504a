package linear

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// weights are how often a script chooses each call.
var weights = []struct {
	op     store.Op
	weight int
}{
	{store.OpClaim, 26}, {opEnqueue, 14}, {store.OpAck, 10}, {store.OpExtend, 8}, {store.OpSave, 5},
	{store.OpFail, 5}, {store.OpAfter, 2}, {store.OpNever, 2}, {store.OpSnooze, 3}, {store.OpRelease, 4},
	{store.OpRecover, 10}, {store.OpCancel, 4}, {store.OpRequeue, 6}, {store.OpDelete, 4}, {opGet, 5},
}

func chosen(draw int) store.Op {
	total := 0
	for _, w := range weights {
		total += w.weight
	}
	draw %= total
	for _, w := range weights {
		if draw -= w.weight; draw < 0 {
			return w.op
		}
	}
	panic("not reached")
}

// step makes the n-th call of the client's script. The script of a step depends on nothing but seed, client and n; which
// lease or job it finds depends on what has happened so far.
func (c *client) step(ctx context.Context, n int) {
	c.script = rand.New(rand.NewPCG(c.h.seed, uint64(1000*(c.number+1)+n)))
	switch op := chosen(int(c.script.Uint32())); op {
	case opEnqueue:
		c.enqueue(ctx, c.someJobs())
	case store.OpClaim:
		c.claimSome(ctx)
	case store.OpRecover:
		c.recover(ctx, store.RecoverRequest{Limit: 1 + c.script.IntN(5), Grace: time.Duration(c.script.IntN(2)) * time.Second})
	case store.OpCancel, store.OpRequeue, store.OpDelete, opGet:
		c.byID(ctx, op)
	default:
		c.byLease(ctx, op)
	}
}

// prepare adds the first jobs, so that there is something to fight for.
func (c *client) prepare(ctx context.Context) {
	c.script = rand.New(rand.NewPCG(c.h.seed, 0))
	jobs := []store.NewJob{c.plain(0), c.plain(0), c.plain(1)}
	jobs[1].UniqueKey = c.h.keys[0]
	c.enqueue(ctx, jobs)
}

func (c *client) plain(queue int) store.NewJob {
	return store.NewJob{
		Queue: c.h.queues[queue], Payload: []byte(`{}`), Priority: c.script.IntN(3), MaxRetries: 1 + c.script.IntN(2), Backoff: backoff,
	}
}

// someJobs are one or two jobs, mostly with a unique key.
func (c *client) someJobs() []store.NewJob {
	jobs := make([]store.NewJob, 1+c.script.IntN(4)/3)
	for i := range jobs {
		jobs[i] = c.plain(c.script.IntN(3) / 2)
		if c.script.IntN(4) == 0 {
			jobs[i].Delay = delay
		}
		if c.script.IntN(4) > 0 {
			jobs[i].UniqueKey = c.h.keys[c.script.IntN(len(c.h.keys))]
			jobs[i].UniqueFor = window * time.Duration(c.script.IntN(2))
		}
	}
	return jobs
}

func (c *client) claimSome(ctx context.Context) {
	limit := 1 + c.script.IntN(3)
	c.claim(ctx, c.h.queues[c.script.IntN(4)/3], limit, c.script.IntN(limit+1))
}

// byID makes a call that needs no lease.
func (c *client) byID(ctx context.Context, op store.Op) {
	id, named := c.h.board.someID(c.script.IntN(recent))
	switch {
	case id == 0:
		c.claimSome(ctx)
		return
	case op == opGet || op == store.OpDelete && !named:
		// A job that is deleted before it is known which enqueue it comes from would leave answers that fit nothing.
		c.get(ctx, id)
		return
	}
	one := store.Filter{IDs: []int64{id}}
	c.outcomes([]event{{op: op, id: id}}, func() ([]store.Outcome, error) {
		switch op {
		case store.OpCancel:
			return c.h.store.Cancel(ctx, one, 1)
		case store.OpRequeue:
			return c.h.store.Requeue(ctx, one, 1)
		default:
			return c.h.store.Delete(ctx, one, 1)
		}
	})
}

// someLease is a lease that the client got, or anybody. A script draws equally often whatever there is.
func (c *client) someLease() (store.Lease, bool) {
	mine, draw := c.script.IntN(2) == 0, c.script.IntN(recent)
	if lease, ok := pick(c.own, draw); ok && mine {
		return lease, true
	}
	return c.h.board.someLease(draw)
}

// byLease makes a call under one or two leases, which may be the same, or lost.
func (c *client) byLease(ctx context.Context, op store.Op) {
	e := event{op: op, seq: c.script.Int64N(3)}
	switch op {
	case store.OpExtend:
		e.length = ttl
	case store.OpAfter, store.OpSnooze:
		e.length = delay
	}
	var items []event
	for range 1 + c.script.IntN(4)/3 {
		lease, ok := c.someLease()
		if !ok {
			c.claimSome(ctx)
			return
		}
		e.id, e.token = lease.ID, lease.Token
		e.doc = strconv.Itoa(10_000*c.number + 10*len(c.records) + len(items)) // a number is a document as well as a reason
		items = append(items, e)
	}
	c.outcomes(items, func() ([]store.Outcome, error) { return c.write(ctx, op, items) })
}

// write is the call for the items, all of one operation.
func (c *client) write(ctx context.Context, op store.Op, items []event) ([]store.Outcome, error) {
	s := c.h.store
	switch op {
	case store.OpExtend:
		return s.Extend(ctx, each(items, event.lease), ttl)
	case store.OpSave:
		return s.Save(ctx, each(items, func(e event) store.Save {
			return store.Save{Lease: e.lease(), Seq: e.seq, Checkpoint: []byte(e.doc)}
		}))
	case store.OpAck:
		return s.Ack(ctx, each(items, func(e event) store.Ack {
			return store.Ack{Lease: e.lease(), Result: []byte(e.doc)}
		}))
	default:
		return s.NAck(ctx, each(items, func(e event) store.NAck {
			return store.NAck{Lease: e.lease(), Form: store.Form(op), Delay: e.length, Error: e.doc}
		}))
	}
}

func (e event) lease() store.Lease { return store.Lease{ID: e.id, Token: e.token} }

func each[T any](items []event, request func(event) T) []T {
	var list []T
	for _, e := range items {
		list = append(list, request(e))
	}
	return list
}

// readAll reads every job when all is quiet: what the store has kept must fit what it has answered.
func (c *client) readAll(ctx context.Context) {
	ids := c.h.board.allIDs()
	for _, q := range c.h.queues {
		page, err := c.h.store.List(ctx, store.Filter{Queue: q}, store.Page{Limit: store.MaxItems})
		if err != nil {
			c.err = err
			return
		}
		for _, j := range page.Jobs {
			ids = append(ids, j.ID)
		}
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		c.get(ctx, id)
	}
}
