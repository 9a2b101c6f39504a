package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"strings"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Queues is part of the contract.
func (s *Store) Queues(ctx context.Context) ([]store.Queue, error) {
	return read(ctx, s, nil, (*txn).queues)
}

// queuesOf returns a query for the names of the queues that have matching jobs. It takes one index step from each name to the
// next.
func queuesOf(jobs string) string {
	return strings.ReplaceAll(`
		WITH RECURSIVE found(name) AS (
			SELECT min(queue) FROM jobs WHERE {jobs}
			UNION ALL
			SELECT (SELECT min(queue) FROM jobs WHERE {jobs} AND queue > found.name)
			FROM found
			WHERE found.name IS NOT NULL
		)
		SELECT name FROM found WHERE name IS NOT NULL`, `{jobs}`, jobs)
}

var (
	blockedQueues  = queuesOf(`state = 'blocked'`)
	readyQueues    = queuesOf(`state = 'ready'`)
	retryingQueues = queuesOf(`state = 'failed' AND retry_at IS NOT NULL`)
	finishedQueues = queuesOf(`finished_at IS NOT NULL`)
)

// queues steps from name to name through the indexes, so its cost grows with the number of queues, not of jobs. Few jobs are in
// flight, so those are read directly.
func (t *txn) queues() ([]store.Queue, error) {
	return sqlkit.Queues(t.each, `
		WITH names(name) AS (
			SELECT * FROM (`+blockedQueues+`)
			UNION
			SELECT * FROM (`+readyQueues+`)
			UNION
			SELECT * FROM (`+retryingQueues+`)
			UNION
			SELECT * FROM (`+finishedQueues+`)
			UNION
			SELECT queue FROM jobs INDEXED BY jobs_leased WHERE state = 'in_flight'
			UNION
			SELECT name FROM queues WHERE paused
			UNION
			SELECT name FROM policies WHERE coalesce(retain_succeeded, retain_cancelled, retain_dead, max_in_flight, max_per_key, rate_n) IS NOT NULL OR fair OR ordered
		)
		SELECT names.name, coalesce(queues.paused, FALSE), retain_succeeded, retain_cancelled, retain_dead, max_in_flight, max_per_key, fair, ordered, rate_n, rate_per,
			owner, declared, version
		FROM names
		LEFT JOIN queues ON queues.name = names.name
		LEFT JOIN policies ON policies.name = names.name
		ORDER BY names.name`)
}

// SetPaused is part of the contract.
func (s *Store) SetPaused(ctx context.Context, queue string, paused bool) error {
	_, err := write(ctx, s, store.CheckQueue(queue), load{}, func(t *txn) (struct{}, error) {
		_, err := t.exec(`
			INSERT INTO queues (name, paused)
			VALUES (?, ?)
			ON CONFLICT (name) DO UPDATE
			SET paused = excluded.paused`,
			queue, paused)
		if !paused {
			t.woken.Add(store.Wakeup{Queue: queue})
		}
		return struct{}{}, err
	})
	return err
}

// Policy is part of the contract.
func (s *Store) Policy(ctx context.Context, queue string) (store.Policy, error) {
	return read(ctx, s, store.CheckQueue(queue), func(t *txn) (store.Policy, error) { return t.policy(queue) })
}

// SetPolicy is part of the contract.
func (s *Store) SetPolicy(ctx context.Context, queue string, p store.Policy) (store.Policy, error) {
	refused := cmp.Or(store.CheckQueue(queue), p.Check())
	return write(ctx, s, refused, load{}, func(t *txn) (store.Policy, error) { return t.setPolicy(queue, p) })
}

func (t *txn) policy(queue string) (store.Policy, error) {
	return sqlkit.Policy(t.each, `
		SELECT retain_succeeded, retain_cancelled, retain_dead, max_in_flight, max_per_key, fair, ordered, rate_n, rate_per, owner, declared, version
		FROM policies
		WHERE name = ?`,
		queue)
}

func (t *txn) setPolicy(queue string, p store.Policy) (store.Policy, error) {
	current, err := t.policy(queue)
	if err != nil {
		return store.Policy{}, err
	}
	next, err := current.Replace(p)
	if err != nil {
		return store.Policy{}, err
	}
	_, err = t.exec(`
		INSERT OR REPLACE INTO policies (name, retain_succeeded, retain_cancelled, retain_dead, max_in_flight, max_per_key, fair, ordered, rate_n, rate_per,
			owner, declared, version)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		queue, sqlkit.Setting(next.RetainSucceeded), sqlkit.Setting(next.RetainCancelled), sqlkit.Setting(next.RetainDead),
		sqlkit.Limit(next.MaxInFlight), sqlkit.Limit(next.MaxPerKey), next.Fair, next.Ordered, sqlkit.Limit(next.Rate.N), sqlkit.Setting(next.Rate.Per),
		next.Owner, next.Declared, next.Version)
	if err != nil {
		return store.Policy{}, err
	}
	t.woken.Add(store.Wakeup{Queue: queue}) // there may be room
	if err := t.setRate(queue, current.Rate, next.Rate); err != nil {
		return store.Policy{}, err
	}
	return next, t.limitKeys(queue, current, next)
}

// Beat is part of the contract.
func (s *Store) Beat(ctx context.Context, w store.Worker) error {
	_, err := write(ctx, s, w.Check(), load{}, func(t *txn) (struct{}, error) { return struct{}{}, t.beat(w) })
	return err
}

// beat writes the worker's row and deletes workers that have been silent for too long.
func (t *txn) beat(w store.Worker) error {
	_, err := t.exec(`
		DELETE FROM workers
		WHERE beat_at <= ?`,
		t.now.Add(-store.WorkerLife).UnixMicro())
	if err != nil {
		return err
	}
	_, err = t.exec(`
		INSERT OR REPLACE INTO workers (name, host, pid, queues, slots, running, stale_after, beat_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		w.Name, w.Host, w.PID, sqlkit.List(w.Queues), w.Slots, w.Running, w.StaleAfter.Microseconds(), t.now.UnixMicro())
	return err
}

// Leave is part of the contract.
func (s *Store) Leave(ctx context.Context, name string) error {
	_, err := write(ctx, s, store.Worker{Name: name}.Check(), load{}, func(t *txn) (struct{}, error) {
		_, err := t.exec(`
			DELETE FROM workers
			WHERE name = ?`,
			name)
		return struct{}{}, err
	})
	return err
}

// Workers is part of the contract.
func (s *Store) Workers(ctx context.Context, filter store.WorkerFilter, page store.Page) (store.WorkerPage, error) {
	after, invalid := filter.Position(page)
	return read(ctx, s, invalid, func(t *txn) (store.WorkerPage, error) { return t.workers(filter, page, after) })
}

// workers reads row by row and stops when the page is full.
func (t *txn) workers(filter store.WorkerFilter, page store.Page, after string) (store.WorkerPage, error) {
	named, name := ``, []any(nil)
	if filter.Name != "" {
		named, name = ` AND name = ?`, []any{filter.Name}
	}
	return sqlkit.Workers(t.each, t.now, filter, page, after, `
		SELECT name, host, pid, queues, slots, running, stale_after, beat_at, FALSE
		FROM workers
		WHERE beat_at > ? AND name > ?`+named+`
		ORDER BY name`,
		func(after string) []any {
			return append([]any{t.now.Add(-store.WorkerLife).UnixMicro(), after}, name...)
		})
}

// Fence is part of the contract.
func (s *Store) Fence(ctx context.Context, req store.FenceRequest) (int64, error) {
	return write(ctx, s, req.Check(), load{items: store.MaxItems}, func(t *txn) (int64, error) {
		epoch, err := t.fence(req)
		if err == nil {
			_ = s.turn.setEpoch(epoch) // if this fails, as on a full disk, the store file still has the epoch
		}
		return epoch, err
	})
}

// fence raises the epoch and the id sequence and, if leases must end, their tokens. The sequence has no row before the first
// job.
func (t *txn) fence(req store.FenceRequest) (int64, error) {
	var epoch, lastID int64
	err := t.each(func(rows *sql.Rows) error { return rows.Scan(&epoch, &lastID) }, `
		SELECT epoch, coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'jobs'), 0)
		FROM fence`)
	if err != nil {
		return 0, err
	}
	if epoch, err = req.Raised(epoch, lastID); err != nil {
		return 0, err
	}
	_, err = t.exec(`
		UPDATE fence
		SET epoch = ?`,
		epoch)
	if err == nil && req.EndLeases {
		_, err = t.exec(`
			UPDATE jobs
			SET token = max(token, ?) + 1
			WHERE state = 'in_flight'`,
			store.Floor(epoch))
	}
	if err != nil {
		return 0, err
	}
	n, err := t.exec(`
		UPDATE sqlite_sequence
		SET seq = ?
		WHERE name = 'jobs'`,
		store.Floor(epoch))
	if err == nil && n == 0 {
		_, err = t.exec(`
			INSERT INTO sqlite_sequence (name, seq)
			VALUES ('jobs', ?)`,
			store.Floor(epoch))
	}
	return epoch, err
}
