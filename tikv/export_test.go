package tikv

import (
	"time"

	"github.com/seed-ed332417/jq/kv"
)

// SetOldest sets how old the views of an engine become.
func SetOldest(e kv.Engine, oldest time.Duration) { e.(*Engine).oldest = oldest }
