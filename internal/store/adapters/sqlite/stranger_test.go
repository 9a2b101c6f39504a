package sqlite

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// runSQL is a process that knows nothing of the store: it runs each line that it reads on one connection to the file, and
// answers with a line.
func runSQL(path string, in io.Reader, out io.Writer) error {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if _, err := db.Exec(lines.Text()); err != nil {
			fmt.Fprintln(out, err)
		} else {
			fmt.Fprintln(out, "ok")
		}
	}
	return errors.Join(lines.Err(), db.Close())
}

// say lets the process run a statement.
func (c *child) say(t *testing.T, statement string) {
	t.Helper()
	_, err := fmt.Fprintln(c.in, statement)
	require.NoError(t, err)
	require.True(t, c.out.Scan(), "an answer to %s", statement)
	require.Equal(t, "ok", c.out.Text(), statement)
}

func (c *child) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, c.Process.Kill())
	require.Error(t, c.Wait())
}

func TestStrangerWithTheWriteLock(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path, nil)
	enqueue(t, s, 1)
	stranger := start(t, "sql", path)
	defer stranger.kill(t)
	stranger.say(t, `BEGIN IMMEDIATE`)
	stranger.say(t, `CREATE TABLE strange (a)`)

	ends := func(what string, call func(ctx context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err := call(ctx)
		assert.ErrorIs(t, err, store.ErrUnavailable, what)
		assert.ErrorIs(t, err, context.DeadlineExceeded, what)
		assert.NotContains(t, err.Error(), "\n", what)
	}
	ends("a call that writes", func(ctx context.Context) error {
		_, err := s.Enqueue(ctx, newJobs(1))
		return err
	})
	ends("another one", func(ctx context.Context) error {
		_, err := s.FetchAndClaim(ctx, claimOf(1))
		return err
	})
	assert.Equal(t, int64(1), countIn(t, openAt(t, path, nil), store.Ready), "a second store opens, and its readers do not wait")
	assert.Equal(t, int64(1), countIn(t, s, store.Ready), "readers do not wait")

	stranger.say(t, `COMMIT`)
	enqueue(t, s, 1)
	assert.Equal(t, int64(2), countIn(t, s, store.Ready), "a call that has ended is not applied later")
	assert.Zero(t, countIn(t, s, store.InFlight), "a call that has ended is not applied later")
	intact(t, s)
}

func TestStrangerThatDiesWithTheWriteLock(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path, nil)
	stranger := start(t, "sql", path)
	stranger.say(t, `BEGIN IMMEDIATE`)
	stranger.say(t, `CREATE TABLE strange (a)`)
	done := make(chan error)
	go func() {
		_, err := s.Enqueue(t.Context(), newJobs(1))
		done <- err
	}()
	until(t, "the call waits", func() bool { return s.writer.inLine() == 1 })
	stranger.kill(t)
	require.NoError(t, <-done)
	assert.Equal(t, int64(1), countIn(t, s, store.Ready))
	intact(t, s)
	_, err := s.DB().Exec(`SELECT * FROM strange`)
	assert.ErrorContains(t, err, "no such table", "what the stranger had not committed")
}
