// Package cursor remembers where claims and recoveries begin in the indexes of a store's jobs. It knows no SQL: a [Plan] says where to
// begin, and is told what was found.
//
// A claim that walks its index from the head walks over the entries of all jobs taken since the last vacuum, and while some session holds
// a snapshot open, of all since then: the walk grows without end. So a store remembers, for each queue, lane and priority, two positions
// in the index. The mark is exact: nothing before it is claimable, or ever will be. The cursor is where the latest claim ended. Most claims
// begin at the cursor. At least every [LookEvery], and after a claim that found too little, a claim begins with a look from the marks,
// which moves them on.
//
// Why the mark is exact: a job becomes claimable by time at its due time, which is never before the now of the transaction that wrote it.
// That transaction takes its number before it reads now. So once every transaction has ended that was numbered before some moment, nothing
// due before that moment can appear any more. That moment is the horizon. To learn it, a transaction must take a number: the upper bound of
// a snapshot is not the next number, but one behind the last that has ended, and may be that of a transaction which goes on. A mark moves
// to the first job that is claimable from the old mark on, and never beyond the horizon as it was known before the look. A job that an open
// transaction has claimed still counts as claimable, since that transaction may roll back.
//
// A cursor does not go beyond the horizon either, and then skips nothing, not even for a moment. Only while a transaction that writes
// stays open for long, so that the horizon stands still, does the cursor go on without it. Jobs that then appear behind the cursor, and
// jobs that a rolled-back claim of another store leaves behind it, wait for the next look.
//
// All this relies on numbers and times that only grow. A server that has come back without its latest transactions, after a failover or a
// restore, has started at another time, or gives numbers that were given before: each transaction asks for both in its opening, and all
// positions are forgotten at once. Sweeps find what shows no such sign.
package cursor

import (
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Durations are real time.
const (
	LookEvery = 500 * time.Millisecond // a claim begins with a look
	StuckFor  = time.Second            // after which a horizon counts as standing still
	Slack     = 100 * time.Millisecond // by which the database's clock may be set back unnoticed
	MaxQueues = 10_000                 // whose positions are remembered
)

// Levels is how many priorities there are. Level 0 is the highest.
const Levels = store.MaxPriority - store.MinPriority + 1

// LevelOf is the level of a priority.
func LevelOf(priority int) int { return store.MaxPriority - priority }

// PriorityOf is the priority of a level.
func PriorityOf(level int) int { return store.MaxPriority - level }

// A Lane is one of the two indexes from which jobs of a queue are claimed.
type Lane int

// The lanes, in the order in which claims take from them.
const (
	Retries Lane = iota
	Fresh
	Lanes
)

// Leases stands in the place of a queue for the leases of all queues, in the order in which they end. They have one lane and one level:
// Fresh, and that of store.MaxPriority.
const Leases = ""

// A Position is a place in the index of one queue, lane and level.
type Position struct {
	At time.Time // zero for the head
	ID int64
}

// Before reports whether the position comes before the other one.
func (p Position) Before(other Position) bool {
	return p.At.Before(other.At) || p.At.Equal(other.At) && p.ID < other.ID
}

// Earlier is the first of both.
func Earlier(p, other Position) Position {
	if other.Before(p) {
		return other
	}
	return p
}

// Later is the last of both.
func Later(p, other Position) Position {
	if p.Before(other) {
		return other
	}
	return p
}

// A Queue is what is remembered of one queue.
type Queue struct {
	Lanes  [Lanes]Positions
	Looked time.Time // when a look was answered, by the process's own monotonic clock
	Short  bool      // the latest claim found less than it asked for
	Told   bool      // jobs have become claimable since the latest look, as far as the store was told
	Age    int       // how often positions were forgotten before
}

// Positions are those of one lane, by level.
type Positions struct{ Mark, Cursor [Levels]Position }

// Cursors are the positions of all queues, and of the leases.
type Cursors struct {
	horizon horizon

	mu     sync.Mutex // guards what follows
	queues map[string]*Queue
	age    int
}

// New remembers nothing yet.
func New() *Cursors { return &Cursors{queues: map[string]*Queue{}} }

// Get is a copy of what is remembered of the queue.
func (c *Cursors) Get(queue string) Queue {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found, ok := c.queues[queue]; ok {
		return *found
	}
	return Queue{Age: c.age}
}

// All is a copy of what is remembered of each queue.
func (c *Cursors) All() map[string]Queue {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[string]Queue, len(c.queues))
	for name, found := range c.queues {
		all[name] = *found
	}
	return all
}

// Change applies what a call has learned that began with the given copy. It does nothing if positions were forgotten since.
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

// Tell notes that jobs of the queues have become claimable.
func (c *Cursors) Tell(queues []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range queues {
		if found, ok := c.queues[name]; ok {
			found.Told = true
		}
	}
}

// Forget drops all positions, and those that calls under way have learned. What is known of transactions goes first: a call that begins
// in between would move a new mark by it.
func (c *Cursors) Forget() {
	c.horizon.forget()
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.queues)
	c.age++
}

// Correct brings the mark back to a claimable job, or to a lease, if the mark was behind it when the copy was made, which was before the
// job was read. It reports whether that was so. What calls under way learn then counts for nothing, since they began at the old mark.
func (c *Cursors) Correct(before map[string]Queue, queue string, lane Lane, priority int, to Position) bool {
	level := LevelOf(priority)
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
