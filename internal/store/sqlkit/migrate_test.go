package sqlkit_test

import (
	"context"
	"fmt"
	"testing"
	"testing/fstest"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

func files(names ...string) fstest.MapFS {
	folder := fstest.MapFS{"migrations/README": {}, "0001_elsewhere.sql": {}}
	for _, name := range names {
		folder["migrations/"+name] = &fstest.MapFile{Data: []byte("-- " + name)}
	}
	return folder
}

func TestMigrationsComeInTheirOrder(t *testing.T) {
	steps, err := sqlkit.Migrations(files("0002_more_jobs.sql", "0001_jobs.sql"))
	require.NoError(t, err)
	assert.Equal(t, []sqlkit.Migration{
		{Version: 1, Name: "jobs", SQL: "-- 0001_jobs.sql"},
		{Version: 2, Name: "more_jobs", SQL: "-- 0002_more_jobs.sql"},
	}, steps)
}

// A store that is two steps behind is told about both, and one that is not about none.
func TestUpTellsOfEachStepBeforeItIsTaken(t *testing.T) {
	db, err := sqlx.Open("sqlite", "file:"+t.TempDir()+"/steps.db")
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	_, err = db.Exec(`CREATE TABLE migrations (version INTEGER PRIMARY KEY, name TEXT)`)
	require.NoError(t, err)
	var told []string
	migrator := sqlkit.Migrator{
		Steps: []sqlkit.Migration{
			{Version: 1, Name: "a", SQL: `CREATE TABLE a (x)`}, {Version: 2, Name: "b", SQL: `CREATE TABLE b (x)`},
			{Version: 3, Name: "c", SQL: `CREATE`},
		},
		Begin:   func(ctx context.Context) (*sqlx.Tx, error) { return db.BeginTxx(ctx, nil) },
		Version: `SELECT coalesce(max(version), 0) FROM migrations`,
		Record:  `INSERT INTO migrations (version, name) VALUES (?, ?)`,
		Before:  func(step, of int) { told = append(told, fmt.Sprintf("%d of %d", step, of)) },
	}
	applied, err := migrator.Up(t.Context())
	require.ErrorContains(t, err, "migration 3 (c)")
	assert.Equal(t, 2, applied)
	assert.Equal(t, []string{"1 of 3", "2 of 3", "3 of 3"}, told, "also of the one that then failed")

	told, migrator.Steps = nil, migrator.Steps[:2]
	applied, err = migrator.Up(t.Context())
	require.NoError(t, err)
	assert.Zero(t, applied)
	assert.Empty(t, told, "nothing is missing")
	migrator.Before, migrator.Steps = nil, append(migrator.Steps, sqlkit.Migration{Version: 3, Name: "c", SQL: `CREATE TABLE c (x)`})
	_, err = migrator.Up(t.Context())
	require.NoError(t, err, "nobody listens")
}

func TestMigrationsAreNumberedWithoutAGap(t *testing.T) {
	for name, c := range map[string][]string{
		"Gap":      {"0001_jobs.sql", "0003_more.sql"},
		"Twice":    {"0001_jobs.sql", "0001_more.sql"},
		"Zero":     {"0000_jobs.sql"},
		"NoNumber": {"jobs.sql"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := sqlkit.Migrations(files(c...))
			assert.ErrorContains(t, err, "want number")
		})
	}
}

func TestOtherSchemasAreRefused(t *testing.T) {
	require.NoError(t, sqlkit.Current(store.Schema{Version: 2, Newest: 2}))
	require.ErrorIs(t, sqlkit.Current(store.Schema{Newest: 2}), sqlkit.ErrMissing)
	err := sqlkit.Current(store.Schema{Version: 1, Newest: 2})
	require.ErrorIs(t, err, sqlkit.ErrOlder)
	require.ErrorContains(t, err, "run jobq migrate up (schema 1, program 2)")
	err = sqlkit.Current(store.Schema{Version: 3, Newest: 2})
	require.ErrorIs(t, err, sqlkit.ErrNewer)
	require.ErrorContains(t, err, "update the program (schema 3, program 2)")
}
