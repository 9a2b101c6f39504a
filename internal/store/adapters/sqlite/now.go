package sqlite

import (
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/store"
)

// now is the store's time. What another process or an earlier one took for the present is not asked: one clock that was wrong
// for a moment would stop the time of all.
type now struct {
	clock   clock.Clock
	present store.Present
}

// get is the present.
func (n *now) get() time.Time { return n.present.Read(n.clock.Now) }
