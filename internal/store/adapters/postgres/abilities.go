package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
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
			SELECT min(queue) FROM {schema}.jobs WHERE {jobs}
			UNION ALL
			SELECT (SELECT min(queue) FROM {schema}.jobs WHERE {jobs} AND queue > found.name)
			FROM found
			WHERE found.name IS NOT NULL
		)
		SELECT name FROM found WHERE name IS NOT NULL`, `{jobs}`, jobs)
}

// isBlocked is the condition of jobs that wait for others, as in the index.
const isBlocked = `unleased_state = 'blocked'`

var (
	blockedQueues  = queuesOf(isBlocked)
	readyQueues    = queuesOf(lanes[cursor.Fresh].indexed)
	retryingQueues = queuesOf(lanes[cursor.Retries].indexed)
	finishedQueues = queuesOf(`finished_at IS NOT NULL`)
)

// queues steps from name to name through the indexes, so its cost grows with the number of queues, not of jobs. A job in flight is
// in the index in which it waited.
func (t *txn) queues() ([]store.Queue, error) {
	return sqlkit.Queues(t.each, `
		WITH names(name) AS (
			SELECT * FROM (`+readyQueues+`) AS ready
			UNION
			SELECT * FROM (`+retryingQueues+`) AS retrying
			UNION
			SELECT * FROM (`+blockedQueues+`) AS blocked
			UNION
			SELECT * FROM (`+finishedQueues+`) AS finished
			UNION
			SELECT name FROM {schema}.queues WHERE paused
			UNION
			SELECT name FROM {schema}.policies WHERE coalesce(retain_succeeded, retain_cancelled, retain_dead, max_in_flight, max_per_key, rate_n) IS NOT NULL OR fair OR ordered
		)
		SELECT names.name, coalesce(queues.paused, FALSE), retain_succeeded, retain_cancelled, retain_dead, policies.max_in_flight, policies.max_per_key,
			policies.fair, policies.ordered, policies.rate_n, policies.rate_per, owner, declared, version
		FROM names
		LEFT JOIN {schema}.queues ON queues.name = names.name
		LEFT JOIN {schema}.policies ON policies.name = names.name
		ORDER BY names.name`)
}

// SetPaused is part of the contract.
func (s *Store) SetPaused(ctx context.Context, queue string, paused bool) error {
	_, err := write(ctx, s, store.CheckQueue(queue), func(t *txn) (struct{}, error) {
		_, err := t.exec(`
			INSERT INTO {schema}.queues (name, paused)
			VALUES ($1, $2)
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

// SetPolicy is part of the contract. Nothing is claimed from a queue that was not limited before until its jobs in flight count, so if that
// fails here, the next claim tries it. The same holds for the keys of a queue that is ordered.
func (s *Store) SetPolicy(ctx context.Context, queue string, p store.Policy) (store.Policy, error) {
	refused := cmp.Or(store.CheckQueue(queue), p.Check())
	next, err := write(ctx, s, refused, func(t *txn) (store.Policy, error) { return t.setPolicy(queue, p) })
	if err == nil && next.Limited() {
		s.learnLimits(queue, next)
		soon, cancel := context.WithTimeout(ctx, s.options.Timeout)
		defer cancel()
		if err := s.count(soon, queue); err == nil && next.Ordered {
			s.knowSoon(ctx, queue)
		}
	}
	return next, err
}

func (t *txn) policy(queue string) (store.Policy, error) {
	return sqlkit.Policy(t.each, policyQuery, queue)
}

const policyQuery = `
	SELECT retain_succeeded, retain_cancelled, retain_dead, max_in_flight, max_per_key, fair, ordered, rate_n, rate_per, owner, declared, version
	FROM {schema}.policies
	WHERE name = $1`

// setPolicy inserts the row first, so that there is one to lock: concurrent calls for the same policy wait for it. If the
// policy is refused, the rollback removes the row.
func (t *txn) setPolicy(queue string, p store.Policy) (store.Policy, error) {
	_, err := t.exec(`
		INSERT INTO {schema}.policies (name, version)
		VALUES ($1, 0)
		ON CONFLICT (name) DO NOTHING`,
		queue)
	if err != nil {
		return store.Policy{}, err
	}
	current, err := sqlkit.Policy(t.each, policyQuery+` FOR UPDATE`, queue)
	if err != nil {
		return store.Policy{}, err
	}
	next, err := current.Replace(p)
	if err != nil {
		return store.Policy{}, err
	}
	_, err = t.exec(`
		UPDATE {schema}.policies
		SET retain_succeeded = $2,
			retain_cancelled = $3,
			retain_dead = $4,
			max_in_flight = $5,
			max_per_key = $6,
			fair = $7,
			ordered = $8,
			rate_n = $9,
			rate_per = $10,
			owner = $11,
			declared = $12,
			version = $13
		WHERE name = $1`,
		queue, sqlkit.Setting(next.RetainSucceeded), sqlkit.Setting(next.RetainCancelled), sqlkit.Setting(next.RetainDead),
		sqlkit.Limit(next.MaxInFlight), sqlkit.Limit(next.MaxPerKey), next.Fair, next.Ordered, sqlkit.Limit(next.Rate.N), sqlkit.Setting(next.Rate.Per),
		next.Owner, next.Declared, next.Version)
	if err != nil {
		return store.Policy{}, err
	}
	if err := t.setLimits(queue, next); err != nil {
		return store.Policy{}, err
	}
	return next, t.setRate(queue, current.Rate, next.Rate)
}

// Beat is part of the contract.
func (s *Store) Beat(ctx context.Context, w store.Worker) error {
	_, err := write(ctx, s, w.Check(), func(t *txn) (struct{}, error) { return struct{}{}, t.beat(w) })
	return err
}

// beat writes the worker's row and deletes other workers that have been silent for too long.
func (t *txn) beat(w store.Worker) error {
	queues, err := sqlkit.List(w.Queues).Value()
	if err != nil {
		return err
	}
	_, err = t.exec(`
		WITH silent AS (
			DELETE FROM {schema}.workers
			WHERE name = ANY (ARRAY(
				SELECT name
				FROM {schema}.workers
				WHERE beat_at <= $9 AND name <> $1
				FOR UPDATE SKIP LOCKED))
		)
		INSERT INTO {schema}.workers (name, host, pid, queues, slots, running, stale_after, beat_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (name) DO UPDATE
		SET host = excluded.host,
			pid = excluded.pid,
			queues = excluded.queues,
			slots = excluded.slots,
			running = excluded.running,
			stale_after = excluded.stale_after,
			beat_at = excluded.beat_at`,
		w.Name, w.Host, w.PID, queues, w.Slots, w.Running, w.StaleAfter.Microseconds(), t.now,
		t.now.Add(-store.WorkerLife))
	return err
}

// Leave is part of the contract.
func (s *Store) Leave(ctx context.Context, name string) error {
	_, err := write(ctx, s, store.Worker{Name: name}.Check(), func(t *txn) (struct{}, error) {
		return struct{}{}, t.remove(`
			DELETE FROM {schema}.workers
			WHERE name = $1`,
			name)
	})
	return err
}

// Workers is part of the contract.
func (s *Store) Workers(ctx context.Context, filter store.WorkerFilter, page store.Page) (store.WorkerPage, error) {
	after, invalid := filter.Position(page)
	return read(ctx, s, invalid, func(t *txn) (store.WorkerPage, error) { return t.workers(filter, page, after) })
}

// workers lets the server limit the rows to about one page, because the driver reads everything that the server sends. The
// server measures the queue names as stored, in JSON, because it knows that length without reading them. The names themselves
// can be shorter; then workers asks for more rows.
func (t *txn) workers(filter store.WorkerFilter, page store.Page, after string) (store.WorkerPage, error) {
	named, name := ``, []any(nil)
	if filter.Name != "" {
		named, name = ` AND name = $4`, []any{filter.Name}
	}
	return sqlkit.Workers(t.each, t.now, filter, page, after, `
		SELECT name, host, pid, queues, slots, running, stale_after, beat_at, follow
		FROM (
			SELECT *,
				coalesce(sum(octet_length(queues)) OVER (ORDER BY name ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before,
				lead(name) OVER (ORDER BY name) IS NOT NULL AS follow
			FROM (
				SELECT *
				FROM {schema}.workers
				WHERE beat_at > $1 AND name > $2`+named+`
				ORDER BY name
				LIMIT $3
			) AS workers
		) AS workers
		WHERE before <= `+strconv.Itoa(store.MaxPageNames)+`
		ORDER BY name`,
		func(after string) []any {
			return append([]any{t.now.Add(-store.WorkerLife), after, page.Limit + 1}, name...)
		})
}

// Fence is part of the contract. It waits for transactions that are writing jobs; later ones wait for it.
func (s *Store) Fence(ctx context.Context, req store.FenceRequest) (int64, error) {
	return write(ctx, s, req.Check(), func(t *txn) (int64, error) { return t.fence(req) })
}

// fence raises the epoch while nobody writes jobs. A transaction that reads the epoch to raise a token has locked the table of
// jobs before, and keeps the lock until it ends. So no transaction can continue with an older epoch afterwards. No weaker lock
// would both exclude writers and let VACUUM and CREATE INDEX CONCURRENTLY pass. A lock on the table of the epoch would wait for
// pg_dump.
func (t *txn) fence(req store.FenceRequest) (int64, error) {
	switch _, err := t.exec(`LOCK TABLE {schema}.jobs IN EXCLUSIVE MODE`); {
	case codeOf(err) == codeLockTimeout:
		return 0, fmt.Errorf("VACUUM, CREATE INDEX or a long transaction has locked the table of jobs, fence again when it has ended: %w", err)
	case err != nil:
		return 0, err
	}
	return t.raise(req)
}

// raise raises the epoch and the id sequence and, if leases must end, their tokens.
func (t *txn) raise(req store.FenceRequest) (int64, error) {
	var epoch, lastID int64
	err := t.each(func(rows *sql.Rows) error { return rows.Scan(&epoch, &lastID) }, `
		SELECT epoch, coalesce(pg_sequence_last_value(pg_get_serial_sequence($1, 'id')::regclass), 0)
		FROM {schema}.fence
		WHERE one
		FOR UPDATE`, // a store that has noticed another server may be raising it
		t.s.schema+`.jobs`)
	if err != nil {
		return 0, err
	}
	if epoch, err = req.Raised(epoch, lastID); err != nil {
		return 0, err
	}
	_, err = t.exec(`
		UPDATE {schema}.fence
		SET epoch = $1
		WHERE one`,
		epoch)
	if err != nil {
		return 0, err
	}
	if err := t.resetTurns(); err != nil {
		return 0, err
	}
	if req.EndLeases {
		if err := t.endLeases(epoch); err != nil {
			return 0, err
		}
	}
	_, err = t.exec(`
		SELECT setval(pg_get_serial_sequence($1, 'id'), $2)`,
		t.s.schema+`.jobs`, store.Floor(epoch))
	return epoch, err
}

// endLeases raises the tokens of all jobs in flight, found in the index in which they waited: also of one that no row of leases has.
func (t *txn) endLeases(epoch int64) error {
	for _, l := range lanes {
		_, err := t.exec(`
			UPDATE {schema}.jobs
			SET token = greatest(token, $1::bigint) + 1
			WHERE `+l.indexed+` AND lease_expires_at IS NOT NULL`,
			store.Floor(epoch))
		if err != nil {
			return err
		}
	}
	return nil
}
