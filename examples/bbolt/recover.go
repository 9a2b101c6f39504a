package bbolt

import (
	"context"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
)

// RecoverExpiredLeases ends leases that have expired, the oldest first.
func (s *Store) RecoverExpiredLeases(ctx context.Context, req jq.RecoverRequest) ([]jq.Recovered, error) {
	return write(ctx, s, req.Check(), func(t *txn) []jq.Recovered {
		var recovered []jq.Recovered
		for _, key := range t.upTo(leases, nil, t.now.Add(-req.Grace.Truncate(contract.Resolution)), req.Limit) {
			recovered = append(recovered, t.recover(t.indexed(key)))
		}
		return recovered
	})
}

func (t *txn) recover(j *job) jq.Recovered {
	t.raise(j)
	t.failedWith(j, contract.LeaseExpired(), contract.EndExpired)
	t.settle(j)
	return jq.Recovered{
		ID: j.ID, Queue: j.Queue, Kind: j.Kind, Worker: j.Worker, State: j.State, Token: j.Token, Next: j.Next(),
	}
}
