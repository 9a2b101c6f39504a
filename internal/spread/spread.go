// Package spread makes the calls on several stores of the kit in turn, for tests.
package spread

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/kv"
)

// A Store makes its calls on several stores in turn. They are on the same map, as if they were in several processes.
type Store struct{ spread }

type spread struct {
	Stores []*kv.Store
	calls  atomic.Uint64
}

// Open opens a store on each of n engines of the same map.
func Open(ctx context.Context, n int, clk clock.Clock, connect func() (kv.Engine, error)) (*Store, error) {
	s := &Store{}
	for range n {
		e, err := connect()
		if err != nil {
			return nil, err
		}
		one, err := kv.Open(ctx, e, &kv.Options{Clock: clk})
		if err != nil {
			return nil, err
		}
		s.Stores = append(s.Stores, one)
	}
	return s, nil
}

var (
	_ contract.Notifier       = (*Store)(nil)
	_ contract.PolicyKeeper   = (*Store)(nil)
	_ contract.Registry       = (*Store)(nil)
	_ contract.ScheduleKeeper = (*Store)(nil)
	_ contract.GroupKeeper    = (*Store)(nil)
	_ contract.Fencer         = (*Store)(nil)
	_ contract.Monitor        = (*Store)(nil)
	_ contract.ActivityKeeper = (*Store)(nil)
)

func (s *spread) next() *kv.Store { return s.Stores[s.calls.Add(1)%uint64(len(s.Stores))] }

func (s *spread) Close() (err error) {
	for _, one := range s.Stores {
		if failed := one.Close(); failed != nil {
			err = failed
		}
	}
	return err
}

func (s *spread) Enqueue(ctx context.Context, req contract.EnqueueRequest) ([]contract.Enqueued, error) {
	return s.next().Enqueue(ctx, req)
}

func (s *spread) FetchAndClaim(ctx context.Context, req contract.ClaimRequest) ([]contract.Job, error) {
	return s.next().FetchAndClaim(ctx, req)
}

func (s *spread) Ack(ctx context.Context, acks []contract.Ack) ([]contract.Outcome, error) {
	return s.next().Ack(ctx, acks)
}

func (s *spread) NAck(ctx context.Context, nacks []contract.NAck) ([]contract.Outcome, error) {
	return s.next().NAck(ctx, nacks)
}

func (s *spread) Extend(ctx context.Context, leases []contract.Lease, ttl time.Duration) ([]contract.Outcome, error) {
	return s.next().Extend(ctx, leases, ttl)
}

func (s *spread) Save(ctx context.Context, saves []contract.Save) ([]contract.Outcome, error) {
	return s.next().Save(ctx, saves)
}

func (s *spread) RecoverExpiredLeases(ctx context.Context, req contract.RecoverRequest) ([]contract.Recovered, error) {
	return s.next().RecoverExpiredLeases(ctx, req)
}

func (s *spread) Settle(ctx context.Context, limit int) ([]contract.Settled, error) {
	return s.next().Settle(ctx, limit)
}

func (s *spread) Get(ctx context.Context, id int64) (contract.JobDetail, error) {
	return s.next().Get(ctx, id)
}

func (s *spread) List(ctx context.Context, filter contract.Filter, page contract.Page) (contract.JobPage, error) {
	return s.next().List(ctx, filter, page)
}

func (s *spread) Count(ctx context.Context, filter contract.Filter) (contract.Counts, error) {
	return s.next().Count(ctx, filter)
}

func (s *spread) Cancel(ctx context.Context, filter contract.Filter, limit int) ([]contract.Outcome, error) {
	return s.next().Cancel(ctx, filter, limit)
}

func (s *spread) Requeue(ctx context.Context, filter contract.Filter, limit int) ([]contract.Outcome, error) {
	return s.next().Requeue(ctx, filter, limit)
}

func (s *spread) Reschedule(ctx context.Context, filter contract.Filter, at time.Time, limit int) ([]contract.Outcome, error) {
	return s.next().Reschedule(ctx, filter, at, limit)
}

func (s *spread) Delete(ctx context.Context, filter contract.Filter, limit int) ([]contract.Outcome, error) {
	return s.next().Delete(ctx, filter, limit)
}

func (s *spread) Subscribe(ctx context.Context, queues []string) (<-chan contract.Wakeup, error) {
	return s.next().Subscribe(ctx, queues)
}

func (s *spread) Queues(ctx context.Context) ([]contract.Queue, error) { return s.next().Queues(ctx) }

func (s *spread) SetPaused(ctx context.Context, queue string, paused bool) error {
	return s.next().SetPaused(ctx, queue, paused)
}

func (s *spread) Policy(ctx context.Context, queue string) (contract.Policy, error) {
	return s.next().Policy(ctx, queue)
}

func (s *spread) SetPolicy(ctx context.Context, queue string, p contract.Policy) (contract.Policy, error) {
	return s.next().SetPolicy(ctx, queue, p)
}

func (s *spread) Beat(ctx context.Context, w contract.Worker) error { return s.next().Beat(ctx, w) }

func (s *spread) Leave(ctx context.Context, name string) error { return s.next().Leave(ctx, name) }

func (s *spread) Workers(ctx context.Context, filter contract.WorkerFilter, page contract.Page) (contract.WorkerPage, error) {
	return s.next().Workers(ctx, filter, page)
}

func (s *spread) Fence(ctx context.Context, req contract.FenceRequest) (int64, error) {
	return s.next().Fence(ctx, req)
}

func (s *spread) AddActivity(ctx context.Context, items []contract.Activity) error {
	return s.next().AddActivity(ctx, items)
}

func (s *spread) Activity(ctx context.Context, filter contract.ActivityFilter) (contract.ActivityPage, error) {
	return s.next().Activity(ctx, filter)
}

func (s *spread) Ping(ctx context.Context) error { return s.next().Ping(ctx) }

func (s *spread) OldestDue(ctx context.Context) (contract.Due, error) { return s.next().OldestDue(ctx) }

func (s *spread) SealGroup(ctx context.Context, name string) error {
	return s.next().SealGroup(ctx, name)
}

func (s *spread) Groups(ctx context.Context, filter contract.GroupFilter, page contract.Page) (contract.GroupPage, error) {
	return s.next().Groups(ctx, filter, page)
}

func (s *spread) SetSchedule(ctx context.Context, by contract.Schedule) (contract.Schedule, error) {
	return s.next().SetSchedule(ctx, by)
}

func (s *spread) DeleteSchedule(ctx context.Context, name string) error {
	return s.next().DeleteSchedule(ctx, name)
}

func (s *spread) Schedules(ctx context.Context, filter contract.ScheduleFilter, page contract.Page) (contract.SchedulePage, error) {
	return s.next().Schedules(ctx, filter, page)
}

func (s *spread) Fire(ctx context.Context, firings []contract.Firing) ([]contract.Fired, error) {
	return s.next().Fire(ctx, firings)
}
