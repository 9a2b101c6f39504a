package pgtest_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
)

// A process that outlives a crash may wait for ever for a lock of a dead one. As long as it does, the server refuses to start.
func TestCrashLeavesNoProcess(t *testing.T) {
	t.Parallel()
	c, err := pgtest.Start(t.Context(), pgtest.Options{Durable: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Stop()) })
	_, err = connect(t, c.DSN).ExecContext(t.Context(), `CREATE TABLE numbers (n int)`)
	require.NoError(t, err)
	for range 5 {
		segment := segmentOf(t, connect(t, c.DSN))
		stop := clientsThatComeAndGo(t, c.DSN)
		require.NoError(t, c.Crash(t.Context()))
		require.Equal(t, "0", attachedTo(t, segment), "processes that are attached to the shared memory of the dead server")
		stop() // it would wait as long as such a process
		require.NoError(t, c.Revive(t.Context()))
	}
}

// PgBouncer, which ends by itself now and then, is told of another server although it has just ended.
func TestPoolerThatHasEndedIsToldOfAnotherServer(t *testing.T) {
	t.Parallel()
	primary, standby := pair(t)
	p := pgtest.NewPooler(t, primary.DSN)
	before := p.Restarts()
	require.NoError(t, standby.Promote(t.Context()))
	console := connect(t, strings.ReplaceAll(p.DSN, "dbname=postgres", "dbname=pgbouncer"))
	_, err := console.ExecContext(t.Context(), `SHUTDOWN`)
	require.Error(t, err, "it ends before it answers")
	require.NoError(t, p.PointAt(t.Context(), standby.DSN))
	assert.Positive(t, p.Restarts()-before)
	require.NoError(t, insert(t.Context(), connect(t, p.DSN), 1))
	assert.Equal(t, []int{1}, numbers(t, connect(t, standby.DSN)))
}

// clientsThatComeAndGo connect, insert and disconnect until the server is gone or stop is called. It returns once all have begun.
func clientsThatComeAndGo(t *testing.T, dsn string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	var running, begun sync.WaitGroup
	for range 8 {
		begun.Add(1)
		running.Go(func() {
			assert.NoError(t, comeAndGo(ctx, dsn))
			begun.Done()
			for ctx.Err() == nil && comeAndGo(ctx, dsn) == nil {
			}
		})
	}
	begun.Wait()
	return func() {
		cancel()
		running.Wait()
	}
}

func comeAndGo(ctx context.Context, dsn string) error {
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	return insert(ctx, db, 1)
}

// segmentOf returns the id of the server's shared memory: the last field of the seventh line of the file.
func segmentOf(t *testing.T, db *sql.DB) string {
	t.Helper()
	var folder string
	require.NoError(t, db.QueryRowContext(t.Context(), `SHOW data_directory`).Scan(&folder))
	text, err := os.ReadFile(filepath.Join(folder, "postmaster.pid"))
	require.NoError(t, err)
	lines := strings.Split(string(text), "\n")
	require.Greater(t, len(lines), 6, string(text))
	fields := strings.Fields(lines[6])
	require.Len(t, fields, 2, string(text))
	return fields[1]
}

// attachedTo returns how many processes are attached to the shared memory.
func attachedTo(t *testing.T, id string) string {
	t.Helper()
	table, err := os.ReadFile("/proc/sysvipc/shm")
	require.NoError(t, err)
	for line := range strings.Lines(string(table)) {
		if fields := strings.Fields(line); fields[1] == id {
			return fields[6]
		}
	}
	t.Fatalf("no shared memory has id %s:\n%s", id, table)
	return ""
}
