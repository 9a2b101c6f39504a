package kv

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq/contract"
)

// Ack marks jobs as succeeded.
func (s *Store) Ack(ctx context.Context, acks []contract.Ack) ([]contract.Outcome, error) {
	leases := leasesOf(acks, func(a contract.Ack) contract.Lease { return a.Lease })
	return call(ctx, s, contract.CheckAcks(acks), rowsOf(leases), func(t *txn) []contract.Outcome {
		return each(acks, func(a contract.Ack) contract.Outcome {
			return t.under(a.Lease, func(r *contract.Record) contract.Outcome { return r.Ack(a, a.Refused(), t.now) })
		})
	})
}

// NAck ends leases without success.
func (s *Store) NAck(ctx context.Context, nacks []contract.NAck) ([]contract.Outcome, error) {
	leases := leasesOf(nacks, func(n contract.NAck) contract.Lease { return n.Lease })
	return call(ctx, s, contract.CheckNAcks(nacks), rowsOf(leases), func(t *txn) []contract.Outcome {
		return each(nacks, func(n contract.NAck) contract.Outcome {
			return t.under(n.Lease, func(r *contract.Record) contract.Outcome { return r.NAck(n, n.Failure(), t.now) })
		})
	})
}

// Extend is the heartbeat. It never answers busy, because no caller's transaction can lock a job here.
func (s *Store) Extend(ctx context.Context, held []contract.Lease, ttl time.Duration) ([]contract.Outcome, error) {
	refused := contract.CheckLease(contract.CheckExtend(held, ttl), ttl, s.maxLease)
	return call(ctx, s, refused, rowsOf(held), func(t *txn) []contract.Outcome {
		return each(held, func(l contract.Lease) contract.Outcome {
			return t.under(l, func(r *contract.Record) contract.Outcome { return r.Extend(l, ttl, t.now) })
		})
	})
}

// Save stores checkpoints and progress.
func (s *Store) Save(ctx context.Context, saves []contract.Save) ([]contract.Outcome, error) {
	leases := leasesOf(saves, func(s contract.Save) contract.Lease { return s.Lease })
	return call(ctx, s, contract.CheckSaves(saves), rowsOf(leases), func(t *txn) []contract.Outcome {
		return each(saves, func(s contract.Save) contract.Outcome {
			return t.under(s.Lease, func(r *contract.Record) contract.Outcome { return r.Save(s, s.Check()) })
		})
	})
}

func leasesOf[T any](items []T, lease func(T) contract.Lease) (leases []contract.Lease) {
	for _, item := range items {
		leases = append(leases, lease(item))
	}
	return leases
}

// rowsOf asks for the rows of the leases.
func rowsOf(leases []contract.Lease) (first ask) {
	for _, l := range leases {
		first.keys = append(first.keys, key(rows, number(l.ID)))
	}
	return first
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
