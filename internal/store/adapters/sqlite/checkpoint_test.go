package sqlite

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

func logSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path + "-wal")
	require.NoError(t, err)
	return info.Size()
}

// D10: a copy of the file of a running server was an empty store that opened without a word.
func TestQuietStoreIsAllInItsFile(t *testing.T) {
	path := newPath(t)
	c := start(t, "seed", path)
	require.True(t, c.out.Scan(), "20 jobs are added")
	until(t, "the log is cut", func() bool { return logSize(t, path) == 0 })
	copied := newPath(t)
	copyFile(t, path, copied) // and nothing beside it
	s := openAt(t, copied, nil)
	intact(t, s)
	assert.Equal(t, int64(20), countIn(t, s, store.Ready))
	c.kill(t)
}

// What a process that died has left in the log, any other carries into the file.
func TestLogOfADeadProcessIsCut(t *testing.T) {
	path := newPath(t)
	known := killed(t, path)
	require.Positive(t, logSize(t, path))
	s := openAt(t, path, nil)
	until(t, "the log is cut", func() bool { return logSize(t, path) == 0 })
	known.check(t, s)
}

// A reader that needs the log keeps it, and holds up nobody; after it the log is cut.
func TestLogIsKeptForAReader(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path, nil)
	enqueue(t, s, 1)
	release, err := s.HoldSnapshot(t.Context())
	require.NoError(t, err)
	enqueue(t, s, 1)
	require.Positive(t, logSize(t, path))
	w := &writer{
		ctx: t.Context(), db: s.callers, place: s.place, afresh: s.afresh, turns: newTurn(s.place.real, "test"), patience: time.Second,
	}
	assert.False(t, w.cut(time.Millisecond), "the reader needs it")
	enqueue(t, s, 1)
	require.NoError(t, release())
	assert.True(t, w.cut(time.Second))
	assert.Zero(t, logSize(t, path))
	w.disconnect()
	assert.Equal(t, int64(3), countIn(t, s, store.Ready))
}
