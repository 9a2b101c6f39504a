package sqlite

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// lookEvery is how often, in real time, the writer checks for commits of others while there are subscribers.
const lookEvery = 50 * time.Millisecond

// Subscribe is part of the contract.
func (s *Store) Subscribe(ctx context.Context, queues []string) (<-chan store.Wakeup, error) {
	if err := sqlkit.Admit(ctx, s.closed, nil); err != nil {
		return nil, err
	}
	return s.hub.Subscribe(ctx, queues)
}

// lookAround notifies subscribers about commits of other processes and of callers' transactions. SQLite does not say which
// queue changed, so it wakes every queue that has waiting jobs.
func (w *writer) lookAround() {
	if w.hub.Silent() || w.connect() != nil {
		return
	}
	var version int64
	if err := w.kept.QueryRowContext(w.ctx, `PRAGMA data_version`).Scan(&version); err != nil || version == w.seen {
		return
	}
	w.seen = version
	t := &txn{ctx: w.ctx, tx: w.kept}
	if names, err := t.waitingQueues(); err == nil {
		w.hub.Tell(names...)
	}
}

func (t *txn) waitingQueues() ([]string, error) {
	return sqlkit.Names(t.each, `
		SELECT * FROM (`+readyQueues+`)
		UNION
		SELECT * FROM (`+retryingQueues+`)`)
}
