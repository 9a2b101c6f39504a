package sqlite

import (
	"context"

	"github.com/seed-ed332417/jq/internal/store"
)

// RecoverExpiredLeases is part of the contract.
func (s *Store) RecoverExpiredLeases(ctx context.Context, req store.RecoverRequest) ([]store.Recovered, error) {
	defer s.tellHeld()
	var noted func()
	l := load{items: req.Limit}
	recovered, err := write(ctx, s, req.Check(), l, func(t *txn) (recovered []store.Recovered, err error) {
		if noted, err = t.bringBack(req.Limit, s); err != nil {
			return nil, err
		}
		return t.recover(req)
	})
	if err == nil {
		noted()
	}
	return recovered, err
}

func (t *txn) recover(req store.RecoverRequest) ([]store.Recovered, error) {
	expired, err := t.records(`
		SELECT`+columns+`,`+presentLinks+presentEpoch+`
		FROM jobs
		WHERE state = 'in_flight' AND lease_expires_at <= ?
		ORDER BY lease_expires_at, id
		LIMIT ?`,
		t.now.Add(-req.Grace.Truncate(store.Resolution)).UnixMicro(), req.Limit)
	if err != nil {
		return nil, err
	}
	recovered := make([]store.Recovered, len(expired))
	for i, e := range expired {
		recovered[i] = e.Recover(t.now)
		if err := t.updateEnd(e, true); err != nil {
			return nil, err
		}
		t.woken.AddFor(e.Job, t.now)
	}
	return recovered, nil
}

// bringBack restarts leases that a fast clock has given too far into the future: they run from now. The caller must call noted
// after the commit.
func (t *txn) bringBack(limit int, s *Store) (noted func(), err error) {
	looked, must := s.now.present.MustLook()
	if !must {
		return func() {}, nil
	}
	n, err := t.exec(`
		UPDATE jobs
		SET lease_expires_at = ?2 + min(coalesce(nullif(lease_for, 0), lease_expires_at - claimed_at), ?3)
		WHERE id IN (
			SELECT id
			FROM jobs INDEXED BY jobs_leased
			WHERE state = 'in_flight' AND lease_expires_at > ?1
				AND lease_expires_at - min(coalesce(nullif(lease_for, 0), lease_expires_at - claimed_at), ?3) > ?1
			ORDER BY lease_expires_at DESC, id DESC
			LIMIT ?4)`,
		t.now.Add(store.MaxSetBack).UnixMicro(), t.now.UnixMicro(), s.maxLease.Microseconds(), limit)
	return func() {
		if n < limit {
			s.now.present.Looked(looked)
		}
	}, err
}
