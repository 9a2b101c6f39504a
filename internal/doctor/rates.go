package doctor

import (
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// throttled reports whether about as many runs of the queue have ended lately as its rate lets begin. Claims themselves are not in the activity
// of a store, but each run that has ended was claimed.
func (e *examination) throttled(q store.QueueCount) (bool, error) {
	rate := e.listed[q.Queue].Policy.Rate
	reader, ok := e.store.(store.ActivityReader)
	if rate.N == 0 || !ok {
		return false, nil
	}
	spans := (starving + rate.Per - 1) / rate.Per
	last := min(spans*rate.Per+time.Minute, store.MaxFineActivity) // activity is kept by the minute, and the first may be left out
	page, err := reader.Activity(e.ctx, store.ActivityFilter{Queues: []string{q.Queue}, Last: last, By: store.ByQueue})
	if err != nil {
		return false, unlessUnsupported(err)
	}
	var ended int64
	for _, a := range page.Spans {
		if a.Queue == q.Queue { // a name that ends with * selects others as well
			ended += a.Succeeded + a.Retried + a.Dead + a.Snoozed
		}
	}
	spans = max(1, page.Now.Sub(page.From)/rate.Per)
	// With more runs, the rate is newer than they are, and says nothing about them.
	return 10*ended >= 9*int64(rate.N)*int64(spans) && ended <= int64(rate.N)*int64(spans+2), nil
}
