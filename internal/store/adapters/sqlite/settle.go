package sqlite

import (
	"context"
	"math"

	"github.com/seed-ed332417/jq/internal/store"
)

// Settle is part of the contract.
func (s *Store) Settle(ctx context.Context, limit int) ([]store.Settled, error) {
	return write(ctx, s, store.CheckSettle(limit), load{items: limit}, func(t *txn) ([]store.Settled, error) { return t.settle(limit) })
}

func (t *txn) settle(limit int) ([]store.Settled, error) {
	expired, err := t.records(`
		SELECT`+columns+`,`+presentLinks+presentEpoch+`
		FROM jobs
		WHERE expires_at <= ? AND finished_at IS NULL AND state <> 'in_flight'
		ORDER BY expires_at, id
		LIMIT ?`,
		t.now.UnixMicro(), limit)
	if err != nil {
		return nil, err
	}
	settled := make([]store.Settled, len(expired))
	for i, e := range expired {
		if _, err := t.cancel(e); err != nil {
			return nil, err
		}
		settled[i] = store.SettledOf(&e.Job)
	}
	changed, err := t.hear(limit-len(settled), math.MaxInt)
	for _, e := range changed {
		settled = append(settled, store.SettledOf(&e.Job))
	}
	t.heard = false // what is left is for the next call
	return settled, err
}
