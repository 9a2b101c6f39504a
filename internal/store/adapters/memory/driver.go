package memory

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
)

// DB opens transactions for [Store.InTx], so that you can test code that takes a *sql.Tx without a database. It runs no SQL: a
// statement succeeds and does nothing, and a query returns an error. DB is closed with the store.
//
// A transaction in which you have written blocks every other call until you commit it or roll it back, or until its context
// ends. So defer its Rollback.
func (s *Store) DB() *sql.DB {
	s.dbOnce.Do(func() { s.db = sql.OpenDB(connector{s}) })
	return s.db
}

// statement is the text of the statement that carries a writer's call. Its argument is the *call.
const statement = "-- a call of jq, for its memory store only"

// errNoSQL is the answer to anything that would need a real database.
var errNoSQL = errors.New("jq: the memory store's DB runs no SQL and answers no query")

// A connector opens connections to the store. It is not registered in the global list of drivers.
type connector struct{ store *Store }

func (c connector) Connect(context.Context) (driver.Conn, error) { return &conn{store: c.store}, nil }
func (c connector) Driver() driver.Driver                        { return c }

// Open implements driver.Driver and ignores the name.
func (c connector) Open(string) (driver.Conn, error) { return &conn{store: c.store}, nil }

// A conn is a connection. It has at most one transaction at a time.
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

// BeginTx opens a transaction. It is serializable, like every call of the store.
func (c *conn) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	c.tx = c.store.begin(ctx)
	return c, nil
}

// Begin is BeginTx without a context.
func (c *conn) Begin() (driver.Tx, error) { return c.BeginTx(context.Background(), driver.TxOptions{}) }

// ExecContext runs a call of the store in the connection's transaction, and ignores every other statement.
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

// QueryContext always fails, because there are no rows.
func (c *conn) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return nil, errNoSQL
}

// CheckNamedValue accepts every argument: the store's calls, and the arguments of the caller's own statements.
func (c *conn) CheckNamedValue(*driver.NamedValue) error { return nil }

// Commit ends the transaction and makes its changes visible to other calls.
func (c *conn) Commit() error {
	tx := c.tx
	c.tx = nil
	return tx.commit()
}

// Rollback ends the transaction and undoes its changes.
func (c *conn) Rollback() error {
	tx := c.tx
	c.tx = nil
	tx.abandon()
	return nil
}

// Close has nothing to do: database/sql calls it when the connection has no transaction.
func (c *conn) Close() error { return nil }

// Prepare accepts any text.
func (c *conn) Prepare(string) (driver.Stmt, error) { return idle{}, nil }

// An idle is a statement of the caller. It does nothing.
type idle struct{}

func (idle) Close() error                               { return nil }
func (idle) NumInput() int                              { return -1 } // any number of arguments
func (idle) Exec([]driver.Value) (driver.Result, error) { return driver.RowsAffected(0), nil }
func (idle) Query([]driver.Value) (driver.Rows, error)  { return nil, errNoSQL }
