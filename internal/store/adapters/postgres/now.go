package postgres

import (
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/store"
)

// now is the store's time: the database's, or that of the injected clock, but never earlier than it ever was for this store.
type now struct {
	clock clock.Clock // nil for the database's

	mu     sync.Mutex // guards what follows
	latest time.Time
}

// get is the present, when the database's clock shows so much.
func (n *now) get(database time.Time) time.Time {
	return n.atLeast(n.read(database))
}

// read is what the clock says, whatever it said before.
func (n *now) read(database time.Time) time.Time {
	if n.clock != nil {
		return store.Truncate(n.clock.Now())
	}
	return store.Truncate(database)
}

// atLeast is the latest time known, having learned of one more.
func (n *now) atLeast(t time.Time) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t.After(n.latest) {
		n.latest = t
	}
	return n.latest
}
