package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// write runs a call that changes something, in a transaction of its own.
func write[T any](ctx context.Context, s *Store, invalid error, run func(t *txn) (T, error)) (T, error) {
	return call(ctx, s, invalid, s.with.write, run)
}

// read runs a short call that changes nothing, on one snapshot of the database.
func read[T any](ctx context.Context, s *Store, invalid error, run func(t *txn) (T, error)) (T, error) {
	return call(ctx, s, invalid, s.with.get, run)
}

func call[T any](ctx context.Context, s *Store, invalid error, with opening, run func(t *txn) (T, error)) (T, error) {
	var none T
	if err := sqlkit.Admit(ctx, s.closed, invalid); err != nil {
		return none, err
	}
	for try := 1; ; try++ {
		answer, err := once(ctx, s, with, run)
		switch {
		case err == nil:
			return answer, nil
		case !passing(err) || try >= s.tries(err) || !pause(ctx, try):
			return none, sqlkit.Because(ctx, s.closed, err)
		}
	}
}

// mostTries is how often a call is tried if it conflicts with others.
const mostTries = 10

// tries returns how often to try a call that failed with this error. Every connection may have stale plans; each is then
// discarded.
func (s *Store) tries(err error) int {
	if stalePlan(err) {
		return mostTries + s.options.MaxConns
	}
	return mostTries
}

// pause waits a little, longer after each try, and reports whether the context is still alive.
func pause(ctx context.Context, try int) bool {
	return sqlkit.Rest(ctx, time.Duration(rand.Int64N(int64(try)*int64(2*time.Millisecond))))
}

// once runs the call in one transaction, and then does what follows from it. If it returns an error, nothing was applied, unless the error
// is ErrInDoubt.
func once[T any](ctx context.Context, s *Store, with opening, run func(t *txn) (T, error)) (answer T, err error) {
	t, answer, err := transact(ctx, s, with, run)
	switch {
	case err != nil:
	case t.heard:
		s.follow(ctx)
	case len(t.left) > 0:
		s.followGroups(ctx, t.left, t.leftFrom)
	}
	return answer, err
}

// transact runs the call in one transaction. When it returns, the connection is free: what follows needs another one, and calls that each
// kept one would wait for each other.
func transact[T any](ctx context.Context, s *Store, with opening, run func(t *txn) (T, error)) (t *txn, answer T, err error) {
	var none T
	if t, err = s.begin(ctx, with); err != nil {
		return nil, none, ours(err)
	}
	defer func() { t.end(err) }()
	if answer, err = run(t); err != nil {
		if err = t.reason(err); with.limit > 0 && codeOf(err) == codeCancelled && ctx.Err() == nil {
			return t, none, &store.OverlongError{Limit: with.limit}
		}
		return t, none, ours(err)
	}
	if err := ctx.Err(); err != nil {
		return t, none, ours(err)
	}
	if t.open {
		switch err := t.commit(); {
		case errors.Is(err, errUnconfirmed):
			return t, none, sqlkit.InDoubt(err, advice)
		case err != nil && t.shown.number == 0: // it has only read
			return t, none, ours(t.reason(err))
		case err != nil:
			return t, none, committed(t.reason(err))
		}
	}
	return t, answer, nil
}

// lingering is how long to wait for the answer to a commit after the caller has left.
const lingering = time.Second

// linger returns a context that ends d after ctx, or with ctx if the server was silent for so long.
func linger(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), errSilent) {
			cancel()
			return
		}
		late := time.AfterFunc(d, cancel)
		context.AfterFunc(longer, func() { late.Stop() })
	})
	return longer, func() {
		stop()
		cancel()
	}
}

// background runs f in a goroutine, for at most the time of a call. Close waits for it.
func (s *Store) background(f func(ctx context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sqlkit.Closed(s.closed) {
		return
	}
	s.running.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.options.Timeout)
		defer cancel()
		f(ctx)
	})
}
