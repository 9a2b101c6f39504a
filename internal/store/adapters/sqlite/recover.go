package sqlite

import (
	"context"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// RecoverExpiredLeases is part of the contract.
func (s *Store) RecoverExpiredLeases(ctx context.Context, req store.RecoverRequest) ([]store.Recovered, error) {
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
		SELECT`+columns+`,`+presentEpoch+`
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
		if err := t.update(e); err != nil {
			return nil, err
		}
		t.wakeFor(e.Job)
	}
	return recovered, nil
}

// bringBack lets leases that a clock has given which was ahead run from now. Noted is to be called once that is
// committed.
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
		t.now.Add(store.MaxSetBack).UnixMicro(), t.now.UnixMicro(), int64(sqlkit.MicrosOf(s.maxLease)), limit)
	return func() {
		if n < limit {
			s.now.present.Looked(looked)
		}
	}, err
}

// update writes what operations change of a job, and leaves its documents alone unless they are among that.
func (t *txn) update(e *store.Record) error {
	_, err := t.exec(`
		UPDATE jobs
		SET state = ?2,
			run_at = ?3,
			retry_at = ?4,
			token = ?5,
			lease_expires_at = ?6,
			attempts = ?7,
			retries = ?8,
			finished_at = ?9,
			finished_by = ?10,
			claim_token = ?11,
			claimed_at = ?12,
			ended_at = ?13,
			ending = ?14,
			checkpoint_seq = ?15,
			progress_seq = ?16,
			error = ?17,
			checkpoint = ?18,
			progress = ?19,
			result = ?20,
			lease_for = ?21
		WHERE id = ?1`,
		e.ID, string(e.State), e.RunAt.UnixMicro(), sqlkit.Unix(e.RetryAt), e.Token, sqlkit.Unix(e.LeaseExpiresAt), e.Attempts, e.Retries,
		sqlkit.Unix(e.FinishedAt), string(e.FinishedBy), e.ClaimToken, sqlkit.Unix(e.ClaimedAt), sqlkit.Unix(e.EndedAt), string(e.Ending),
		e.CheckpointSeq, e.ProgressSeq, e.Error, sqlkit.Doc(e.Checkpoint), sqlkit.Doc(e.Progress), sqlkit.Doc(e.Result),
		int64(sqlkit.MicrosOf(e.LeaseFor)))
	return err
}
