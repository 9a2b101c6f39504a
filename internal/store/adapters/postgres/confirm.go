package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/lib/pq"

	"github.com/seed-ed332417/jq/internal/store"
)

// Commits that were not confirmed.
//
// Under synchronous replication a COMMIT waits until a standby has it. The wait can be broken off: by a cancel request, which
// the driver sends when a context ends, or by pg_cancel_backend. The server then answers the COMMIT with success, and with a
// warning before it. The transaction is committed there and visible to everybody, but a failover loses it.
// For the store this is ErrInDoubt.
//
// The warning has the code 01000 and a text in the server's language. Other warnings have the same code: that of a user's own
// trigger (RAISE WARNING), and that a half of the queue of notifications is taken. They cause a doubt that is none, which costs
// a repeated call. The other way round, a call would be acknowledged that may be lost.
//
// A call in doubt is repeated, and finds what it did before. That answer waits for a standby as well, since a commit waits for the
// whole log before it, provided that the transaction itself has written to the log. Each call has, that answers for what it found:
// it has locked the rows, which the server logs.

// codeWarning is that of a warning without one of its own.
const codeWarning = "01000"

// errUnconfirmed is the end of a commit that a standby may not have.
var errUnconfirmed = errors.New("the commit did not wait for a synchronous standby until the end: see that one is connected")

// A warning says whether the server has warned since it was set to false.
type warning bool

// listen lets the connection, which is the driver's, set the warning. It costs nothing where the server has nothing to say.
func (w *warning) listen(conn driver.Conn) {
	before := pq.NoticeHandler(conn)
	pq.SetNoticeHandler(conn, func(n *pq.Error) {
		if n.Code == codeWarning {
			*w = true
		}
		if before != nil {
			before(n)
		}
	})
}

// ConfirmCommits makes connections whose Commit returns an error that is ErrInDoubt where the server has committed without
// waiting for its synchronous standby until the end. It is for callers who have a *sql.DB of their own for transactions with jobs:
//
//	connector, err := pq.NewConnector(dsn)
//	db := sql.OpenDB(postgres.ConfirmCommits(connector))
//
// The connector must be one of lib/pq. The transactions of [Store.DB] are confirmed already. The server must send warnings, which it
// does unless client_min_messages is error.
func ConfirmCommits(c driver.Connector) driver.Connector { return confirming{c} }

type confirming struct{ driver.Connector }

// Connect is part of driver.Connector.
func (c confirming) Connect(ctx context.Context) (driver.Conn, error) {
	if _, ok := c.Driver().(*pq.Driver); !ok {
		return nil, fmt.Errorf("jq: ConfirmCommits was given a connector of %T: want one of lib/pq", c.Driver())
	}
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	own := &confirmed{connection: conn.(connection)}
	own.warned.listen(conn)
	return own, nil
}

// A confirmed is a connection, and the transaction that is under way on it.
type confirmed struct {
	connection
	warned warning
	tx     driver.Tx
	ctx    context.Context // of the transaction
	writes bool
	left   bool // it leads to a server that takes no writes, as to a standby that was meant to be the primary
}

// BeginTx is part of driver.ConnBeginTx.
func (c *confirmed) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	tx, err := c.connection.BeginTx(ctx, o)
	if err != nil {
		code := codeOf(err)
		c.left = !o.ReadOnly && (code == codeReadOnly || code == codeNotSupported) // what a standby says to READ WRITE
		return nil, err
	}
	c.tx, c.ctx, c.writes = tx, ctx, !o.ReadOnly
	return c, nil
}

// IsValid is part of driver.Validator: the next transaction gets another connection, which may lead elsewhere by then.
func (c *confirmed) IsValid() bool { return !c.left && c.connection.IsValid() }

// Commit is part of driver.Tx.
func (c *confirmed) Commit() error {
	c.warned = false
	err := c.tx.Commit()
	if err == nil && c.writes && (bool(c.warned) || c.ctx.Err() != nil) {
		return fmt.Errorf("%w: %w", store.ErrInDoubt, errUnconfirmed)
	}
	return err
}

// Rollback is part of driver.Tx.
func (c *confirmed) Rollback() error { return c.tx.Rollback() }
