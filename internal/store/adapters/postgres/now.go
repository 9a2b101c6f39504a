package postgres

import (
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/store"
)

// now is the store's time: the database's, or that of the injected clock.
type now struct {
	clock   clock.Clock // nil for the database's
	present store.Present
}

// get returns the present. database is what the database's clock showed to a question that was sent at asked.
func (n *now) get(database, asked time.Time) time.Time {
	if n.clock != nil {
		return n.present.Read(n.clock.Now)
	}
	return n.present.Heard(database, asked)
}

// read returns the clock's time, which may have gone back.
func (n *now) read(database time.Time) time.Time {
	if n.clock != nil {
		return store.Truncate(n.clock.Now())
	}
	return store.Truncate(database)
}
