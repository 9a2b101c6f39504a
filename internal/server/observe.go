package server

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// An Observer receives the events of a server, for metrics. The server calls its methods often and from many goroutines, so they must
// return at once. If one panics, the server logs the first panic and ignores all of them.
type Observer interface {
	// Claimed reports a claim that returned jobs.
	Claimed(queue string, jobs int)
	// Started reports that a handler begins, and how long its job had been due, by the store's clock. For a retry, waited is negative:
	// the store does not keep when it was due.
	Started(job store.Job, waited time.Duration)
	// Ended reports the end of a run that the store has accepted, the phase of the job after it, and how long the handler ran.
	Ended(job store.Job, ending store.Ending, phase store.State, ran time.Duration)
	// Recovered reports expired leases that the server ended.
	Recovered(leases []store.Recovered)
	// Settled reports expired jobs that the server cancelled.
	Settled(jobs []store.Settled)
	// StaleWrite reports a write that the store refused because the lease was lost: ack, nack, extend, save or confirm.
	StaleWrite(op string)
	// BeatFailed reports a heartbeat that did not reach the store.
	BeatFailed()
}

// NopObserver is an observer that ignores everything. Embed it to implement only some of the methods.
type NopObserver struct{}

// Claimed does nothing.
func (NopObserver) Claimed(string, int) {}

// Started does nothing.
func (NopObserver) Started(store.Job, time.Duration) {}

// Ended does nothing.
func (NopObserver) Ended(store.Job, store.Ending, store.State, time.Duration) {}

// Recovered does nothing.
func (NopObserver) Recovered([]store.Recovered) {}

// Settled does nothing.
func (NopObserver) Settled([]store.Settled) {}

// StaleWrite does nothing.
func (NopObserver) StaleWrite(string) {}

// BeatFailed does nothing.
func (NopObserver) BeatFailed() {}

// A safeObserver protects the server from panics of its observer. It logs the first panic and ignores all of them.
type safeObserver struct {
	observer Observer
	log      *slog.Logger
	logged   atomic.Bool
}

// recoverPanic ends a panic. Defer it.
func (g *safeObserver) recoverPanic(method string) {
	if p := recover(); p != nil && !g.logged.Swap(true) {
		g.log.Error("jq: the observer panicked; this and later panics are ignored",
			"method", method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	}
}

// Claimed calls the observer.
func (g *safeObserver) Claimed(queue string, jobs int) {
	defer g.recoverPanic("Claimed")
	g.observer.Claimed(queue, jobs)
}

// Started calls the observer.
func (g *safeObserver) Started(job store.Job, waited time.Duration) {
	defer g.recoverPanic("Started")
	g.observer.Started(job, waited)
}

// Ended calls the observer.
func (g *safeObserver) Ended(job store.Job, ending store.Ending, phase store.State, ran time.Duration) {
	defer g.recoverPanic("Ended")
	g.observer.Ended(job, ending, phase, ran)
}

// Recovered calls the observer.
func (g *safeObserver) Recovered(leases []store.Recovered) {
	defer g.recoverPanic("Recovered")
	g.observer.Recovered(leases)
}

// Settled calls the observer.
func (g *safeObserver) Settled(jobs []store.Settled) {
	defer g.recoverPanic("Settled")
	g.observer.Settled(jobs)
}

// StaleWrite calls the observer.
func (g *safeObserver) StaleWrite(op string) {
	defer g.recoverPanic("StaleWrite")
	g.observer.StaleWrite(op)
}

// BeatFailed calls the observer.
func (g *safeObserver) BeatFailed() {
	defer g.recoverPanic("BeatFailed")
	g.observer.BeatFailed()
}

// Stats is what a server holds at one moment.
type Stats struct {
	Slots       int // how many handlers can run at the same time
	Running     int // occupied slots, including those that abandoned handlers still occupy
	Buffered    int // claimed, and not yet started
	Uncommitted int // ended, and not yet written
	Abandoned   int // abandoned handlers whose slots were reused
}
