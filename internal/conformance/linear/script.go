package linear

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/seed-ed332417/jq/internal/conformance"
	"github.com/seed-ed332417/jq/internal/store"
)

// script holds each call as often as its weight says.
var script = slices.Concat(
	times(26, store.OpClaim), times(14, opEnqueue), times(14, store.OpAck), times(8, store.OpExtend), times(5, store.OpSave),
	times(5, store.OpFail), times(2, store.OpAfter), times(2, store.OpNever), times(3, store.OpSnooze), times(4, store.OpRelease),
	times(10, store.OpRecover), times(4, store.OpCancel), times(6, store.OpRequeue), times(3, store.OpReschedule), times(4, store.OpDelete), times(5, opGet),
	times(3, opSettle), times(2, opSeal),
)

func times(weight int, op store.Op) []store.Op { return slices.Repeat([]store.Op{op}, weight) }

// step makes the n-th call of the client's script. The script of a step depends on nothing but seed, client and n; which
// lease or job it finds depends on what has happened so far. Every step makes a call: the clock moves at one of those of a round.
func (c *client) step(ctx context.Context, n int) {
	c.script = rand.New(rand.NewPCG(c.h.seed, uint64(1000*(c.number+1)+n)))
	switch op := script[int(c.script.Uint32())%len(script)]; op {
	case opEnqueue:
		c.enqueueSome(ctx)
	case opSettle:
		c.settle(ctx)
	case opSeal:
		c.sealSome(ctx)
	case store.OpClaim:
		c.claimSome(ctx)
	case store.OpRecover:
		c.recover(ctx, store.RecoverRequest{Limit: 1 + c.script.IntN(5), Grace: time.Duration(c.script.IntN(2)) * time.Second})
	case store.OpCancel, store.OpRequeue, store.OpReschedule, store.OpDelete, opGet:
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
	c.enqueue(ctx, c.withWaiting(jobs))
}

func (c *client) plain(queue int) store.NewJob {
	n := store.NewJob{
		Queue: c.h.queues[queue], Payload: []byte(`{}`), Priority: c.script.IntN(3), MaxRetries: 1 + c.script.IntN(2), Backoff: backoff,
	}
	if c.h.perKey > 0 {
		n.LimitKey = []string{"", "l1", "l2"}[n.Priority]
		if c.h.sorted && n.LimitKey != "" {
			n.Priority = 0
		}
	}
	return n
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
	c.change(ctx, op, id)
}

// change makes a call that changes one job and needs no lease.
func (c *client) change(ctx context.Context, op store.Op, id int64) {
	do := map[store.Op]func(context.Context, store.Filter, int) ([]store.Outcome, error){
		store.OpCancel: c.h.store.Cancel, store.OpRequeue: c.h.store.Requeue, store.OpDelete: c.h.store.Delete,
		store.OpReschedule: func(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
			return c.h.store.Reschedule(ctx, filter, time.Time{}, limit)
		},
	}[op]
	c.outcomes([]event{{op: op, id: id}}, func() ([]store.Outcome, error) { return do(ctx, store.Filter{IDs: []int64{id}}, 1) })
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
	c.outcomes(items, func() ([]store.Outcome, error) {
		var asked []conformance.Item
		for _, e := range items {
			asked = append(asked, conformance.Item{
				Op: op, Lease: store.Lease{ID: e.id, Token: e.token}, Delay: e.length, Doc: []byte(e.doc), Seq: e.seq, Error: e.doc,
			})
		}
		return conformance.Under(ctx, c.h.store, op, ttl, asked)
	})
}

// readAll reads every job when all is quiet: what the store has kept must fit what it has answered.
func (c *client) readAll(ctx context.Context) {
	ids := slices.Clone(c.h.board.ids) // nobody else calls any more
	for _, j := range c.list(ctx) {
		ids = append(ids, j.ID)
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		c.get(ctx, id)
	}
}

// list returns the rows of all jobs.
func (c *client) list(ctx context.Context) []store.Job {
	page, err := c.h.store.List(ctx, store.Filter{Queues: c.h.queues}, store.Page{Limit: store.MaxItems})
	c.err = errors.Join(c.err, err)
	return page.Jobs
}
