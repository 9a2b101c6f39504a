package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// SetSchedule is part of the contract. It sends the revision, so that the server takes the schedule as it is.
func (s *Store) SetSchedule(ctx context.Context, by store.Schedule) (store.Schedule, error) {
	body, revision := wire.ScheduleOf(by), wire.ID(by.Revision)
	body.Revision = &revision
	body.Name, body.LastAt, body.LastJob = "", wire.Time{}, 0 // the path has the name, and the store sets the other two
	dropTwin(&body.Job.Payload, body.Job.PayloadText)
	c := post(pathOfSchedule(by.Name), by.Check(), body, mostSchedules(1))
	c.method = http.MethodPut
	kept, err := ask(ctx, s, c, func(kept wire.Schedule) error {
		if kept.Name != by.Name || kept.Store(store.NewJob{}).Revision <= 0 {
			return errors.New("not the schedule that was set")
		}
		return nil
	})
	return kept.Store(store.NewJob{}), err
}

// DeleteSchedule is part of the contract.
func (s *Store) DeleteSchedule(ctx context.Context, name string) error {
	return tell(ctx, s, call{method: http.MethodDelete, path: pathOfSchedule(name), refused: store.CheckSchedule(name)})
}

func pathOfSchedule(name string) string { return fmt.Sprintf(wire.PathSchedule, segment(name)) }

// Schedules is part of the contract.
func (s *Store) Schedules(ctx context.Context, filter store.ScheduleFilter, page store.Page) (store.SchedulePage, error) {
	query := url.Values{"limit": {strconv.Itoa(page.Limit)}}
	for name, value := range map[string]string{"name": filter.Name, "cursor": page.Cursor} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if filter.Due {
		query.Set("due", "true")
		query.Set("within", filter.Within.String())
	}
	_, invalid := filter.Position(page)
	c := fetch(wire.PathSchedules, invalid, mostSchedules(page.Limit))
	c.query = query.Encode()
	answer, err := ask(ctx, s, c, func(p wire.SchedulePage) error {
		if p.Now.IsZero() {
			return errors.New("no time in it")
		}
		return listed(p.Schedules, page.Limit, "schedules")
	})
	if err != nil {
		return store.SchedulePage{}, err
	}
	for _, one := range answer.Schedules {
		s.note(one.Redacted)
	}
	return answer.Store(), nil
}

// Fire is part of the contract.
func (s *Store) Fire(ctx context.Context, firings []store.Firing) ([]store.Fired, error) {
	if err := s.admit(ctx, store.CheckFirings(firings)); err != nil || len(firings) == 0 {
		return nil, err
	}
	c := post(wire.PathFire, nil, wire.Fire{Firings: wire.Each(firings, wire.FiringOf)}, mostOf(len(firings)))
	answer, err := ask(ctx, s, c, func(f wire.Fired) error {
		if len(f.Fired) != len(firings) {
			return fmt.Errorf("%d outcomes for %d schedules", len(f.Fired), len(firings))
		}
		for i, one := range f.Fired {
			if one.Name != firings[i].Name || !statuses[one.Status] {
				return fmt.Errorf("outcome %d is for another schedule, or has no known status", i)
			}
		}
		return nil
	})
	return answer.Fired, err
}
