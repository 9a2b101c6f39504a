package jqpgx

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	adapter "github.com/seed-ed332417/jq/internal/store/adapters/postgres"
	"github.com/seed-ed332417/jq/postgres"
)

// Open opens a store on the connections of the pool, as you have configured it: TLS, passwords from BeforeConnect, AfterConnect, a
// tracer. It creates or migrates the schema like postgres.Open, whose options it takes. Options may be nil.
//
//	pool, err := pgxpool.New(ctx, "postgres://user:password@host/database")
//	...
//	store, err := jqpgx.Open(ctx, pool, nil)
//
// The pool remains yours. Close of the store does not close it, and you must close the store first.
//
// The store takes a connection only for the time of a transaction, and changes no setting of a session. Of the connections that
// the options name, it takes as many as the pool has free. Heartbeats wait for a connection like everybody. So if handlers hold
// transactions, the pool must have more connections than [jq.ServerOptions] has Slots: two more are enough. By default, a pool has four. A call that gets
// none within Options.Timeout returns ErrUnavailable.
//
// For wake-ups the store takes one connection out of the pool for itself when something first subscribes. If the pool leads to a
// transaction-pooling proxy, set Options.Pooled, as for postgres.Open, and a DefaultQueryExecMode that prepares nothing.
func Open(ctx context.Context, pool *pgxpool.Pool, options *postgres.Options) (*postgres.Store, error) {
	if pool == nil {
		return nil, errors.New("jq: the pool is nil: want one of pgxpool.New")
	}
	return adapter.OpenOn(ctx, adapter.Driver{
		Connector: source{pool, pool.Config().ConnConfig.Tracer},
		Listen:    listener{pool}.listen,
	}, options)
}

// A source takes connections from a pool.
type source struct {
	pool   *pgxpool.Pool
	tracer pgx.QueryTracer // may be nil
}

// Driver is part of driver.Connector.
func (source) Driver() driver.Driver { return nil }

// Connect is part of driver.Connector.
func (s source) Connect(ctx context.Context) (driver.Conn, error) {
	acquired, err := acquire(ctx, s.pool)
	if err != nil {
		return nil, err
	}
	return &session{conn: conn{acquired}, acquired: acquired, tracer: s.tracer}, nil
}

func acquire(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	acquired, err := pool.Acquire(ctx)
	if err == nil {
		return acquired, nil
	}
	if all := pool.Stat(); errors.Is(err, context.DeadlineExceeded) && all.AcquiredConns() == all.MaxConns() {
		return nil, fmt.Errorf("all %d connections of the pool are in use, raise its MaxConns: %w", all.MaxConns(), err)
	}
	return nil, coded(err)
}

// A session is a connection of a pool, until it is closed.
type session struct {
	conn
	acquired *pgxpool.Conn
	tracer   pgx.QueryTracer
	warned   bool
	spoilt   bool
}

var _ adapter.Conn = (*session)(nil)

// Close is part of driver.Conn: it gives the connection back to the pool.
func (s *session) Close() error {
	if s.spoilt {
		s.end()
	}
	s.acquired.Release()
	return nil
}

// end closes the connection to the server. The pool then opens another one.
func (s *session) end() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = s.acquired.Conn().Close(ctx)
}

// patience is how long to wait for a server that is asked to cancel or to roll back.
const patience = time.Second

// Discard is part of the adapter's Conn.
func (s *session) Discard() { s.spoilt = true }

// Warned is part of the adapter's Conn.
func (s *session) Warned() bool {
	warned := s.warned
	s.warned = false
	return warned
}

// IsValid is part of driver.Validator.
func (s *session) IsValid() bool { return !s.spoilt && !s.acquired.Conn().IsClosed() }

// ResetSession is part of driver.SessionResetter.
func (s *session) ResetSession(context.Context) error {
	if !s.IsValid() || s.acquired.Conn().PgConn().TxStatus() != 'I' {
		return driver.ErrBadConn
	}
	return nil
}

// Ping is part of driver.Pinger.
func (s *session) Ping(ctx context.Context) error {
	_, err := s.command(ctx, `-- ping`)
	return err
}

// CheckNamedValue is part of driver.NamedValueChecker. It leaves the conversion of arguments to database/sql.
func (s *session) CheckNamedValue(*driver.NamedValue) error { return driver.ErrSkip }

// ExecContext is part of driver.ExecerContext.
func (s *session) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	switch {
	case s.acquired.Conn().IsClosed():
		return nil, driver.ErrBadConn
	case len(args) > 0:
		return s.conn.ExecContext(ctx, query, args)
	}
	tag, err := s.command(ctx, query)
	return driver.RowsAffected(tag.RowsAffected()), err
}

// command runs a text of any statements and looks at what the server says meanwhile. pgx shows warnings to nobody but OnNotice,
// which belongs to the owner of the pool.
func (s *session) command(ctx context.Context, text string) (tag pgconn.CommandTag, err error) {
	if err := ctx.Err(); err != nil {
		return tag, err
	}
	ctx, ended := s.trace(ctx, text)
	defer func() { ended(tag, err) }()
	server := s.acquired.Conn().PgConn()
	if server.IsBusy() {
		return tag, errors.New("rows of an earlier query are open: close them first")
	}
	server.Frontend().SendQuery(&pgproto3.Query{String: text})
	if err := server.Frontend().Flush(); err != nil {
		s.end()
		return tag, err
	}
	for {
		message, broken := server.ReceiveMessage(ctx)
		if broken != nil {
			s.interrupt(ctx)
			return tag, coded(errors.Join(err, broken))
		}
		switch m := message.(type) {
		case *pgproto3.NoticeResponse:
			s.warned = s.warned || m.Code == adapter.CodeWarning
		case *pgproto3.ErrorResponse:
			err = coded(pgconn.ErrorResponseToPgError(m))
		case *pgproto3.CopyInResponse: // the server waits for rows
			server.Frontend().Send(&pgproto3.CopyFail{Message: "COPY FROM STDIN needs a pgx.Conn"})
			if err := server.Frontend().Flush(); err != nil {
				s.end()
				return tag, err
			}
		case *pgproto3.CommandComplete:
			tag = pgconn.NewCommandTag(string(m.CommandTag))
		case *pgproto3.ReadyForQuery:
			return tag, err
		}
	}
}

// trace tells the pool's tracer about a text that pgx itself does not see as one. The function that it returns tells the end.
func (s *session) trace(ctx context.Context, text string) (context.Context, func(pgconn.CommandTag, error)) {
	if s.tracer == nil {
		return ctx, func(pgconn.CommandTag, error) {}
	}
	ctx = s.tracer.TraceQueryStart(ctx, s.acquired.Conn(), pgx.TraceQueryStartData{SQL: text})
	return ctx, func(tag pgconn.CommandTag, err error) {
		s.tracer.TraceQueryEnd(ctx, s.acquired.Conn(), pgx.TraceQueryEndData{CommandTag: tag, Err: err})
	}
}

// interrupt ends a connection whose answer was not awaited. If the context has ended, it asks the server to cancel first.
func (s *session) interrupt(ctx context.Context) {
	if ctx.Err() != nil {
		within, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = s.acquired.Conn().PgConn().CancelRequest(within)
	}
	s.end()
}

// QueryContext is part of driver.QueryerContext.
func (s *session) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	switch {
	case s.acquired.Conn().IsClosed():
		return nil, driver.ErrBadConn
	case len(args) > 0:
		return s.conn.QueryContext(ctx, query, args)
	}
	return s.queries(ctx, query)
}

// PrepareContext is part of driver.ConnPrepareContext. pgx prepares statements by itself, when they are run.
func (s *session) PrepareContext(_ context.Context, query string) (driver.Stmt, error) {
	return statement{s, query}, nil
}

// Prepare is part of driver.Conn; database/sql prefers PrepareContext.
func (s *session) Prepare(query string) (driver.Stmt, error) { return statement{s, query}, nil }

// A statement is a text to run again.
type statement struct {
	on    *session
	query string
}

// Close is part of driver.Stmt.
func (statement) Close() error { return nil }

// NumInput is part of driver.Stmt. The server counts the arguments.
func (statement) NumInput() int { return -1 }

// ExecContext is part of driver.StmtExecContext.
func (s statement) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.on.ExecContext(ctx, s.query, args)
}

// QueryContext is part of driver.StmtQueryContext.
func (s statement) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.on.QueryContext(ctx, s.query, args)
}

// Exec is part of driver.Stmt; database/sql prefers ExecContext.
func (s statement) Exec([]driver.Value) (driver.Result, error) { return nil, driver.ErrSkip }

// Query is part of driver.Stmt; database/sql prefers QueryContext.
func (s statement) Query([]driver.Value) (driver.Rows, error) { return nil, driver.ErrSkip }
