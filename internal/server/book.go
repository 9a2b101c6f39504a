package server

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A book records the runs whose leases a server holds. It decides which runs start and which handlers are cancelled. It calls neither the
// store nor a handler.
type book struct {
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
	runs        runSet
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

func newBook(o Options) *book {
	limited := map[string]int{}
	for name, q := range o.Queues {
		if q.Slots > 0 {
			limited[name] = 0
		}
	}
	return &book{
		slots: o.Slots, buffer: o.Buffer, maxAbandoned: o.MaxAbandoned, maxUncommitted: o.MaxUncommitted, abandonAfter: o.AbandonAfter,
		fetch: newSignal(), commit: newSignal(), watch: newSignal(), rest: newSignal(),
		byQueue: limited,
	}
}

// room is how many more jobs may be claimed now: none while results pile up that can not be written.
func (b *book) room() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopping || b.uncommitted >= b.maxUncommitted {
		return 0
	}
	return max(0, b.slots+b.buffer-b.running-len(b.queued))
}

// inQueue is how many jobs of the queue, which has a limit, are buffered or running.
func (b *book) inQueue(queue string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.byQueue[queue]
}

// take adds runs that were just claimed, and returns those that can start at once: each needs a goroutine.
func (b *book) take(claimed []*Run, leaseUntil, now time.Time) []*Run {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range claimed {
		r.leaseUntil = leaseUntil
		b.runs.add(r)
		b.countInQueue(r, 1)
	}
	b.queued = append(b.queued, claimed...)
	if b.stopping {
		b.releaseQueued(func(*Run) bool { return true }, now)
	}
	return b.fill(now)
}

// fill starts buffered runs in free slots, and returns them.
func (b *book) fill(now time.Time) []*Run {
	var started []*Run
	for r := b.start(now); r != nil; r = b.start(now) {
		started = append(started, r)
	}
	return started
}

// start takes a slot, if there is one, for the first buffered run whose lease is surely good. One whose lease may have run
// out is left where it is, until the store has extended it or told that it is lost.
func (b *book) start(now time.Time) *Run {
	if b.running >= b.slots {
		return nil
	}
	at := slices.IndexFunc(b.queued, func(r *Run) bool { return r.leaseUntil.After(now) })
	if at < 0 {
		return nil
	}
	r := b.queued[at]
	if at == 0 {
		b.queued[0] = nil // the array outlives the run
		b.queued = b.queued[1:]
	} else {
		b.queued = slices.Delete(b.queued, at, at+1)
	}
	r.stage, r.startedAt = running, now
	b.running++
	b.watchBy(r.deadline())
	return r
}

// next ends a run with a verdict and returns the one that goes on in its slot, or nil: then the goroutine is not needed any
// more.
func (b *book) next(r *Run, v verdict, now time.Time) *Run {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.abandoned {
		b.returned(r, v, now)
	} else {
		b.running--
		b.leaveQueue(r)
		b.end(r, v, now)
	}
	b.fetch.send()
	b.rest.send()
	return b.start(now)
}

// end hands the run to the committer, or forgets it where nothing is to be written: of a lease that is lost, the store would
// refuse it.
func (b *book) end(r *Run, v verdict, now time.Time) {
	if v.op == nothing || r.lost {
		b.runs.remove(r)
		return
	}
	if !r.startedAt.IsZero() {
		r.ran = now.Sub(r.startedAt)
	}
	r.stage, r.verdict = ended, v
	b.ended = append(b.ended, r)
	if b.uncommitted++; b.uncommitted == b.maxUncommitted {
		b.fullSince = now
	}
	b.commit.send()
}

func (b *book) leaveQueue(r *Run) { b.countInQueue(r, -1) }

func (b *book) countInQueue(r *Run, change int) {
	if n, limited := b.byQueue[r.Queue]; limited {
		b.byQueue[r.Queue] = n + change
	}
}

// extendable are the runs whose leases are to be extended: all that are held, but for those that are known to be gone.
func (b *book) extendable() []*Run {
	b.mu.Lock()
	defer b.mu.Unlock()
	runs := make([]*Run, 0, len(b.runs))
	for _, r := range b.runs {
		if !r.settled {
			runs = append(runs, r)
		}
	}
	return runs
}

// extended notes the answers to a heartbeat. It returns the runs that can start now, and those that have to stop.
func (b *book) extended(runs []*Run, outcomes []store.Outcome, until, now time.Time) (started []*Run, stopped []cancellation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, o := range outcomes {
		r := runs[i]
		if !b.runs.has(r) {
			continue // written meanwhile
		}
		switch o.Status {
		case store.StatusOK:
			r.leaseUntil = until
		case store.StatusFinished: // by its handler in a transaction, or by an Ack whose answer is not here yet
			if r.settled = true; r.stage == buffered {
				b.forget(r)
			}
		case store.StatusCancelled:
			stopped = append(stopped, b.loseLease(r, ErrCancelled, o, now)...)
		case store.StatusStale, store.StatusNotFound:
			stopped = append(stopped, b.loseLease(r, ErrLeaseLost, o, now)...)
		}
	}
	return b.fill(now), stopped
}

// writeRefused is loseLease for a run whose own write the store refused.
func (b *book) writeRefused(r *Run, o store.Outcome, now time.Time) []cancellation {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.loseLease(r, causeOf(o), o, now)
}

// loseLease notes that a lease is gone. A buffered run is forgotten; one that has ended is left to the committer, whom the store
// will tell the same. The lock is held.
func (b *book) loseLease(r *Run, cause error, o store.Outcome, now time.Time) []cancellation {
	if r.settled || !b.runs.has(r) || r.stage == ended {
		return nil
	}
	r.settled, r.lost = true, true
	if r.stage == buffered {
		b.forget(r)
	} else {
		b.markCancelled(r, cause, now)
	}
	return []cancellation{{r, cause, o}}
}

// forget takes a run out of the buffer that must not start. The lock is held.
func (b *book) forget(r *Run) {
	b.queued = slices.DeleteFunc(b.queued, func(other *Run) bool { return other == r })
	b.leaveQueue(r)
	b.runs.remove(r)
	b.fetch.send()
	b.rest.send()
}

// overdue finds the handlers whose time is over, gives up those that were told before, and says when to look again: never
// if that is zero. Slots that become free go to the runs that it returns as started.
func (b *book) overdue(now time.Time) (started []*Run, stopped []cancellation, again time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var first time.Time
	for _, r := range slices.Backward(b.runs) { // whoever is given up leaves the roster, and one from behind takes his place
		if r.stage != running {
			continue
		}
		if !r.deadline().After(now) {
			stopped = append(stopped, b.overrun(r, now))
		}
		if at := r.deadline(); !r.abandoned && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	b.watchAt = first // not by way of nearer, which would wake the watch that is awake
	started = b.fill(now)
	return started, stopped, b.watchAt
}

// overrun deals with one handler whose time is over. The lock is held.
func (b *book) overrun(r *Run, now time.Time) cancellation {
	switch {
	case r.cause != nil:
		b.abandon(r, now)
		return cancellation{run: r}
	case !r.stopAt().After(now):
		b.markCancelled(r, ErrTimeout, now)
	default:
		b.markCancelled(r, ErrLeaseUnknown, now)
	}
	return cancellation{run: r, cause: r.cause}
}

// markCancelled notes why the handler was told to stop, and from when it is no longer waited for. The lock is held.
func (b *book) markCancelled(r *Run, cause error, now time.Time) {
	if r.cause == nil {
		r.cause, r.abandonAt = cause, now.Add(b.abandonAfter)
		b.watchBy(r.abandonAt)
	}
}

// watchBy wakes the watch if the time comes before it would have looked. The lock is held.
func (b *book) watchBy(at time.Time) {
	if b.watchAt.IsZero() || at.Before(b.watchAt) {
		b.watchAt = at
		b.watch.send()
	}
}

// abandon gives up a handler that does not return. If it was timed out its job fails now; otherwise the lease is gone, or
// runs out. Its slot goes to another run, unless too many were given away before. The lock is held.
func (b *book) abandon(r *Run, now time.Time) {
	r.abandoned = true
	b.leaveQueue(r)
	if errors.Is(r.cause, ErrTimeout) {
		b.end(r, unlessFinished(r, fail(timedOut(r, errStuck))), now)
	} else {
		b.end(r, verdict{}, now)
	}
	b.unreplaced = append(b.unreplaced, r)
	b.replace()
	b.fetch.send()
	b.rest.send()
}

// replace gives the slots of abandoned handlers to others, up to the cap. The lock is held.
func (b *book) replace() {
	for len(b.unreplaced) > 0 && b.abandoned < b.maxAbandoned {
		b.unreplaced[0].replaced = true
		b.unreplaced = slices.Delete(b.unreplaced, 0, 1)
		b.running--
		b.abandoned++
	}
}

// returned takes back a handler that was given up. Where nothing was written of it its verdict is offered: its lease was not
// extended any more, but may be good. The lock is held.
func (b *book) returned(r *Run, v verdict, now time.Time) {
	if r.replaced {
		b.abandoned--
	} else {
		b.running--
		b.unreplaced = slices.DeleteFunc(b.unreplaced, func(other *Run) bool { return other == r })
	}
	b.replace()
	if r.stage == running {
		b.runs.add(r)
		b.end(r, v, now)
	}
}

// gathered is how many runs wait to be written, whether no other can join them soon, and when the next of those is due that
// were put off.
func (b *book) gathered(now time.Time) (n int, alone bool, later time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = len(b.ended)
	for _, r := range b.later {
		switch {
		case !r.tryAt.After(now):
			n++
		case later.IsZero() || r.tryAt.Before(later):
			later = r.tryAt
		}
	}
	return n, b.running == len(b.unreplaced) && len(b.queued) == 0, later
}

// takeEnded hands over the runs that are to be written now.
func (b *book) takeEnded(now time.Time) []*Run {
	b.mu.Lock()
	defer b.mu.Unlock()
	runs := b.ended
	b.ended = nil
	b.later = slices.DeleteFunc(b.later, func(r *Run) bool {
		if r.tryAt.After(now) {
			return false
		}
		runs = append(runs, r)
		return true
	})
	return runs
}

// putOff hands the run to the committer once more, when the time has come.
func (b *book) putOff(r *Run, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.tries++
	r.tryAt = at
	b.later = append(b.later, r)
}

// rewrite hands the run to the committer with another verdict.
func (b *book) rewrite(r *Run, v verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.verdict, r.refused = v, 0
	b.ended = append(b.ended, r)
	b.commit.send()
}

// written forgets runs that the store has answered for.
func (b *book) written(runs []*Run) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range runs {
		b.runs.remove(r)
	}
	if b.uncommitted -= len(runs); b.uncommitted < b.maxUncommitted {
		b.fullSince = time.Time{}
	}
	b.fetch.send()
	b.rest.send()
}

// release gives back the buffered runs of the queues.
func (b *book) release(queues map[string]bool, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.releaseQueued(func(r *Run) bool { return queues[r.Queue] }, now)
	b.fetch.send()
}

// releaseQueued gives back the buffered runs that match, as if they had not been claimed. The lock is held.
func (b *book) releaseQueued(match func(*Run) bool, now time.Time) {
	keep := b.queued[:0:0]
	for _, r := range b.queued {
		if !match(r) {
			keep = append(keep, r)
			continue
		}
		b.leaveQueue(r)
		b.end(r, release(), now)
	}
	b.queued = keep
}

// drain lets nothing start any more, and gives back what has not.
func (b *book) drain(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopping = true
	b.releaseQueued(func(*Run) bool { return true }, now)
}

// cancelRunning finds the handlers that still run, to be told to stop.
func (b *book) cancelRunning(cause error, now time.Time) []cancellation {
	b.mu.Lock()
	defer b.mu.Unlock()
	var stopped []cancellation
	for _, r := range b.runs {
		if r.stage == running && r.cause == nil {
			b.markCancelled(r, cause, now)
			stopped = append(stopped, cancellation{run: r, cause: cause})
		}
	}
	return stopped
}

// storeClosed notes that nothing can be written any more.
func (b *book) storeClosed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.rest.send()
}

// atRest says that no handler is waited for, and no result, or none that could be written.
func (b *book) atRest() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running == len(b.unreplaced) && (b.uncommitted == 0 || b.closed)
}

func (b *book) stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Stats{Slots: b.slots, Running: b.running, Buffered: len(b.queued), Uncommitted: b.uncommitted, Abandoned: b.abandoned}
}

// stuck says that more handlers were given up than can be replaced.
func (b *book) stuck() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.unreplaced) > 0
}

// full says that nothing more was claimed for so long, because results pile up.
func (b *book) full(now time.Time, atLeast time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.fullSince.IsZero() && now.Sub(b.fullSince) >= atLeast
}
