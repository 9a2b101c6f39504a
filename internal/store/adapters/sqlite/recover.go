package sqlite

import (
	"context"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// RecoverExpiredLeases is part of the contract.
func (s *Store) RecoverExpiredLeases(ctx context.Context, req store.RecoverRequest) ([]store.Recovered, error) {
	return write(ctx, s, req.Check(), load{items: req.Limit}, func(t *txn) ([]store.Recovered, error) { return t.recover(req) })
}

func (t *txn) recover(req store.RecoverRequest) ([]store.Recovered, error) {
	expired, err := t.entries(`
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

// update writes what operations change of a job, and leaves its documents alone unless they are among that.
func (t *txn) update(e *sqlkit.Entry) error {
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
			result = ?20
		WHERE id = ?1`,
		e.ID, string(e.State), e.RunAt.UnixMicro(), sqlkit.Unix(e.RetryAt), e.Token, sqlkit.Unix(e.LeaseExpiresAt), e.Attempts, e.Retries,
		sqlkit.Unix(e.FinishedAt), string(e.FinishedBy), e.ClaimToken, sqlkit.Unix(e.ClaimedAt), sqlkit.Unix(e.EndedAt), string(e.Ending),
		e.CheckpointSeq, e.ProgressSeq, e.Error, sqlkit.Doc(e.Checkpoint), sqlkit.Doc(e.Progress), sqlkit.Doc(e.Result))
	return err
}
