package sqlkit_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/bubble"
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
		{Version: 1, Name: "jobs", SQL: "-- 0001_jobs.sql", Least: 1},
		{Version: 2, Name: "more_jobs", SQL: "-- 0002_more_jobs.sql", Least: 1},
	}, steps)
}

func stepsOf(texts ...string) ([]sqlkit.Migration, error) {
	folder := fstest.MapFS{}
	for i, text := range texts {
		folder[fmt.Sprintf("migrations/%04d_step.sql", i+1)] = &fstest.MapFile{Data: []byte(text)}
	}
	return sqlkit.Migrations(folder)
}

// A step leaves the least compatible version as it is, unless it says otherwise.
func TestStepsSayWhichProgramsTheyBreak(t *testing.T) {
	steps, err := stepsOf("CREATE TABLE a (x);", "-- Why.\n-- Least compatible version: 2.\nDROP TABLE a;", "-- It drops nothing.\nCREATE TABLE b (x);",
		"-- Least compatible version: 3. Programs of 3 can read it.\nALTER TABLE b RENAME TO c;")
	require.NoError(t, err)
	var least []int
	for _, s := range steps {
		least = append(least, s.Least)
	}
	assert.Equal(t, []int{1, 2, 2, 3}, least)

	for want, text := range map[string]string{
		"migration 2 (step) has a DROP: write which programs it breaks":  "CREATE TABLE b (x);\nDROP INDEX a;",
		"migration 2 (step) has a rename: write which programs it break": "ALTER TABLE a rename TO b;",
		"the least compatible version is 3: want one from 1 to 2":        "-- Least compatible version: 3.",
		"the least compatible version is 0: want one from 1 to 2":        "-- Least compatible version: 0.",
	} {
		_, err := stepsOf("CREATE TABLE a (x);", text)
		assert.ErrorContains(t, err, want)
	}
}

// A new store is made as a whole or not at all. A store that is two steps behind gets one after the other. It is told about each, and one that is not behind about none.
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
		Begin:    func(ctx context.Context) (*sqlx.Tx, error) { return db.BeginTxx(ctx, nil) },
		Version:  `SELECT coalesce(max(version), 0) FROM migrations`,
		HasLeast: `SELECT count(*) FROM pragma_table_info('migrations') WHERE name = 'least'`,
		AddLeast: `ALTER TABLE migrations ADD COLUMN least INTEGER`,
		Record:   `INSERT INTO migrations (version, name, least) VALUES (?, ?, ?)`,
		Before:   func(step, of int) { told = append(told, fmt.Sprintf("%d of %d", step, of)) },
	}
	applied, err := migrator.Up(t.Context())
	require.ErrorContains(t, err, "migration 3 (c)")
	assert.Zero(t, applied)
	assert.Equal(t, []string{"1 of 3", "2 of 3", "3 of 3"}, told, "also of the one that then failed")
	tables := func() (names []string) {
		require.NoError(t, db.Select(&names, `SELECT name FROM sqlite_master WHERE name IN ('a', 'b', 'c') ORDER BY name`))
		return names
	}
	assert.Empty(t, tables(), "a new store gets all steps or none")

	steps := migrator.Steps
	migrator.Steps = steps[:1]
	applied, err = migrator.Up(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, applied)
	told, migrator.Steps = nil, steps
	applied, err = migrator.Up(t.Context())
	require.ErrorContains(t, err, "migration 3 (c)")
	assert.Equal(t, 1, applied)
	assert.Equal(t, []string{"2 of 3", "3 of 3"}, told)
	assert.Equal(t, []string{"a", "b"}, tables(), "an older store keeps the steps before the one that failed")

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
	require.NoError(t, sqlkit.Current(store.Schema{Version: 2, Newest: 2, Least: 2}))
	require.NoError(t, sqlkit.Current(store.Schema{Version: 4, Newest: 2, Least: 2}), "it is newer, and compatible")
	require.ErrorIs(t, sqlkit.Current(store.Schema{Newest: 2}), sqlkit.ErrMissing)
	err := sqlkit.Current(store.Schema{Version: 1, Newest: 2, Least: 1})
	require.ErrorIs(t, err, sqlkit.ErrOlder)
	require.ErrorContains(t, err, "run jobq migrate up (schema 1, program 2)")
	err = sqlkit.Current(store.Schema{Version: 4, Newest: 2, Least: 3})
	require.ErrorIs(t, err, sqlkit.ErrNewer)
	require.ErrorContains(t, err, "update the program (schema 4 needs 3, program 2)")
}

// Only a newer program knows the least compatible version of a newer schema.
func TestLeastVersionOfANewerSchemaIsRead(t *testing.T) {
	steps := []sqlkit.Migration{{Version: 1, Least: 1}, {Version: 2, Least: 2}}
	for _, k := range []struct {
		version int
		want    store.Schema
		fails   bool
	}{
		{0, store.Schema{Newest: 2}, false},
		{1, store.Schema{Version: 1, Newest: 2, Least: 1}, false},
		{2, store.Schema{Version: 2, Newest: 2, Least: 2}, false},
		{5, store.Schema{Version: 5, Newest: 2, Least: 4}, true},
	} {
		found, err := sqlkit.SchemaOf(steps, k.version, func() (int, error) { return 4, assert.AnError })
		assert.Equal(t, k.want, found)
		assert.Equal(t, k.fails, err != nil, "it was asked")
	}
}

func TestBusyErrorNamesWhoRuns(t *testing.T) {
	err := &sqlkit.BusyError{Version: 8, Newest: 9, Busy: []sqlkit.Busy{
		{Name: "beats", Host: "h", PID: 1}, {Name: "both\n", Host: "h", PID: 2, Jobs: 3}, {Name: "leases", Jobs: 4},
	}}
	assert.Equal(t, `jq: the migration from schema 8 to 9 breaks programs of earlier versions, and these still run: beats (host h, pid 1), `+
		`both\n (host h, pid 2, jobs in flight: 3), leases (jobs in flight: 4): `+
		`stop them and run jobq migrate up, which waits for them, or with --force does not`, err.Error())
	err.Busy = slices.Repeat(err.Busy, 5)
	assert.Contains(t, err.Error(), "), and 5 more: stop them")
}

func TestAwaitTriesAgainWhileSomebodyRuns(t *testing.T) {
	busy := func(n int) error {
		return fmt.Errorf("opening: %w", &sqlkit.BusyError{Busy: slices.Repeat([]sqlkit.Busy{{Name: "w", Jobs: 1}}, n)})
	}
	for name, k := range map[string]struct {
		most    time.Duration
		answers []error
		takes   time.Duration
		lines   int
		want    error
	}{
		"Done":        {time.Minute, []error{nil}, 0, 0, nil},
		"Fails":       {time.Minute, []error{assert.AnError}, 0, 0, assert.AnError},
		"FailsLater":  {time.Minute, []error{busy(1), assert.AnError}, time.Second, 1, assert.AnError},
		"NoWait":      {0, []error{busy(1)}, 0, 0, busy(1)},
		"Stop":        {time.Minute, []error{busy(2), busy(2), busy(1), nil}, 3 * time.Second, 2, nil},
		"DoNotStop":   {2500 * time.Millisecond, []error{busy(1), busy(1), busy(1), busy(1)}, 2500 * time.Millisecond, 1, busy(1)},
		"StopAtLast":  {1500 * time.Millisecond, []error{busy(1), busy(1), nil}, 1500 * time.Millisecond, 1, nil},
		"NegativeFor": {-time.Second, []error{busy(1)}, 0, 0, busy(1)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				begin, answers := time.Now(), k.answers
				err := sqlkit.Await(t.Context(), k.most, slog.New(slog.NewTextHandler(&log, nil)), func() error {
					next := answers[0]
					answers = answers[1:]
					return next
				})
				assert.Equal(t, k.want, err)
				assert.Empty(t, answers)
				assert.Equal(t, k.takes, time.Since(begin))
				assert.Equal(t, k.lines, strings.Count(log.String(), "the migration waits"), log.String())
			})
		})
	}
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := sqlkit.Await(ctx, time.Hour, slog.New(slog.DiscardHandler), func() error { return &sqlkit.BusyError{} })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "these still run")
	})
}
