package postgres

import (
	"context"
	"database/sql/driver"
	"time"

	"github.com/jmoiron/sqlx"
)

// A session is one of the store's own connections, which prepares statements: for a call about one job, the server needs
// several times as long to plan as to run.
type session struct {
	Conn
	pool   *pool     // that it goes back to
	class  class     // of its present user
	since  time.Time // when its latest user gave it back
	worked time.Time // when the server last answered it
	spoilt bool
	damage error // of an answer that the driver could not read; see damaged

	interrupt func()      // ends the present call; nil if only a context can
	silent    func() bool // reports that the server has neither said anything since the latest call nor gone; may be nil

	prepares bool // in the present transaction
	prepared statements
}

func newSession(conn Conn) *session { return &session{Conn: conn} }

// sessionOf returns the session of the connection.
func sessionOf(conn *sqlx.Conn) (own *session, err error) {
	err = conn.Raw(func(conn any) error {
		own = conn.(*session)
		return nil
	})
	return own, err
}

// Close is part of driver.Conn.
func (s *session) Close() error {
	if s.pool == nil {
		return s.Conn.Close()
	}
	return s.pool.put(s)
}

// warm reports whether the session has worked a moment ago, and the server has not ended it since.
func (s *session) warm() bool {
	return time.Since(s.worked) <= warmFor && (s.silent == nil || s.silent())
}

// until returns the context for statements that must end with ctx, and a function to be called after them. If the session can be
// interrupted, that context can not end by itself, so that neither the driver nor database/sql needs goroutines to watch it.
func (s *session) until(ctx context.Context) (statements context.Context, unwatch func()) {
	if s.interrupt == nil {
		return ctx, func() {}
	}
	stop := context.AfterFunc(ctx, s.interrupt)
	return context.WithoutCancel(ctx), func() {
		if !stop() {
			s.Discard() // perhaps just now
		}
	}
}

// Discard is part of Conn.
func (s *session) Discard() {
	s.spoilt = true
	s.Conn.Discard()
}

// IsValid is part of driver.Validator.
func (s *session) IsValid() bool { return !s.spoilt && s.Conn.IsValid() }

// ResetSession is part of driver.SessionResetter. The next user of the connection has not begun a transaction.
func (s *session) ResetSession(ctx context.Context) error {
	s.prepares = false
	return s.Conn.ResetSession(ctx)
}

// QueryContext is part of driver.QueryerContext.
func (s *session) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (_ driver.Rows, err error) {
	defer s.damaged(&err)
	stmt, err := s.statement(ctx, query, args)
	if err != nil {
		return nil, err
	}
	var rows driver.Rows
	if stmt == nil {
		rows, err = s.Conn.QueryContext(ctx, query, args)
	} else {
		rows, err = stmt.QueryContext(ctx, args)
	}
	if err != nil {
		return nil, err
	}
	return &guarded{rows, s}, nil
}

// ExecContext is part of driver.ExecerContext.
func (s *session) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (_ driver.Result, err error) {
	defer s.damaged(&err)
	stmt, err := s.statement(ctx, query, args)
	switch {
	case err != nil:
		return nil, err
	case stmt == nil:
		return s.Conn.ExecContext(ctx, query, args)
	default:
		return stmt.ExecContext(ctx, args)
	}
}

// statement returns the prepared statement, or nil if the text must be sent.
func (s *session) statement(ctx context.Context, query string, args []driver.NamedValue) (statement, error) {
	if s.damage != nil {
		return nil, s.damage
	}
	if !s.prepares || len(args) == 0 {
		return nil, nil
	}
	return s.prepared.get(ctx, s.Conn, query)
}
