package sqlkit

import (
	"sync"
	"sync/atomic"

	"github.com/seed-ed332417/jq/internal/store"
)

// Held remembers the queues of which a claim has left out due jobs because of a limit, until a lease ends.
type Held struct {
	taken  atomic.Int64 // how often Take was called
	some   atomic.Bool  // so that those who end leases need no lock
	mu     sync.Mutex   // guards queues
	queues map[string]struct{}
}

// Taken returns how often Take was called. Ask before the jobs in flight are counted.
func (h *Held) Taken() int64 { return h.taken.Load() }

// Note notes that a claim on the queue has left out jobs. It reports whether Take was called since: then the claim may not have seen the end
// of a lease, and nobody was told of that.
func (h *Held) Note(queue string, since int64) (missed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.queues == nil {
		h.queues = map[string]struct{}{}
	}
	h.queues[queue] = struct{}{}
	h.some.Store(true)
	return h.taken.Load() != since
}

// Take returns a wake-up for each of the queues, and forgets them.
func (h *Held) Take() []store.Wakeup {
	h.taken.Add(1)
	if !h.some.Load() {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.some.Store(false)
	var woken []store.Wakeup
	for name := range h.queues {
		woken = append(woken, store.Wakeup{Queue: name})
	}
	clear(h.queues)
	return woken
}
