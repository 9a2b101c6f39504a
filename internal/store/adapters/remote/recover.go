package remote

import (
	"context"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// RecoverExpiredLeases is part of the contract.
func (s *Store) RecoverExpiredLeases(ctx context.Context, req store.RecoverRequest) ([]store.Recovered, error) {
	if err := s.admit(ctx, req.Check()); err != nil {
		return nil, err
	}
	c, err := post(wire.PathRecover, wire.Recover{Limit: &req.Limit, Grace: wire.Duration(req.Grace)}, mostOf(req.Limit))
	if err != nil {
		return nil, err
	}
	answer, err := ask(ctx, s, c, func(r wire.Recovered) error { return listed(r.Recovered, req.Limit, "recovered") })
	if err != nil {
		return nil, err
	}
	return answer.Recovered, nil
}
