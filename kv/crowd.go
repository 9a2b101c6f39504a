package kv

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Claims of several stores on one queue would all take its first jobs, and all but one would conflict. So a store that meets others takes the jobs of
// one shard first. It still takes the highest priority first, and jobs of other shards if its own has too few. At a conflict, and every three seconds, it
// moves to one of the shards that have waited for the longest time. When it has met nobody for a second, it takes the first jobs of all shards again.
type own struct {
	shard int
	moved time.Time           // when it chose the shard; zero if it must move
	met   time.Time           // when it met others the last time
	left  map[line][]leftHead // by shard: what it left at its latest claim
}

// A leftHead is the key of a shard's first job, or empty if it is not known.
type leftHead string

const (
	crowdedFor = time.Second     // how long a store keeps to a shard after it has met others
	keptFor    = 3 * time.Second // how long it keeps to the same one
)

// crowds are the shards of the queues on which stores have met.
type crowds struct {
	mu sync.Mutex
	of map[string]*own
}

// own returns what the store takes first in a try of a claim, or nil. Claims of one store on a queue take turns.
func (c *crowds) own(queue string, now time.Time, conflict bool) *own {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.of[queue]
	switch {
	case o == nil && !conflict:
		return nil
	case o == nil:
		o = &own{met: now}
		c.add(queue, o)
	case conflict:
		o.met, o.moved = now, time.Time{}
	case !o.lasts(now):
		delete(c.of, queue)
		return nil
	}
	if !within(now, o.moved, keptFor) {
		o.moved = time.Time{}
	}
	return o
}

// add forgets queues on which the store has met nobody of late.
func (c *crowds) add(queue string, o *own) {
	if c.of == nil {
		c.of = map[string]*own{}
	}
	for name, other := range c.of {
		if o.met.Sub(other.met).Abs() >= crowdedFor { // it may be a little later
			delete(c.of, name)
		}
	}
	c.of[queue] = o
}

// met notes that the store has met others just now.
func (c *crowds) met(o *own, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o.met = now
}

func (c *crowds) forget(queue string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.of, queue)
}

func (o *own) lasts(now time.Time) bool { return within(now, o.met, crowdedFor) }

// within reports whether so little time has passed. None has passed since a time that lies ahead, because the clock went back.
func within(now, since time.Time, d time.Duration) bool {
	passed := now.Sub(since)
	return passed >= 0 && passed < d
}

// must reports whether it must move before it takes a job.
func (o *own) must() bool { return o.moved.IsZero() }

// move chooses one of the shards whose first jobs have waited for the longest time: there are probably no claims on it.
func (o *own) move(t *txn, heads []*head) {
	var some []int
	for shard, h := range heads {
		if t.ready(h) {
			some = append(some, shard)
		}
	}
	if len(some) > 0 {
		slices.SortFunc(some, func(a, b int) int { return byDue(heads[a].items[0], heads[b].items[0]) })
		o.shard, o.moved = some[rand.IntN((len(some)+1)/2)], t.now
	}
}

// look reports whether somebody else has taken jobs that this store has left.
func (o *own) look(heads map[line][]*head) bool {
	for l, of := range heads {
		for shard, key := range o.left[l] {
			if items := of[shard].items; key != "" && (len(items) == 0 || bytes.Compare(items[0].Key, []byte(key)) > 0) {
				return true
			}
		}
	}
	return false
}

// leave notes what is first after a claim.
func (o *own) leave(heads map[line][]*head) {
	o.left = map[line][]leftHead{}
	for l, of := range heads {
		o.left[l] = make([]leftHead, len(of))
		for shard, h := range of {
			if len(h.items) > 0 {
				o.left[l][shard] = leftHead(h.items[0].Key)
			}
		}
	}
}
