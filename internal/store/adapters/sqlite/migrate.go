package sqlite

import (
	"context"
	"embed"

	"github.com/jmoiron/sqlx"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

//go:embed migrations
var migrations embed.FS

func folder() ([]sqlkit.Migration, error) { return sqlkit.Migrations(migrations) }

const (
	versionQuery = `
		SELECT coalesce(max(version), 0)
		FROM migrations`
	leastQuery = `
		SELECT coalesce(max(coalesce(least, version)), 0)
		FROM migrations`
)

// foundIn reads the schema of a store.
func foundIn(ctx context.Context, db *sqlx.DB, steps []sqlkit.Migration) (store.Schema, error) {
	version, err := sqlkit.Number(ctx, db, versionQuery)
	if err != nil {
		return store.Schema{}, err
	}
	return sqlkit.SchemaOf(steps, version, func() (int, error) { return sqlkit.Number(ctx, db, leastQuery) })
}

func (s *Store) migrator(o Options) sqlkit.Migrator {
	m := sqlkit.Migrator{
		Steps:   s.steps,
		Begin:   s.beginMigration,
		Version: versionQuery,
		Least:   leastQuery,
		HasLeast: `
			SELECT count(*)
			FROM pragma_table_info('migrations')
			WHERE name = 'least'`,
		AddLeast: `ALTER TABLE migrations ADD COLUMN least INTEGER`,
		Record: `
			INSERT INTO migrations (version, name, least)
			VALUES (?, ?, ?)`,
		Before: o.Migrating,
	}
	if !o.MigrateForce {
		m.Busy = s.busy
	}
	return m
}

// busy returns who may still use the schema. All versions have had what it reads.
func (s *Store) busy(ctx context.Context, tx *sqlx.Tx, _ int) (busy []sqlkit.Busy, err error) {
	err = tx.SelectContext(ctx, &busy, `
		SELECT name, max(host) AS host, max(pid) AS pid, sum(jobs) AS jobs
		FROM (
			SELECT name, host, pid, 0 AS jobs
			FROM workers
			WHERE beat_at + stale_after > ?1
			UNION ALL
			SELECT worker, '', 0, count(*)
			FROM jobs
			WHERE state = 'in_flight' AND lease_expires_at > ?1
			GROUP BY worker
		)
		GROUP BY name
		ORDER BY name`,
		s.now.get().UnixMicro())
	return busy, err
}

// beginMigration starts a transaction that excludes other writers.
func (s *Store) beginMigration(ctx context.Context) (*sqlx.Tx, error) {
	tx, err := s.callers.BeginTxx(ctx, nil)
	if err != nil {
		return nil, err
	}
	const table = `
		CREATE TABLE IF NOT EXISTS migrations (
			version INTEGER PRIMARY KEY,
			name TEXT NOT NULL,
			least INTEGER
		) STRICT`
	if _, err := tx.ExecContext(ctx, table); err != nil {
		_ = tx.Rollback()
		return nil, err
	}
	return tx, nil
}
