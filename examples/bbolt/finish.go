package bbolt

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq/contract"
)

// Ack marks jobs as succeeded.
func (s *Store) Ack(ctx context.Context, acks []contract.Ack) ([]contract.Outcome, error) {
	return write(ctx, s, contract.CheckAcks(acks), func(t *txn) []contract.Outcome { return each(acks, t.ack) })
}

// NAck ends leases without success.
func (s *Store) NAck(ctx context.Context, nacks []contract.NAck) ([]contract.Outcome, error) {
	return write(ctx, s, contract.CheckNAcks(nacks), func(t *txn) []contract.Outcome { return each(nacks, t.nack) })
}

// Extend is the heartbeat. It never answers busy, because no caller's transaction can lock a job here.
func (s *Store) Extend(ctx context.Context, held []contract.Lease, ttl time.Duration) ([]contract.Outcome, error) {
	return write(ctx, s, contract.CheckLease(contract.CheckExtend(held, ttl), ttl, s.maxLease), func(t *txn) []contract.Outcome {
		return each(held, func(l contract.Lease) contract.Outcome { return t.extend(l, ttl) })
	})
}

// Save stores checkpoints and progress.
func (s *Store) Save(ctx context.Context, saves []contract.Save) ([]contract.Outcome, error) {
	return write(ctx, s, contract.CheckSaves(saves), func(t *txn) []contract.Outcome { return each(saves, t.keep) })
}

func each[T any](items []T, do func(T) contract.Outcome) []contract.Outcome {
	outcomes := make([]contract.Outcome, len(items))
	for i, item := range items {
		outcomes[i] = do(item)
	}
	return outcomes
}

func (t *txn) ack(a contract.Ack) contract.Outcome {
	return t.under(a.Lease, func(r *contract.Record) contract.Outcome { return r.Ack(a, a.Refused(), t.now) })
}

func (t *txn) nack(n contract.NAck) contract.Outcome {
	return t.under(n.Lease, func(r *contract.Record) contract.Outcome { return r.NAck(n, n.Failure(), t.now) })
}

func (t *txn) extend(l contract.Lease, ttl time.Duration) contract.Outcome {
	return t.under(l, func(r *contract.Record) contract.Outcome { return r.Extend(l, ttl, t.now) })
}

func (t *txn) keep(s contract.Save) contract.Outcome {
	return t.under(s.Lease, func(r *contract.Record) contract.Outcome { return r.Save(s, s.Check()) })
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
