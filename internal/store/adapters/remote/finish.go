package remote

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// Ack is part of the contract. If a result is refused, only the reason is sent, not the result.
func (s *Store) Ack(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
	if err := s.admit(ctx, store.CheckAcks(acks)); err != nil || len(acks) == 0 {
		return nil, err
	}
	body, ids := wire.Acks{Jobs: make([]wire.Ack, len(acks))}, make([]int64, len(acks))
	for i, a := range acks {
		body.Jobs[i], ids[i] = wire.AckOf(a), a.ID
		dropTwin(&body.Jobs[i].Result, body.Jobs[i].ResultText)
	}
	return s.outcomesOf(ctx, wire.PathAck, body, ids)
}

// NAck is part of the contract. Items that break a limit are answered here and not sent.
func (s *Store) NAck(ctx context.Context, nacks []store.NAck) ([]store.Outcome, error) {
	if err := s.admit(ctx, store.CheckNAcks(nacks)); err != nil {
		return nil, err
	}
	return sifted(nacks, store.NAck.Check, func(n store.NAck) int64 { return n.ID }, func(fit []store.NAck) ([]store.Outcome, error) {
		c, ids := nackCall(fit)
		return s.outcomes(ctx, c, outcomesFor(ids))
	})
}

func nackCall(nacks []store.NAck) (call, []int64) {
	body, ids := wire.NAcks{Jobs: make([]wire.NAck, len(nacks))}, make([]int64, len(nacks))
	for i, n := range nacks {
		body.Jobs[i], ids[i] = wire.NAckOf(n), n.ID
	}
	return post(wire.PathNAck, nil, body, mostOf(len(ids))), ids
}

// Extend is part of the contract.
func (s *Store) Extend(ctx context.Context, leases []store.Lease, ttl time.Duration) ([]store.Outcome, error) {
	if err := s.admit(ctx, store.CheckExtend(leases, ttl)); err != nil || len(leases) == 0 {
		return nil, err
	}
	body, ids := wire.Extend{Jobs: make([]wire.Lease, len(leases)), Lease: wire.Duration(ttl)}, make([]int64, len(leases))
	for i, l := range leases {
		body.Jobs[i], ids[i] = wire.LeaseOf(l), l.ID
	}
	return s.outcomesOf(ctx, wire.PathExtend, body, ids)
}

// Save is part of the contract. Items that break a limit are answered here and not sent.
func (s *Store) Save(ctx context.Context, saves []store.Save) ([]store.Outcome, error) {
	if err := s.admit(ctx, store.CheckSaves(saves)); err != nil {
		return nil, err
	}
	return sifted(saves, store.Save.Check, func(s store.Save) int64 { return s.ID }, func(fit []store.Save) ([]store.Outcome, error) {
		body, ids := wire.Checkpoints{Jobs: make([]wire.Checkpoint, len(fit))}, make([]int64, len(fit))
		for i, save := range fit {
			body.Jobs[i], ids[i] = wire.CheckpointOf(save), save.ID
			dropTwin(&body.Jobs[i].Checkpoint, body.Jobs[i].CheckpointText)
			dropTwin(&body.Jobs[i].Progress, body.Jobs[i].ProgressText)
		}
		return s.outcomesOf(ctx, wire.PathCheckpoint, body, ids)
	})
}

// sifted answers the items that break a limit, and sends the others.
func sifted[T any](items []T, check func(T) error, id func(T) int64, send func(fit []T) ([]store.Outcome, error)) ([]store.Outcome, error) {
	outcomes := make([]store.Outcome, len(items))
	var fit []T
	var places []int
	for i, item := range items {
		if err := check(item); err != nil {
			outcomes[i] = store.Outcome{ID: id(item), Status: store.StatusInvalid, Reason: err.Error()}
			continue
		}
		fit, places = append(fit, item), append(places, i)
	}
	if len(fit) == 0 {
		return outcomes, nil
	}
	answered, err := send(fit)
	if err != nil {
		return nil, err
	}
	for i, o := range answered {
		outcomes[places[i]] = o
	}
	return outcomes, nil
}

// outcomesOf makes a call whose answer has one outcome per job.
func (s *Store) outcomesOf(ctx context.Context, path string, body any, ids []int64) ([]store.Outcome, error) {
	return s.outcomes(ctx, post(path, nil, body, mostOf(len(ids))), outcomesFor(ids))
}

func (s *Store) outcomes(ctx context.Context, c call, valid func(wire.Results) error) ([]store.Outcome, error) {
	answer, err := ask(ctx, s, c, valid)
	if err != nil {
		return nil, err
	}
	return answer.Store(), nil
}

func mostOf(outcomes int) int64 { return mostWords + int64(outcomes)*mostOutcome }
