package postgres

import (
	"context"
	"database/sql"
	"embed"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

//go:embed migrations
var migrations embed.FS

func folder() ([]sqlkit.Migration, error) { return sqlkit.Migrations(migrations) }

const (
	versionQuery = `
		SELECT coalesce(max(version), 0)
		FROM {schema}.migrations`
	leastQuery = `
		SELECT coalesce(max(coalesce(least, version)), 0)
		FROM {schema}.migrations`
)

func (s *Store) migrator() sqlkit.Migrator {
	m := sqlkit.Migrator{
		Steps:   slices.Clone(s.steps),
		Begin:   s.beginMigration,
		Version: s.sql(versionQuery),
		Least:   s.sql(leastQuery),
		HasLeast: `
			SELECT count(*)
			FROM pg_attribute
			WHERE attrelid = ` + pq.QuoteLiteral(s.schema+".migrations") + `::regclass AND attname = 'least'`,
		AddLeast: s.sql(`ALTER TABLE {schema}.migrations ADD COLUMN least integer`),
		Record: s.sql(`
			INSERT INTO {schema}.migrations (version, name, least)
			VALUES ($1, $2, $3)`),
		Before: s.options.Migrating,
	}
	for i := range m.Steps {
		m.Steps[i].SQL = s.sql(m.Steps[i].SQL)
	}
	if !s.options.MigrateForce {
		m.Busy = s.busy
	}
	return m
}

// busy returns who may still use the schema. It reads only what that version of the schema has.
func (s *Store) busy(ctx context.Context, tx *sqlx.Tx, version int) (busy []sqlkit.Busy, err error) {
	inFlight := `id IN (SELECT unnest(ids) FROM {schema}.leases)`
	if version < 9 {
		inFlight = `state = 'in_flight'` // an index has these rows
	}
	var database time.Time
	if err := tx.GetContext(ctx, &database, `SELECT clock_timestamp()`); err != nil {
		return nil, err
	}
	err = tx.SelectContext(ctx, &busy, s.sql(`
		SELECT name, max(host) AS host, max(pid) AS pid, sum(jobs)::bigint AS jobs
		FROM (
			SELECT name, host, pid, 0 AS jobs
			FROM {schema}.workers
			WHERE beat_at + stale_after * interval '1 microsecond' > $1
			UNION ALL
			SELECT worker, '', 0, count(*)
			FROM {schema}.jobs
			WHERE `+inFlight+` AND lease_expires_at > $1
			GROUP BY worker
		) AS busy
		GROUP BY name
		ORDER BY name`),
		s.now.read(database))
	return busy, err
}

// beginMigration starts a transaction that excludes other migrators. The right to create a schema is needed only if there is
// none.
func (s *Store) beginMigration(ctx context.Context) (*sqlx.Tx, error) {
	// A step must see what programs of an earlier version have committed before it got its locks.
	tx, err := s.db.BeginTxx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, err
	}
	if err := s.lockSchema(ctx, tx); err != nil {
		_ = tx.Rollback()
		return nil, err
	}
	return tx, nil
}

// lockSchema excludes other migrators until the transaction ends, and creates the schema and its table of migrations if they
// are missing. It lifts the time-outs, because migrating a large table takes long. It also restores the default of read-only,
// which the driver overrides by READ WRITE.
func (s *Store) lockSchema(ctx context.Context, tx *sqlx.Tx) error {
	var found struct{ Schema, Migrated bool }
	_, err := tx.ExecContext(ctx, `
		SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0;
		SET LOCAL client_min_messages = warning;
		SELECT set_config('transaction_read_only', current_setting('default_transaction_read_only'), TRUE)`)
	if err == nil {
		_, err = tx.ExecContext(ctx, `
			SELECT pg_advisory_xact_lock(hashtextextended('jq ' || $1, 0))`,
			s.options.Schema)
	}
	if err == nil {
		err = tx.GetContext(ctx, &found, `
			SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1) AS schema,
				EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = 'migrations') AS migrated`,
			s.options.Schema)
	}
	if err == nil && !found.Schema {
		_, err = tx.ExecContext(ctx, s.sql(`CREATE SCHEMA {schema}`))
	}
	if err == nil && !found.Migrated {
		_, err = tx.ExecContext(ctx, s.sql(`
			CREATE TABLE {schema}.migrations (
				version integer PRIMARY KEY,
				name text NOT NULL,
				least integer
			)`))
	}
	return err
}
