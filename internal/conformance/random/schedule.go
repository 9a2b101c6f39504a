package random

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-ed332417/jq/internal/store"
)

// schedule sets, deletes or fires the schedule a or b, where the store can, and compares all schedules after that. Stores number
// revisions as they like, so each call takes the one that its own store shows, or one that is off.
func schedule(t *rapid.T) op {
	name, off := among(t, "a", "a", "b"), among(t, int64(0), 0, 0, 0, -1, 1)
	switch among(t, "fire", "fire", "set", "set", "delete") {
	case "set":
		return setSchedule(t, name, off)
	case "fire":
		return fire(t, name, off)
	default:
		return ofSchedules("delete the schedule "+name, func(r *run) error {
			_, err := both(r, "DeleteSchedule", func(s store.Store) (struct{}, error) {
				return struct{}{}, s.(store.ScheduleKeeper).DeleteSchedule(r.ctx, name)
			})
			return err
		})
	}
}

// ofSchedules compares all schedules after the call, and which are due.
func ofSchedules(text string, call func(r *run) error) op {
	return op{text, func(r *run) error {
		if _, able := r.store.(store.ScheduleKeeper); !able {
			return nil
		}
		if err := call(r); err != nil {
			return err
		}
		for _, filter := range []store.ScheduleFilter{{}, {Due: true}, {Due: true, Within: time.Hour}, {Name: "a"}} {
			for page := (store.Page{Limit: 1}); ; {
				found, err := both(r, fmt.Sprintf("Schedules %+v", filter), func(s store.Store) (store.SchedulePage, error) {
					return schedules(r, s, filter, page)
				})
				if err != nil {
					return err
				}
				if page.Cursor = found.Next; page.Cursor == "" {
					break
				}
			}
		}
		return nil
	}}
}

// schedules is a page without what stores number by themselves.
func schedules(r *run, s store.Store, filter store.ScheduleFilter, page store.Page) (store.SchedulePage, error) {
	found, err := s.(store.ScheduleKeeper).Schedules(r.ctx, filter, page)
	for i := range found.Schedules {
		found.Schedules[i].Revision = 0
	}
	return found, err
}

// present is the schedule as the store has it, or one without a revision.
func present(r *run, s store.Store, name string) (store.Schedule, error) {
	found, err := s.(store.ScheduleKeeper).Schedules(r.ctx, store.ScheduleFilter{Name: name}, store.Page{Limit: 1})
	if err != nil || len(found.Schedules) == 0 {
		return store.Schedule{Name: name}, err
	}
	return found.Schedules[0], nil
}

func setSchedule(t *rapid.T, name string, off int64) op {
	d := drawDraft(t)
	d.after = nil
	ahead := among(t, time.Second, 0, 700*time.Nanosecond, time.Hour, -time.Second)
	asked := store.Schedule{
		Name: name, Cron: among(t, "@daily", "@weekly", ""), CatchUp: among(t, store.CatchUpOne, store.CatchUpSkip, ""),
		Overlap: among(t, store.OverlapSkip, store.OverlapAllow, ""), Paused: rarely(t, 4), Version: among(t, int64(0), 1),
	}
	times := among(t, 1, 2)
	return ofSchedules(fmt.Sprintf("set the schedule %+v of %v, due in %v, %d revisions off, %d times", asked, d, ahead, off, times), func(r *run) error {
		by := asked
		if by.Job = d.newJob(r, 0); d.UniqueKey == "" {
			by.Job.UniqueFor = 0
		}
		by.Job.RunAt = time.Time{}
		if !by.Paused {
			by.NextAt = r.clk.Now().Add(ahead)
		}
		for range times {
			_, err := both(r, "SetSchedule", func(s store.Store) (store.Schedule, error) {
				current, err := present(r, s, name)
				if err != nil {
					return store.Schedule{}, err
				}
				by.Revision = max(0, current.Revision+off)
				kept, err := s.(store.ScheduleKeeper).SetSchedule(r.ctx, by)
				if changed := kept.Revision != current.Revision; err == nil {
					kept.Revision = 0
					r.note("changed: %v", changed)
				}
				return kept, err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// fire makes the schedule fire, now and then twice in a call, and beside one that is not there.
func fire(t *rapid.T, name string, off int64) op {
	due := among(t, time.Duration(0), 0, time.Microsecond, -time.Second, time.Hour)
	none, last := rarely(t, 4), rarely(t, 5)
	ahead := among(t, time.Hour, -time.Second, time.Second, 0)
	beside := among(t, "", name, "c")
	text := fmt.Sprintf("fire %s and %q, for %v from now or none %v, next in %v or never %v, %d revisions off", name, beside, due, none, ahead, last, off)
	return ofSchedules(text, func(r *run) error {
		call := func(s store.Store) ([]store.Fired, error) {
			current, err := present(r, s, name)
			if err != nil {
				return nil, err
			}
			f := store.Firing{Name: name, Revision: current.Revision + off}
			if !none {
				f.For = r.clk.Now().Add(due)
			}
			if !last && (!current.NextAt.IsZero() || ahead > time.Second) {
				f.Next = current.NextAt.Add(ahead)
			}
			firings := []store.Firing{f}
			if beside != "" {
				other := f
				other.Name = beside
				firings = append(firings, other)
			}
			return s.(store.ScheduleKeeper).Fire(r.ctx, firings)
		}
		got, gotErr := call(r.store)
		var added []store.Enqueued
		for _, f := range got {
			if f.Job != nil {
				added = append(added, *f.Job)
			}
		}
		fresh := r.newIDs(added)
		r.model.GiveIDs(fresh...)
		want, wantErr := call(r.model)
		if err := compare("Fire", plainly(got), gotErr, plainly(want), wantErr); err != nil {
			return err
		}
		r.ids = append(r.ids, fresh...)
		r.touched = fresh
		for _, id := range fresh {
			if d, err := r.store.Get(r.ctx, id); err == nil && d.UniqueFor > 0 {
				r.ends = append(r.ends, r.now().Add(d.UniqueFor))
			}
		}
		return nil
	})
}

// plainly has the outcomes without what stores number and word by themselves.
func plainly(fired []store.Fired) []store.Fired {
	var list []store.Fired
	for _, f := range fired {
		f.Revision = 0
		if f.Reason != "" {
			f.Reason = "a reason"
		}
		list = append(list, f)
	}
	return list
}
