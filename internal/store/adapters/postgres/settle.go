package postgres

import (
	"context"
	"database/sql"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Settle is part of the contract. If nothing has expired, the look in the opening shows that, and the call is done.
func (s *Store) Settle(ctx context.Context, limit int) ([]store.Settled, error) {
	return lookFirst(ctx, s, store.CheckSettle(limit), &settling{limit: limit})
}

// A settling is one running Settle.
type settling struct {
	limit int
	first time.Time // the earliest time at which a job expires, or zero
	late  bool      // something has expired, but the transaction was already committed
}

// look is part of looker.
func (l *settling) look() (first pipelinedCall, expectsNothing bool) {
	*l = settling{limit: l.limit}
	return l.firstExpiry(), true
}

// missed is part of looker.
func (l *settling) missed() bool { return l.late }

// run is part of looker.
func (l *settling) run(t *txn) ([]store.Settled, error) {
	if err := t.first(l.firstExpiry()); err != nil {
		return nil, err
	}
	some := !l.first.IsZero() && !l.first.After(t.now)
	if l.late = some && t.over(); l.late || !some {
		return nil, nil
	}
	return t.settle(l.limit)
}

func (l *settling) firstExpiry() pipelinedCall {
	return pipelinedCall{func(rows *sql.Rows) error { return rows.Scan((*sqlkit.Time)(&l.first)) }, `
		SELECT expires_at
		FROM {schema}.jobs
		WHERE ` + waitsToExpire + `
		ORDER BY expires_at, id
		LIMIT 1`, nil}
}

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
