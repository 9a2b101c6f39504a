package sqlite

import (
	"os"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// calm finds nothing that is only a question of how much.
var calm = alarming{log: 1 << 40, unused: 1 << 40}

func findingsOf(t *testing.T, s *Store, a alarming) map[string]store.Finding {
	t.Helper()
	found, err := s.examine(t.Context(), a)
	require.NoError(t, err)
	byName := map[string]store.Finding{}
	for _, f := range found {
		assert.NotEmpty(t, f.Advice, f.Name)
		byName[f.Name] = f
	}
	return byName
}

// Examine may take longer than a reading.
func TestExamineHasNoTimeLimit(t *testing.T) {
	s := openAt(t, newPath(t), &Options{ReadTimeout: 50 * time.Millisecond})
	_, err := s.callers.Exec(`DROP INDEX jobs_leased`)
	require.NoError(t, err)
	defer takeReaders(s)()
	assert.Contains(t, findingsOf(t, s, calm), "missing_index")
}

func TestExamineFindsAMissingIndex(t *testing.T) {
	s := openAt(t, newPath(t), nil)
	require.Empty(t, findingsOf(t, s, calm))
	_, err := s.callers.Exec(`DROP INDEX jobs_leased`)
	require.NoError(t, err)
	assert.Contains(t, findingsOf(t, s, calm)["missing_index"].Detail, "jobs_leased")
}

func TestExamineFindsADamagedFile(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path, nil)
	_, err := s.Enqueue(t.Context(), newJobs(1000))
	require.NoError(t, err)
	_, err = s.callers.Exec(`PRAGMA wal_checkpoint(TRUNCATE)`)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	info, err := f.Stat()
	require.NoError(t, err)
	_, err = f.WriteAt(make([]byte, 8192), info.Size()-16384)
	require.NoError(t, err)
	require.NoError(t, f.Close())

	s = openAt(t, path, nil)
	assert.Contains(t, findingsOf(t, s, calm)["damaged_file"].Advice, "restore a backup")
}

func TestExamineFindsALargeLog(t *testing.T) {
	s := openAt(t, newPath(t), nil)
	_, err := s.Enqueue(t.Context(), newJobs(10))
	require.NoError(t, err)
	a := calm
	a.log = 1
	assert.Contains(t, findingsOf(t, s, a)["large_log"].Detail, "-wal")
}

func TestExamineFindsUnusedRoom(t *testing.T) {
	s := openAt(t, newPath(t), nil)
	for range 5 {
		_, err := s.Enqueue(t.Context(), newJobs(1000))
		require.NoError(t, err)
	}
	for range 5 {
		cancelled := store.Filter{Kind: newJobs(1).Jobs[0].Kind}
		_, err := s.Cancel(t.Context(), cancelled, store.MaxItems)
		require.NoError(t, err)
		_, err = s.Delete(t.Context(), cancelled, store.MaxItems)
		require.NoError(t, err)
	}
	a := calm
	a.unused = 1
	assert.Contains(t, findingsOf(t, s, a)["unused_room"].Detail, "are unused")
}

// A file of another program is no store, whatever its table of migrations is like.
func TestSchemaVersionOfOtherProgramsFiles(t *testing.T) {
	steps, err := folder()
	require.NoError(t, err)
	const table = `CREATE TABLE migrations (version INTEGER, name TEXT)`
	for name, k := range map[string]struct {
		make []string
		want int
	}{
		"NoMigrations":    {[]string{`CREATE TABLE songs (a)`}, 0},
		"VersionsAlone":   {[]string{`CREATE TABLE migrations (version INTEGER)`, `INSERT INTO migrations VALUES (7)`}, 0},
		"NamesAlone":      {[]string{`CREATE TABLE migrations (name TEXT)`, `INSERT INTO migrations VALUES ('songs')`}, 0},
		"OtherColumns":    {[]string{`CREATE TABLE migrations (id INTEGER, title TEXT, at TEXT)`, `INSERT INTO migrations VALUES (1, 'a', 'b')`}, 0},
		"None":            {[]string{table}, 0},
		"OtherNames":      {[]string{table, `INSERT INTO migrations VALUES (1, 'songs'), (2, 'singers')`}, 0},
		"FirstNameLater":  {[]string{table, `INSERT INTO migrations VALUES (1, 'songs'), (2, '` + steps[0].Name + `')`}, 0},
		"OfThisProgram":   {[]string{table, `INSERT INTO migrations VALUES (1, '` + steps[0].Name + `'), (2, 'next')`}, 2},
		"WithMoreColumns": {[]string{`CREATE TABLE migrations (version, name, at)`, `INSERT INTO migrations VALUES (1, '` + steps[0].Name + `', 0)`}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			db, err := sqlx.Open("sqlite", "file:"+path)
			require.NoError(t, err)
			for _, statement := range k.make {
				_, err := db.Exec(statement)
				require.NoError(t, err)
			}
			require.NoError(t, db.Close())
			found, err := SchemaVersion(t.Context(), path)
			require.NoError(t, err)
			assert.Equal(t, store.Schema{Version: k.want, Newest: len(steps), Least: min(k.want, 1)}, found)
		})
	}
}

func TestSchemaVersionChangesNothing(t *testing.T) {
	path := newPath(t)
	v, err := SchemaVersion(t.Context(), path)
	require.NoError(t, err)
	assert.Zero(t, v.Version)
	assert.NoFileExists(t, path)
	s := openAt(t, path, nil)
	v, err = SchemaVersion(t.Context(), path)
	require.NoError(t, err)
	assert.Positive(t, v.Newest)
	assert.Equal(t, v.Newest, v.Version)
	require.NoError(t, s.Close())
	require.NoError(t, os.WriteFile(path, []byte("this is no database, and long enough to see"), 0o600))
	_, err = SchemaVersion(t.Context(), path)
	require.ErrorContains(t, err, "is not an SQLite database")
}
