package kv

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq/contract"
)

// Ack marks jobs as succeeded.
func (s *Store) Ack(ctx context.Context, acks []contract.Ack) ([]contract.Outcome, error) {
	return finish(ctx, s, &s.finishes, contract.CheckAcks(acks), acks,
		func(a contract.Ack) (contract.Lease, int) { return a.Lease, len(a.Result) },
		func(t *txn, r *contract.Record, a contract.Ack) contract.Outcome { return r.Ack(a, a.Refused(), t.now) })
}

// NAck ends leases without success.
func (s *Store) NAck(ctx context.Context, nacks []contract.NAck) ([]contract.Outcome, error) {
	return finish(ctx, s, &s.finishes, contract.CheckNAcks(nacks), nacks,
		func(n contract.NAck) (contract.Lease, int) { return n.Lease, len(n.Error) },
		func(t *txn, r *contract.Record, n contract.NAck) contract.Outcome {
			return r.NAck(n, n.Failure(), t.now)
		})
}

// Extend is the heartbeat. It never answers busy, because no caller's transaction can lock a job here.
func (s *Store) Extend(ctx context.Context, held []contract.Lease, ttl time.Duration) ([]contract.Outcome, error) {
	return finish(ctx, s, &s.keeps, contract.CheckLease(contract.CheckExtend(held, ttl), ttl, s.maxLease), held,
		func(l contract.Lease) (contract.Lease, int) { return l, 0 },
		func(t *txn, r *contract.Record, l contract.Lease) contract.Outcome { return r.Extend(l, ttl, t.now) })
}

// Save stores checkpoints and progress.
func (s *Store) Save(ctx context.Context, saves []contract.Save) ([]contract.Outcome, error) {
	return finish(ctx, s, &s.keeps, contract.CheckSaves(saves), saves,
		func(s contract.Save) (contract.Lease, int) { return s.Lease, len(s.Checkpoint) + len(s.Progress) },
		func(_ *txn, r *contract.Record, s contract.Save) contract.Outcome { return r.Save(s, s.Check()) })
}

// finish applies each item under its lease. The function of returns that, and the bytes of the item's documents.
func finish[T any](ctx context.Context, s *Store, c *combiner, refused error, items []T, of func(T) (contract.Lease, int),
	apply func(*txn, *contract.Record, T) contract.Outcome,
) ([]contract.Outcome, error) {
	weight, first := 0, ask{}
	for _, item := range items {
		l, documents := of(item)
		weight += itemWeight + documents
		first.keys = append(first.keys, key(rows, number(l.ID)))
	}
	return together(ctx, s, c, refused, weight, first, func(t *txn) []contract.Outcome {
		return each(items, func(item T) contract.Outcome {
			l, _ := of(item)
			return t.under(l, func(r *contract.Record) contract.Outcome { return apply(t, r, item) })
		})
	})
}

func each[T any](items []T, do func(T) contract.Outcome) []contract.Outcome {
	outcomes := make([]contract.Outcome, len(items))
	for i, item := range items {
		outcomes[i] = do(item)
	}
	return outcomes
}

// under applies an item to the record of its job. It changes the job only if the lease is in force.
func (t *txn) under(l contract.Lease, apply func(*contract.Record) contract.Outcome) contract.Outcome {
	j := t.job(l.ID)
	if j == nil {
		return apply(nil)
	}
	held := j.Holds(l)
	o := apply(&j.Record)
	if held && o.Status == contract.StatusOK {
		t.saveEnded(j)
	}
	return o
}
