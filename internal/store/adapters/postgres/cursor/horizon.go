package cursor

import (
	"sync"
	"time"
)

// A Horizon is the latest known moment before which every transaction has ended.
type Horizon struct {
	At    time.Time
	Stuck bool // it has not moved for StuckFor
}

// maxMoments is how many moments are remembered.
const maxMoments = 64

type horizon struct {
	mu      sync.Mutex // guards the fields below
	moments []moment   // with transactions that may still run, oldest first
	past    time.Time  // every transaction that read an earlier now has ended
	latest  time.Time  // the latest moment seen
	told    time.Time  // when it was seen, by the process's monotonic clock
}

// A moment says that transactions with this number or a higher one read this time or a later one.
type moment struct {
	at     time.Time
	number int64
	seen   time.Time // by the process's monotonic clock
}

// Learn learns from the opening of a transaction. The transaction has this number and read the time at or a later one. Every
// transaction with a number below xmin had ended. sent is when the opening was sent, by the process's clock. If the database's
// clock went back, no position can be trusted, and Learn forgets them all.
func (c *Cursors) Learn(at time.Time, xmin, number int64, sent time.Time) Horizon {
	known, setBack := c.horizon.learn(at, xmin, number, sent)
	if setBack {
		c.Forget()
	}
	return known
}

// Horizon returns the moment before which every transaction has ended.
func (c *Cursors) Horizon() time.Time { return c.horizon.known() }

// Latest returns the latest moment learned.
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

// forget drops what is known about transactions, because the server may have lost them.
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

// thin drops every other moment.
func (h *horizon) thin() {
	var kept []moment
	for i := 0; i < len(h.moments); i += 2 {
		kept = append(kept, h.moments[i])
	}
	h.moments = kept
}
