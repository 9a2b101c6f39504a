package postgres

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// roundTrips counts the messages that the store has sent one by one, and the transactions that they belong to.
type roundTrips struct{ messages, transactions atomic.Int64 }

// Spent counts the transactions and round trips of this store, the WAL of the whole server, and the schema's rows that updates
// and deletes have left dead. HOT updates' dead rows can be removed without vacuum.
func (s *Store) Spent(ctx context.Context) ([]store.Cost, error) {
	if err := sqlkit.Admit(ctx, s.closed, nil); err != nil {
		return nil, err
	}
	transactions, messages := s.roundTrips.transactions.Load(), s.roundTrips.messages.Load()
	var written struct{ WAL, Dead, Hot int64 }
	err := s.flush(ctx)
	if err == nil {
		err = s.db.GetContext(ctx, &written, `
			SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint AS wal,
				coalesce(sum(n_tup_upd + n_tup_del), 0)::bigint AS dead,
				coalesce(sum(n_tup_hot_upd), 0)::bigint AS hot
			FROM pg_stat_user_tables
			WHERE schemaname = $1`,
			s.options.Schema)
	}
	if err != nil {
		return nil, sqlkit.Because(ctx, s.closed, ours(err))
	}
	return []store.Cost{
		{Name: "transactions", Total: transactions},
		{Name: "round trips", Total: messages},
		{Name: "WAL", Unit: "B", Total: written.WAL},
		{Name: "dead rows", Total: written.Dead},
		{Name: "of them HOT", Total: written.Hot},
	}, nil
}

// flush makes idle sessions report their statistics, which they would otherwise do up to ten seconds later. Servers before
// version 15 cannot do this.
func (s *Store) flush(ctx context.Context) error {
	for range s.pool.unused() {
		conn, err := s.urgent.Connx(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }() // after all were asked, so that each is another one
		if _, err := conn.ExecContext(ctx, `SELECT pg_stat_force_next_flush()`); err != nil && codeOf(err) != codeNoFunction {
			return err
		}
	}
	return nil
}

// HoldSnapshot holds a snapshot of the whole database. Vacuum must keep all rows that it sees.
func (s *Store) HoldSnapshot(ctx context.Context) (release func() error, err error) {
	if err := sqlkit.Admit(ctx, s.closed, nil); err != nil {
		return nil, err
	}
	conn, err := s.callers.Connx(ctx)
	if err != nil {
		return nil, sqlkit.Because(ctx, s.closed, ours(err))
	}
	_, err = conn.ExecContext(ctx, `
		BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
		SET LOCAL idle_in_transaction_session_timeout = 0;
		SELECT 1`)
	if err != nil {
		discard(conn)
		return nil, errors.Join(sqlkit.Because(ctx, s.closed, ours(err)), conn.Close())
	}
	return func() error {
		_, err := conn.ExecContext(context.WithoutCancel(ctx), `ROLLBACK`)
		return errors.Join(err, conn.Close())
	}, nil
}
