// Package cursor remembers where claims and recoveries begin in the indexes of a store's jobs. It contains no SQL: a [Plan]
// says where to begin, and learns what was found.
//
// A claim that walks its index from the head passes the entries of all jobs taken since the last vacuum. While some session
// holds a snapshot open, vacuum cannot remove them, and the walk grows without end. So a store remembers two positions in the
// index for each queue, lane and priority. The mark is exact: nothing before it is claimable, or ever will be. The cursor is
// where the latest claim ended. Most claims begin at the cursor. At least every [LookEvery], and after a claim that found too
// little, a claim begins with a look from the marks, which moves them forward.
//
// Why the mark is exact: a job becomes claimable by time at its due time, which is never before the now of the transaction that
// wrote it. That transaction takes its number before it reads now. So once all transactions that were numbered before some
// moment have ended, no job that was due before that moment can appear any more. That moment is the horizon. To learn it, a
// transaction must know its own number or the next one: the upper bound of a snapshot is not the next number but the one after
// the last that has ended, which may belong to a transaction that is still running. A look moves a mark to the first claimable job from the
// old mark on, but never beyond the horizon as known before the look. A job that an open transaction has claimed still counts
// as claimable, since that transaction may roll back.
//
// A cursor does not pass the horizon either, and so skips nothing, not even for a moment. The exception is a horizon that
// stands still because a writing transaction stays open for long: then the cursor moves on without it. Jobs that appear behind
// the cursor in that time wait for the next look, and so do jobs that a rolled-back claim of another store leaves behind it.
//
// All this relies on transaction numbers and times that only grow. After a failover or a restore, a server may have lost its
// latest transactions. It then has another start time, or gives the same numbers again. The opening of each transaction asks
// for both, and the store forgets all positions at once. Sweeps find the cases that show neither sign.
package cursor

import (
	"strings"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Durations are in real time.
const (
	LookEvery = 500 * time.Millisecond // a claim begins with a look
	StuckFor  = time.Second            // a horizon that has not moved for so long counts as stuck
	Slack     = 100 * time.Millisecond // how far the database's clock may go back unnoticed
	MaxQueues = 10_000                 // how many queues have positions
)

// Levels is the number of priorities. Level 0 is the highest.
const Levels = store.MaxPriority - store.MinPriority + 1

// LevelOf returns the level of a priority.
func LevelOf(priority int) int { return store.MaxPriority - priority }

// PriorityOf returns the priority of a level.
func PriorityOf(level int) int { return store.MaxPriority - level }

// A Lane is one of the two indexes from which jobs of a queue are claimed.
type Lane int

// The lanes, in the order in which claims take from them.
const (
	Retries Lane = iota
	Fresh
	Lanes
)

// Leases is used in place of a queue for the leases of all queues, in the order in which they end. They have one lane and one
// level: Fresh, and that of store.MaxPriority.
const Leases = ""

// AcrossKeys is used in place of a queue whose own positions are those of jobs without a key, for the positions of all its jobs.
func AcrossKeys(queue string) string { return queue + acrossKeys }

// QueueOf returns the queue of a name of positions.
func QueueOf(name string) string { return strings.TrimSuffix(name, acrossKeys) }

const acrossKeys = "\x00" // no queue's name has it

// A Position is a place in the index of one queue, lane and level.
type Position struct {
	At time.Time // zero for the head
	ID int64
}

// Before reports whether the position comes before the other one.
func (p Position) Before(other Position) bool {
	return p.At.Before(other.At) || p.At.Equal(other.At) && p.ID < other.ID
}

// Earlier returns the earlier position.
func Earlier(p, other Position) Position {
	if other.Before(p) {
		return other
	}
	return p
}

// Later returns the later position.
func Later(p, other Position) Position {
	if p.Before(other) {
		return other
	}
	return p
}

// A Queue is what the store remembers about one queue.
type Queue struct {
	Lanes  [Lanes]Positions
	Looked time.Time // when a look was last answered, by the process's monotonic clock
	Rows   Rows      // its hints
	Short  bool      // the latest claim found less than it asked for
	Told   bool      // the store has been notified of claimable jobs since the latest look
	Age    int       // how often positions had been forgotten before
}

// Positions are those of one lane, by level.
type Positions struct{ Mark, Cursor [Levels]Position }

// Cursors holds the positions of all queues, and of the leases.
type Cursors struct {
	horizon horizon

	mu     sync.Mutex // guards the fields below
	queues map[string]*Queue
	age    int
}

// New returns empty Cursors.
func New() *Cursors { return &Cursors{queues: map[string]*Queue{}} }

// Get returns a copy of what is remembered about the queue.
func (c *Cursors) Get(queue string) Queue {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found, ok := c.queues[queue]; ok {
		return *found
	}
	return Queue{Age: c.age}
}

// All returns copies of what is remembered about each queue.
func (c *Cursors) All() map[string]Queue {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[string]Queue, len(c.queues))
	for name, found := range c.queues {
		all[name] = *found
	}
	return all
}

// Change applies what a call has learned. from is the copy that the call began with; if positions were forgotten since, Change
// does nothing.
func (c *Cursors) Change(queue string, from Queue, f func(*Queue)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if from.Age != c.age {
		return
	}
	found, ok := c.queues[queue]
	if !ok {
		if len(c.queues) >= MaxQueues {
			clear(c.queues)
		}
		found = &Queue{Age: c.age}
		c.queues[queue] = found
	}
	f(found)
}

// Tell notes that jobs of the queue have become claimable.
func (c *Cursors) Tell(queue string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range []string{queue, AcrossKeys(queue)} {
		if found, ok := c.queues[name]; ok {
			found.Told = true
		}
	}
}

// Forget drops all positions, and makes running calls drop theirs. It clears the horizon first: otherwise a call that begins in
// between could move a new mark by the old horizon.
func (c *Cursors) Forget() {
	c.horizon.forget()
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.queues)
	c.age++
}

// Correct moves the mark back to a claimable job, or to a lease, if the mark was already behind it in the copy, which was made
// before the job was read. It reports whether that was so. It then discards what running calls learn, since they began at the
// wrong mark.
func (c *Cursors) Correct(before map[string]Queue, queue string, lane Lane, priority int, to Position) bool {
	one := c.correct(before, queue, lane, LevelOf(priority), to)
	return c.correct(before, AcrossKeys(queue), lane, LevelOf(priority), to) || one
}

func (c *Cursors) correct(before map[string]Queue, queue string, lane Lane, level int, to Position) bool {
	if known := before[queue]; !to.Before(known.Lanes[lane].Mark[level]) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.queues[queue]
	if !ok {
		return true
	}
	c.age++
	for _, other := range c.queues {
		other.Age = c.age
	}
	p := &found.Lanes[lane]
	p.Mark[level], p.Cursor[level] = Earlier(p.Mark[level], to), Position{}
	found.Looked, found.Told = time.Time{}, true
	return true
}
