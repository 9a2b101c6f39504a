package sqlite

import (
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/store"
)

// now is the store's time: the clock's, but never earlier than it ever was for this store. What another process
// or an earlier one took for the present is not asked: one clock that was wrong for a moment would stop the time of all.
type now struct {
	clock clock.Clock

	mu     sync.Mutex // guards what follows
	latest time.Time
}

// get is the present.
func (n *now) get() time.Time {
	t := store.Truncate(n.clock.Now())
	n.mu.Lock()
	defer n.mu.Unlock()
	if t.After(n.latest) {
		n.latest = t
	}
	return n.latest
}
