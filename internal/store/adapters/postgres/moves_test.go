package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq/internal/store"
)

// A move is one call of a caller.
type move struct {
	name   string
	ask    func(ctx context.Context) error
	note   func()                                  // writes down what was answered
	settle func()                                  // nil, or what makes an end of a call in doubt
	whole  func(before, after map[int64]fact) bool // says whether it was applied as a whole
	again  bool                                    // to repeat it is safe
}

// mostClaimed is how many jobs a caller claims at most. It keeps several times as many ready, so that every claim finds as
// many as it asks for.
const mostClaimed = 8

// choose takes a move by chance.
func (c *caller) choose() move {
	held := c.in(store.InFlight)
	switch dice := rand.IntN(10); {
	case len(c.in(store.Ready)) < 3*mostClaimed || dice < 3:
		return c.enqueue()
	case len(held) == 0 || dice < 6:
		return c.claim()
	case dice < 8:
		return c.extend(some(held))
	default:
		return c.ack(some(held))
	}
}

func (c *caller) enqueue() move {
	req := store.EnqueueRequest{Jobs: benchJobs(1 + rand.IntN(2*mostClaimed))}
	for i := range req.Jobs {
		req.Jobs[i].Queue, req.Jobs[i].Payload = c.queue, fmt.Appendf(nil, `{"call": %d, "place": %d}`, c.calls, i)
	}
	if rand.IntN(2) == 0 {
		req.RequestKey = fmt.Sprint(c.queue, " call ", c.calls)
	}
	var answers []store.Enqueued
	return move{
		name: "Enqueue",
		ask: func(ctx context.Context) (err error) {
			answers, err = c.s.Enqueue(ctx, req)
			return err
		},
		note: func() {
			for i, a := range answers {
				c.known[a.ID] = fact{Phase: store.Ready, Payload: string(req.Jobs[i].Payload)}
			}
		},
		whole: func(before, after map[int64]fact) bool {
			ids, same := changed(before, after)
			for i, id := range ids {
				same = same && len(ids) == len(req.Jobs) && after[id] == fact{Phase: store.Ready, Payload: string(req.Jobs[i].Payload)}
			}
			return same
		},
		again: req.RequestKey != "",
	}
}

func (c *caller) claim() move {
	req := store.ClaimRequest{Queue: c.queue, Limit: 1 + rand.IntN(mostClaimed), Worker: "w", TTL: time.Hour}
	var jobs []store.Job
	return move{
		name: "FetchAndClaim",
		ask: func(ctx context.Context) (err error) {
			jobs, err = c.s.FetchAndClaim(ctx, req)
			return err
		},
		note: func() {
			assert.Len(c.t, jobs, req.Limit)
			for _, j := range jobs {
				f := c.known[j.ID]
				assert.Equal(c.t, store.Ready, f.Phase)
				f.Phase, f.Token, f.Attempts, f.Lease = store.InFlight, store.NextToken(f.Token, c.epoch), f.Attempts+1, j.LeaseExpiresAt.UnixMicro()
				assert.Equal(c.t, f, factOf(j), "a job as it was claimed")
				c.known[j.ID] = f
			}
		},
		settle: c.giveBack,
		whole: func(before, after map[int64]fact) bool {
			ids, same := changed(before, after)
			for _, id := range ids {
				f := before[id]
				f.Token = store.NextToken(f.Token, c.epoch)
				same = same && len(ids) == req.Limit && f == after[id]
			}
			return same
		},
	}
}

// giveBack releases what a claim in doubt may have taken, as the store does by and by.
func (c *caller) giveBack() {
	var nacks []store.NAck
	for id, j := range c.look(c.t, c.queue) {
		if j.State == store.InFlight && c.known[id].Phase == store.Ready {
			nacks = append(nacks, store.NAck{Lease: j.Lease(), Form: store.Release})
		}
	}
	c.patiently(c.t, func(ctx context.Context) error {
		outcomes, err := c.judge.NAck(ctx, nacks)
		for _, o := range outcomes {
			assert.Equal(c.t, store.StatusOK, o.Status, "a release that may be a repeat")
		}
		return err
	})
}

func (c *caller) extend(ids []int64) move {
	leases := c.leases(ids)
	ttl := time.Hour - time.Duration(rand.IntN(1000))*time.Second
	var outcomes []store.Outcome
	return move{
		name: "Extend",
		ask: func(ctx context.Context) (err error) {
			outcomes, err = c.s.Extend(ctx, leases, ttl)
			return err
		},
		note: func() {
			for _, o := range outcomes {
				assert.Equal(c.t, store.StatusOK, o.Status, "Extend")
				f := c.known[o.ID]
				f.Lease = o.Next.UnixMicro()
				c.known[o.ID] = f
			}
		},
		whole: func(before, after map[int64]fact) bool {
			got, same := changed(before, after)
			for _, id := range got {
				f := before[id]
				f.Lease = after[got[0]].Lease
				same = same && f == after[id]
			}
			return same && sameIDs(got, ids)
		},
		again: true,
	}
}

func (c *caller) ack(ids []int64) move {
	var acks []store.Ack
	for _, l := range c.leases(ids) {
		acks = append(acks, store.Ack{Lease: l})
	}
	finished := func(f fact) fact {
		f.Phase, f.Lease = store.Succeeded, 0
		return f
	}
	var outcomes []store.Outcome
	return move{
		name: "Ack",
		ask: func(ctx context.Context) (err error) {
			outcomes, err = c.s.Ack(ctx, acks)
			return err
		},
		note: func() {
			for _, o := range outcomes {
				assert.Equal(c.t, store.StatusOK, o.Status, "Ack")
				c.known[o.ID] = finished(c.known[o.ID])
			}
		},
		whole: func(before, after map[int64]fact) bool {
			got, same := changed(before, after)
			for _, id := range got {
				same = same && after[id] == finished(before[id])
			}
			return same && sameIDs(got, ids)
		},
		again: true,
	}
}

// some is a part of the ids, chosen by chance.
func some(ids []int64) []int64 {
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids[:1+rand.IntN(len(ids))]
}

// changed is the ids of the jobs that are new or not as they were, in order, and whether all that were there still are.
func changed(before, after map[int64]fact) (ids []int64, whole bool) {
	for id, f := range after {
		if was, there := before[id]; !there || was != f {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for id := range before {
		if _, there := after[id]; !there {
			return ids, false
		}
	}
	return ids, true
}

func sameIDs(a, b []int64) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
