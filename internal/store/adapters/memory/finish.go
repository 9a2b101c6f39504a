package memory

import (
	"bytes"
	"context"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Ack finishes jobs whose work is done.
func (s *Store) Ack(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
	refusals := refusedResults(acks)
	now, err := s.enter(ctx, store.CheckAcks(acks))
	if err != nil {
		return nil, err
	}
	defer s.leave()
	outcomes := make([]store.Outcome, len(acks))
	for i, a := range acks {
		outcomes[i] = s.ack(a, refusals[i], now)
	}
	return outcomes, nil
}

// NAck ends leases without success.
func (s *Store) NAck(ctx context.Context, nacks []store.NAck) ([]store.Outcome, error) {
	failures := failuresOf(nacks)
	now, err := s.enter(ctx, store.CheckNAcks(nacks))
	if err != nil {
		return nil, err
	}
	defer s.leave()
	outcomes := make([]store.Outcome, len(nacks))
	for i, n := range nacks {
		outcomes[i] = s.nack(n, failures[i], now)
	}
	return outcomes, nil
}

// Extend is the heartbeat. It never answers busy, because it waits for an open transaction.
func (s *Store) Extend(ctx context.Context, leases []store.Lease, ttl time.Duration) ([]store.Outcome, error) {
	now, err := s.enter(ctx, store.CheckLease(store.CheckExtend(leases, ttl), ttl, s.maxLease))
	if err != nil {
		return nil, err
	}
	defer s.leave()
	outcomes := make([]store.Outcome, len(leases))
	for i, l := range leases {
		outcomes[i] = s.extend(l, ttl, now)
	}
	return outcomes, nil
}

// Save keeps checkpoints and progress.
func (s *Store) Save(ctx context.Context, saves []store.Save) ([]store.Outcome, error) {
	refusals := refusedSaves(saves)
	_, err := s.enter(ctx, store.CheckSaves(saves))
	if err != nil {
		return nil, err
	}
	defer s.leave()
	outcomes := make([]store.Outcome, len(saves))
	for i, save := range saves {
		outcomes[i] = s.save(save, refusals[i])
	}
	return outcomes, nil
}

func (s *Store) ack(a store.Ack, refused *store.Failure, now time.Time) store.Outcome {
	a.Result = bytes.Clone(a.Result)
	return s.under(a.Lease, func(r *store.Record) store.Outcome { return r.Ack(a, refused, now) })
}

func (s *Store) nack(n store.NAck, f store.Failure, now time.Time) store.Outcome {
	return s.under(n.Lease, func(r *store.Record) store.Outcome { return r.NAck(n, f, now) })
}

func (s *Store) extend(l store.Lease, ttl time.Duration, now time.Time) store.Outcome {
	return s.under(l, func(r *store.Record) store.Outcome { return r.Extend(l, ttl, now) })
}

func (s *Store) save(save store.Save, refused error) store.Outcome {
	save.Checkpoint, save.Progress = bytes.Clone(save.Checkpoint), bytes.Clone(save.Progress)
	return s.under(save.Lease, func(r *store.Record) store.Outcome { return r.Save(save, refused) })
}

// under applies an item to the record of its job. The item can change the job only if the lease is in force.
func (s *Store) under(l store.Lease, apply func(*store.Record) store.Outcome) store.Outcome {
	j, r := s.find(l.ID)
	held := r != nil && r.Holds(l)
	o := apply(r)
	if held && o.Status == store.StatusOK {
		s.change(j, r)
	}
	return o
}
