package sqlite

import (
	"slices"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A queue holds the calls that wait for the writer, urgent ones first.
type queue struct {
	mu     sync.Mutex // guards the fields below
	lines  [2][]*call // urgent, and not
	closed bool

	wake chan struct{} // receives after alert
}

// A call is one caller's work.
type call struct {
	run    func(*txn) error
	load   load
	since  time.Time // when it was put in the queue
	answer chan error

	err   error          // of this call alone
	woken []store.Wakeup // to send once it has taken effect
}

// A load is the size of a call, and whether it goes first or gives way to others.
type load struct {
	items   int
	bytes   int
	urgent  bool
	patient bool
}

// A batch ends at the first of these limits, so that later calls, heartbeats above all, do not wait longer.
const (
	maxBatchCalls = 512
	maxBatchItems = 2 * store.MaxItems
	maxBatchBytes = store.MaxCallBytes
)

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

// put adds the call. It returns false if the queue is closed.
func (q *queue) put(c *call) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	line := &q.lines[1]
	if c.load.urgent {
		line = &q.lines[0]
	}
	*line = append(*line, c)
	return true
}

// alert wakes the writer's goroutine.
func (q *queue) alert() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// withdraw removes the call. It returns false if the writer has taken it.
func (q *queue) withdraw(c *call) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, line := range q.lines {
		if at := slices.Index(line, c); at >= 0 {
			q.lines[i] = slices.Delete(line, at, at+1)
			return true
		}
	}
	return false
}

// take removes and returns the next batch.
func (q *queue) take() (batch []*call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var sum load
	fits := func(c *call) bool {
		sum.items, sum.bytes = sum.items+c.load.items, sum.bytes+c.load.bytes
		return len(batch) == 0 || len(batch) < maxBatchCalls && sum.items <= maxBatchItems && sum.bytes <= maxBatchBytes
	}
	for i := range q.lines {
		if !q.takeFrom(i, &batch, fits) {
			break
		}
	}
	return batch
}

// takeOlder removes and returns the calls that were put in before the time.
func (q *queue) takeOlder(than time.Time) (taken []*call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.lines {
		q.takeFrom(i, &taken, func(c *call) bool { return c.since.Before(than) })
	}
	return taken
}

// takeFrom takes the first wanted calls of a line, and reports whether it took all.
func (q *queue) takeFrom(i int, taken *[]*call, wanted func(*call) bool) (all bool) {
	for len(q.lines[i]) > 0 {
		c := q.lines[i][0]
		if !wanted(c) {
			return false
		}
		*taken = append(*taken, c)
		q.lines[i][0] = nil
		q.lines[i] = q.lines[i][1:]
	}
	return true
}

// empty reports whether no call waits.
func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.lines[0])+len(q.lines[1]) == 0
}

// close removes and returns all calls. Later ones are refused.
func (q *queue) close() []*call {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	left := slices.Concat(q.lines[0], q.lines[1])
	q.lines = [2][]*call{}
	return left
}
