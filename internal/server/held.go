package server

import (
	"slices"
	"sync"
	"time"
)

// held is the book of the runs that a server holds. It decides who may start and who has to stop; it calls no store and no
// handler.
type held struct {
	slots          int
	buffer         int
	maxAbandoned   int
	maxUncommitted int
	abandonAfter   time.Duration

	fetch  signal // there may be room again
	commit signal // a run has ended
	watch  signal // a deadline came nearer
	rest   signal // something was finished that a stop waits for

	mu          sync.Mutex // guards what follows
	stopping    bool
	closed      bool // the store: nothing can be written
	runs        roster
	queued      []*Run         // buffered, in the order in which they were claimed
	ended       []*Run         // not yet taken up by the committer
	later       []*Run         // to be written as well, but not before their time
	running     int            // slots that are taken
	abandoned   int            // handlers that were given up, and their slots given to others
	unreplaced  []*Run         // those that were given up, and still take their slots
	uncommitted int            // ended and held
	fullSince   time.Time      // when as many were uncommitted as may be, or zero
	byQueue     map[string]int // buffered or running, of the queues that have a limit
	watchAt     time.Time      // when the watch looks next; zero means never
}

// A signal wakes one waiting loop, and is remembered once if the loop is busy.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

func newHeld(o Options) *held {
	limited := map[string]int{}
	for name, q := range o.Queues {
		if q.Slots > 0 {
			limited[name] = 0
		}
	}
	return &held{
		slots: o.Slots, buffer: o.Buffer, maxAbandoned: o.MaxAbandoned, maxUncommitted: o.MaxUncommitted, abandonAfter: o.AbandonAfter,
		fetch: newSignal(), commit: newSignal(), watch: newSignal(), rest: newSignal(),
		byQueue: limited,
	}
}

// room is how many more jobs may be claimed now: none while results pile up that can not be written.
func (h *held) room() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopping || h.uncommitted >= h.maxUncommitted {
		return 0
	}
	return max(0, h.slots+h.buffer-h.running-len(h.queued))
}

// inQueue is how many jobs of the queue, which has a limit, are buffered or running.
func (h *held) inQueue(queue string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.byQueue[queue]
}

// take adds runs that were just claimed, and returns those that can start at once: each needs a goroutine.
func (h *held) take(claimed []*Run, leaseUntil, now time.Time) []*Run {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range claimed {
		r.leaseUntil = leaseUntil
		h.runs.add(r)
		h.countInQueue(r, 1)
	}
	h.queued = append(h.queued, claimed...)
	if h.stopping {
		h.releaseQueued(func(*Run) bool { return true }, now)
	}
	return h.fill(now)
}

// fill starts buffered runs in free slots, and returns them.
func (h *held) fill(now time.Time) []*Run {
	var started []*Run
	for r := h.start(now); r != nil; r = h.start(now) {
		started = append(started, r)
	}
	return started
}

// start takes a slot, if there is one, for the first buffered run whose lease is surely good. One whose lease may have run
// out is left where it is, until the store has extended it or told that it is lost.
func (h *held) start(now time.Time) *Run {
	if h.running >= h.slots {
		return nil
	}
	at := slices.IndexFunc(h.queued, func(r *Run) bool { return r.leaseUntil.After(now) })
	if at < 0 {
		return nil
	}
	r := h.queued[at]
	if at == 0 {
		h.queued[0] = nil // the array outlives the run
		h.queued = h.queued[1:]
	} else {
		h.queued = slices.Delete(h.queued, at, at+1)
	}
	r.stage, r.startedAt = running, now
	h.running++
	h.nearer(r.deadline())
	return r
}

// next ends a run with a verdict and returns the one that goes on in its slot, or nil: then the goroutine is not needed any
// more.
func (h *held) next(r *Run, v verdict, now time.Time) *Run {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.abandoned {
		h.returned(r, v, now)
	} else {
		h.running--
		h.leaveQueue(r)
		h.end(r, v, now)
	}
	h.fetch.send()
	h.rest.send()
	return h.start(now)
}

// end hands the run to the committer, or forgets it where nothing is to be written: of a lease that is lost, the store would
// refuse it.
func (h *held) end(r *Run, v verdict, now time.Time) {
	if v.write == nothing || r.lost {
		h.runs.remove(r)
		return
	}
	if !r.startedAt.IsZero() {
		r.ran = now.Sub(r.startedAt)
	}
	r.stage, r.verdict = ended, v
	h.ended = append(h.ended, r)
	if h.uncommitted++; h.uncommitted == h.maxUncommitted {
		h.fullSince = now
	}
	h.commit.send()
}

func (h *held) leaveQueue(r *Run) { h.countInQueue(r, -1) }

func (h *held) countInQueue(r *Run, change int) {
	if n, limited := h.byQueue[r.Queue]; limited {
		h.byQueue[r.Queue] = n + change
	}
}

// releaseQueued gives back the buffered runs that match, as if they had not been claimed. The lock is held.
func (h *held) releaseQueued(match func(*Run) bool, now time.Time) {
	keep := h.queued[:0:0]
	for _, r := range h.queued {
		if !match(r) {
			keep = append(keep, r)
			continue
		}
		h.leaveQueue(r)
		h.end(r, release(), now)
	}
	h.queued = keep
}

// release gives back the buffered runs of the queues.
func (h *held) release(queues map[string]bool, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.releaseQueued(func(r *Run) bool { return queues[r.Queue] }, now)
	h.fetch.send()
}

// stop lets nothing start any more, and gives back what has not.
func (h *held) stop(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopping = true
	h.releaseQueued(func(*Run) bool { return true }, now)
}

// storeClosed notes that nothing can be written any more.
func (h *held) storeClosed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.rest.send()
}

// stopAll finds the handlers that still run, to be told to stop.
func (h *held) stopAll(cause error, now time.Time) []stop {
	h.mu.Lock()
	defer h.mu.Unlock()
	var stopped []stop
	for _, r := range h.runs {
		if r.stage == running && r.cause == nil {
			h.tell(r, cause, now)
			stopped = append(stopped, stop{run: r, cause: cause})
		}
	}
	return stopped
}

func (h *held) stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Stats{Slots: h.slots, Running: h.running, Buffered: len(h.queued), Uncommitted: h.uncommitted, Abandoned: h.abandoned}
}

// atRest says that no handler is waited for, and no result, or none that could be written.
func (h *held) atRest() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.running == len(h.unreplaced) && (h.uncommitted == 0 || h.closed)
}

// stuck says that more handlers were given up than can be replaced.
func (h *held) stuck() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.unreplaced) > 0
}

// full says that nothing more was claimed for so long, because results pile up.
func (h *held) full(now time.Time, atLeast time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.fullSince.IsZero() && now.Sub(h.fullSince) >= atLeast
}
