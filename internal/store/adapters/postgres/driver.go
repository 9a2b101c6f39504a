package postgres

import (
	"context"
	"database/sql/driver"
	"fmt"
	"time"
)

// A Driver gives a store connections of any driver for database/sql, from a pool that others use too.
//
// Its errors from the server have the methods SQLState and Routine, which return the code of the error and the function of the
// server that raised it.
type Driver struct {
	// Connector takes a connection from the pool. Each is a [Conn].
	Connector driver.Connector

	// Listen calls heard with the payload of each notification on the channel, and connected whenever it has begun to listen on
	// another connection, until the context ends.
	Listen func(ctx context.Context, channel string, connected func(), heard func(payload string))
}

// A Conn is a connection of a Driver.
//
// A query or a command without arguments may be a text of several statements. The rows are then a driver.RowsNextResultSet,
// which leaves out statements that return no rows.
type Conn interface {
	standard

	// Warned reports whether the server has sent a warning with [CodeWarning] since Warned was last called. It must know of
	// those that came during ExecContext and Commit.
	Warned() bool

	// Discard makes Close end the connection, even if it came from a pool.
	Discard()
}

// The standard part of a connection is what database/sql leaves open to drivers.
type standard interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

// OpenOn opens a store on connections of the driver. Sessions keep nothing of it between transactions. It takes a connection only
// for a transaction, and waits for one as long as a call may take (Options.Timeout).
func OpenOn(ctx context.Context, d Driver, options *Options) (*Store, error) {
	s, err := newStore(options)
	if err != nil {
		return nil, err
	}
	s.shared = true
	if s.listen == nil && !s.options.Pooled {
		s.listen = d.Listen
	}
	s.pools(patient{d.Connector, s.options.Timeout}, confirming{Connector: d.Connector}, false)
	s.callers.SetMaxIdleConns(-1)
	return s.opened(ctx)
}

// A sessions connector opens the store's own connections.
type sessions struct{ driver.Connector }

// Connect is part of driver.Connector.
func (c sessions) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	s := newSession(&confirmed{Conn: conn.(Conn)}) // migrations begin and commit through the driver
	if own, ok := conn.(*pqConn); ok {
		s.interrupt, s.silent = own.interrupt, own.line.silent
	}
	return s, nil
}

// A patient connector waits for a connection, but not longer than it may.
type patient struct {
	driver.Connector
	most time.Duration
}

// Connect is part of driver.Connector.
func (p patient) Connect(ctx context.Context) (driver.Conn, error) {
	within, cancel := context.WithTimeout(ctx, p.most)
	defer cancel()
	conn, err := p.Connector.Connect(within)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("no connection within %v: %s", p.most, err.Error()) // it is not the caller's context that has ended
	}
	return conn, err
}
