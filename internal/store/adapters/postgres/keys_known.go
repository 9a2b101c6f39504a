package postgres

import (
	"context"
	"database/sql"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Which keys there are when a queue begins to limit them, and what claims leave of many hints. Claims on the queue go on meanwhile, once it is counted.

// hintAll leaves hints for all keys of the queue that have waiting jobs. It takes one index step from each line to the next, of all queues.
func (t *txn) hintAll(queue string) error {
	for lane, retry := range map[cursor.Lane]string{cursor.Fresh: `FALSE`, cursor.Retries: `TRUE`} {
		_, err := t.exec(lanes[lane].sql(`
			WITH RECURSIVE line (limit_key, queue, priority, due_at) AS (
				(
					SELECT limit_key, queue, priority, {due}
					FROM {schema}.jobs
					WHERE {indexed} AND limit_key IS NOT NULL
					ORDER BY limit_key, queue, priority, {due}, id
					LIMIT 1
				)
				UNION ALL
				SELECT next.*
				FROM line
				CROSS JOIN LATERAL (
					SELECT limit_key, queue, priority, {due}
					FROM {schema}.jobs
					WHERE {indexed} AND limit_key IS NOT NULL AND (limit_key, queue, priority) > (line.limit_key, line.queue, line.priority)
					ORDER BY limit_key, queue, priority, {due}, id
					LIMIT 1
				) AS next
			)
			INSERT INTO {schema}.hints (queue, limit_key, retry, priority, due_at)
			SELECT queue, limit_key, `+retry+`, priority, due_at
			FROM line
			WHERE queue = $1`),
			queue)
		if err != nil {
			return err
		}
	}
	return nil
}

// beginKeys makes the keys of a queue known, of which these jobs are in flight.
func (t *txn) beginKeys(queue string, inFlight []int64) error {
	if err := t.forgetKeys(queue); err != nil {
		return err
	}
	_, err := t.exec(`
		INSERT INTO {schema}.keys (queue, limit_key, state)
		SELECT $1, limit_key, json_build_object('taken', json_agg(id))::text
		FROM {schema}.jobs
		WHERE id = ANY ($2::bigint[]) AND queue = $1 AND limit_key IS NOT NULL AND lease_expires_at IS NOT NULL
			AND EXISTS (SELECT FROM {schema}.queues WHERE name = $1 AND max_per_key IS NOT NULL)
		GROUP BY limit_key`,
		queue, arrayOf(inFlight))
	if err != nil {
		return err
	}
	return t.hintAll(queue)
}

// resetTurns makes turns the first ones that no claim could reach soon: the data may have come here without the sequence by which claims are numbered.
func (t *txn) resetTurns() error {
	_, err := t.exec(`
		UPDATE {schema}.keys
		SET state = regexp_replace(state, '"turn":[0-9]+', '"turn":1', 'g'),
			fresh_at = CASE WHEN fresh_at IS NOT NULL THEN 1 END,
			retry_at = CASE WHEN retry_at IS NOT NULL THEN 1 END
		WHERE queue IN (SELECT name FROM {schema}.queues WHERE fair)
			AND jsonb_path_exists(nullif(state, '')::jsonb, '$.lines[*] ? (@.turn > $turn)',
				jsonb_build_object('turn', (SELECT last_value + 1 FROM {schema}.turns) * $1))`,
		sqlkit.TurnsOfClaim)
	return err
}

// forgetKeys deletes what is known of the keys of a queue.
func (t *txn) forgetKeys(queue string) error {
	for _, table := range []string{`keys`, `hints`} {
		_, err := t.exec(`
			DELETE FROM {schema}.`+table+`
			WHERE queue = $1`,
			queue)
		if err != nil {
			return err
		}
	}
	return nil
}

// keysOf is the name under which a store notes that it looks for the keys of a queue. That may wait for others for long, and must not keep the
// store from counting the queue.
func keysOf(queue string) string { return queue + "\x00" }

// knowKeys looks for keys of a queue that nobody may know of, and reads hints.
func (s *Store) knowKeys(ctx context.Context, queue string) error {
	var version int64
	var known int
	found := false
	_, err := read(ctx, s, nil, func(t *txn) (struct{}, error) {
		return struct{}{}, t.each(func(rows *sql.Rows) error { found = true; return rows.Scan(&version, &known) }, `
			SELECT limit_version, keys_known
			FROM {schema}.queues
			WHERE name = $1 AND `+isByKey+` AND counted`,
			queue)
	})
	if err != nil || !found || !s.limits.begin(keysOf(queue)) {
		return err
	}
	defer s.limits.end(keysOf(queue))
	for ; known < keysKnown; known++ {
		if err := s.know(ctx, queue, version, known); err != nil {
			return err
		}
	}
	return s.merge(ctx, queue, version)
}

// keysKnown is how many times all keys of a queue must be looked for: see know.
const keysKnown = 2

// know leaves hints for all keys of a queue once more, because there may have been transactions that added or finished jobs before they could see that
// the queue limits its keys. At first, it waits for those that have changed jobs, and then for all that are running: some may change jobs later
// by what they saw when they began, if they are isolated so. The latter may take long, if somebody else has a long transaction.
func (s *Store) know(ctx context.Context, queue string, version int64, known int) error {
	older := s.adding
	if known > 0 {
		older = s.anything
	}
	if err := s.outlast(ctx, older); err != nil {
		return err
	}
	_, err := write(ctx, s, nil, func(t *txn) (struct{}, error) {
		n, err := t.exec(`
			UPDATE {schema}.queues
			SET keys_known = $3 + 1
			WHERE name = $1 AND `+isByKey+` AND limit_version = $2 AND counted AND keys_known = $3`,
			queue, version, known)
		if err != nil || n == 0 {
			return struct{}{}, err
		}
		t.woken.Add(store.Wakeup{Queue: queue})
		return struct{}{}, t.hintAll(queue)
	})
	return err
}

// adding returns the transactions that have changed jobs with keys: they read the policies.
func (s *Store) adding(ctx context.Context) ([]string, error) {
	return s.locking(ctx, `policies`, `RowExclusiveLock`)
}

// anything returns all transactions that are running on the server.
func (s *Store) anything(ctx context.Context) ([]string, error) {
	return read(ctx, s, nil, func(t *txn) ([]string, error) {
		return sqlkit.Values[string](t.each, `
			SELECT virtualxid
			FROM pg_locks
			WHERE locktype = 'virtualxid' AND granted AND pid <> pg_backend_pid()`)
	})
}

// merge reads the hints of a queue, as claims do, until few are left or the queue has limits of another version.
func (s *Store) merge(ctx context.Context, queue string, version int64) error {
	for more := true; more; {
		_, err := write(ctx, s, nil, func(t *txn) (_ struct{}, err error) {
			more, err = t.mergeSome(queue, version)
			return struct{}{}, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *txn) mergeSome(queue string, version int64) (more bool, err error) {
	var p store.Policy
	err = t.each(func(rows *sql.Rows) error { return rows.Scan(&p.MaxPerKey, &p.Fair) }, `
		SELECT coalesce(max_per_key, 0), fair
		FROM {schema}.queues
		WHERE name = $1 AND `+isByKey+` AND limit_version = $2
		FOR SHARE`,
		queue, version)
	if err != nil || !p.ByKey() {
		return false, err
	}
	// After the row, as in claims. It alone keeps others from the hints: a claim that gets this lock at the end of a merge must find theirs free.
	if err := t.each(ignored, `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, t.s.claimsLock(queue)); err != nil {
		return false, err
	}
	b := keyBatch{queue: queue, keys: sqlkit.NewKeys(p, t.now), hints: true, numbers: p.Fair}
	if err := b.lock(t); err != nil {
		return false, err
	}
	hints := b.told()
	b.keys.Hinted()
	if err := t.lookAt(queue, 1, b.keys, hints); err != nil {
		return false, err
	}
	rows, err := b.keys.Rows(nil)
	if err != nil {
		return false, err
	}
	return b.hints && len(hints) > 0, t.writeKeys(queue, rows)
}
