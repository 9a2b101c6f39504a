package postgres

import (
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Where claims begin.
//
// A claim that walks its index from the head walks over the entries of all jobs taken since the last vacuum, and while some
// session holds a snapshot open, of all since then: the walk grows without end. So a store remembers, for each queue, lane
// and priority, two places in the index. The mark is exact: nothing before it is claimable, or ever will be. The cursor is
// where the latest claim ended. Most claims begin at the cursor; one in a while, and every claim that comes back short,
// begins at the mark, which moves on then.
//
// What makes the mark exact. A job becomes claimable by time at its due time, which is never before the now of the
// transaction that wrote it. That now is read after the transaction has its number. So once every transaction has ended that
// was numbered before some moment, nothing due before that moment can appear any more: that is the horizon. Whoever asks has to
// take a number for it: the upper bound of a snapshot is not the next number, but one behind the last that has ended, and may
// be that of a transaction which goes on. A mark moves to the first job that is seen claimable from the old mark on, where a
// job counts as such that an open transaction has claimed, since that may roll back; and never beyond the horizon as it was known
// before the look.
//
// A cursor goes no further than the horizon either, and then misses nothing at all, not even the order. Only while a
// transaction that writes stays open for long, so that the horizon stands still, does the cursor go on without it. What then
// appears behind the cursor, and what a rolled-back claim of another store leaves behind it, waits for the next look from
// the mark.
//
// All this rests on numbers and times that only grow. A server that has come back without its latest transactions, after a
// failover or a restore, has started at another time, or gives numbers that were given before: each transaction asks for both in
// its opening, and all places are forgotten at once. For what shows by no sign there are sweeps (see sweep.go).

const (
	lookEvery = 500 * time.Millisecond // a claim begins at the mark, in real time
	stuckFor  = time.Second            // the horizon counts as standing still, in real time
	slack     = 100 * time.Millisecond // by which the database's clock may be set back unnoticed
	mostPairs = 64                     // moments that are remembered
	maxQueues = 10_000                 // queues whose places are remembered
)

// A position is a place in the index of one queue, lane and priority.
type position struct {
	at time.Time // zero for the head
	id int64
}

func (p position) before(other position) bool {
	return p.at.Before(other.at) || p.at.Equal(other.at) && p.id < other.id
}

// text is the time for a statement.
func (p position) text() string {
	if p.at.IsZero() {
		return "-infinity"
	}
	return p.at.UTC().Format("2006-01-02 15:04:05.999999Z07:00")
}

func earlier(p, other position) position {
	if other.before(p) {
		return other
	}
	return p
}

func later(p, other position) position {
	if p.before(other) {
		return other
	}
	return p
}

// A horizon knows before which moment every transaction has ended.
type horizon struct {
	mu     sync.Mutex // guards what follows
	pairs  []pair     // moments not known to be past, the oldest first
	past   time.Time  // every transaction that read a now before it has ended
	latest time.Time  // the latest moment seen
	told   time.Time  // when it was, by the process's own monotonic clock
}

// A pair says that transactions with that number, or a higher one, read the moment at, or a later one.
type pair struct {
	at     time.Time
	number int64
	seen   time.Time // by the process's own monotonic clock
}

// note learns from a transaction that was begun at the time sent by the process's own clock. It returns the horizon; whether it
// stands still; and whether the database's clock was set back, after which no place can be trusted.
func (h *horizon) note(at time.Time, xmin, number int64, sent time.Time) (past time.Time, stuck, setBack bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := time.Now()
	if at.Before(h.latest.Add(-slack)) && sent.After(h.told) {
		h.pairs, h.past, h.latest, h.told = nil, time.Time{}, at, seen
		return time.Time{}, false, true
	}
	if at.After(h.latest) {
		h.latest, h.told = at, seen
		h.pairs = append(h.pairs, pair{at, number, seen})
	}
	for len(h.pairs) > 0 && h.pairs[0].number <= xmin {
		h.past = h.pairs[0].at
		h.pairs = h.pairs[1:]
	}
	if len(h.pairs) > mostPairs {
		h.thin()
	}
	return h.past, len(h.pairs) > 0 && seen.Sub(h.pairs[0].seen) > stuckFor, false
}

// forget drops what is known of transactions, which may not be those of the server any more.
func (h *horizon) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pairs, h.past = nil, time.Time{}
}

// known is the horizon, as far as it is known.
func (h *horizon) known() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.past
}

// thin forgets every other moment.
func (h *horizon) thin() {
	var kept []pair
	for i := 0; i < len(h.pairs); i += 2 {
		kept = append(kept, h.pairs[i])
	}
	h.pairs = kept
}

// A leaseMark is the mark in the index of leases, for recovery.
type leaseMark struct {
	mu  sync.Mutex // guards what follows
	at  position
	age int // how often it was forgotten
}

func (m *leaseMark) get() (at position, age int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at, m.age
}

func (m *leaseMark) set(at position, age int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if age == m.age {
		m.at = later(m.at, at)
	}
}

// bringBack moves the mark to a lease that lies before it, although none should.
func (m *leaseMark) bringBack(to position) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at, m.age = earlier(m.at, to), m.age+1
}

func (m *leaseMark) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at, m.age = position{}, m.age+1
}

// forget drops every place that was remembered, and what was known of the transactions first.
func (s *Store) forget() {
	s.horizon.forget()
	s.cursors.forget()
	s.leases.forget()
}

// levels are the priorities, the highest first.
const levels = store.MaxPriority - store.MinPriority + 1

func levelOf(priority int) int { return store.MaxPriority - priority }

func priorityOf(level int) int { return store.MaxPriority - level }

// A claimCursor is what is remembered of the lanes of one queue.
type claimCursor struct {
	fresh, retries places
	looked         time.Time // from the marks, by the process's own monotonic clock
	short          bool      // the latest claim found less than it asked for
	told           bool      // jobs have become claimable since the latest look, as far as the store was told
	age            int       // which forgetting it has come after
}

// Places are those of one lane, by level.
type places struct {
	mark   [levels]position
	cursor [levels]position
}

// start is where a claim begins in each level.
func (p *places) start() (from [levels]position) {
	for i := range from {
		from[i] = later(p.mark[i], p.cursor[i])
	}
	return from
}

// claimCursors are those of all queues.
type claimCursors struct {
	mu    sync.Mutex // guards what follows
	queue map[string]*claimCursor
	age   int
}

func newClaimCursors() *claimCursors { return &claimCursors{queue: map[string]*claimCursor{}} }

// get is a copy of the queue's cursor.
func (t *claimCursors) get(queue string) claimCursor {
	t.mu.Lock()
	defer t.mu.Unlock()
	if found, ok := t.queue[queue]; ok {
		return *found
	}
	return claimCursor{age: t.age}
}

// forget drops all of them, and what is under way as well.
func (t *claimCursors) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.queue)
	t.age++
}

// all are copies of them.
func (t *claimCursors) all() map[string]claimCursor {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[string]claimCursor, len(t.queue))
	for queue, found := range t.queue {
		all[queue] = *found
	}
	return all
}

// bringBack moves a mark to a job that lies before it, although none should. What is under way counts for nothing then, since it
// began from the old one.
func (t *claimCursors) bringBack(queue string, lane func(*claimCursor) *places, level int, to position) {
	t.mu.Lock()
	defer t.mu.Unlock()
	found, ok := t.queue[queue]
	if !ok {
		return
	}
	t.age++
	for _, other := range t.queue {
		other.age = t.age
	}
	p := lane(found)
	p.mark[level], p.cursor[level] = earlier(p.mark[level], to), position{}
	found.looked, found.told = time.Time{}, true
}

// tell notes that jobs of the queues have become claimable.
func (t *claimCursors) tell(queues []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, q := range queues {
		if found, ok := t.queue[q]; ok {
			found.told = true
		}
	}
}

// change applies what a claim has learned that began with the given copy.
func (t *claimCursors) change(queue string, from claimCursor, f func(*claimCursor)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if from.age != t.age {
		return
	}
	found, ok := t.queue[queue]
	if !ok {
		if len(t.queue) >= maxQueues {
			clear(t.queue)
		}
		found = &claimCursor{age: t.age}
		t.queue[queue] = found
	}
	f(found)
}
