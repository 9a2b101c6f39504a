package remote

import (
	"context"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// Cancel is part of the contract.
func (s *Store) Cancel(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return s.bulk(ctx, wire.Cancel, filter, limit)
}

// Requeue is part of the contract.
func (s *Store) Requeue(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return s.bulk(ctx, wire.Requeue, filter, limit)
}

// Delete is part of the contract.
func (s *Store) Delete(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return s.bulk(ctx, wire.Delete, filter, limit)
}

func (s *Store) bulk(ctx context.Context, action wire.Action, filter store.Filter, limit int) ([]store.Outcome, error) {
	body := wire.Bulk{Action: action, Filter: wire.FilterOf(filter), Limit: &limit}
	valid, most := outcomesUpTo(limit), limit
	if len(filter.IDs) > 0 {
		valid, most = outcomesFor(filter.IDs), len(filter.IDs)
	}
	return s.outcomes(ctx, post(wire.PathBulk, filter.CheckBulk(limit), body, mostOf(most)), valid)
}
