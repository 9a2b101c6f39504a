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
	abandonTimeout time.Duration

	claim    signal // there may be room for more jobs
	commit   signal // a run has ended
	watch    signal // a deadline came nearer
	progress signal // a handler or a write that a stop waits for has finished

	mu          sync.Mutex // guards what follows
	stopping    bool
	closed      bool // the store is closed, so nothing can be written
	runs        runSet
	buffered    []*Run         // in the order in which they were claimed
	ended       []*Run         // the committer has not taken them yet
	delayed     []*Run         // writes that are delayed, each until its writeAt
	running     int            // occupied slots
	abandoned   int            // abandoned handlers whose slots were reused
	blocking    []*Run         // abandoned, and still occupying their slots
	uncommitted int            // ended, and not yet written
	fullSince   time.Time      // since when uncommitted is at its limit, or zero
	byQueue     map[string]int // buffered or running runs of the queues that have a limit
	watchAt     time.Time      // when the watch checks next; zero means never
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
		slots: o.Slots, buffer: o.Claim.Buffer, maxUncommitted: o.Commit.MaxUncommitted,
		maxAbandoned: o.Abandon.MaxHandlers, abandonTimeout: o.Abandon.Timeout,
		claim: newSignal(), commit: newSignal(), watch: newSignal(), progress: newSignal(),
		byQueue: limited,
	}
}

// room returns how many more jobs may be claimed now. It returns none while too many verdicts wait to be written: that is the backpressure
// of the store.
func (b *book) room() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopping || b.uncommitted >= b.maxUncommitted {
		return 0
	}
	return max(0, b.slots+b.buffer-b.running-len(b.buffered))
}

// inQueue returns how many jobs of a queue with a limit are buffered or running.
func (b *book) inQueue(queue string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.byQueue[queue]
}

// add records runs that were just claimed, and returns those that can start at once. Each of them needs a goroutine.
func (b *book) add(claimed []*Run, leaseUntil, now time.Time) []*Run {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range claimed {
		r.leaseUntil = leaseUntil
		b.runs.add(r)
		b.countInQueue(r, 1)
	}
	b.buffered = append(b.buffered, claimed...)
	if b.stopping {
		b.releaseBuffered(func(*Run) bool { return true }, now)
	}
	return b.startBuffered(now)
}

// startBuffered starts buffered runs in free slots, and returns them. The caller holds the lock.
func (b *book) startBuffered(now time.Time) []*Run {
	var started []*Run
	for r := b.startNext(now); r != nil; r = b.startNext(now) {
		started = append(started, r)
	}
	return started
}

// startNext takes a free slot for the first buffered run whose lease is surely in force. A run whose lease may have expired stays in the
// buffer until the store has extended the lease or reported that it is lost. The caller holds the lock.
func (b *book) startNext(now time.Time) *Run {
	if b.running >= b.slots {
		return nil
	}
	at := slices.IndexFunc(b.buffered, func(r *Run) bool { return r.leaseUntil.After(now) })
	if at < 0 {
		return nil
	}
	r := b.buffered[at]
	if at == 0 {
		b.buffered[0] = nil // the array outlives the run
		b.buffered = b.buffered[1:]
	} else {
		b.buffered = slices.Delete(b.buffered, at, at+1)
	}
	r.stage, r.startedAt = running, now
	b.running++
	b.watchBy(r.deadline())
	return r
}

// finish ends a run with a verdict, and returns the run that continues in its slot. If there is none, the goroutine is not needed any more.
func (b *book) finish(r *Run, v verdict, now time.Time) *Run {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.abandoned {
		b.abandonedReturned(r, v, now)
	} else {
		b.running--
		b.leaveQueue(r)
		b.endRun(r, v, now)
	}
	b.claim.send()
	b.progress.send()
	return b.startNext(now)
}

// endRun hands the run to the committer. It forgets the run if there is nothing to write, or if the lease is lost, because the store would
// refuse the write. The caller holds the lock.
func (b *book) endRun(r *Run, v verdict, now time.Time) {
	defer b.commit.send() // also if only others have verdicts, which may not have to wait any longer
	if v.op == nothing || r.leaseLost {
		b.runs.remove(r)
		return
	}
	if !r.startedAt.IsZero() {
		r.ran = now.Sub(r.startedAt)
	}
	r.stage, r.verdict = ended, v.kept()
	b.ended = append(b.ended, r)
	if b.uncommitted++; b.uncommitted == b.maxUncommitted {
		b.fullSince = now
	}
}

func (b *book) leaveQueue(r *Run) { b.countInQueue(r, -1) }

func (b *book) countInQueue(r *Run, change int) {
	if n, limited := b.byQueue[r.Queue]; limited {
		b.byQueue[r.Queue] = n + change
	}
}

// extendable returns the matching runs whose leases a heartbeat extends: all but those whose leases are known to have ended.
func (b *book) extendable(match func(*Run) bool) []*Run {
	b.mu.Lock()
	defer b.mu.Unlock()
	var runs []*Run
	for _, r := range b.runs {
		if !r.leaseEnded && match(r) {
			runs = append(runs, r)
		}
	}
	return runs
}

// extended records the answers to a heartbeat. It returns the runs that can start now, and the handlers to cancel.
func (b *book) extended(runs []*Run, outcomes []store.Outcome, until, now time.Time) (started []*Run, cancelled []cancellation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, o := range outcomes {
		r := runs[i]
		if !b.runs.contains(r) {
			continue // written meanwhile
		}
		switch o.Status {
		case store.StatusOK:
			r.leaseUntil = until
		case store.StatusFinished: // by its handler in a transaction, or by an Ack whose answer is not here yet
			if r.leaseEnded = true; r.stage == buffered {
				b.dropBuffered(r)
			}
		case store.StatusCancelled:
			cancelled = append(cancelled, b.loseLease(r, ErrCancelled, o, now)...)
		case store.StatusStale, store.StatusNotFound:
			cancelled = append(cancelled, b.loseLease(r, ErrLeaseLost, o, now)...)
		}
	}
	return b.startBuffered(now), cancelled
}

// writeRefused is loseLease for a run whose own write the store refused.
func (b *book) writeRefused(r *Run, o store.Outcome, now time.Time) []cancellation {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.loseLease(r, causeOf(o), o, now)
}

// loseLease records that a lease is lost. A buffered run is forgotten. A run that has ended is left to the committer, which gets the same
// answer from the store. The caller holds the lock.
func (b *book) loseLease(r *Run, cause error, o store.Outcome, now time.Time) []cancellation {
	if r.leaseEnded || !b.runs.contains(r) || r.stage == ended {
		return nil
	}
	r.leaseEnded, r.leaseLost = true, true
	if r.stage == buffered {
		b.dropBuffered(r)
	} else {
		b.markCancelled(r, cause, now)
	}
	return []cancellation{{r, cause, o}}
}

// dropBuffered forgets a buffered run, which must not start. The caller holds the lock.
func (b *book) dropBuffered(r *Run) {
	b.buffered = slices.DeleteFunc(b.buffered, func(other *Run) bool { return other == r })
	b.leaveQueue(r)
	b.runs.remove(r)
	b.claim.send()
	b.commit.send()
	b.progress.send()
}

// checkDeadlines cancels the handlers whose deadline has passed, abandons those that were cancelled before, and returns when to check
// again: never if that is zero. Runs that got a free slot are returned as started.
func (b *book) checkDeadlines(now time.Time) (started []*Run, cancelled []cancellation, again time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var first time.Time
	for _, r := range slices.Backward(b.runs) { // backward, because an abandoned run leaves the set and the last one takes its place
		if r.stage != running {
			continue
		}
		if !r.deadline().After(now) {
			cancelled = append(cancelled, b.deadlineReached(r, now))
		}
		if at := r.deadline(); !r.abandoned && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	b.watchAt = first // not by watchBy, which would wake the watch again
	started = b.startBuffered(now)
	return started, cancelled, b.watchAt
}

// deadlineReached cancels or abandons one handler whose deadline has passed. The caller holds the lock.
func (b *book) deadlineReached(r *Run, now time.Time) cancellation {
	switch {
	case r.cancellation != nil:
		b.abandon(r, now)
		return cancellation{run: r}
	case !r.timeoutAt().After(now):
		b.markCancelled(r, ErrTimeout, now)
	default:
		b.markCancelled(r, ErrLeaseUnknown, now)
	}
	return cancellation{run: r, cause: r.cause()}
}

// markCancelled records why a handler is cancelled, and when it will be abandoned. The caller holds the lock.
func (b *book) markCancelled(r *Run, cause error, now time.Time) {
	if r.cancellation == nil {
		r.cancellation = &cancelled{cause, now.Add(b.abandonTimeout)}
		b.watchBy(r.cancellation.abandonAt)
	}
}

// watchBy wakes the watch if it would have checked only after the time. The caller holds the lock.
func (b *book) watchBy(at time.Time) {
	if b.watchAt.IsZero() || at.Before(b.watchAt) {
		b.watchAt = at
		b.watch.send()
	}
}

// abandon stops waiting for a handler that does not return. If it had timed out, its job fails now; otherwise its lease is lost or expires.
// Another run gets its slot, unless too many handlers are abandoned already. The caller holds the lock.
func (b *book) abandon(r *Run, now time.Time) {
	r.abandoned = true
	b.leaveQueue(r)
	if errors.Is(r.cause(), ErrTimeout) {
		b.endRun(r, confirmIfFinished(r, fail(timedOut(r, errStuck))), now)
	} else {
		b.endRun(r, verdict{}, now)
	}
	b.blocking = append(b.blocking, r)
	b.reuseSlots()
	b.claim.send()
	b.progress.send()
}

// reuseSlots frees the slots of abandoned handlers, up to the limit. The caller holds the lock.
func (b *book) reuseSlots() {
	for len(b.blocking) > 0 && b.abandoned < b.maxAbandoned {
		b.blocking[0].slotReused = true
		b.blocking = slices.Delete(b.blocking, 0, 1)
		b.running--
		b.abandoned++
	}
}

// abandonedReturned records that an abandoned handler has returned after all. If nothing was written for its run, its verdict is offered to
// the store: no heartbeat has extended its lease, but it may still be in force. The caller holds the lock.
func (b *book) abandonedReturned(r *Run, v verdict, now time.Time) {
	if r.slotReused {
		b.abandoned--
	} else {
		b.running--
		b.blocking = slices.DeleteFunc(b.blocking, func(other *Run) bool { return other == r })
	}
	b.reuseSlots()
	if r.stage == running {
		b.runs.add(r)
		b.endRun(r, v, now)
	}
}

// pending returns how many runs wait to be written, whether so many results are not written that no job is claimed, whether no other run
// can join them soon, and when the next delayed write is due.
func (b *book) pending(now time.Time) (n int, full, alone bool, later time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = len(b.ended)
	for _, r := range b.delayed {
		switch {
		case !r.trouble.writeAt.After(now):
			n++
		case later.IsZero() || r.trouble.writeAt.Before(later):
			later = r.trouble.writeAt
		}
	}
	return n, b.uncommitted >= b.maxUncommitted, b.running == len(b.blocking) && len(b.buffered) == 0, later
}

// takeBatch returns the runs to write now, and removes them from the list. It takes over the room, which must be empty, for those that will
// end.
func (b *book) takeBatch(room []*Run, now time.Time) []*Run {
	b.mu.Lock()
	defer b.mu.Unlock()
	runs := b.ended
	b.ended = room
	b.delayed = slices.DeleteFunc(b.delayed, func(r *Run) bool {
		if r.trouble.writeAt.After(now) {
			return false
		}
		runs = append(runs, r)
		return true
	})
	return runs
}

// delayWrite hands the run to the committer again at the given time.
func (b *book) delayWrite(r *Run, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := r.troubled()
	t.delays++
	t.writeAt = at
	b.delayed = append(b.delayed, r)
}

// replaceVerdict hands the run to the committer again, with another verdict.
func (b *book) replaceVerdict(r *Run, v verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.verdict = v.kept(); r.trouble != nil {
		r.trouble.refusals = 0
	}
	b.ended = append(b.ended, r)
	b.commit.send()
}

// remove forgets runs whose verdicts the store has answered.
func (b *book) remove(runs []*Run) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range runs {
		b.runs.remove(r)
	}
	if b.uncommitted -= len(runs); b.uncommitted < b.maxUncommitted {
		b.fullSince = time.Time{}
	}
	b.claim.send()
	b.progress.send()
}

// releaseQueues releases the buffered runs of the queues.
func (b *book) releaseQueues(queues map[string]bool, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.releaseBuffered(func(r *Run) bool { return queues[r.Queue] }, now)
	b.claim.send()
}

// releaseBuffered releases the buffered runs that match, as if they had not been claimed. The caller holds the lock.
func (b *book) releaseBuffered(match func(*Run) bool, now time.Time) {
	keep := b.buffered[:0:0]
	for _, r := range b.buffered {
		if !match(r) {
			keep = append(keep, r)
			continue
		}
		b.leaveQueue(r)
		b.endRun(r, release(), now)
	}
	b.buffered = keep
}

// drain lets no more run start, and releases the buffered runs.
func (b *book) drain(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopping = true
	b.commit.send() // results that wait for others wait no longer
	b.releaseBuffered(func(*Run) bool { return true }, now)
}

// cancelRunning returns the running handlers that are not cancelled yet, so that the caller cancels them.
func (b *book) cancelRunning(cause error, now time.Time) []cancellation {
	b.mu.Lock()
	defer b.mu.Unlock()
	var cancelled []cancellation
	for _, r := range b.runs {
		if r.stage == running && r.cancellation == nil {
			b.markCancelled(r, cause, now)
			cancelled = append(cancelled, cancellation{run: r, cause: cause})
		}
	}
	return cancelled
}

// noteStoreClosed records that nothing can be written any more.
func (b *book) noteStoreClosed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.progress.send()
}

// drained returns whether a stop has nothing left to wait for: no handler, and no verdict that could still be written.
func (b *book) drained() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running == len(b.blocking) && (b.uncommitted == 0 || b.closed)
}

func (b *book) stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Stats{Slots: b.slots, Running: b.running, Buffered: len(b.buffered), Uncommitted: b.uncommitted, Abandoned: b.abandoned}
}

// slotsBlocked returns whether abandoned handlers block slots, because more are abandoned than may be replaced.
func (b *book) slotsBlocked() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.blocking) > 0
}

// fullFor returns whether backpressure has stopped the claims for at least so long.
func (b *book) fullFor(now time.Time, atLeast time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.fullSince.IsZero() && now.Sub(b.fullSince) >= atLeast
}
