package sqlite

import (
	"context"
	"database/sql/driver"
	"io"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sqlitedriver "modernc.org/sqlite"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/migratetest"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

func allSteps(t *testing.T) []sqlkit.Migration {
	t.Helper()
	steps, err := folder()
	require.NoError(t, err)
	return steps
}

func TestProgramsOfSeveralVersions(t *testing.T) {
	migratetest.Run(t, migratetest.Adapter{
		Steps:    allSteps(t),
		Additive: `ALTER TABLE jobs ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'`,
		Breaking: `ALTER TABLE jobs RENAME COLUMN kind TO sort`,
		New: func(t *testing.T) func(o migratetest.Opening) (migratetest.Store, error) {
			path := newPath(t)
			return func(o migratetest.Opening) (migratetest.Store, error) {
				s, err := Open(t.Context(), path, &Options{
					Clock: o.Clock, Logger: o.Logger, NoMigrate: o.NoMigrate, MigrateWait: o.Wait, MigrateForce: o.Force, steps: o.Steps,
				})
				if err != nil {
					return nil, err
				}
				t.Cleanup(func() { assert.NoError(t, s.Close()) })
				return s, nil
			}
		},
		Narrow: func(s migratetest.Store) error {
			_, err := s.(*Store).DB().Exec(`ALTER TABLE migrations DROP COLUMN least`)
			return err
		},
	})
}

// lastWords is the step in which dieMigrating dies. It has written more than the page cache holds, so a part of it is in the WAL.
const lastWords = `
	CREATE TABLE killed AS
		WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 20000)
		SELECT n, randomblob(1000) AS filler FROM numbers`

// dieMigrating is killed at the end of the next migration, before it is committed.
func dieMigrating(path string, _ io.Reader, _ io.Writer) error {
	err := sqlitedriver.RegisterScalarFunction("die", 0, func(*sqlitedriver.FunctionContext, []driver.Value) (driver.Value, error) {
		return nil, syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	})
	if err != nil {
		return err
	}
	steps, err := folder()
	if err != nil {
		return err
	}
	last := len(steps) + 1
	_, err = Open(context.Background(), path, &Options{
		steps: append(steps, sqlkit.Migration{Version: last, Name: "killed", SQL: lastWords + `; SELECT die()`, Least: last}),
	})
	return err
}

// A process that migrates is killed in the middle of a step. The store is as before the step, and the next process applies it.
func TestAKilledMigrationIsStartedAgain(t *testing.T) {
	path := newPath(t)
	s, err := Open(t.Context(), path, nil)
	require.NoError(t, err)
	enqueue(t, s, 3)
	require.NoError(t, s.Close())

	require.ErrorContains(t, start(t, "migrate", path).Wait(), "signal: killed")
	before := openAt(t, path, nil)
	assert.Equal(t, int64(3), countIn(t, before, store.Ready))
	intact(t, before)

	steps := allSteps(t)
	last := len(steps) + 1
	after := openAt(t, path, &Options{steps: append(slices.Clone(steps), sqlkit.Migration{Version: last, Name: "killed", SQL: lastWords, Least: last})})
	var rows int
	require.NoError(t, after.DB().Get(&rows, `SELECT count(*) FROM killed`))
	assert.Equal(t, 20000, rows)
	assert.Equal(t, int64(3), countIn(t, after, store.Ready))
}
