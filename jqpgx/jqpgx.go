// Package jqpgx is for applications that use Postgres through pgx. Open keeps jobs on their pool of connections, and Tx makes jobs
// a part of their transactions.
//
//	store, err := jqpgx.Open(ctx, pool, nil)
//	...
//	client := jq.NewClient(store, nil)
//	...
//	tx, err := pool.Begin(ctx)
//	...
//	_, err = tx.Exec(ctx, `INSERT INTO orders ...`)
//	...
//	_, err = client.EnqueueTx(ctx, jqpgx.Tx(tx), Ship{Order: 17}, nil)
//	...
//	err = tx.Commit(ctx)
//
// It is a module of its own, so that only applications that use pgx download it.
package jqpgx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-ed332417/jq"
)

// Tx returns the transaction in the form that EnqueueTx, FinishTx and InTx take. You begin, commit and roll back tx itself. It may
// also be a nested transaction, whose rollback to its savepoint takes back what was written in it.
//
// The transaction must be open, and on the store's database. If it is nil, has ended, has failed, or is in fact no transaction,
// each call returns ErrInvalid, and nothing is written. As with any statement of a pgx.Tx, only one call at a time may use it, and
// no rows of an earlier query may be open.
//
// If the context of a call ends while the call waits for the server, pgx closes the connection, and the transaction is rolled
// back: the call returns ErrUnavailable, and each later call ErrInvalid. Do all of it in another transaction then.
//
// If commits wait for a synchronous standby, see postgres.ConfirmCommits about commits that stop waiting.
func Tx(tx pgx.Tx) jq.Tx {
	if v := reflect.ValueOf(tx); tx == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil
	}
	return transaction{tx}
}

// A transaction makes statements of database/sql run in a pgx.Tx.
type transaction struct{ tx pgx.Tx }

// ExecContext is part of jq.Tx.
func (t transaction) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	db := t.pool()
	defer func() { _ = db.Close() }()
	return db.ExecContext(ctx, query, args...)
}

// QueryContext is part of jq.Tx.
func (t transaction) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	db := t.pool()
	defer func() { _ = db.Close() }()
	return db.QueryContext(ctx, query, args...)
}

// QueryRowContext is part of jq.Tx.
func (t transaction) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	db := t.pool()
	defer func() { _ = db.Close() }()
	return db.QueryRowContext(ctx, query, args...)
}

// pool returns a pool for one statement, because only a pool makes an *sql.Rows. It has a goroutine, which ends when the pool is
// closed. Rows that are still open then stay readable, because they hold their connection.
func (t transaction) pool() *sql.DB { return sql.OpenDB(connector(t)) }

// A connector opens connections that are all the same transaction.
type connector struct{ tx pgx.Tx }

// Connect is part of driver.Connector.
func (c connector) Connect(context.Context) (driver.Conn, error) {
	return joined{conn: conn{c.tx}}, nil
}

// Driver is part of driver.Connector.
func (connector) Driver() driver.Driver { return nil }

// A joined connection is a caller's transaction. Its pool calls no other methods of driver.Conn.
type joined struct {
	driver.Conn
	conn
}

// Close is part of driver.Conn. It leaves the transaction alone, which is the caller's.
func (joined) Close() error { return nil }

// A conn runs statements of database/sql by pgx.
type conn struct{ on runner }

// A runner is a transaction or a connection of pgx.
type runner interface {
	Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
	Conn() *pgx.Conn
}

// ExecContext is part of driver.ExecerContext.
func (c conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	tag, err := c.on.Exec(ctx, query, plain(args)...)
	if err != nil {
		return nil, c.explain(err)
	}
	return driver.RowsAffected(tag.RowsAffected()), nil
}

// QueryContext is part of driver.QueryerContext.
func (c conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.on.Query(ctx, query, append([]any{formats}, plain(args)...)...)
	if err != nil {
		return nil, c.explain(err)
	}
	r := &resultRows{conn: c, rows: rows}
	r.read = rows.Next() // the names of columns and some errors come with the first row
	if err := rows.Err(); err != nil {
		return nil, c.explain(err)
	}
	return r, nil
}

func plain(args []driver.NamedValue) []any {
	values := make([]any, len(args))
	for i, a := range args {
		values[i] = a.Value
	}
	return values
}

// explain says in terms of database/sql that the transaction has ended, and gives the server's errors their origin.
func (c conn) explain(err error) error {
	if errors.Is(err, pgx.ErrTxClosed) {
		return fmt.Errorf("%w: %w", sql.ErrTxDone, err)
	}
	if on := c.on.Conn(); on != nil && on.IsClosed() && pgconn.SafeToRetry(err) {
		return fmt.Errorf("%w: %w", sql.ErrConnDone, err) // since an earlier statement
	}
	return coded(err)
}

// coded returns the error with its origin if it is one of the server.
func coded(err error) error {
	if said, ok := errors.AsType[*pgconn.PgError](err); ok {
		return serverError{err, said}
	}
	return err
}

// A serverError is an error of the server. The store asks it for the function of the server that raised it.
type serverError struct {
	error
	said *pgconn.PgError
}

func (e serverError) Unwrap() error   { return e.error }
func (e serverError) Routine() string { return e.said.Routine }
