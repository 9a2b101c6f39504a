package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/seed-ed332417/jq/internal/store"
)

// readers is a pool of connections for reading. Each keeps its prepared statements, because preparing takes longer than most
// reads.
type readers struct {
	ctx   context.Context // never ends
	db    *sqlx.DB
	limit time.Duration  // for a connection, and for a call; 0 for none
	free  chan *prepared // nil means not connected yet
	quit  chan struct{}
}

func newReaders(ctx context.Context, db *sqlx.DB, n int, limit time.Duration) *readers {
	r := &readers{ctx: ctx, db: db, limit: limit, free: make(chan *prepared, n), quit: make(chan struct{})}
	for range n {
		r.free <- nil
	}
	return r
}

// do runs a call on one snapshot of the file.
func (r *readers) do(ctx context.Context, run func(ctx context.Context, tx store.Tx) error) error {
	kept, err := r.take(ctx)
	if err != nil {
		return err
	}
	limited, cancel := r.limited(ctx)
	defer cancel()
	kept, err = r.snapshot(limited, kept, run)
	r.free <- kept
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return &store.OverlongError{Limit: r.limit}
	}
	return err
}

// take waits for a free connection.
func (r *readers) take(ctx context.Context) (*prepared, error) {
	limited, cancel := r.limited(ctx)
	defer cancel()
	select {
	case kept := <-r.free:
		return kept, nil
	case <-r.quit:
		return nil, store.ErrClosed
	case <-limited.Done():
		if ctx.Err() == nil {
			return nil, &store.OverlongError{Limit: r.limit, Waited: true}
		}
		return nil, fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
	}
}

func (r *readers) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.limit == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, r.limit)
}

// snapshot returns the connection for the next call, or nil if its state is unknown, as after an interrupted read.
func (r *readers) snapshot(ctx context.Context, kept *prepared, run func(ctx context.Context, tx store.Tx) error) (*prepared, error) {
	if kept == nil {
		conn, err := r.db.Connx(ctx)
		if err != nil {
			return nil, err
		}
		kept = newPrepared(conn)
	}
	_, err := kept.ExecContext(ctx, `BEGIN`)
	if err == nil {
		err = run(ctx, kept)
	}
	if _, ended := kept.ExecContext(r.ctx, `ROLLBACK`); ended != nil || ctx.Err() != nil {
		kept.discard()
		return nil, err
	}
	return kept, err
}

// afresh closes the idle connections.
func (r *readers) afresh() {
	for range cap(r.free) {
		select {
		case kept := <-r.free:
			if kept != nil {
				kept.discard()
			}
			r.free <- nil
		default:
			return
		}
	}
}

// close waits for running reads.
func (r *readers) close() {
	close(r.quit)
	for range cap(r.free) {
		if kept := <-r.free; kept != nil {
			kept.discard()
		}
	}
}
