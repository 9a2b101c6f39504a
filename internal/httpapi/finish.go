package httpapi

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq/internal/await"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

func (a *API) ack(ctx context.Context, req wire.Acks) (wire.Results, error) {
	acks, leases := make([]store.Ack, len(req.Jobs)), make([]store.Lease, len(req.Jobs))
	for i, item := range req.Jobs {
		var err error
		if acks[i], err = item.Store(); err != nil {
			return wire.Results{}, err
		}
		leases[i] = acks[i].Lease
	}
	outcomes, err := a.as(ctx).Ack(ctx, acks)
	return a.finished("ack", leases, outcomes, err, func(_ int, o store.Outcome) string { return finishedAs(o) })
}

func (a *API) nack(ctx context.Context, req wire.NAcks) (wire.Results, error) {
	return a.nackAll(ctx, wire.Each(req.Jobs, wire.NAck.Store))
}

func (a *API) release(ctx context.Context, req wire.Releases) (wire.Results, error) {
	return a.nackAll(ctx, wire.Each(req.Jobs, func(l wire.Lease) store.NAck { return store.NAck{Lease: l.Store(), Form: store.Release} }))
}

func (a *API) nackAll(ctx context.Context, nacks []store.NAck) (wire.Results, error) {
	leases := wire.Each(nacks, func(n store.NAck) store.Lease { return n.Lease })
	outcomes, err := a.as(ctx).NAck(ctx, nacks)
	return a.finished("nack", leases, outcomes, err, func(i int, o store.Outcome) string {
		switch nacks[i].Form {
		case store.Snooze:
			return WasSnoozed
		case store.Release:
			return WasReleased
		default:
			return finishedAs(o)
		}
	})
}

// finished publishes and counts the outcomes, and returns the answer.
func (a *API) finished(
	op string, leases []store.Lease, outcomes []store.Outcome, err error, event func(int, store.Outcome) string,
) (wire.Results, error) {
	if err != nil {
		return wire.Results{}, err
	}
	await.Tell(a.store, outcomes)
	events := make([]Event, 0, len(outcomes))
	for i, o := range outcomes {
		if o.Status != store.StatusOK {
			continue
		}
		of, since, again := a.held.end(leases[i])
		ending := event(i, o)
		events = append(events, Event{Job: wire.ID(o.ID), Queue: of.queue, Event: ending})
		if !again {
			a.countFinished(of, ending, since)
		}
	}
	a.Publish(events...)
	a.countStale(op, leases, outcomes)
	return wire.ResultsOf(outcomes), nil
}

// finishedAs returns the event for a job that has succeeded or failed.
func finishedAs(o store.Outcome) string {
	switch {
	case o.State == store.Succeeded:
		return WasSucceeded
	case o.Next.IsZero():
		return WasDead
	default:
		return WasRetrying
	}
}

// extend also returns how long each lease still lasts, so that clocks need not agree. It subtracts the time that the store
// took, because the lease began during that time.
func (a *API) extend(ctx context.Context, req wire.Extend) (wire.Results, error) {
	leases := wire.Each(req.Jobs, wire.Lease.Store)
	begun, ttl := a.clock.Now(), time.Duration(req.Lease)
	outcomes, err := a.as(ctx).Extend(ctx, leases, ttl)
	if err != nil {
		return wire.Results{}, err
	}
	a.countStale("extend", leases, outcomes)
	remaining := a.remaining(begun, ttl)
	results := wire.ResultsOf(outcomes)
	for i, o := range outcomes {
		if o.Status == store.StatusOK {
			results.Results[i].LeaseExpiresAt, results.Results[i].LeaseRemaining = wire.Time{Time: o.Next}, remaining
		}
	}
	return results, nil
}

func (a *API) remaining(begun time.Time, ttl time.Duration) wire.Duration {
	return wire.Duration(max(0, ttl-a.clock.Since(begun)).Truncate(store.Resolution))
}

func (a *API) checkpoint(ctx context.Context, req wire.Checkpoints) (wire.Results, error) {
	saves := wire.Each(req.Jobs, wire.Checkpoint.Store)
	outcomes, err := a.as(ctx).Save(ctx, saves)
	if err != nil {
		return wire.Results{}, err
	}
	a.countStale("save", wire.Each(saves, func(s store.Save) store.Lease { return s.Lease }), outcomes)
	return wire.ResultsOf(outcomes), nil
}

func (a *API) recover(ctx context.Context, req wire.Recover) (wire.Recovered, error) {
	recovered, err := a.as(ctx).RecoverExpiredLeases(ctx, store.RecoverRequest{
		Limit: limitOr(req.Limit, 100), Grace: time.Duration(req.Grace),
	})
	if err != nil {
		return wire.Recovered{}, err
	}
	a.tellRecovered(recovered)
	return wire.Recovered{Recovered: wire.Listed(recovered)}, nil
}

func (a *API) settle(ctx context.Context, req wire.Settle) (wire.Settled, error) {
	settled, err := a.as(ctx).Settle(ctx, limitOr(req.Limit, 100))
	if err != nil {
		return wire.Settled{}, err
	}
	a.tellSettled(settled)
	return wire.Settled{Settled: wire.Listed(settled)}, nil
}

// tellSettled publishes and counts jobs that were cancelled, or wait for no others any longer.
func (a *API) tellSettled(settled []store.Settled) {
	a.Publish(SettledEvents(settled)...)
	await.TellSettled(a.store, settled)
	a.counter.Settled(settled)
	a.tally.Settled(settled)
}

// tellRecovered publishes and counts recovered leases.
func (a *API) tellRecovered(recovered []store.Recovered) {
	await.TellRecovered(a.store, recovered)
	a.Publish(RecoveredEvents(recovered)...)
	a.counter.Recovered(recovered)
	a.tally.Recovered(recovered)
}
