package postgres

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
)

// calm finds nothing that others on the same server cause.
var calm = alarming{snapshot: time.Hour, dead: math.MaxInt64, connections: 1, behind: math.MaxInt64}

func findingsOf(t *testing.T, s *Store, a alarming) map[string]store.Finding {
	t.Helper()
	found, err := s.examine(t.Context(), a)
	require.NoError(t, err)
	byName := map[string]store.Finding{}
	for _, f := range found {
		assert.NotEmpty(t, f.Advice, f.Name)
		byName[f.Name] = f
	}
	delete(byName, "unsafe_setting") // the tests' server does without what makes it slow
	return byName
}

func TestExamineFindsAMissingIndex(t *testing.T) {
	s := openStore(t, Options{})
	require.Empty(t, findingsOf(t, s, calm))
	_, err := s.callers.Exec(s.sql(`DROP INDEX {schema}.jobs_finished`))
	require.NoError(t, err)
	assert.Contains(t, findingsOf(t, s, calm)["missing_index"].Detail, "jobs_finished")
}

func TestExamineFindsAHeldSnapshot(t *testing.T) {
	s := openStore(t, Options{})
	release := holdSnapshot(t, s)
	defer release()
	a := calm
	a.snapshot = 0
	assert.Contains(t, findingsOf(t, s, a)["held_snapshot"].Detail, "holds back vacuum")
}

func TestExamineFindsDeadRows(t *testing.T) {
	s := openStore(t, Options{})
	_, err := s.callers.Exec(s.sql(`ALTER TABLE {schema}.jobs SET (autovacuum_enabled = off)`))
	require.NoError(t, err)
	enqueue(t, s, 100)
	require.NoError(t, s.flush(t.Context())) // before the statistics of what deletes them
	conn, err := s.callers.Connx(t.Context())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = conn.ExecContext(t.Context(), s.sql(`DELETE FROM {schema}.jobs; SELECT pg_stat_force_next_flush()`))
	require.NoError(t, err)
	a := calm
	a.dead = 99
	assert.Contains(t, findingsOf(t, s, a)["dead_rows"].Detail, "100 dead rows beside 0 live ones")
}

func TestExamineFindsUnsafeSettings(t *testing.T) {
	s := openStore(t, Options{})
	_, err := s.db.Exec(`SET synchronous_commit = off`) // on the connection that comes next
	require.NoError(t, err)
	found, err := s.lookAtSettings(t.Context(), calm)
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Contains(t, found[0].Detail, "synchronous_commit")
	assert.NotContains(t, found[0].Advice, "autovacuum", "which is on")
	assert.Equal(t, "turn on autovacuum, or claims slow down", unsafeAdvice([]string{"autovacuum"}))
	assert.Contains(t, unsafeAdvice([]string{"autovacuum", "fsync"}), "turn on the others")
}

func TestExamineFindsThatConnectionsAreFew(t *testing.T) {
	s := openStore(t, Options{})
	a := calm
	a.connections = 0
	assert.Contains(t, findingsOf(t, s, a)["few_connections"].Detail, "connections are taken")
}

func TestSchemaVersionChangesNothing(t *testing.T) {
	dsn := pgtest.DSN(t)
	schema := pgtest.Schema(t, dsn)
	o := &Options{Schema: schema}
	for range 2 {
		v, err := SchemaVersion(t.Context(), dsn, o)
		require.NoError(t, err)
		assert.Zero(t, v.Version)
		assert.Positive(t, v.Newest)
	}
	s := openStore(t, Options{Schema: schema})
	v, err := SchemaVersion(t.Context(), dsn, o)
	require.NoError(t, err)
	assert.Equal(t, v.Newest, v.Version)
	require.NoError(t, s.Close())
	_, err = SchemaVersion(t.Context(), "postgres://nobody@127.0.0.1:1/none?sslmode=disable", o)
	require.ErrorIs(t, err, store.ErrUnavailable)
}
