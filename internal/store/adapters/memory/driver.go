package memory

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
)

// DB opens transactions for [Store.InTx], so that code which takes a *sql.Tx can be tested without a database. It stands in
// for one and runs no SQL: a statement that is executed is accepted and does nothing, and a query is an error. It is closed
// with the store.
//
// A transaction that was written in and left open keeps every other call waiting, until it is committed, is rolled back or
// its context ends: whoever opens one should defer its Rollback.
func (s *Store) DB() *sql.DB {
	s.dbOnce.Do(func() { s.db = sql.OpenDB(connector{s}) })
	return s.db
}

// statement carries a call of a writer; its argument is the *call.
const statement = "-- a call of jq, for its memory store only"

// errNoSQL answers what would need a database.
var errNoSQL = errors.New("jq: the memory store's DB runs no SQL and answers no query")

// A connector makes connections to the store, without a name in the global list of drivers.
type connector struct{ store *Store }

func (c connector) Connect(context.Context) (driver.Conn, error) { return &conn{store: c.store}, nil }
func (c connector) Driver() driver.Driver                        { return c }

// Open is there because database/sql wants a driver: names mean nothing to it.
func (c connector) Open(string) (driver.Conn, error) { return &conn{store: c.store}, nil }

// A conn is a connection, which has at most one transaction at a time.
type conn struct {
	store *Store
	tx    *transaction
}

var (
	_ driver.ConnBeginTx       = (*conn)(nil)
	_ driver.ExecerContext     = (*conn)(nil)
	_ driver.QueryerContext    = (*conn)(nil)
	_ driver.NamedValueChecker = (*conn)(nil)
)

// BeginTx opens a transaction. It is serializable, as every call of the store is.
func (c *conn) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	c.tx = c.store.begin(ctx)
	return c, nil
}

// Begin is BeginTx for those who know no context.
func (c *conn) Begin() (driver.Tx, error) { return c.BeginTx(context.Background(), driver.TxOptions{}) }

// ExecContext runs a call of the store in the connection's transaction, and lets every other statement be.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if query != statement || len(args) != 1 {
		return driver.RowsAffected(0), nil
	}
	call, ok := args[0].Value.(*call)
	if !ok {
		return driver.RowsAffected(0), nil
	}
	call.served = true
	if c.tx == nil || call.store != c.store {
		call.err = foreignTx()
	} else {
		call.err = c.tx.do(ctx, call)
	}
	return driver.RowsAffected(0), call.err
}

// QueryContext refuses: there are no rows.
func (c *conn) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return nil, errNoSQL
}

// CheckNamedValue lets every argument pass: a call of the store, and whatever the caller's own statements have.
func (c *conn) CheckNamedValue(*driver.NamedValue) error { return nil }

// Commit ends the transaction and lets others see what was done in it.
func (c *conn) Commit() error {
	tx := c.tx
	c.tx = nil
	return tx.commit()
}

// Rollback ends the transaction and takes back what was done in it.
func (c *conn) Rollback() error {
	tx := c.tx
	c.tx = nil
	tx.abandon()
	return nil
}

// Close is called once the connection has no transaction.
func (c *conn) Close() error { return nil }

// Prepare accepts any text.
func (c *conn) Prepare(string) (driver.Stmt, error) { return idle{}, nil }

// An idle statement is one of the caller's, which does nothing.
type idle struct{}

func (idle) Close() error                               { return nil }
func (idle) NumInput() int                              { return -1 } // any
func (idle) Exec([]driver.Value) (driver.Result, error) { return driver.RowsAffected(0), nil }
func (idle) Query([]driver.Value) (driver.Rows, error)  { return nil, errNoSQL }
