package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// health knows whether the store answers, and for how long recovery has to wait where it did not: for a beat, in which
// workers that are alive extend their leases. The same after a clock has jumped.
type health struct {
	beat  time.Duration
	spare time.Duration // for which leases that are extended at every beat outlast an outage
	began time.Time

	rights sync.Map // of right, by the call; written under mu, read without

	mu               sync.Mutex // guards what follows
	failure          error      // the latest, or nil if the store answers
	answered         time.Time  // when it last did
	recoverAt        time.Time  // recovery waits until then
	recoverAtSoonest time.Time  // and until then because leases of the living may have run out
	walls            drift
}

// A right is what is known of whether the store permits a call.
type right struct {
	given  bool  // once at least
	denial error // nil unless it is denied now
}

func newHealth(o Options) *health {
	now := o.Clock.Now()
	spare := max(o.Lease-o.Beat, o.Beat)
	return &health{beat: o.Beat, spare: spare, began: now, answered: now, walls: drift{wall: now.Round(0)}}
}

// noteAnswer notes whether a call that was sent then has reached the store. Other errors than those of contact are answers too, but
// a denial: whoever may do nothing extends nothing, like in an outage, and recovery must wait for the living after it.
func (s *Server) noteAnswer(sent time.Time, err error) {
	if s.stopIfClosed(err) || errors.Is(err, store.ErrDenied) {
		return
	}
	lost := away(err)
	if lost && (s.life.Err() != nil || errors.Is(err, context.Canceled)) {
		return // it was this server that ended the call
	}
	switch changed := s.health.note(sent, lost, err, s.clock.Now()); {
	case changed && lost:
		s.log.Error("jq: the store does not answer", "error", err)
	case changed:
		s.log.Info("jq: the store answers again", "recovery_waits", s.o.Beat)
	}
}

// away says whether the error is one of contact.
func away(err error) bool {
	return errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrInDoubt)
}

// note says whether the store's being there has changed. A call that fails after a later one was answered tells nothing new:
// it may have hung since before the store came back, or on something else than the store.
func (c *health) note(sent time.Time, lost bool, err error, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := lost != (c.failure != nil)
	silent := now.Sub(c.answered)
	switch {
	case lost && sent.Before(c.answered):
		return false
	case lost:
		c.failure = err
		return changed
	case changed:
		c.failure, c.recoverAt = nil, now.Add(c.beat)
	}
	if changed && silent > c.beat/2 || silent > c.spare { // the latter is an outage that nobody has noticed
		c.recoverAt = now.Add(c.beat)
		c.recoverAtSoonest = c.recoverAt
	}
	c.answered = now
	return changed
}

// denied notes that the store does not permit a call, and says whether that is new.
func (c *health) denied(op string, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.right(op)
	c.rights.Store(op, right{before.given, err})
	return before.denial == nil
}

// permitted notes that the store permits a call, so that the next denial of it is told of.
func (c *health) permitted(op string) {
	if r := c.right(op); r.given && r.denial == nil {
		return // as nearly always
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rights.Store(op, right{given: true})
}

// right is what is known so far.
func (c *health) right(op string) right {
	known, _ := c.rights.Load(op)
	r, _ := known.(right)
	return r
}

// jumped says whether a clock was set since the last look, and makes recovery wait if so.
func (c *health) jumped(wall time.Time, passed time.Duration, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	jumped := c.walls.jumped(wall, passed, c.beat)
	if jumped {
		c.recoverAt = now.Add(c.beat)
		c.recoverAtSoonest = c.recoverAt
	}
	return jumped
}

// recoveryDelay is for how much longer recovery has to wait. Whoever has waited once waits again only for what is graver:
// otherwise a store that fails every now and then would put recovery off for ever.
func (c *health) recoveryDelay(again bool, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if again {
		return c.recoverAtSoonest.Sub(now)
	}
	return c.recoverAt.Sub(now)
}

// spareLeft is for how much longer no lease of the living can have run out, even if nobody has reached the store since it last
// answered here.
func (c *health) spareLeft(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spare - now.Sub(c.answered)
}

func (c *health) unavailable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure != nil
}

func (c *health) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure != nil {
		return fmt.Errorf("jq: not ready: the store does not answer: %w", c.failure)
	}
	if err := c.right("claim").denial; err != nil {
		return fmt.Errorf("jq: not ready: the store does not permit claims: %w", err)
	}
	return nil
}

// A drift tells when the clock on the wall was set: the time on it and the time that has passed no longer agree.
type drift struct {
	wall   time.Time
	passed time.Duration
}

// jumped compares with the look before.
func (d *drift) jumped(wall time.Time, passed, tolerance time.Duration) bool {
	gap := wall.Sub(d.wall) - (passed - d.passed)
	*d = drift{wall, passed}
	return gap.Abs() > tolerance
}

// call is the context of one call of the store. It outlives the wish to stop, but not the server.
func (s *Server) call(atMost time.Duration) (context.Context, context.CancelFunc) {
	return s.clock.WithTimeout(s.life, atMost)
}

// callWhileWorking is the context of a call that nobody waits for when the server is told to stop.
func (s *Server) callWhileWorking(atMost time.Duration) (context.Context, context.CancelFunc) {
	return s.clock.WithTimeout(s.work, atMost)
}

// logFailure logs a failed call, unless it is one of many in an outage, which was told of, or the server's own end.
func (s *Server) logFailure(op string, err error) {
	switch {
	case s.life.Err() != nil || errors.Is(err, context.Canceled) || s.stopIfClosed(err):
	case errors.Is(err, store.ErrDenied):
		if s.health.denied(op, err) {
			s.log.Warn("jq: the store does not permit a call", "op", op, "error", err)
		}
	case !away(err):
		s.log.Error("jq: the store refuses a call", "op", op, "error", err)
	case !s.health.unavailable():
		s.log.Warn("jq: store call timed out; other calls succeed", "op", op, "error", err)
	}
}
