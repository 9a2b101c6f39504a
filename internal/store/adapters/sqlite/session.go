package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/jmoiron/sqlx"

	"github.com/seed-ed332417/jq/internal/store"
)

// prepared is a connection that prepares each statement once. Filters make endless variants, so it keeps a limited number.
type prepared struct {
	*sqlx.Conn
	statements map[string]*sql.Stmt
}

const maxPrepared = 200

var _ store.Tx = (*prepared)(nil)

func newPrepared(conn *sqlx.Conn) *prepared {
	return &prepared{Conn: conn, statements: map[string]*sql.Stmt{}}
}

func (p *prepared) statement(ctx context.Context, query string) (*sql.Stmt, error) {
	if kept, ok := p.statements[query]; ok {
		return kept, nil
	}
	if len(p.statements) == maxPrepared {
		p.forget()
	}
	s, err := p.PrepareContext(ctx, query)
	if err == nil {
		p.statements[query] = s
	}
	return s, err
}

// ExecContext is part of store.Tx.
func (p *prepared) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	s, err := p.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	return s.ExecContext(ctx, args...)
}

// QueryContext is part of store.Tx.
func (p *prepared) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	s, err := p.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	return s.QueryContext(ctx, args...)
}

// QueryRowContext is part of store.Tx.
func (p *prepared) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	s, err := p.statement(ctx, query)
	if err != nil {
		return p.Conn.QueryRowContext(ctx, query, args...) // returns the same error
	}
	return s.QueryRowContext(ctx, args...)
}

func (p *prepared) forget() {
	for _, s := range p.statements {
		_ = s.Close()
	}
	clear(p.statements)
}

// discard closes the connection for good; it does not go back to the pool.
func (p *prepared) discard() {
	p.forget()
	_ = p.Raw(func(any) error { return driver.ErrBadConn })
	_ = p.Close()
}
