package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/seed-ed332417/jq/internal/store"
)

// Commits that were not confirmed.
//
// Under synchronous replication, a COMMIT waits until a standby has it. A cancel request can interrupt that wait: the driver
// sends one when a context ends, and so does pg_cancel_backend. The server then reports success for the COMMIT, after a
// warning. The transaction is committed there and everybody sees it, but a failover loses it. The store returns ErrInDoubt.
//
// The warning has the code 01000 and a text in the server's language. Other warnings have the same code: a user's own trigger
// (RAISE WARNING), or a notification queue that is half full. They cause a false doubt, which costs a repeated call. The
// opposite mistake would confirm a call that may be lost.
//
// When a call in doubt is repeated, it finds what it did before. The repeated call waits for a standby too, because a commit
// waits for the whole log before it, provided that its own transaction has written to the log. Each repeated call has: it locks
// the rows that it answers for, and the server logs these locks. Calls that find nothing any more write a message to the log.

// CodeWarning is the code of warnings that have none of their own.
const CodeWarning = "01000"

// errUnconfirmed is the error of a commit that a standby may not have.
var errUnconfirmed = errors.New("the commit stopped waiting for a synchronous standby: make sure that one is connected")

// ConfirmCommits wraps a connector so that Commit returns an ErrInDoubt error if the server committed without waiting for its
// synchronous standby. Use it if you run transactions with jobs on a *sql.DB of your own:
//
//	connector, err := pq.NewConnector(dsn)
//	db := sql.OpenDB(postgres.ConfirmCommits(connector))
//
// The connector must be lib/pq's. Transactions of [Store.DB] are confirmed already. The server must send warnings: it does
// unless client_min_messages is error.
func ConfirmCommits(c driver.Connector) driver.Connector {
	return confirming{Connector: plainConnector{c}}
}

// A confirming connector opens connections of a Driver, whose commits it confirms.
type confirming struct {
	driver.Connector
	recurring map[string]bool // statements that the connections prepare; may be nil
	server    *server         // that they lead to; nil if somebody else looks after that
}

// Connect is part of driver.Connector.
func (c confirming) Connect(ctx context.Context) (driver.Conn, error) {
	own := &confirmed{recurring: c.recurring, server: c.server}
	if c.server != nil {
		own.replaced = c.server.replaced.Load()
	}
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	own.Conn = conn.(Conn)
	return own, nil
}

// A confirmed is a connection with its current transaction.
type confirmed struct {
	Conn
	tx     driver.Tx
	ctx    context.Context // of the transaction
	writes bool
	spoilt bool // must not be used again

	recurring map[string]bool // the statements that it prepares
	prepared  statements

	server   *server // may be nil
	replaced int64   // the server's when the connection was opened
}

// BeginTx is part of driver.ConnBeginTx.
func (c *confirmed) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	tx, err := c.Conn.BeginTx(ctx, o)
	if err != nil {
		code := codeOf(err)
		if !o.ReadOnly && (code == codeReadOnly || code == codeNotSupported) { // the answer of a standby to READ WRITE
			c.spoil()
		}
		return nil, err
	}
	c.tx, c.ctx, c.writes = tx, ctx, !o.ReadOnly
	return c, nil
}

// IsValid is part of driver.Validator. After a standby has refused to write, the pool opens another connection, which may lead
// to the new primary. So does one that was opened before the store met a server that was replaced: this may be the one.
func (c *confirmed) IsValid() bool {
	if c.server != nil && c.server.replaced.Load() != c.replaced {
		c.spoil()
	}
	return !c.spoilt && c.Conn.IsValid()
}

// ResetSession is part of driver.SessionResetter. database/sql asks only here whether a connection is valid that was idle.
func (c *confirmed) ResetSession(ctx context.Context) error {
	if !c.IsValid() {
		return driver.ErrBadConn
	}
	return c.Conn.ResetSession(ctx)
}

// spoil says that the connection must not be used again after its transaction.
func (c *confirmed) spoil() {
	c.spoilt = true
	c.Discard()
}

// Commit is part of driver.Tx.
func (c *confirmed) Commit() error {
	c.Warned()
	err := c.tx.Commit()
	if err == nil && c.writes && (c.Warned() || c.ctx.Err() != nil) {
		return fmt.Errorf("%w: %w", store.ErrInDoubt, errUnconfirmed)
	}
	return err
}

// Rollback is part of driver.Tx.
func (c *confirmed) Rollback() error { return c.tx.Rollback() }
