package sqlite

import (
	"context"
	"database/sql"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Ping is part of the contract. It has a connection of its own. A schema that a newer program has made is fine: this one goes on with
// it.
func (s *Store) Ping(ctx context.Context) error {
	steps, err := folder()
	if err != nil {
		return err
	}
	found, err := readOn(ctx, s, s.probe, nil, (*txn).version)
	if err != nil {
		return err
	}
	return sqlkit.Served(store.Schema{Version: found, Newest: len(steps)})
}

func (t *txn) version() (version int, err error) {
	err = t.each(func(rows *sql.Rows) error { return rows.Scan(&version) }, schemaVersion)
	return version, err
}

// OldestDue is part of the contract.
func (s *Store) OldestDue(ctx context.Context) (store.Due, error) {
	return read(ctx, s, nil, (*txn).oldestDue)
}

// The first job of each queue and priority, in the order in which claims take them. Each is found by one step through the index from
// the one before it, however many jobs lie between: a comparison of both columns at once would read all that are left of a queue.
const (
	readyHeads = `
		ready(id) AS (
			SELECT (
				SELECT id
				FROM jobs INDEXED BY jobs_ready
				WHERE state = 'ready'
				ORDER BY queue, priority, run_at
				LIMIT 1)
			UNION ALL
			SELECT coalesce((
				SELECT next.id
				FROM jobs AS next INDEXED BY jobs_ready
				WHERE next.state = 'ready' AND next.queue = head.queue AND next.priority > head.priority
				ORDER BY next.priority, next.run_at
				LIMIT 1), (
				SELECT next.id
				FROM jobs AS next INDEXED BY jobs_ready
				WHERE next.state = 'ready' AND next.queue > head.queue
				ORDER BY next.queue, next.priority, next.run_at
				LIMIT 1))
			FROM ready
			JOIN jobs AS head ON head.id = ready.id
		)`

	retryingHeads = `
		retrying(id) AS (
			SELECT (
				SELECT id
				FROM jobs INDEXED BY jobs_retrying
				WHERE state = 'failed' AND retry_at IS NOT NULL
				ORDER BY queue, priority, retry_at
				LIMIT 1)
			UNION ALL
			SELECT coalesce((
				SELECT next.id
				FROM jobs AS next INDEXED BY jobs_retrying
				WHERE next.state = 'failed' AND next.retry_at IS NOT NULL AND next.queue = head.queue AND next.priority > head.priority
				ORDER BY next.priority, next.retry_at
				LIMIT 1), (
				SELECT next.id
				FROM jobs AS next INDEXED BY jobs_retrying
				WHERE next.state = 'failed' AND next.retry_at IS NOT NULL AND next.queue > head.queue
				ORDER BY next.queue, next.priority, next.retry_at
				LIMIT 1))
			FROM retrying
			JOIN jobs AS head ON head.id = retrying.id
		)`
)

func (t *txn) oldestDue() (store.Due, error) {
	return sqlkit.Due(t.each, t.now, `
		WITH RECURSIVE`+readyHeads+`,`+retryingHeads+`
		SELECT queue, min(due_at)
		FROM (
			SELECT queue, run_at AS due_at FROM ready JOIN jobs USING (id)
			UNION ALL
			SELECT queue, retry_at FROM retrying JOIN jobs USING (id)
		)
		WHERE due_at <= ?
		GROUP BY queue
		ORDER BY queue`,
		t.now.UnixMicro())
}
