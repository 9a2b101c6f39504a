package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// An unsure driver commits, and answers some commits all the same with an error of the disk, as SQLite does when the log was
// written and could not be synced.
type unsure struct {
	inner driver.Driver
	dsn   string
	left  atomic.Int64 // how many commits are still answered so
}

func (u *unsure) Connect(context.Context) (driver.Conn, error) {
	c, err := u.inner.Open(u.dsn)
	return unsureConn{c, u}, err
}

func (u *unsure) Driver() driver.Driver { return u.inner }

type unsureConn struct {
	driver.Conn
	of *unsure
}

func (c unsureConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err == nil && query == `COMMIT` {
		stmt = unsureCommit{stmt, c.of}
	}
	return stmt, err
}

type unsureCommit struct {
	driver.Stmt
	of *unsure
}

func (s unsureCommit) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	result, err := s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
	if err == nil && s.of.left.Add(-1) >= 0 {
		return nil, diskError{}
	}
	return result, err
}

type diskError struct{}

func (diskError) Error() string { return "disk I/O error" }
func (diskError) Code() int     { return codeIO }

// The calls of a shared commit are in doubt together: to try each of them once more would apply it twice.
func TestDoubtInASharedCommit(t *testing.T) {
	const callers = 10
	s := newStore(t)
	file := url.URL{Scheme: "file", Opaque: s.place.path, RawQuery: "_pragma=foreign_keys(1)"}
	disk := &unsure{inner: s.DB().Driver(), dsn: file.String()}
	db := sqlx.NewDb(sql.OpenDB(disk), "sqlite")
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	s.writer.db = db // the writer has no connection before its first call
	enqueue(t, s, 1)

	tx := hold(t, s)
	var all sync.WaitGroup
	var doubts atomic.Int64
	for range callers {
		all.Go(func() {
			if _, err := s.Enqueue(context.Background(), newJobs(1)); assert.ErrorIs(t, err, store.ErrInDoubt) {
				doubts.Add(1)
			}
		})
	}
	until(t, "all callers wait", func() bool { return s.writer.inLine() == callers })
	disk.left.Store(1)
	require.NoError(t, tx.Rollback())
	all.Wait()
	assert.EqualValues(t, callers, doubts.Load())
	assert.Negative(t, disk.left.Add(-1), "the commit that nobody is sure of")
	assert.Equal(t, int64(1+callers), countIn(t, s, store.Ready), "each of them was applied, and once")
	enqueue(t, s, 1)
	intact(t, s)
}
