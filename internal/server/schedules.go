package server

import (
	"errors"
	"time"

	"github.com/seed-ed332417/jq/internal/schedule"
	"github.com/seed-ed332417/jq/internal/store"
)

// lookAhead is how far ahead a look for schedules reads. If it finds none, the next look is that far away.
func (s *Server) lookAhead() time.Duration { return min(5*s.o.Schedules.Interval, store.MaxDuration) }

// scheduleLoop enqueues the jobs of schedules at their times. Every server does: the store lets one of them fire for each time.
func (s *Server) scheduleLoop() {
	keeper, ok := s.store.(store.ScheduleKeeper)
	switch {
	case !ok:
		return
	case s.o.Schedules.Interval < 0:
		s.log.Info("jq: schedules are off: their jobs are enqueued by other servers")
		return
	}
	logged := map[string]int64{} // the revisions of schedules that cannot be read
	for wait := time.Duration(0); s.sleep(s.work, wait); {
		wait = s.fireDue(keeper, func(one store.Schedule, err error) {
			if logged[one.Name] != one.Revision {
				logged[one.Name] = one.Revision
				s.log.Error("jq: schedule cannot be read; set it again", "schedule", one.Name, "error", err)
			}
		})
	}
}

// fireDue fires the schedules that are due, and returns when to look again.
func (s *Server) fireDue(keeper store.ScheduleKeeper, unreadable func(one store.Schedule, err error)) time.Duration {
	wait := s.lookAhead()
	for page := (store.Page{Limit: store.MaxFirings}); ; {
		found, err := s.schedulesSoon(keeper, page)
		if errors.Is(err, errors.ErrUnsupported) { // a remote store behind which the ability is missing
			return s.lookAhead()
		}
		if err != nil {
			s.logFailure("schedules", err)
			return s.o.Schedules.Interval
		}
		var firings []store.Firing
		for _, one := range found.Schedules {
			f, due, err := schedule.Due(one, found.Now)
			switch {
			case err != nil:
				unreadable(one, err)
			case due:
				firings = append(firings, f)
				wait = soonest(wait, s.o.Schedules.Interval, f.Next, found.Now)
			default:
				wait = soonest(wait, s.o.Schedules.Interval, one.NextAt, found.Now)
			}
		}
		if err := s.fire(keeper, firings); err != nil {
			s.logFailure("fire", err)
			return s.o.Schedules.Interval
		}
		if page.Cursor = found.Next; page.Cursor == "" {
			return wait
		}
	}
}

// soonest shortens the wait to the interval, and to the next time of a schedule if it has one.
func soonest(wait, interval time.Duration, next, now time.Time) time.Duration {
	if !next.IsZero() {
		wait = min(wait, next.Sub(now))
	}
	return min(wait, interval)
}

func (s *Server) schedulesSoon(keeper store.ScheduleKeeper, page store.Page) (store.SchedulePage, error) {
	sent := s.clock.Now()
	ctx, cancel := s.callWhileWorking(s.o.Lease.Heartbeat)
	defer cancel()
	filter := store.ScheduleFilter{Due: true, Within: s.lookAhead()}
	found, err := keeper.Schedules(ctx, filter, page)
	if !errors.Is(err, errors.ErrUnsupported) {
		s.recordAnswer(sent, err)
	}
	return found, err
}

// fire logs what was enqueued. A stale schedule was fired by another server, or changed.
func (s *Server) fire(keeper store.ScheduleKeeper, firings []store.Firing) error {
	if len(firings) == 0 {
		return nil
	}
	sent := s.clock.Now()
	ctx, cancel := s.callWhileWorking(s.o.Lease.Heartbeat)
	defer cancel()
	fired, err := keeper.Fire(ctx, firings)
	s.recordAnswer(sent, err)
	for i, f := range fired {
		switch {
		case f.Status == store.StatusInvalid:
			s.log.Error("jq: schedule could not fire", "schedule", f.Name, "reason", f.Reason)
		case f.Status != store.StatusOK:
		case f.Reason != "":
			s.log.Info("jq: schedule enqueued no job", "schedule", f.Name, "for", firings[i].For, "reason", f.Reason)
		case f.Job != nil:
			s.log.Debug("jq: schedule enqueued a job", "schedule", f.Name, "for", firings[i].For, "job", f.Job.ID)
		default:
			s.log.Warn("jq: schedule left out times that were missed", "schedule", f.Name, "next", firings[i].Next)
		}
	}
	return err
}
