package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
	"github.com/seed-ed332417/jq/internal/store/wake"
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

// tellHeld wakes the queues of which a claim has left out jobs because of a limit. Call it when leases may have ended.
func (s *Store) tellHeld() { s.hub.Tell(s.limits.held.Take()...) }

// lookAround notifies subscribers about commits of other processes and of callers' transactions. SQLite does not say what
// changed, so it wakes every queue that has waiting jobs, and every queue in which a job was cancelled since the latest look,
// whether it was in flight or not. If something is left to settle, it wakes all of them.
func (w *writer) lookAround() {
	if w.hub.Silent() || w.connect() != nil {
		return
	}
	var version int64
	if err := w.kept.QueryRowContext(w.ctx, `PRAGMA data_version`).Scan(&version); err != nil || version == w.seen {
		return
	}
	w.seen = version
	look := func() *txn { return &txn{ctx: w.ctx, tx: w.kept} } // one that fails does not keep the others from running
	if names, err := look().waitingQueues(); err == nil {
		w.hub.Tell(wake.For(names)...)
	}
	if cancelled, err := look().cancelledQueues(&w.cancelled); err == nil {
		w.hub.Tell(cancelled...)
	}
	t := look()
	if err := t.tellLeft(); err == nil {
		w.hub.Tell(t.woken...)
	}
}

// cancelledQueues returns a wake-up for each queue in which a job was cancelled later than since, and moves since to the latest of
// these times. It takes one index step for each queue that has finished jobs.
func (t *txn) cancelledQueues(since *int64) (wakeups sqlkit.Woken, err error) {
	latest := *since
	err = t.each(func(rows *sql.Rows) error {
		var at int64
		w := store.Wakeup{Cancelled: true}
		err := rows.Scan(&w.Queue, &at)
		wakeups, latest = append(wakeups, w), max(latest, at)
		return err
	}, `
		SELECT name, at
		FROM (
			SELECT name, (
				SELECT max(finished_at)
				FROM jobs
				WHERE queue = name AND state = 'cancelled' AND finished_at IS NOT NULL) AS at
			FROM (`+finishedQueues+`))
		WHERE at > ?`,
		*since)
	*since = latest
	return wakeups, err
}

func (t *txn) waitingQueues() ([]string, error) {
	return sqlkit.Values[string](t.each, `
		SELECT * FROM (`+readyQueues+`)
		UNION
		SELECT * FROM (`+retryingQueues+`)`)
}
