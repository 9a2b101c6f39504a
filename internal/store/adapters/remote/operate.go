package remote

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// Cancel is part of the contract.
func (s *Store) Cancel(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return s.bulk(ctx, filter.CheckBulk(limit), wire.Bulk{Action: wire.Cancel}, filter, limit)
}

// Requeue is part of the contract.
func (s *Store) Requeue(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return s.bulk(ctx, filter.CheckBulk(limit), wire.Bulk{Action: wire.Requeue}, filter, limit)
}

// Reschedule is part of the contract.
func (s *Store) Reschedule(ctx context.Context, filter store.Filter, at time.Time, limit int) ([]store.Outcome, error) {
	return s.bulk(ctx, filter.CheckReschedule(at, limit), wire.Bulk{Action: wire.Reschedule, RunAt: wire.Time{Time: store.Truncate(at)}}, filter, limit)
}

// Delete is part of the contract.
func (s *Store) Delete(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return s.bulk(ctx, filter.CheckBulk(limit), wire.Bulk{Action: wire.Delete}, filter, limit)
}

func (s *Store) bulk(ctx context.Context, invalid error, body wire.Bulk, filter store.Filter, limit int) ([]store.Outcome, error) {
	body.Filter, body.Limit = wire.FilterOf(filter), &limit
	valid, most := outcomesUpTo(limit), limit
	if len(filter.IDs) > 0 {
		valid, most = outcomesFor(filter.IDs), len(filter.IDs)
	}
	return s.outcomes(ctx, post(wire.PathBulk, invalid, body, mostOf(most)), valid)
}
