package sqlite

import (
	"context"
	"database/sql"
	"strings"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Ping is part of the contract. It has a connection of its own. A newer schema is fine if this program can work with it.
func (s *Store) Ping(ctx context.Context) error {
	found, err := readOn(ctx, s, s.probe, nil, func(t *txn) (store.Schema, error) { return t.schema(s.steps) })
	if err != nil {
		return err
	}
	return sqlkit.Served(found)
}

func (t *txn) schema(steps []sqlkit.Migration) (store.Schema, error) {
	version, err := t.number(versionQuery)
	if err != nil {
		return store.Schema{}, err
	}
	return sqlkit.SchemaOf(steps, version, func() (int, error) { return t.number(leastQuery) })
}

func (t *txn) number(query string) (n int, err error) {
	err = t.each(func(rows *sql.Rows) error { return rows.Scan(&n) }, query)
	return n, err
}

// OldestDue is part of the contract.
func (s *Store) OldestDue(ctx context.Context) (store.Due, error) {
	return read(ctx, s, nil, (*txn).oldestDue)
}

// headsOf returns a table expression with the id of the first job of each queue and priority, in claim order. It takes one
// index step from each to the next, however many jobs lie between. Comparing both columns at once would read all the remaining
// jobs of a queue.
func headsOf(name, index, waits, due string) string {
	return strings.NewReplacer(`{name}`, name, `{index}`, index, `{waits}`, waits, `{due}`, due).Replace(`
		{name}(id) AS (
			SELECT (
				SELECT id
				FROM jobs INDEXED BY {index}
				WHERE {waits}
				ORDER BY queue, priority, {due}
				LIMIT 1)
			UNION ALL
			SELECT coalesce((
				SELECT jobs.id
				FROM jobs INDEXED BY {index}
				WHERE {waits} AND jobs.queue = head.queue AND jobs.priority > head.priority
				ORDER BY jobs.priority, {due}
				LIMIT 1), (
				SELECT jobs.id
				FROM jobs INDEXED BY {index}
				WHERE {waits} AND jobs.queue > head.queue
				ORDER BY jobs.queue, jobs.priority, {due}
				LIMIT 1))
			FROM {name}
			JOIN jobs AS head ON head.id = {name}.id
		)`)
}

const unexpired = ` AND (jobs.expires_at IS NULL OR jobs.expires_at > ?1)`

var oldestDueQuery = `
	WITH RECURSIVE` + headsOf(`ready`, `jobs_ready`, `jobs.state = 'ready'`+unexpired, `jobs.run_at`) + `,` +
	headsOf(`retrying`, `jobs_retrying`, `jobs.state = 'failed' AND jobs.retry_at IS NOT NULL`+unexpired, `jobs.retry_at`) + `
	SELECT queue, min(due_at)
	FROM (
		SELECT queue, run_at AS due_at FROM ready JOIN jobs USING (id)
		UNION ALL
		SELECT queue, retry_at FROM retrying JOIN jobs USING (id)
	)
	WHERE due_at <= ?1
	GROUP BY queue
	ORDER BY queue`

func (t *txn) oldestDue() (store.Due, error) {
	return sqlkit.Due(t.each, t.now, oldestDueQuery, t.now.UnixMicro())
}
