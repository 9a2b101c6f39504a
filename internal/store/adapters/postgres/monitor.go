package postgres

import (
	"context"
	"database/sql"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Ping is part of the contract. It waits for no other call but heartbeats, and reads nothing that others lock for long. A newer
// schema is fine if this program can work with it.
func (s *Store) Ping(ctx context.Context) error {
	found, err := call(ctx, s, nil, s.with.probe, (*txn).schema)
	if err != nil {
		return err
	}
	return sqlkit.Served(found)
}

func (t *txn) schema() (store.Schema, error) {
	version, err := t.number(versionQuery)
	if err != nil {
		return store.Schema{}, err
	}
	return sqlkit.SchemaOf(t.s.steps, version, func() (int, error) { return t.number(leastQuery) })
}

func (t *txn) number(query string) (n int, err error) {
	err = t.each(func(rows *sql.Rows) error { return rows.Scan(&n) }, query)
	return n, err
}

// OldestDue is part of the contract.
func (s *Store) OldestDue(ctx context.Context) (store.Due, error) {
	return read(ctx, s, nil, (*txn).oldestDue)
}

// oldestDue reads the first job of each queue and priority, in claim order. It takes one index step from each to the next,
// however many jobs wait between, and passes jobs in flight that came before the first.
func (t *txn) oldestDue() (store.Due, error) { return sqlkit.Due(t.each, t.now, oldestDueQuery, t.now) }

var oldestDueQuery = `
	SELECT queue, min(due_at)
	FROM (
		SELECT * FROM (` + lanes[cursor.Fresh].sql(headsQuery) + `) AS ready
		UNION ALL
		SELECT * FROM (` + lanes[cursor.Retries].sql(headsQuery) + `) AS retrying
	) AS heads
	WHERE due_at <= $1
	GROUP BY queue
	ORDER BY queue`

const headsQuery = `
	WITH RECURSIVE heads AS (
		(SELECT queue, priority, {due} AS due_at
		FROM {schema}.jobs
		WHERE {waits} AND (expires_at IS NULL OR expires_at > $1)
		ORDER BY queue, priority, {due}
		LIMIT 1)
		UNION ALL
		SELECT next.*
		FROM heads
		CROSS JOIN LATERAL (
			SELECT queue, priority, {due}
			FROM {schema}.jobs
			WHERE {waits} AND (expires_at IS NULL OR expires_at > $1) AND (queue, priority) > (heads.queue, heads.priority)
			ORDER BY queue, priority, {due}
			LIMIT 1) AS next
	)
	SELECT queue, due_at FROM heads`
