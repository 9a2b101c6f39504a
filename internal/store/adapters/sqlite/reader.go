package sqlite

import (
	"context"
	"fmt"

	"github.com/jmoiron/sqlx"

	"github.com/seed-ed332417/jq/internal/store"
)

// readers are the connections that read, each with statements that it has prepared: to prepare them takes longer than most
// reads.
type readers struct {
	ctx  context.Context // never ends
	db   *sqlx.DB
	free chan *prepared // nil is one that is not connected yet
	quit chan struct{}
}

func newReaders(ctx context.Context, db *sqlx.DB, n int) *readers {
	r := &readers{ctx: ctx, db: db, free: make(chan *prepared, n), quit: make(chan struct{})}
	for range n {
		r.free <- nil
	}
	return r
}

// do runs a call on one snapshot of the file.
func (r *readers) do(ctx context.Context, run func(tx store.Tx) error) error {
	var kept *prepared
	select {
	case kept = <-r.free:
	case <-r.quit:
		return store.ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
	}
	kept, err := r.snapshot(ctx, kept, run)
	r.free <- kept
	return err
}

// snapshot returns the connection for the next call: nil if it is in doubt, as after a read that was broken off.
func (r *readers) snapshot(ctx context.Context, kept *prepared, run func(tx store.Tx) error) (*prepared, error) {
	if kept == nil {
		conn, err := r.db.Connx(ctx)
		if err != nil {
			return nil, err
		}
		kept = newPrepared(conn)
	}
	_, err := kept.ExecContext(ctx, `BEGIN`)
	if err == nil {
		err = run(kept)
	}
	if _, ended := kept.ExecContext(r.ctx, `ROLLBACK`); ended != nil || ctx.Err() != nil {
		kept.discard()
		return nil, err
	}
	return kept, err
}

// afresh closes the connections that are free.
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

// close waits for the reads under way.
func (r *readers) close() error {
	close(r.quit)
	for range cap(r.free) {
		if kept := <-r.free; kept != nil {
			kept.discard()
		}
	}
	return r.db.Close()
}
