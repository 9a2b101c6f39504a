package sqlkit

import (
	"sync"
	"sync/atomic"

	"github.com/seed-ed332417/jq/internal/store"
)

// Held remembers the queues of which a claim has left out due jobs because of a limit, until a lease ends.
type Held struct {
	some   atomic.Bool // so that those who end leases need no lock
	mu     sync.Mutex  // guards queues
	queues map[string]struct{}
}

// Note notes that a claim on the queue has left out jobs.
func (h *Held) Note(queue string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.queues == nil {
		h.queues = map[string]struct{}{}
	}
	h.queues[queue] = struct{}{}
	h.some.Store(true)
}

// Take returns a wake-up for each of the queues, and forgets them.
func (h *Held) Take() []store.Wakeup {
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
