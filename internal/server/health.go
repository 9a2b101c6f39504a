package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/timeout"
)

// health records whether the store answers, and until when recovery must wait. After an outage it waits one heartbeat interval, in which
// live workers extend their leases. The same holds after a clock jump.
type health struct {
	heartbeat time.Duration
	slack     time.Duration // how long an outage may last before leases expire that every heartbeat extends
	began     time.Time

	permissions sync.Map // of permission, by call; written under mu, read without it

	mu            sync.Mutex // guards what follows
	failure       error      // the latest one, or nil while the store answers
	answered      time.Time  // when the store last answered
	waitUntil     time.Time  // recovery waits until then
	mustWaitUntil time.Time  // likewise, because leases of live workers may have expired
	drift         clockDrift
}

// A permission records whether the store permits a call.
type permission struct {
	granted bool  // at least once
	denial  error // nil unless it is denied now
}

func newHealth(o Options) *health {
	now := o.Clock.Now()
	h := &health{
		heartbeat: o.Lease.Heartbeat, slack: o.Lease.Duration - o.Lease.Heartbeat, began: now, answered: now, drift: clockDrift{wall: now.Round(0)},
	}
	// Workers may reach the store through a server without queues, which may have been away for long. Whoever sets a shorter interval wants
	// leases to be recovered sooner.
	if len(o.Queues) == 0 {
		h.waitUntil = now.Add(min(o.Lease.Heartbeat, o.Recovery.Interval))
		h.mustWaitUntil = h.waitUntil
	}
	return h
}

// recordAnswer records whether a call that was sent at that time reached the store. Errors that the store returns are answers too, except a
// denial: a worker that may do nothing extends no lease, as in an outage, so recovery must wait for it afterwards.
func (s *Server) recordAnswer(sent time.Time, err error) {
	if s.stopIfClosed(err) || errors.Is(err, store.ErrDenied) {
		return
	}
	failed := unreachable(err)
	if failed && (s.life.Err() != nil || errors.Is(err, context.Canceled)) {
		return // this server cancelled the call
	}
	changed, long := s.health.record(sent, failed, err, s.clock.Now())
	switch {
	case changed && failed:
		s.log.Error("jq: the store does not answer", "error", err)
	case changed:
		s.log.Info("jq: the store answers again", "recovery_waits", s.o.Lease.Heartbeat)
	}
	if long {
		s.cancels.tellAll() // other servers recover leases after a heartbeat interval of their own, which may be shorter
	}
}

// unreachable returns whether the error says that the store could not be reached, or that its answer did not arrive.
func unreachable(err error) bool {
	return errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrInDoubt)
}

// record returns whether the store has become reachable or unreachable, and whether leases of live workers may have expired meanwhile. A
// failed call that was sent before the latest answer shows nothing new: it may have hung since before the store came back, or for a reason of
// its own.
func (h *health) record(sent time.Time, failed bool, err error, now time.Time) (changed, long bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed = failed != (h.failure != nil)
	silent := now.Sub(h.answered)
	switch {
	case failed && sent.Before(h.answered):
		return false, false
	case failed:
		h.failure = err
		return changed, false
	case changed:
		h.failure, h.waitUntil = nil, now.Add(h.heartbeat)
	}
	if long = changed && silent > h.heartbeat/2 || silent > h.slack; long { // the second is an outage that no call noticed
		h.waitUntil = now.Add(h.heartbeat)
		h.mustWaitUntil = h.waitUntil
	}
	h.answered = now
	return changed, long
}

// denied records that the store denies a call, and returns whether that is new.
func (h *health) denied(op string, err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.permission(op)
	h.permissions.Store(op, permission{before.granted, err})
	return before.denial == nil
}

// permitted records that the store permits a call, so that the next denial is logged.
func (h *health) permitted(op string) {
	if r := h.permission(op); r.granted && r.denial == nil {
		return // nearly always
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.permissions.Store(op, permission{granted: true})
}

// permission returns what is known about the call.
func (h *health) permission(op string) permission {
	known, _ := h.permissions.Load(op)
	r, _ := known.(permission)
	return r
}

// jumped returns whether a clock was set since the last check. If so, recovery must wait.
func (h *health) jumped(wall time.Time, passed time.Duration, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	jumped := h.drift.jumped(wall, passed, h.heartbeat)
	if jumped {
		h.waitUntil = now.Add(h.heartbeat)
		h.mustWaitUntil = h.waitUntil
	}
	return jumped
}

// recoveryDelay returns how much longer recovery must wait. A recovery that has waited once waits again only because leases of live workers
// may have expired: otherwise a store that fails now and then would delay recovery for ever.
func (h *health) recoveryDelay(again bool, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if again {
		return h.mustWaitUntil.Sub(now)
	}
	return h.waitUntil.Sub(now)
}

// slackLeft returns for how much longer no lease of a live worker can have expired, even if no worker has reached the store since it last
// answered here.
func (h *health) slackLeft(now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.slack - now.Sub(h.answered)
}

func (h *health) unavailable() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failure != nil
}

func (h *health) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failure != nil {
		return fmt.Errorf("jq: not ready: the store does not answer: %w", h.failure)
	}
	if err := h.permission("claim").denial; err != nil {
		return fmt.Errorf("jq: not ready: the store denies claims: %w", err)
	}
	return nil
}

// A clockDrift detects that the wall clock was set: it no longer agrees with the time that has passed.
type clockDrift struct {
	wall   time.Time
	passed time.Duration
}

// jumped compares both clocks with their last readings.
func (d *clockDrift) jumped(wall time.Time, passed, tolerance time.Duration) bool {
	gap := wall.Sub(d.wall) - (passed - d.passed)
	*d = clockDrift{wall, passed}
	return gap.Abs() > tolerance
}

// call returns the context for one call of the store. A stop does not cancel it; the end of the server does.
func (s *Server) call(atMost time.Duration) (context.Context, context.CancelFunc) {
	return timeout.Of(s.life, s.clock, atMost)
}

// callWhileWorking returns the context for a call that a stop cancels.
func (s *Server) callWhileWorking(atMost time.Duration) (context.Context, context.CancelFunc) {
	return timeout.Of(s.work, s.clock, atMost)
}

// logFailure logs a failed call. It logs nothing in an outage, which has its own line, or when the server itself cancelled the call.
func (s *Server) logFailure(op string, err error) {
	switch {
	case s.life.Err() != nil || errors.Is(err, context.Canceled) || s.stopIfClosed(err):
	case errors.Is(err, store.ErrDenied):
		if s.health.denied(op, err) {
			s.log.Warn("jq: the store denied a call", "op", op, "error", err)
		}
	case !unreachable(err):
		s.log.Error("jq: the store refused a call", "op", op, "error", err)
	case !s.health.unavailable():
		s.log.Warn("jq: store call timed out; other calls succeed", "op", op, "error", err)
	}
}
