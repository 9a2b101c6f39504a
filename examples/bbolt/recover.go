package bbolt

import (
	"context"

	"github.com/seed-ed332417/jq/contract"
)

// RecoverExpiredLeases ends leases that have expired, the oldest first.
func (s *Store) RecoverExpiredLeases(ctx context.Context, req contract.RecoverRequest) ([]contract.Recovered, error) {
	return write(ctx, s, req.Check(), func(t *txn) []contract.Recovered {
		s.bringBack(t, req.Limit)
		var recovered []contract.Recovered
		for _, key := range t.upTo(leases, nil, t.now.Add(-req.Grace.Truncate(contract.Resolution)), req.Limit) {
			recovered = append(recovered, t.recover(t.indexed(key)))
		}
		return recovered
	})
}

// Settle cancels jobs that have expired, the earliest ExpiresAt first.
func (s *Store) Settle(ctx context.Context, limit int) ([]contract.Settled, error) {
	return write(ctx, s, contract.CheckSettle(limit), func(t *txn) []contract.Settled {
		var settled []contract.Settled
		for _, key := range t.upTo(expiries, nil, t.now, limit) {
			j := t.indexed(key)
			t.cancel(j)
			settled = append(settled, contract.SettledOf(&j.Job))
		}
		return settled
	})
}

// bringBack restarts, from now, the leases that a clock gave while it was ahead.
func (s *Store) bringBack(t *txn, limit int) {
	mark, must := s.present.MustLook()
	if !must {
		return
	}
	var ahead []*job // collected before any is changed, because a change invalidates the cursor
	c := t.in(leases).Cursor()
	for key, _ := c.Last(); key != nil && len(ahead) < limit; key, _ = c.Prev() {
		j := t.indexed(key)
		if _, is := contract.LeaseAhead(j.LeaseExpiresAt, j.LeaseFor, s.maxLease, t.now); is {
			ahead = append(ahead, j)
		}
	}
	for _, j := range ahead {
		j.Lend(min(j.LeaseFor, s.maxLease), t.now)
		t.save(j)
	}
	if len(ahead) < limit {
		s.present.Looked(mark)
	}
}

func (t *txn) recover(j *job) contract.Recovered {
	recovered := j.Recover(t.now)
	t.saveEnded(j)
	return recovered
}
