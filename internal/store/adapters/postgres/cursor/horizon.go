package cursor

import (
	"sync"
	"time"
)

// A Horizon is the moment before which every transaction has ended, as far as it is known.
type Horizon struct {
	At    time.Time
	Stuck bool // it stands still
}

// maxMoments is how many are remembered.
const maxMoments = 64

type horizon struct {
	mu      sync.Mutex // guards what follows
	moments []moment   // not known to be past, the oldest first
	past    time.Time  // every transaction that read a now before it has ended
	latest  time.Time  // the latest moment seen
	told    time.Time  // when it was, by the process's own monotonic clock
}

// A moment says that transactions with that number, or a higher one, read that time, or a later one.
type moment struct {
	at     time.Time
	number int64
	seen   time.Time // by the process's own monotonic clock
}

// Learn learns from the opening of a transaction: it read the time at or a later one, has the number, and every transaction with a lower
// number than xmin had ended. Sent is when the opening was sent, by the process's own clock. If the database's clock was set back, no
// position can be trusted: all are forgotten.
func (c *Cursors) Learn(at time.Time, xmin, number int64, sent time.Time) Horizon {
	known, setBack := c.horizon.learn(at, xmin, number, sent)
	if setBack {
		c.Forget()
	}
	return known
}

// Horizon is the moment before which every transaction has ended.
func (c *Cursors) Horizon() time.Time { return c.horizon.known() }

// Latest is the latest moment that was learned.
func (c *Cursors) Latest() time.Time {
	c.horizon.mu.Lock()
	defer c.horizon.mu.Unlock()
	return c.horizon.latest
}

func (h *horizon) learn(at time.Time, xmin, number int64, sent time.Time) (known Horizon, setBack bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := time.Now()
	if at.Before(h.latest.Add(-Slack)) && sent.After(h.told) {
		h.moments, h.past, h.latest, h.told = nil, time.Time{}, at, seen
		return Horizon{}, true
	}
	if at.After(h.latest) {
		h.latest, h.told = at, seen
		h.moments = append(h.moments, moment{at, number, seen})
	}
	for len(h.moments) > 0 && h.moments[0].number <= xmin {
		h.past = h.moments[0].at
		h.moments = h.moments[1:]
	}
	if len(h.moments) > maxMoments {
		h.thin()
	}
	return Horizon{h.past, len(h.moments) > 0 && seen.Sub(h.moments[0].seen) > StuckFor}, false
}

// forget drops what is known of transactions, which may not be those of the server any more.
func (h *horizon) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.moments, h.past = nil, time.Time{}
}

func (h *horizon) known() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.past
}

// thin forgets every other moment.
func (h *horizon) thin() {
	var kept []moment
	for i := 0; i < len(h.moments); i += 2 {
		kept = append(kept, h.moments[i])
	}
	h.moments = kept
}
