package kv

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// A head is the first jobs of a shard of a line.
type head struct {
	items []Item // that were read
	rest  Range  // what follows, or nothing if its limit is zero
}

// headsOf returns the ranges of the heads of a line, each of a number of jobs.
func (s *Store) headsOf(queue string, l line, m mark, now time.Time, wide func(shard int) int) (asked []Range) {
	for shard := range s.shards {
		asked = append(asked, m.upTo(inShard(queue, l, byte(shard)), now, wide(shard)))
	}
	return asked
}

// headed returns the heads of which the ranges have been read.
func headed(asked []Range, answers [][]Item) []*head {
	heads := make([]*head, len(asked))
	for i := range heads {
		heads[i] = &head{rest: asked[i]}
		heads[i].add(answers[i])
	}
	return heads
}

// add adds what was read of the rest.
func (h *head) add(items []Item) {
	h.items = items
	if len(items) < h.rest.Limit {
		h.rest = Range{}
	} else if len(items) > 0 {
		h.rest.From = append(bytes.Clone(items[len(items)-1].Key), 0)
	}
}

// take removes the first entry.
func (h *head) take() Item {
	item := h.items[0]
	h.items = h.items[1:]
	return item
}

// ready passes over jobs that can not be claimed, and reports whether there is one that can. It reads more if it has to: if jobs that have
// expired, and are not settled yet, stand before the others, or if so many jobs of the shard are claimed.
func (t *txn) ready(h *head) bool {
	for t.look() {
		if len(h.items) == 0 {
			if h.rest.Limit == 0 {
				return false
			}
			h.rest.Limit = max(h.rest.Limit, chunk)
			h.add(t.scan(h.rest)[0])
			continue
		}
		item := h.items[0]
		w, ok := decodeWaits(item.Value)
		if !ok {
			t.fail(fmt.Errorf("%w: job %d waits without saying how long it is", errDamaged, lastNumber(item.Key)))
		}
		if (w.expires.IsZero() || w.expires.After(t.now)) && !dueOf(item.Key).After(t.now) {
			return t.err == nil
		}
		h.take()
	}
	return false
}

// weightOf returns the size of a waiting job, by its entry.
func weightOf(item Item) int {
	w, _ := decodeWaits(item.Value)
	return w.weight
}

// earliest returns the head whose first job is due first, or nil.
func (t *txn) earliest(heads []*head) (first *head) {
	for _, h := range heads {
		if t.ready(h) && (first == nil || byDue(h.items[0], first.items[0]) < 0) {
			first = h
		}
	}
	return first
}

// A choice is what a try of a claim reads to choose from.
type choice struct {
	s     *Store
	queue string
	limit int
	tried map[int64]int    // the jobs that the try before has chosen, and how often they had been claimed
	first bool             // take the first jobs of all shards
	own   *own             // nil if the store is alone
	known lines            // in use
	marks map[string]mark  // by which the first trip has asked
	asked []Range          // of the first trip
	heads map[line][]*head // by shard

	byKey  bool // the first trip has looked at limit keys instead
	take   bool // take jobs, however much there is to look at
	moving bool // the queue is on its way to another mode
	more   bool // there was too much to look at: the claim has taken nothing, and must begin again
}

// begin returns what the first trip asks for: the heads of the lines that were in use the last time.
func (c *choice) begin(now time.Time) []Range {
	latest := c.s.latest.Load()
	if latest.Modes[c.queue].has(byKey) {
		c.byKey, c.known, c.asked, c.own = true, 0, nil, nil
		return looks(c.queue, now, c.limit)
	}
	c.byKey = false
	c.own = c.s.crowds.own(c.queue, now, false)
	c.known, c.marks = latest.Lines, latest.Marks
	c.asked = c.ranges(c.known, c.marks, now)
	return c.asked
}

func (c *choice) ranges(of lines, marks map[string]mark, now time.Time) (asked []Range) {
	for _, l := range of.all() {
		asked = append(asked, c.s.headsOf(c.queue, l, marks[markOfLine(c.queue, l)], now, c.width)...)
	}
	return asked
}

// lookOf returns the look at limit keys of the first trip, or of another one if that has looked at lines.
func (c *choice) lookOf(t *txn) look {
	if c.byKey {
		return lookOf(t.first)
	}
	return lookOf(t.scan(looks(c.queue, t.now, c.limit)...))
}

// width returns how many jobs of each line to read of a shard: all that are needed, and most likely enough to choose the first ones of all shards.
func (c *choice) width(shard int) int {
	if c.own != nil && !c.own.must() {
		if shard == c.own.shard {
			return c.limit
		}
		return 1
	}
	if c.s.shards == 1 {
		return c.limit
	}
	fair := float64(c.limit) / float64(c.s.shards)
	return min(c.limit, int(fair+3*math.Sqrt(fair))+1)
}

// read makes heads of what the first trip has read, and reads those of lines that are in use since, or that begin earlier.
func (c *choice) read(t *txn) {
	c.heads = map[line][]*head{}
	c.note(c.known, headed(c.asked, t.first))
	missing := t.meta.Lines &^ c.known
	for _, l := range c.known.all() {
		if name := markOfLine(c.queue, l); t.meta.Marks[name].before(c.marks[name]) {
			missing |= 1 << l.bit()
		}
	}
	if missing != 0 {
		asked := c.ranges(missing, t.meta.Marks, t.now)
		c.note(missing, headed(asked, t.scan(asked...)))
		c.known |= missing
	}
	if c.first {
		return
	}
	if c.met(t) {
		c.own = c.s.crowds.own(c.queue, t.now, true)
	} else if c.own != nil && c.own.look(c.heads) {
		c.s.crowds.met(c.own, t.now)
	}
}

// met reports whether somebody else has claimed a job that the try before has chosen. Any other call that has changed one is no reason to keep to a shard.
func (c *choice) met(t *txn) bool {
	t.fetchJobs(slices.Collect(maps.Keys(c.tried)))
	for id, before := range c.tried {
		if raw, ok := t.peek(key(rows, number(id))); ok && t.decodeJob(raw).Attempts > before {
			return true
		}
	}
	return false
}

func (c *choice) note(of lines, heads []*head) {
	for i, l := range of.all() {
		c.heads[l] = heads[i*c.s.shards : (i+1)*c.s.shards]
	}
}

// takeFirst lets the claim take the first jobs of all shards.
func (c *choice) takeFirst() {
	c.own, c.first = nil, true
	c.s.crowds.forget(c.queue)
}

// next returns the head of a line from which the next job is taken, or nil.
func (c *choice) next(t *txn, l line) *head {
	heads := c.heads[l]
	if c.own == nil {
		return t.earliest(heads)
	}
	if c.own.must() {
		c.own.move(t, heads)
	}
	for i := range heads {
		if h := heads[(c.own.shard+i)%len(heads)]; t.ready(h) {
			return h
		}
	}
	return nil
}
