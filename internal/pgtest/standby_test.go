package pgtest_test

import (
	"context"
	"database/sql"
	"os"
	"testing"
	"time"

	_ "github.com/lib/pq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// pair starts a primary with one table, and its standby.
func pair(t *testing.T) (primary, standby *pgtest.Cluster) {
	t.Helper()
	primary, err := pgtest.Start(t.Context(), pgtest.Options{Settings: []string{"synchronous_commit=on"}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, primary.Stop()) })
	_, err = connect(t, primary.DSN).ExecContext(t.Context(), `CREATE TABLE numbers (n int)`)
	require.NoError(t, err)
	standby, err = primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, standby.Stop()) })
	return primary, standby
}

func connect(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() }) // the server may have died
	return db
}

func insert(ctx context.Context, db *sql.DB, n int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // the commit may wait for a standby
	defer cancel()
	_, err := db.ExecContext(ctx, `INSERT INTO numbers VALUES ($1)`, n)
	return err
}

func numbers(t *testing.T, db *sql.DB) (all []int) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT n FROM numbers ORDER BY n`)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var n int
		require.NoError(t, rows.Scan(&n))
		all = append(all, n)
	}
	require.NoError(t, rows.Err())
	return all
}

// What a standby was cut off from is lost with the primary, and the old primary still has it.
func TestStandbyThatIsPromotedHasWhatItReceived(t *testing.T) {
	t.Parallel()
	primary, standby := pair(t)
	old := connect(t, primary.DSN)
	require.NoError(t, insert(t.Context(), old, 1))
	require.NoError(t, standby.Detach(t.Context()))
	require.NoError(t, insert(t.Context(), old, 2))
	require.NoError(t, standby.Attach(t.Context()))
	assert.Equal(t, []int{1, 2}, numbers(t, connect(t, standby.DSN)))
	require.NoError(t, standby.Detach(t.Context()))
	require.NoError(t, insert(t.Context(), old, 3))

	require.NoError(t, primary.Crash(t.Context()))
	require.Error(t, insert(t.Context(), old, 0))
	require.NoError(t, standby.Promote(t.Context()))
	require.NoError(t, insert(t.Context(), connect(t, standby.DSN), 4))
	assert.Equal(t, []int{1, 2, 4}, numbers(t, connect(t, standby.DSN)))

	require.NoError(t, primary.Revive(t.Context()))
	assert.Equal(t, []int{1, 2, 3}, numbers(t, connect(t, primary.DSN)))
}

// A commit waits for a synchronous standby that is cut off, and is answered when it is back.
func TestCommitWaitsForASynchronousStandby(t *testing.T) {
	t.Parallel()
	primary, standby := pair(t)
	require.NoError(t, primary.Synchronous(t.Context(), true))
	db := connect(t, primary.DSN)
	require.NoError(t, insert(t.Context(), db, 1))
	require.NoError(t, standby.Detach(t.Context()))
	answer := make(chan error, 1)
	go func() { answer <- insert(context.Background(), db, 2) }()
	pids, err := primary.WaitingCommits(t.Context(), 1)
	require.NoError(t, err)
	require.Len(t, pids, 1)
	require.Empty(t, answer)
	require.NoError(t, standby.Attach(t.Context()))
	require.NoError(t, <-answer)
	require.NoError(t, standby.Detach(t.Context()))
	require.NoError(t, primary.Synchronous(t.Context(), false))
	require.NoError(t, insert(t.Context(), db, 3))
}

// A commit waits for one of two standbys, whichever. Of both, the one that was cut off last has received the most, and the other one
// can follow it.
func TestCommitWaitsForOneOfTwoStandbys(t *testing.T) {
	t.Parallel()
	primary, first := pair(t)
	second, err := primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, second.Stop()) })
	require.NoError(t, primary.AnyOf(t.Context(), first, second))
	require.NoError(t, first.CaughtUp(t.Context()))
	require.NoError(t, second.CaughtUp(t.Context()))
	db := connect(t, primary.DSN)
	require.NoError(t, insert(t.Context(), db, 1))
	require.NoError(t, first.Detach(t.Context()))
	require.NoError(t, insert(t.Context(), db, 2))
	require.NoError(t, second.Detach(t.Context()))
	answer := make(chan error, 1)
	go func() { answer <- insert(context.Background(), db, 3) }()
	_, err = primary.WaitingCommits(t.Context(), 1)
	require.NoError(t, err)
	require.Empty(t, answer)

	require.NoError(t, primary.Crash(t.Context()))
	require.Error(t, <-answer)
	less, err := first.Received(t.Context())
	require.NoError(t, err)
	more, err := second.Received(t.Context())
	require.NoError(t, err)
	assert.Greater(t, more, less)
	require.NoError(t, second.Promote(t.Context()))
	require.NoError(t, first.Follow(t.Context(), second))
	require.NoError(t, insert(t.Context(), connect(t, second.DSN), 4))
	require.NoError(t, first.CaughtUp(t.Context()))
	assert.Equal(t, []int{1, 2, 4}, numbers(t, connect(t, first.DSN)))
}

// A client of PgBouncer goes on through an exchange of the server, with the connection that it had.
func TestPoolerPointsAtAnotherServer(t *testing.T) {
	t.Parallel()
	primary, standby := pair(t)
	p := pgtest.NewPooler(t, primary.DSN)
	db := connect(t, p.DSN)
	db.SetMaxOpenConns(1)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = conn.ExecContext(t.Context(), `INSERT INTO numbers VALUES (1)`)
	require.NoError(t, err)
	require.NoError(t, standby.CaughtUp(t.Context()))

	require.NoError(t, p.Pause(t.Context()))
	answer := make(chan error, 1)
	go func() {
		_, err := conn.ExecContext(context.Background(), `INSERT INTO numbers VALUES (2)`)
		answer <- err
	}()
	require.NoError(t, primary.Crash(t.Context()))
	require.NoError(t, standby.Promote(t.Context()))
	require.NoError(t, p.PointAt(t.Context(), standby.DSN))
	require.Empty(t, answer, "who calls while it is paused waits")
	require.NoError(t, p.Resume(t.Context()))
	require.NoError(t, <-answer)
	assert.Equal(t, []int{1, 2}, numbers(t, connect(t, standby.DSN)))
}
