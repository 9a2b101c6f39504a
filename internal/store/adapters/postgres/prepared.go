package postgres

import (
	"context"
	"database/sql/driver"
)

// mostPrepared is how many statements a connection keeps. The store has fewer that recur.
const mostPrepared = 64

// Statements are those that a connection has prepared. One is prepared on its second use.
type statements struct {
	seen map[string]bool      // used once
	kept map[string]statement // used again
}

// A statement is what the driver's prepared statements can do.
type statement interface {
	driver.StmtExecContext
	driver.StmtQueryContext
}

// get returns the prepared statement, or nil if the text must be sent.
func (p *statements) get(ctx context.Context, conn Conn, query string) (statement, error) {
	if found, ok := p.kept[query]; ok {
		return found, nil
	}
	if p.seen == nil {
		p.seen, p.kept = map[string]bool{}, map[string]statement{}
	}
	if !p.seen[query] || len(p.kept) == mostPrepared {
		p.seen[query] = true
		return nil, nil
	}
	stmt, err := conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	p.kept[query] = stmt.(statement)
	return p.kept[query], nil
}

// recurring are the statements of the store that are prepared in callers' transactions: to plan them takes the server longer than to
// run them, and the plan is always the same. That of another statement may soon be a bad one, without the settings of the store's own sessions.
func (s *Store) recurring() map[string]bool {
	all := map[string]bool{askCaller: true}
	for _, with := range []insertion{ordinary, withExtras, withLinks} {
		all[s.sql(with.inTx)] = true
	}
	return all
}

// QueryContext is part of driver.QueryerContext.
//
// The driver considers a connection valid although it has asked the server to cancel a prepared statement, and may be heard too late.
// So the connection is not used again after such a transaction, nor after somebody has told the server to forget the statements.
func (c *confirmed) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if !c.recurring[query] {
		return c.Conn.QueryContext(ctx, query, args)
	}
	stmt, err := c.prepared.get(ctx, c.Conn, query)
	switch {
	case err != nil:
		return nil, err
	case stmt == nil:
		return c.Conn.QueryContext(ctx, query, args)
	}
	rows, err := stmt.QueryContext(ctx, args)
	if err != nil {
		c.noteEnd(ctx, err)
		return nil, err
	}
	return &watched{rows, c, ctx}, nil
}

// noteEnd notes the end of a prepared statement.
func (c *confirmed) noteEnd(ctx context.Context, err error) {
	if ctx.Err() != nil || codeOf(err) == codeNoStatement {
		c.spoil()
	}
}

// The watched rows are those of a prepared statement in a caller's transaction.
type watched struct {
	driver.Rows
	c   *confirmed
	ctx context.Context
}

// Close is part of driver.Rows.
func (w *watched) Close() error {
	err := w.Rows.Close()
	w.c.noteEnd(w.ctx, err)
	return err
}
