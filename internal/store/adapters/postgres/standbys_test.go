package postgres

import (
	"database/sql"
	"maps"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
)

// TestExamineFindsAMissingStandby: doctor says why calls hang before they do.
func TestExamineFindsAMissingStandby(t *testing.T) {
	primary, standby := replicated(t)
	s := openOn(t, primary.DSN, "examined")
	_, err := s.callers.ExecContext(t.Context(), `CREATE ROLE somebody LOGIN; GRANT USAGE ON SCHEMA jq TO somebody; GRANT ALL ON ALL TABLES IN SCHEMA jq TO somebody`)
	require.NoError(t, err)
	least := openOn(t, primary.DSN+" user=somebody", "somebody")
	for _, one := range []*Store{s, least} {
		assert.NotContains(t, findingsOf(t, one, calm), "no_standby")
	}
	_, err = s.callers.ExecContext(t.Context(), `ALTER SYSTEM SET synchronous_standby_names = 'ANY 2 (*)'`)
	require.NoError(t, err)
	reloaded(t, s, "ANY 2 (*)")
	assert.Contains(t, findingsOf(t, s, calm)["no_standby"].Detail, "1 of the 2")
	require.NoError(t, primary.Synchronous(t.Context(), true))
	reloaded(t, s, "*")
	require.NoError(t, standby.Detach(t.Context()))
	for _, one := range []*Store{s, least} {
		assert.Contains(t, findingsOf(t, one, calm)["no_standby"].Detail, "0 of the 1")
	}
	require.NoError(t, primary.Synchronous(t.Context(), false))
	reloaded(t, s, "")
	reloaded(t, least, "")
	for _, one := range []*Store{s, least} {
		assert.NotContains(t, findingsOf(t, one, calm), "no_standby")
	}
}

// One standby that dies must not stop all commits.
func TestExamineFindsThatNoStandbyCanTakeOver(t *testing.T) {
	t.Parallel()
	primary := ownServer(t, lasting)
	s := openOn(t, primary.DSN, "examined")
	first, second := standbyOf(t, primary), standbyOf(t, primary)
	assert.Empty(t, findingsOf(t, s, calm), "commits wait for none")
	_, err := s.callers.ExecContext(t.Context(), `ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'`)
	require.NoError(t, err)
	reloaded(t, s, "ANY 1 (*)")
	finds := func(names ...string) func() bool {
		return func() bool { return slices.Equal(slices.Sorted(maps.Keys(findingsOf(t, s, calm))), names) }
	}
	require.Eventually(t, finds(), time.Minute, 20*time.Millisecond, "either standby can confirm a commit")
	require.NoError(t, second.Detach(t.Context()))
	require.Eventually(t, finds("no_spare_standby"), time.Minute, 20*time.Millisecond, "commits depend on one standby")
	assert.Contains(t, findingsOf(t, s, calm)["no_spare_standby"].Detail, "wait for 1 of the standbys that it names, and no more are connected")
	require.NoError(t, first.Detach(t.Context()))
	require.Eventually(t, finds("no_standby"), time.Minute, 20*time.Millisecond, "commits wait for a standby that is not there")
}

// Who lists synchronous standbys expects commits to wait for them.
func TestExamineFindsThatCommitsWaitForNoStandby(t *testing.T) {
	t.Parallel()
	primary := ownServer(t, pgtest.Options{Settings: []string{"synchronous_commit=local"}})
	s := openOn(t, primary.DSN, "examined")
	assert.Empty(t, findingsOf(t, s, calm), "nobody expects a commit to wait")
	_, err := s.callers.ExecContext(t.Context(), `ALTER SYSTEM SET synchronous_standby_names = 'b'`)
	require.NoError(t, err)
	reloaded(t, s, "b")
	found := findingsOf(t, s, calm)
	require.Len(t, found, 1)
	assert.Contains(t, found["standbys_not_awaited"].Detail, "synchronous_standby_names is b, but synchronous_commit is local")
	_, err = s.callers.ExecContext(t.Context(), `ALTER ROLE postgres SET synchronous_commit = off`)
	require.NoError(t, err)
	assert.Contains(t, findingsOf(t, openOn(t, primary.DSN, "off"), calm)["standbys_not_awaited"].Detail, "synchronous_commit is off")
}

func TestExamineFindsAStandbyThatLags(t *testing.T) {
	t.Parallel()
	primary := ownServer(t, lasting)
	s := openOn(t, primary.DSN, "examined")
	standby := standbyOf(t, primary)
	copied, err := sql.Open("postgres", standby.DSN)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, copied.Close()) })
	a := calm
	a.behind = 100_000
	lag := func(says string) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			found := findingsOf(t, s, a)
			assert.Len(c, found, 1)
			assert.Equal(c, says, found["lagging_standby"].Detail)
		}, time.Minute, 20*time.Millisecond)
	}
	write := func() {
		t.Helper()
		_, err := s.callers.ExecContext(t.Context(), `SELECT pg_logical_emit_message(true, 'test', repeat('x', 1 << 20))`)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return len(findingsOf(t, s, a)) == 0 }, time.Minute, 20*time.Millisecond)
	_, err = copied.ExecContext(t.Context(), `SELECT pg_wal_replay_pause()`)
	require.NoError(t, err)
	write()
	lag("the standby " + nameOf(t, s) + " has 1 MiB of the log to replay: a failover to it takes longer")

	var receiver int
	require.NoError(t, copied.QueryRowContext(t.Context(), `SELECT pid FROM pg_stat_wal_receiver`).Scan(&receiver))
	require.NoError(t, syscall.Kill(receiver, syscall.SIGSTOP))
	t.Cleanup(func() { assert.NoError(t, syscall.Kill(receiver, syscall.SIGCONT)) })
	write()
	lag("the standby " + nameOf(t, s) + " lacks 1 MiB of the log: a failover to it loses what these changed, if commits do not wait for it")
}

// nameOf returns the name of the only standby.
func nameOf(t *testing.T, s *Store) (name string) {
	t.Helper()
	require.NoError(t, s.callers.GetContext(t.Context(), &name, `SELECT application_name FROM pg_stat_replication`))
	return name
}
