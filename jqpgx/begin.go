package jqpgx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Begin is part of driver.Conn; database/sql prefers BeginTx.
func (s *session) Begin() (driver.Tx, error) {
	return s.BeginTx(context.Background(), driver.TxOptions{})
}

// BeginTx is part of driver.ConnBeginTx. A transaction that may write says so, which a standby refuses.
func (s *session) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	if s.on.Conn().IsClosed() {
		return nil, driver.ErrBadConn
	}
	text := `BEGIN`
	switch level := sql.IsolationLevel(o.Isolation); level {
	case sql.LevelDefault:
	case sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable:
		text += ` ISOLATION LEVEL ` + level.String()
	default:
		return nil, fmt.Errorf("jq: Postgres has no isolation level %v: want Read Committed, Repeatable Read or Serializable", level)
	}
	if o.ReadOnly {
		text += ` READ ONLY`
	} else {
		text += ` READ WRITE`
	}
	if _, err := s.command(ctx, text); err != nil {
		return nil, err
	}
	return begun{s, ctx}, nil
}

// A begun is a transaction that was begun by database/sql.
type begun struct {
	in  *session
	ctx context.Context // of BeginTx
}

// Commit is part of driver.Tx. The server ends a failed transaction without an error.
func (b begun) Commit() error {
	failed := b.in.on.Conn().PgConn().TxStatus() == 'E'
	_, err := b.in.command(b.ctx, `COMMIT`)
	if err == nil && failed {
		return pgx.ErrTxCommitRollback
	}
	return err
}

// Rollback is part of driver.Tx. It also runs after the end of the context.
func (b begun) Rollback() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), patience)
	defer cancel()
	_, err := b.in.command(ctx, `ROLLBACK`)
	return err
}
