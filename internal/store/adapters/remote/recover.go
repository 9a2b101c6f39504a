package remote

import (
	"context"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// RecoverExpiredLeases is part of the contract.
func (s *Store) RecoverExpiredLeases(ctx context.Context, req store.RecoverRequest) ([]store.Recovered, error) {
	c := post(wire.PathRecover, req.Check(), wire.Recover{Limit: &req.Limit, Grace: wire.Duration(req.Grace)}, mostOf(req.Limit))
	answer, err := ask(ctx, s, c, func(r wire.Recovered) error { return listed(r.Recovered, req.Limit, "recovered") })
	return answer.Recovered, err
}

// Settle is part of the contract.
func (s *Store) Settle(ctx context.Context, limit int) ([]store.Settled, error) {
	c := post(wire.PathSettle, store.CheckSettle(limit), wire.Settle{Limit: &limit}, mostOf(limit))
	answer, err := ask(ctx, s, c, func(r wire.Settled) error { return listed(r.Settled, limit, "settled") })
	return answer.Settled, err
}
