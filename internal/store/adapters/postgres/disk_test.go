package postgres

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/pgtest"
)

// TestFullDisk leaves the server no room, under load: first for its tables, which it can say, and then for its log, which
// ends it.
func TestFullDisk(t *testing.T) {
	noLeaks(t)
	c, err := pgtest.Start(t.Context(), pgtest.Options{
		Durable: true, Network: true, Disk: 128 << 20,
		Settings: []string{"shared_buffers=16MB", "min_wal_size=32MB", "max_wal_size=48MB", "restart_after_crash=off"},
	})
	if errors.Is(err, pgtest.ErrNoDisk) {
		t.Skipf("left out, a full disk is not tried: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Stop()) })
	stores := []*Store{openOn(t, c.DSN, "socket"), openOn(t, c.TCP, "network")}
	l := newLoad(openOn(t, c.DSN, "judge"))
	roomInLog(t, l.judge)
	l.run(t, 4, stores, func() {
		l.after(t, 100)
		require.NoError(t, c.Fill())
		l.hears(t, "the server's disk is full", 50)
		require.NoError(t, c.Free())
		l.after(t, 100)

		require.NoError(t, c.Fill())
		for began := time.Now(); c.Running(); { // the log grows by all that is tried
			require.Less(t, time.Since(began), time.Minute, "the server lives without a log")
			_, _ = l.judge.db.ExecContext(t.Context(), `SELECT pg_logical_emit_message(TRUE, 'jq', repeat('x', 100000))`)
		}
		require.NoError(t, c.Free())
		require.NoError(t, c.Revive(t.Context()))
		l.after(t, 100)
	})
	assert.Zero(t, l.heard("may have been applied: the server's disk is full"), "a statement that finds no room leaves no doubt")
	figures.Print(t, "a server's disk full twice, the second time to its death: %v", l)
	figures.Count(t, "full disks", 2)
	figures.Count(t, "calls", int(l.answered.Load()))
}

// roomInLog makes the server keep some empty files for its log, so that its tables are the first to find no room.
func roomInLog(t *testing.T, s *Store) {
	t.Helper()
	for range 24 {
		for _, statement := range []string{`SELECT pg_logical_emit_message(TRUE, 'jq', 'x')`, `SELECT pg_switch_wal()`} {
			_, err := s.db.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
	}
	_, err := s.db.ExecContext(t.Context(), `CHECKPOINT`)
	require.NoError(t, err)
}
