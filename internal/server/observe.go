package server

import (
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// An Observer is described where users meet it: jq.Observer is the same type, which is why both are literals.
type Observer = interface {
	Claimed(queue string, jobs int)
	Started(job store.Job, waited time.Duration)
	Ended(job store.Job, ending store.Ending, phase store.State, ran time.Duration)
	Recovered(leases []store.Recovered)
	StaleWrite(op string)
	BeatFailed()
}

// Unobserved is the observer that ignores everything. Embedded in another one it makes every method optional.
type Unobserved struct{}

// Claimed ignores.
func (Unobserved) Claimed(string, int) {}

// Started ignores.
func (Unobserved) Started(store.Job, time.Duration) {}

// Ended ignores.
func (Unobserved) Ended(store.Job, store.Ending, store.State, time.Duration) {}

// Recovered ignores.
func (Unobserved) Recovered([]store.Recovered) {}

// StaleWrite ignores.
func (Unobserved) StaleWrite(string) {}

// BeatFailed ignores.
func (Unobserved) BeatFailed() {}

// Stats is what a server holds at one moment.
type Stats struct {
	Slots       int // how many handlers can run at once
	Running     int // how many run, those that were given up included where nothing replaces them
	Buffered    int // claimed and not started
	Uncommitted int // ended, and not yet written
	Abandoned   int // handlers that did not return in time and whose slot was replaced
}
