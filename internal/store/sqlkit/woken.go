package sqlkit

import (
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Woken lists the queues in which a call has made jobs claimable.
type Woken []string

// Add adds the queue, once.
func (w *Woken) Add(queue string) {
	if !slices.Contains(*w, queue) {
		*w = append(*w, queue)
	}
}

// AddFor adds the queue of the job if the job is claimable now.
func (w *Woken) AddFor(j store.Job, now time.Time) {
	if j.Claimable(now) {
		w.Add(j.Queue)
	}
}
