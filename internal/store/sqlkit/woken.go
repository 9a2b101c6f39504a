package sqlkit

import (
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Woken lists the wake-ups that a call must send once it has taken effect.
type Woken []store.Wakeup

// Add adds the wake-up, once.
func (w *Woken) Add(wakeup store.Wakeup) {
	if !slices.Contains(*w, wakeup) {
		*w = append(*w, wakeup)
	}
}

// AddFor adds a wake-up for the queue of the job if the job is claimable now.
func (w *Woken) AddFor(j store.Job, now time.Time) {
	if j.Claimable(now) {
		w.Add(store.Wakeup{Queue: j.Queue})
	}
}

// AddCancelled adds a wake-up for the queue of the job if a Cancel of the job ends a lease. Call it before the job is cancelled.
func (w *Woken) AddCancelled(j store.Job) {
	if j.State == store.InFlight {
		w.Add(store.Wakeup{Queue: j.Queue, Cancelled: true})
	}
}
