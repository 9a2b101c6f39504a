package kv

import (
	"context"

	"github.com/seed-ed332417/jq/contract"
)

// Examine returns what the engine finds, if it is a contract.Examiner, and otherwise nothing.
func (s *Store) Examine(ctx context.Context) ([]contract.Finding, error) {
	if err := s.enter(ctx, nil); err != nil {
		return nil, err
	}
	defer s.calls.Done()
	examiner, ok := s.engine.(contract.Examiner)
	if !ok {
		return nil, nil
	}
	found, err := examiner.Examine(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	return found, nil
}
