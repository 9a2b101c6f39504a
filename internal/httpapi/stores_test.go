package httpapi

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
)

// bare is a store without abilities.
type bare struct{ store.Store }

func withoutAbilities(s *memory.Store) store.Store { return bare{s} }

// meddled is a store of which a test can change single calls. What it does not change goes to the store in memory.
type meddled struct {
	*memory.Store
	subscribed func()                          // after every Subscribe, whatever came of it
	any        func(ctx context.Context) error // before every call: an error is its end
	fetch      func(ctx context.Context, req store.ClaimRequest) ([]store.Job, error)
	after      func(ctx context.Context, req store.ClaimRequest, jobs []store.Job) // of a claim, before the API hears of it
	got        func()                                                              // after every Get
	warnings   []store.Finding
	counting   func() error                    // before every Count: an error is its end
	enqueuing  func() error                    // before every Enqueue: an error is its end
	ping       func(ctx context.Context) error // before every Ping
	listing    func(filter store.WorkerFilter) // before every Workers
	setting    func(s store.Schedule) error    // before every SetSchedule: an error is its end
	paging     func(page store.Page)           // before every List
	reading    func(call string)               // before every Count, Queues, OldestDue and Workers
}

// reads tells a test of a call that overviews make.
func (m *meddled) reads(call string) {
	if m.reading != nil {
		m.reading(call)
	}
}

func (m *meddled) Warnings(ctx context.Context) ([]store.Finding, error) {
	return meddle(ctx, m, func() ([]store.Finding, error) { return m.warnings, nil })
}

// failing is a store of which every call fails.
func failing(err error) func(*memory.Store) store.Store {
	return func(s *memory.Store) store.Store {
		return &meddled{Store: s, any: func(context.Context) error { return err }}
	}
}

func meddle[A any](ctx context.Context, m *meddled, do func() (A, error)) (A, error) {
	if m.any != nil {
		if err := m.any(ctx); err != nil {
			var none A
			return none, err
		}
	}
	return do()
}

func (m *meddled) Enqueue(ctx context.Context, req store.EnqueueRequest) ([]store.Enqueued, error) {
	return meddle(ctx, m, func() ([]store.Enqueued, error) {
		if m.enqueuing != nil {
			if err := m.enqueuing(); err != nil {
				return nil, err
			}
		}
		return m.Store.Enqueue(ctx, req)
	})
}

func (m *meddled) FetchAndClaim(ctx context.Context, req store.ClaimRequest) ([]store.Job, error) {
	return meddle(ctx, m, func() ([]store.Job, error) {
		if m.fetch != nil {
			return m.fetch(ctx, req)
		}
		jobs, err := m.Store.FetchAndClaim(ctx, req)
		if m.after != nil {
			m.after(ctx, req, jobs)
		}
		return jobs, err
	})
}

func (m *meddled) Ack(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
	return meddle(ctx, m, func() ([]store.Outcome, error) { return m.Store.Ack(ctx, acks) })
}

func (m *meddled) NAck(ctx context.Context, nacks []store.NAck) ([]store.Outcome, error) {
	return meddle(ctx, m, func() ([]store.Outcome, error) { return m.Store.NAck(ctx, nacks) })
}

func (m *meddled) Extend(ctx context.Context, leases []store.Lease, ttl time.Duration) ([]store.Outcome, error) {
	return meddle(ctx, m, func() ([]store.Outcome, error) { return m.Store.Extend(ctx, leases, ttl) })
}

func (m *meddled) Save(ctx context.Context, saves []store.Save) ([]store.Outcome, error) {
	return meddle(ctx, m, func() ([]store.Outcome, error) { return m.Store.Save(ctx, saves) })
}

func (m *meddled) RecoverExpiredLeases(ctx context.Context, req store.RecoverRequest) ([]store.Recovered, error) {
	return meddle(ctx, m, func() ([]store.Recovered, error) { return m.Store.RecoverExpiredLeases(ctx, req) })
}

func (m *meddled) Settle(ctx context.Context, limit int) ([]store.Settled, error) {
	return meddle(ctx, m, func() ([]store.Settled, error) { return m.Store.Settle(ctx, limit) })
}

func (m *meddled) Get(ctx context.Context, id int64) (store.JobDetail, error) {
	if m.got != nil {
		defer m.got()
	}
	return meddle(ctx, m, func() (store.JobDetail, error) { return m.Store.Get(ctx, id) })
}

func (m *meddled) List(ctx context.Context, filter store.Filter, page store.Page) (store.JobPage, error) {
	if m.paging != nil {
		m.paging(page)
	}
	return meddle(ctx, m, func() (store.JobPage, error) { return m.Store.List(ctx, filter, page) })
}

func (m *meddled) Count(ctx context.Context, filter store.Filter) (store.Counts, error) {
	m.reads("count")
	return meddle(ctx, m, func() (store.Counts, error) {
		if m.counting != nil {
			if err := m.counting(); err != nil {
				return store.Counts{}, err
			}
		}
		return m.Store.Count(ctx, filter)
	})
}

func (m *meddled) Cancel(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return meddle(ctx, m, func() ([]store.Outcome, error) { return m.Store.Cancel(ctx, filter, limit) })
}

func (m *meddled) Requeue(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return meddle(ctx, m, func() ([]store.Outcome, error) { return m.Store.Requeue(ctx, filter, limit) })
}

func (m *meddled) Reschedule(ctx context.Context, filter store.Filter, at time.Time, limit int) ([]store.Outcome, error) {
	return meddle(ctx, m, func() ([]store.Outcome, error) { return m.Store.Reschedule(ctx, filter, at, limit) })
}

func (m *meddled) Delete(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return meddle(ctx, m, func() ([]store.Outcome, error) { return m.Store.Delete(ctx, filter, limit) })
}

func (m *meddled) Subscribe(ctx context.Context, queues []string) (<-chan store.Wakeup, error) {
	if m.subscribed != nil {
		defer m.subscribed()
	}
	return meddle(ctx, m, func() (<-chan store.Wakeup, error) { return m.Store.Subscribe(ctx, queues) })
}

func (m *meddled) Queues(ctx context.Context) ([]store.Queue, error) {
	m.reads("queues")
	return meddle(ctx, m, func() ([]store.Queue, error) { return m.Store.Queues(ctx) })
}

func (m *meddled) Ping(ctx context.Context) error {
	_, err := meddle(ctx, m, func() (struct{}, error) {
		if m.ping != nil {
			if err := m.ping(ctx); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, m.Store.Ping(ctx)
	})
	return err
}

func (m *meddled) OldestDue(ctx context.Context) (store.Due, error) {
	m.reads("due")
	return meddle(ctx, m, func() (store.Due, error) { return m.Store.OldestDue(ctx) })
}

func (m *meddled) Activity(ctx context.Context, filter store.ActivityFilter) (store.ActivityPage, error) {
	return meddle(ctx, m, func() (store.ActivityPage, error) { return m.Store.Activity(ctx, filter) })
}

func (m *meddled) AddActivity(ctx context.Context, items []store.Activity) error {
	_, err := meddle(ctx, m, func() (struct{}, error) { return struct{}{}, m.Store.AddActivity(ctx, items) })
	return err
}

func (m *meddled) SetPaused(ctx context.Context, queue string, paused bool) error {
	_, err := meddle(ctx, m, func() (struct{}, error) { return struct{}{}, m.Store.SetPaused(ctx, queue, paused) })
	return err
}

func (m *meddled) Policy(ctx context.Context, queue string) (store.Policy, error) {
	return meddle(ctx, m, func() (store.Policy, error) { return m.Store.Policy(ctx, queue) })
}

func (m *meddled) SetPolicy(ctx context.Context, queue string, p store.Policy) (store.Policy, error) {
	return meddle(ctx, m, func() (store.Policy, error) { return m.Store.SetPolicy(ctx, queue, p) })
}

func (m *meddled) Leave(ctx context.Context, name string) error {
	_, err := meddle(ctx, m, func() (struct{}, error) { return struct{}{}, m.Store.Leave(ctx, name) })
	return err
}

func (m *meddled) Beat(ctx context.Context, w store.Worker) error {
	_, err := meddle(ctx, m, func() (struct{}, error) { return struct{}{}, m.Store.Beat(ctx, w) })
	return err
}

func (m *meddled) Workers(ctx context.Context, filter store.WorkerFilter, page store.Page) (store.WorkerPage, error) {
	m.reads("workers")
	return meddle(ctx, m, func() (store.WorkerPage, error) {
		if m.listing != nil {
			m.listing(filter)
		}
		return m.Store.Workers(ctx, filter, page)
	})
}

func (m *meddled) Schedules(ctx context.Context, filter store.ScheduleFilter, page store.Page) (store.SchedulePage, error) {
	return meddle(ctx, m, func() (store.SchedulePage, error) { return m.Store.Schedules(ctx, filter, page) })
}

func (m *meddled) SetSchedule(ctx context.Context, s store.Schedule) (store.Schedule, error) {
	return meddle(ctx, m, func() (store.Schedule, error) {
		if m.setting != nil {
			if err := m.setting(s); err != nil {
				return store.Schedule{}, err
			}
		}
		return m.Store.SetSchedule(ctx, s)
	})
}

func (m *meddled) DeleteSchedule(ctx context.Context, name string) error {
	_, err := meddle(ctx, m, func() (struct{}, error) { return struct{}{}, m.Store.DeleteSchedule(ctx, name) })
	return err
}

func (m *meddled) Fire(ctx context.Context, firings []store.Firing) ([]store.Fired, error) {
	return meddle(ctx, m, func() ([]store.Fired, error) { return m.Store.Fire(ctx, firings) })
}

func (m *meddled) SealGroup(ctx context.Context, name string) error {
	_, err := meddle(ctx, m, func() (struct{}, error) { return struct{}{}, m.Store.SealGroup(ctx, name) })
	return err
}

func (m *meddled) Groups(ctx context.Context, filter store.GroupFilter, page store.Page) (store.GroupPage, error) {
	return meddle(ctx, m, func() (store.GroupPage, error) { return m.Store.Groups(ctx, filter, page) })
}

func (m *meddled) Fence(ctx context.Context, req store.FenceRequest) (int64, error) {
	return meddle(ctx, m, func() (int64, error) { return m.Store.Fence(ctx, req) })
}
