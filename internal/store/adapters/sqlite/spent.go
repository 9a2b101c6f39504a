package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Spent counts the commits of this store. Each commit syncs the disk once, for all the calls in its batch.
func (s *Store) Spent(ctx context.Context) ([]store.Cost, error) {
	if err := sqlkit.Admit(ctx, s.closed, nil); err != nil {
		return nil, err
	}
	return []store.Cost{{Name: "commits", Total: s.writer.commits.Load()}}, nil
}

// HoldSnapshot keeps a read transaction open. Until release, SQLite cannot checkpoint later changes, so the WAL grows.
func (s *Store) HoldSnapshot(ctx context.Context) (release func() error, err error) {
	if err := sqlkit.Admit(ctx, s.closed, s.place.check()); err != nil {
		return nil, err
	}
	conn, err := s.callers.Connx(ctx)
	if err != nil {
		return nil, sqlkit.Because(ctx, s.closed, ours(err))
	}
	var tables int
	_, err = conn.ExecContext(ctx, `BEGIN`)
	if err == nil {
		err = conn.GetContext(ctx, &tables, `SELECT count(*) FROM sqlite_schema`) // the first read takes the snapshot
	}
	if err != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // it may be in a transaction
		return nil, errors.Join(sqlkit.Because(ctx, s.closed, ours(err)), conn.Close())
	}
	return func() error {
		_, err := conn.ExecContext(context.WithoutCancel(ctx), `ROLLBACK`)
		return errors.Join(err, conn.Close())
	}, nil
}
