package postgres

import (
	"context"
	"database/sql"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// repaired is how many jobs a statement looks at.
const repaired = 10_000

// writtenAt is the time of the latest known event of a waiting job.
const writtenAt = `
	CASE WHEN unleased_state = 'failed' OR ending IN ('snoozed', 'released') THEN ended_at ELSE enqueued_at END`

const waits = `(unleased_state = 'ready' OR unleased_state = 'failed' AND retry_at IS NOT NULL) AND lease_expires_at IS NULL`

// Repair is part of store.Repairer. It moves no job to before now, so every mark stays exact.
func (s *Store) Repair(ctx context.Context) (moved int, err error) {
	return sqlkit.Repair(func(after int64) (sqlkit.Repaired, error) {
		return call(ctx, s, nil, s.with.bulk, func(t *txn) (sqlkit.Repaired, error) { return t.repair(after) })
	})
}

func (t *txn) repair(after int64) (part sqlkit.Repaired, err error) {
	err = t.each(func(rows *sql.Rows) error {
		var id sql.NullInt64
		err := rows.Scan(&id, &part.Moved)
		part.Last, part.More = id.Int64, id.Valid
		return err
	}, `
		WITH part AS MATERIALIZED (
			SELECT id,`+writtenAt+` AS written, `+waits+` AS waits
			FROM {schema}.jobs
			WHERE id > $1
			ORDER BY id
			LIMIT $2
		),
		ahead AS MATERIALIZED (
			SELECT jobs.id, part.written
			FROM part
			CROSS JOIN LATERAL (
				SELECT id
				FROM {schema}.jobs
				WHERE id = ANY (ARRAY[part.id]) AND `+waits+` AND`+writtenAt+` = part.written
				FOR UPDATE
			) AS jobs
			WHERE part.waits AND part.written > $3
		),
		moved AS (
			UPDATE {schema}.jobs
			SET run_at = CASE WHEN unleased_state = 'ready' THEN run_at - (ahead.written - $4) ELSE run_at END,
				retry_at = retry_at - (ahead.written - $4),
				enqueued_at = CASE WHEN enqueued_at > $4 THEN $4 ELSE enqueued_at END,
				ended_at = CASE WHEN ended_at > $4 THEN $4 ELSE ended_at END
			FROM ahead
			WHERE jobs.id = ANY (ARRAY[ahead.id])
			RETURNING jobs.id
		)
		SELECT (SELECT max(id) FROM part), (SELECT count(*) FROM moved)`,
		after, repaired, t.now.Add(store.MaxSetBack), t.now)
	return part, err
}

// lookAtClock looks for jobs that Repair would move.
func (s *Store) lookAtClock(ctx context.Context, _ alarming) ([]store.Finding, error) {
	return call(ctx, s, nil, s.with.count, func(t *txn) (found []store.Finding, err error) {
		err = t.each(func(rows *sql.Rows) error {
			var jobs int
			var latest sql.NullTime
			if err := rows.Scan(&jobs, &latest); err != nil || jobs == 0 {
				return err
			}
			found = []store.Finding{store.WrittenAhead(jobs, latest.Time.Sub(t.now).Round(time.Microsecond))}
			return nil
		}, `
			SELECT count(*), max(`+writtenAt+`)
			FROM {schema}.jobs
			WHERE `+waits+` AND`+writtenAt+` > $1`,
			t.now.Add(store.MaxSetBack))
		return found, err
	})
}
