package postgres_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/lib/pq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres"
)

func newSpares() *pgtest.Spares {
	return &pgtest.Spares{Create: func(ctx context.Context, dsn, schema string) error {
		s, err := postgres.Open(ctx, dsn, &postgres.Options{Schema: schema})
		if err != nil {
			return err
		}
		return s.Close()
	}}
}

// What a test has left is gone from a schema that another one gets: its rows, their room, and what the server has counted.
func TestASpareSchemaIsAsNew(t *testing.T) {
	dsn := pgtest.DSN(t)
	db, err := sql.Open("postgres", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	count := func(query, schema string) (n int) {
		require.NoError(t, db.QueryRowContext(t.Context(), query, schema).Scan(&n))
		return n
	}
	const (
		room    = `SELECT sum(pg_relation_size(oid)) FROM pg_class WHERE relnamespace = $1::text::regnamespace AND relkind = 'r' AND relname NOT IN ('migrations', 'fence')`
		written = `SELECT sum(n_tup_ins + n_tup_upd + n_dead_tup) FROM pg_stat_user_tables WHERE schemaname = $1 AND relname <> 'fence'`
	)
	spares := newSpares()
	var used string
	var fresh map[string]string
	t.Run("used", func(t *testing.T) {
		used = spares.Take(t, dsn)
		fresh = kept(t, db, used)
		s, err := postgres.Open(t.Context(), dsn, &postgres.Options{Schema: used})
		require.NoError(t, err)
		fill(t, s, used)
		assert.Positive(t, count(room, pq.QuoteIdentifier(used)))
		require.NoError(t, s.Close()) // its sessions tell what they have counted
	})
	t.Run("again", func(t *testing.T) {
		require.Equal(t, used, spares.Take(t, dsn))
		assert.Equal(t, fresh, kept(t, db, used))
		assert.Zero(t, count(room, pq.QuoteIdentifier(used)))
		assert.Zero(t, count(written, used))
	})
}

// A schema that a test has changed in another way than by its rows is not used again.
func TestAChangedSpareSchemaIsDropped(t *testing.T) {
	dsn := pgtest.DSN(t)
	spares := newSpares()
	for what, change := range map[string]string{
		"a column":            `ALTER TABLE {schema}.jobs ADD COLUMN more text`,
		"a setting":           `ALTER TABLE {schema}.jobs SET (autovacuum_enabled = off)`,
		"a default":           `ALTER TABLE {schema}.jobs ALTER COLUMN kind SET DEFAULT 'usual'`,
		"an index that goes":  `DROP INDEX {schema}.jobs_finished`,
		"a check":             `ALTER TABLE {schema}.jobs ADD CHECK (kind <> 'bad')`,
		"a function":          `CREATE FUNCTION {schema}.f() RETURNS int LANGUAGE sql AS 'SELECT 1'`,
		"a trigger":           `ALTER TABLE {schema}.jobs DISABLE TRIGGER ALL`,
		"a column's sample":   `ALTER TABLE {schema}.jobs ALTER COLUMN kind SET STATISTICS 7`,
		"a right":             `GRANT SELECT ON {schema}.jobs TO pg_monitor`,
		"a right on all":      `GRANT USAGE ON SCHEMA {schema} TO pg_monitor`,
		"statistics":          `INSERT INTO {schema}.hints (queue, limit_key) VALUES ('q', 'k'); ANALYZE {schema}.hints`,
		"a migration that is": `UPDATE {schema}.migrations SET version = version`,
		"a table that goes":   `DROP TABLE {schema}.migrations`,
		"the schema":          `DROP SCHEMA {schema} CASCADE`,
	} {
		var used string
		t.Run(what, func(t *testing.T) {
			used = spares.Take(t, dsn)
			s, err := postgres.Open(t.Context(), dsn, &postgres.Options{Schema: used})
			require.NoError(t, err)
			_, err = s.DB().ExecContext(t.Context(), strings.ReplaceAll(change, "{schema}", pq.QuoteIdentifier(used)))
			require.NoError(t, err)
			require.NoError(t, s.Close())
		})
		t.Run("after "+what, func(t *testing.T) { assert.NotEqual(t, used, spares.Take(t, dsn)) })
	}
}

// A session that stays could still write.
func TestASpareSchemaWithASessionIsDropped(t *testing.T) {
	dsn := pgtest.DSN(t)
	spares := newSpares()
	db, err := sql.Open("postgres", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	var used string
	t.Run("stays", func(t *testing.T) {
		used = spares.Take(t, dsn)
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT FROM `+pq.QuoteIdentifier(used)+`.fence`).Scan())
	})
	t.Run("after", func(t *testing.T) { assert.NotEqual(t, used, spares.Take(t, dsn)) })
}
