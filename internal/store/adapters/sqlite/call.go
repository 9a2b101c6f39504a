package sqlite

import (
	"context"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// write runs a call that changes something in the writer's next transaction, and does what follows from it, or a part of that.
func write[T any](ctx context.Context, s *Store, invalid error, l load, run func(t *txn) (T, error)) (T, error) {
	var answer, none T
	if err := sqlkit.Admit(ctx, s.closed, invalid); err != nil {
		return none, err
	}
	var left bool
	err := s.writer.do(ctx, l, func(t *txn) (err error) {
		t.heard, t.groups, left = false, groups{}, false
		if answer, err = run(t); err != nil {
			return err
		}
		left, err = t.follow(settledAtOnce)
		return err
	})
	if err != nil {
		return none, err
	}
	if left {
		s.goOn(ctx)
	}
	return answer, nil
}

// read runs a short call that changes nothing, on one snapshot of the file.
func read[T any](ctx context.Context, s *Store, invalid error, run func(t *txn) (T, error)) (T, error) {
	return readOn(ctx, s, s.briefs, invalid, run)
}

// readOn is like read, but uses the given connections.
func readOn[T any](ctx context.Context, s *Store, on *readers, invalid error, run func(t *txn) (T, error)) (T, error) {
	var none T
	if err := sqlkit.Admit(ctx, s.closed, invalid); err != nil {
		return none, err
	}
	var answer T
	if err := s.place.check(); err != nil {
		return none, err
	}
	err := on.do(ctx, func(ctx context.Context, tx store.Tx) (err error) {
		answer, err = run(&txn{ctx: ctx, tx: tx, now: s.now.get()})
		return err
	})
	if err != nil {
		return none, sqlkit.Because(ctx, s.closed, ours(err))
	}
	return answer, nil
}
