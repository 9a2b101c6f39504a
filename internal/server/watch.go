package server

import (
	"errors"
	"slices"
	"time"
)

// watchLoop tells handlers to stop whose time is over: their own timeout, or the end of a lease that could not be extended.
// It has one timer for all of them, so that a run costs none.
func (s *Server) watchLoop() {
	for {
		now := s.clock.Now()
		started, stopped, again := s.held.overdue(now)
		s.stop(stopped, "")
		s.launch(started)
		for _, st := range stopped {
			s.tellOverdue(st)
		}
		if !s.sleepUntil(again, s.held.watch) {
			return
		}
	}
}

func (s *Server) tellOverdue(st stop) {
	log := s.log.With("job", st.run.ID, "queue", st.run.Queue, "kind", st.run.Kind)
	if st.cause == nil {
		log.Warn("jq: handler ignores that it was told to stop, and is given up", "after", s.o.AbandonAfter, "cause", st.run.stopCause())
		return
	}
	log.Warn("jq: handler is told to stop", "cause", st.cause)
}

// sleepUntil waits for the time, which is never if it is zero, or for the signal. It is false when the server has ended.
func (s *Server) sleepUntil(at time.Time, or signal) bool {
	var due <-chan time.Time
	if !at.IsZero() {
		timer := s.clock.Timer(max(0, at.Sub(s.clock.Now())))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-s.life.Done():
		return false
	case <-due:
	case <-or:
	}
	return true
}

// tell notes why the handler was told to stop, and from when it is no longer waited for. The lock is held.
func (h *held) tell(r *Run, cause error, now time.Time) {
	if r.cause == nil {
		r.cause, r.abandonAt = cause, now.Add(h.abandonAfter)
		h.nearer(r.abandonAt)
	}
}

// deadline is when the watch has to look after a running handler. One that has finished its job in a transaction needs no
// extensions: as long as the transaction is open, nobody else can get the job, and busy is all that the store can answer. The
// lock is held.
func (r *Run) deadline() time.Time {
	switch {
	case r.cause != nil:
		return r.abandonAt
	case r.settled || r.inTx.Load() || r.stopAt().Before(r.leaseUntil):
		return r.stopAt()
	default:
		return r.leaseUntil
	}
}

// nearer wakes the watch if the time comes before it would have looked. The lock is held.
func (h *held) nearer(at time.Time) {
	if h.watchAt.IsZero() || at.Before(h.watchAt) {
		h.watchAt = at
		h.watch.send()
	}
}

// overdue finds the handlers whose time is over, gives up those that were told before, and says when to look again: never
// if that is zero. Slots that become free go to the runs that it returns as started.
func (h *held) overdue(now time.Time) (started []*Run, stopped []stop, again time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var first time.Time
	for _, r := range slices.Backward(h.runs) { // whoever is given up leaves the roster, and one from behind takes his place
		if r.stage != running {
			continue
		}
		if !r.deadline().After(now) {
			stopped = append(stopped, h.overrun(r, now))
		}
		if at := r.deadline(); !r.abandoned && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	h.watchAt = first // not by way of nearer, which would wake the watch that is awake
	started = h.fill(now)
	return started, stopped, h.watchAt
}

// overrun deals with one handler whose time is over. The lock is held.
func (h *held) overrun(r *Run, now time.Time) stop {
	switch {
	case r.cause != nil:
		h.abandon(r, now)
		return stop{run: r}
	case !r.stopAt().After(now):
		h.tell(r, ErrTimeout, now)
	default:
		h.tell(r, ErrLeaseUnknown, now)
	}
	return stop{run: r, cause: r.cause}
}

// abandon gives up a handler that does not return. If it was timed out its job fails now; otherwise the lease is gone, or
// runs out. Its slot goes to another run, unless too many were given away before. The lock is held.
func (h *held) abandon(r *Run, now time.Time) {
	r.abandoned = true
	h.leaveQueue(r)
	if errors.Is(r.cause, ErrTimeout) {
		h.end(r, unlessFinished(r, fail(timedOut(r, errStuck))), now)
	} else {
		h.end(r, verdict{}, now)
	}
	h.unreplaced = append(h.unreplaced, r)
	h.replace()
	h.fetch.send()
	h.rest.send()
}

// replace gives the slots of abandoned handlers to others, up to the cap. The lock is held.
func (h *held) replace() {
	for len(h.unreplaced) > 0 && h.abandoned < h.maxAbandoned {
		h.unreplaced[0].replaced = true
		h.unreplaced = slices.Delete(h.unreplaced, 0, 1)
		h.running--
		h.abandoned++
	}
}

// returned takes back a handler that was given up. Where nothing was written of it its verdict is offered: its lease was not
// extended any more, but may be good. The lock is held.
func (h *held) returned(r *Run, v verdict, now time.Time) {
	if r.replaced {
		h.abandoned--
	} else {
		h.running--
		h.unreplaced = slices.DeleteFunc(h.unreplaced, func(other *Run) bool { return other == r })
	}
	h.replace()
	if r.stage == running {
		h.runs.add(r)
		h.end(r, v, now)
	}
}
