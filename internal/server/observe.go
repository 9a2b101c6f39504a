package server

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
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

// A guard stands before an observer. Whoever only looks on must not end the process when it panics: the first panic is logged,
// and the server works on.
type guard struct {
	observer Observer
	log      *slog.Logger
	told     atomic.Bool
}

// caught ends a panic. It is to be deferred.
func (g *guard) caught(method string) {
	if p := recover(); p != nil && !g.told.Swap(true) {
		g.log.Error("jq: the observer has panicked, which is ignored and not told again",
			"method", method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	}
}

// Claimed passes on.
func (g *guard) Claimed(queue string, jobs int) {
	defer g.caught("Claimed")
	g.observer.Claimed(queue, jobs)
}

// Started passes on.
func (g *guard) Started(job store.Job, waited time.Duration) {
	defer g.caught("Started")
	g.observer.Started(job, waited)
}

// Ended passes on.
func (g *guard) Ended(job store.Job, ending store.Ending, phase store.State, ran time.Duration) {
	defer g.caught("Ended")
	g.observer.Ended(job, ending, phase, ran)
}

// Recovered passes on.
func (g *guard) Recovered(leases []store.Recovered) {
	defer g.caught("Recovered")
	g.observer.Recovered(leases)
}

// StaleWrite passes on.
func (g *guard) StaleWrite(op string) {
	defer g.caught("StaleWrite")
	g.observer.StaleWrite(op)
}

// BeatFailed passes on.
func (g *guard) BeatFailed() {
	defer g.caught("BeatFailed")
	g.observer.BeatFailed()
}

// Stats is what a server holds at one moment.
type Stats struct {
	Slots       int // how many handlers can run at once
	Running     int // how many run, those that were given up included where nothing replaces them
	Buffered    int // claimed and not started
	Uncommitted int // ended, and not yet written
	Abandoned   int // handlers that did not return in time and whose slot was replaced
}
