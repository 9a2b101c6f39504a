package cli

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/sqlite"
)

// Commands that create and migrate a store, and commands that do not use the user's store.
var (
	making    = []string{"dev", "serve", "work", "enqueue", "schedules set", "migrate up", "bench", "jobs import"}
	storeLess = []string{"demo", "conformance", "token new", "token ls", "token rm", "token rotate", "version", "schedules preview", "help", "completion"}
)

// reading holds all other commands, with valid arguments.
var reading = map[string][]string{
	"stats": nil, "workers": nil, "queues ls": nil, "queues pause": {"mail"}, "queues resume": {"mail"},
	"queues set":   {"mail", "--retain-dead", "keep"},
	"schedules ls": nil, "schedules pause": {"nightly"}, "schedules resume": {"nightly"}, "schedules run": {"nightly"}, "schedules reset": {"nightly"},
	"schedules rm": {"nightly"},
	"flows ls":     nil, "flows show": {"g"}, "flows seal": {"g"}, "flows requeue": {"g"}, "flows cancel": {"g"},
	"jobs ls": nil, "jobs export": nil, "jobs show": {"1"}, "jobs requeue": {"1"}, "jobs reschedule": {"1"}, "jobs cancel": {"1"}, "jobs rm": {"1", "--yes"},
	"prune": {"--succeeded", "1h"}, "doctor": nil, "fence": nil, "migrate status": nil,
}

// Every command is in one of the lists, so a new command must be added. top is an exception: it needs a terminal, and opens the
// store like stats. backup and restore work only with files and have their own tests.
func TestEveryCommandReadsOrCreates(t *testing.T) {
	known := slices.Concat(making, storeLess, []string{"top", "backup", "restore"})
	for path := range reading {
		known = append(known, path)
	}
	var walk func(cmd *cobra.Command, path string)
	walk = func(cmd *cobra.Command, path string) {
		if slices.Contains(known, path) {
			known = slices.DeleteFunc(known, func(k string) bool { return k == path })
			return
		}
		assert.True(t, cmd.HasSubCommands(), "%s is in no list", path)
		for _, below := range cmd.Commands() {
			walk(below, strings.TrimSpace(path+" "+below.Name()))
		}
	}
	walk((&app{std: quiet(nil, nil), flagged: map[string]bool{}, sources: map[string]string{}}).root(), "")
	assert.Empty(t, known, "the lists name commands that do not exist")
}

// refusedEach checks that every reading command fails on the store with an error that says what to do.
func refusedEach(t *testing.T, store, want string) {
	t.Helper()
	for path, args := range reading {
		var stdout, stderr bytes.Buffer
		args := slices.Concat([]string{"jobq"}, strings.Fields(path), args, []string{"--store", store})
		assert.Equal(t, exitFailed, run(t.Context(), args, quiet(&stdout, &stderr)), "%v: %s", args, stderr.String())
		said := stderr.String()
		if path == "doctor" || path == "migrate status" { // they report on standard output
			said += stdout.String()
		}
		assert.Regexp(t, want, said, "%v", args)
		assert.NotContains(t, stderr.String(), "store unavailable", "%v: a repeat would not help", args)
	}
}

// files returns the content of every file in the folder.
func files(t *testing.T, folder string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	all := map[string]string{}
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(folder, e.Name()))
		require.NoError(t, err)
		all[e.Name()] = string(content)
	}
	return all
}

// do runs statements on an SQLite file, as another program would.
func do(t *testing.T, path string, statements ...string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	for _, s := range statements {
		_, err := db.Exec(s)
		require.NoError(t, err, s)
	}
	return db
}

const unlike = `there is no store|run (jobq )?migrate up`

// Reading commands do not create a store, and do not add tables to another program's file.
func TestReadingCommandsCreateNoFiles(t *testing.T) {
	t.Run("EmptyFolder", func(t *testing.T) {
		folder := t.TempDir()
		refusedEach(t, "sqlite:"+filepath.Join(folder, "jobs.db"), "there is no store at .*jobs.db|the schema of the store is older than this program: run migrate up")
		assert.Empty(t, files(t, folder))
	})
	for name, statements := range map[string][]string{
		"OfAnotherProgram":        {`CREATE TABLE songs (name TEXT)`, `INSERT INTO songs VALUES ('ode')`},
		"OfAnotherProgramInWAL":   {`PRAGMA journal_mode = WAL`, `CREATE TABLE songs (name TEXT)`},
		"WithMigrationsOfItsOwn":  {`CREATE TABLE migrations (version INTEGER, name TEXT)`, `INSERT INTO migrations VALUES (1, 'songs')`},
		"WithMigrationsOtherwise": {`CREATE TABLE migrations (id INTEGER)`, `INSERT INTO migrations VALUES (1)`},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			path := filepath.Join(folder, "app.db")
			require.NoError(t, do(t, path, statements...).Close())
			before := files(t, folder)
			refusedEach(t, "sqlite:"+path, unlike)
			assert.Equal(t, before, files(t, folder))
		})
	}
	t.Run("OfAProgramThatWasKilled", func(t *testing.T) {
		running, folder := filepath.Join(t.TempDir(), "app.db"), t.TempDir()
		db := do(t, running, `PRAGMA journal_mode = WAL`, `CREATE TABLE songs (name TEXT)`)
		before := map[string]string{}
		for name, content := range files(t, filepath.Dir(running)) {
			if name != "app.db-shm" {
				before[name] = content
				require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
			}
		}
		require.NoError(t, db.Close())
		require.NotEmpty(t, before["app.db-wal"], "the log has changes that the file lacks")
		refusedEach(t, "sqlite:"+filepath.Join(folder, "app.db"), unlike)
		after := files(t, folder)
		delete(after, "app.db-shm") // an index of the log, without data of its own
		assert.Equal(t, before, after)
	})
	for name, c := range map[string]struct{ statement, want string }{
		"OlderSchema": {`DELETE FROM migrations WHERE version = (SELECT max(version) FROM migrations)`, unlike},
		"NewerSchema": {`INSERT INTO migrations (version, name) VALUES (99, 'future')`, "update the program"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			path := filepath.Join(folder, "jobs.db")
			s, err := sqlite.Open(t.Context(), path, nil)
			require.NoError(t, err)
			require.NoError(t, s.Close())
			require.NoError(t, do(t, path, c.statement).Close())
			before := files(t, folder)
			refusedEach(t, "sqlite:"+path, c.want)
			assert.Equal(t, before, files(t, folder))
			for _, command := range [][]string{
				{"serve", "--addr", "127.0.0.1:0", "--no-migrate"}, {"serve", "--addr", "127.0.0.1:0", "--read-only"}, {"work", "--exec", "cat", "--no-migrate"},
				{"dev", "--addr", "127.0.0.1:0", "--no-migrate"}, {"enqueue", "k", "--no-migrate"}, {"enqueue", "--lines", os.DevNull, "--no-migrate"},
				{"jobs", "import", os.DevNull, "--no-migrate"}, {"schedules", "set", "s", "@daily", "k", "--no-migrate"}, {"bench", "--no-migrate"},
			} {
				var stderr bytes.Buffer
				args := slices.Concat([]string{"jobq"}, command, []string{"--store", "sqlite:" + path})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // one that is not refused would serve for ever
				assert.Equal(t, exitFailed, run(ctx, args, quiet(&stderr, &stderr)))
				cancel()
				assert.Regexp(t, c.want, stderr.String())
			}
			assert.Equal(t, before, files(t, folder))
		})
	}
}

// tables lists every table of the database, and the recorded migrations.
func tables(t *testing.T, db *sql.DB) string {
	t.Helper()
	const all = `
		SELECT coalesce(string_agg(format('%I.%I', table_schema, table_name), ' ' ORDER BY table_schema, table_name), '')
			|| (SELECT coalesce(string_agg(nspname, ' ' ORDER BY nspname), '') FROM pg_namespace WHERE nspname !~ '^pg_')
		FROM information_schema.tables
		WHERE table_schema NOT IN ('pg_catalog', 'information_schema')`
	const recorded = `SELECT coalesce(string_agg(version || name, ' ' ORDER BY version), '') FROM jq.migrations`
	var text, steps string
	require.NoError(t, db.QueryRow(all).Scan(&text))
	if strings.Contains(text, "jq.migrations") {
		require.NoError(t, db.QueryRow(recorded).Scan(&steps))
	}
	return text + "; " + steps
}

// Reading commands neither create nor migrate a schema in the database of DATABASE_URL.
func TestReadingCommandsCreateNoSchemas(t *testing.T) {
	db, url := database(t)
	refused := func(want string) {
		t.Helper()
		before := tables(t, db)
		refusedEach(t, url, want)
		assert.Equal(t, before, tables(t, db))
	}
	refused(unlike)
	assert.NotContains(t, tables(t, db), "jq")

	var stderr bytes.Buffer
	require.Equal(t, exitOK, run(t.Context(), []string{"jobq", "migrate", "up", "--store", url}, quiet(&stderr, &stderr)), stderr.String())
	_, err := db.Exec(`INSERT INTO jq.migrations (version, name) VALUES (99, 'future')`)
	require.NoError(t, err)
	refused("update the program")
	_, err = db.Exec(`DELETE FROM jq.migrations WHERE version = 99`)
	require.NoError(t, err)
	_, err = db.Exec(`DELETE FROM jq.migrations WHERE version = (SELECT max(version) FROM jq.migrations)`)
	require.NoError(t, err)
	refused(unlike)
}

// An empty DATABASE_URL is an error. It does not select the default store, a file in the current folder.
func TestEmptyDatabaseURLIsAnError(t *testing.T) {
	folder := t.TempDir()
	t.Chdir(folder)
	std := func(env map[string]string) (streams, *bytes.Buffer) {
		var stderr bytes.Buffer
		s := quiet(&stderr, &stderr)
		s.env = func(name string) (string, bool) {
			value, isSet := env[name]
			return value, isSet
		}
		return s, &stderr
	}
	s, stderr := std(map[string]string{"DATABASE_URL": ""})
	assert.Equal(t, exitUsage, run(t.Context(), []string{"jobq", "enqueue", "mail"}, s))
	assert.Equal(t, fmt.Sprintf("jobq enqueue: DATABASE_URL: the value is empty: unset it, or name a store; %s; see jobq enqueue --help\n", kinds(nil).want()), stderr.String())
	assert.Empty(t, files(t, folder))

	s, stderr = std(map[string]string{"DATABASE_URL": ""})
	assert.Equal(t, exitOK, run(t.Context(), []string{"jobq", "stats", "--store", "memory:"}, s), "the command line takes precedence: %s", stderr)
	s, stderr = std(map[string]string{"DATABASE_URL": "", "JQ_SERVER": "http://127.0.0.1:1"})
	assert.Equal(t, exitFailed, run(t.Context(), []string{"jobq", "stats"}, s))
	assert.NotContains(t, stderr.String(), "DATABASE_URL", "the command uses a server and ignores the store")

	s, stderr = std(map[string]string{"DATABASE_URL": "", "JQ_STORE": "memory:"})
	assert.Equal(t, exitOK, run(t.Context(), []string{"jobq", "stats"}, s), "JQ_STORE takes precedence: %s", stderr)
	s, stderr = std(map[string]string{"DATABASE_URL": "memory:", "JQ_STORE": ""})
	assert.Equal(t, exitOK, run(t.Context(), []string{"jobq", "stats"}, s), "an empty JQ_STORE counts as unset: %s", stderr)
}
