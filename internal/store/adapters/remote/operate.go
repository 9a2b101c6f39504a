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
	if err := s.admit(ctx, filter.CheckBulk(limit)); err != nil {
		return nil, err
	}
	body := wire.Bulk{Action: action, Filter: wire.FilterOf(filter), Limit: &limit}
	valid, most := outcomesUpTo(limit), limit
	if len(filter.IDs) > 0 {
		valid, most = outcomesFor(filter.IDs), len(filter.IDs)
	}
	c, err := post(wire.PathBulk, body, mostOf(most))
	if err != nil {
		return nil, err
	}
	answer, err := ask(ctx, s, c, valid)
	if err != nil {
		return nil, err
	}
	return answer.Store(), nil
}
