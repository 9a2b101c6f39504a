package sqlite

import (
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/store"
)

// now is the store's time. It ignores the time that other or earlier processes have seen: one wrong clock would stop the time
// of all.
type now struct {
	clock   clock.Clock
	present store.Present
}

func (n *now) get() time.Time { return n.present.Read(n.clock.Now) }
