package postgres

import (
	"context"

	"github.com/seed-ed332417/jq/internal/store"
)

// Settle is part of the contract.
func (s *Store) Settle(ctx context.Context, limit int) ([]store.Settled, error) {
	invalid := store.CheckSettle(limit)
	if invalid == nil {
		if _, none, err := s.none(ctx, noneExpired); none || err != nil {
			return nil, err
		}
	}
	return write(ctx, s, invalid, func(t *txn) ([]store.Settled, error) { return t.settle(limit) })
}

var noneExpired = noneOf(`jobs WHERE ` + waitsToExpire + ` AND expires_at <= ` + statementNow)

const waitsToExpire = `expires_at IS NOT NULL AND finished_at IS NULL AND lease_expires_at IS NULL`

func (t *txn) settle(limit int) ([]store.Settled, error) {
	expired, err := t.records(`
		SELECT`+columns+`,`+presentEpoch+`
		FROM {schema}.jobs
		WHERE `+waitsToExpire+` AND expires_at <= $1
		ORDER BY expires_at, id
		LIMIT $2
		FOR UPDATE SKIP LOCKED`,
		t.now, limit)
	if err != nil {
		return nil, err
	}
	var c cancelling
	settled := make([]store.Settled, len(expired))
	for i, e := range expired {
		c.apply(t, e)
		settled[i] = store.SettledOf(&e.Job)
	}
	return settled, c.end(t)
}
