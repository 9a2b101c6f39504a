package postgres

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
	"github.com/seed-ed332417/jq/internal/store/bykey"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Which keys there are when a queue begins to limit them, and what claims leave of many hints. Claims on the queue go on meanwhile, once it is counted.
//
// If the queue is ordered, they take no job with a key until the table ordered has all live ones, but for those of transactions that see the database as
// it was before. These may add jobs that are found only when keys are looked for the second time, and are overtaken until then.
//
// Triggers keep that table. A row whose job is not live hides nothing. Those who end a job while it is being added leave such rows, and the second look
// deletes them. So do transactions that still see a policy that was replaced.

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

// beginKeys makes the keys of a queue known, of which these jobs are in flight. What is known of their order stays: it is as it should be.
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
		WHERE queue = ANY (ARRAY(SELECT name FROM {schema}.queues WHERE fair))
			AND jsonb_path_exists(nullif(state, '')::jsonb, '$.lines[*] ? (@.turn > $turn)',
				jsonb_build_object('turn', (SELECT last_value + 1 FROM {schema}.turns) * $1))`,
		bykey.TurnsOfClaim)
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
	return t.forgetOrdered(queue)
}

// forgetOrdered deletes what is known of the order of jobs in a queue that is not ordered. It leaves rows that others are about to delete: they would wait
// for each other. It also leaves what are too many for one transaction. Such rows hide nothing, and order mends them.
func (t *txn) forgetOrdered(queue string) error {
	_, err := t.exec(`
		DELETE FROM {schema}.ordered
		WHERE ctid = ANY (ARRAY(
			SELECT ctid
			FROM {schema}.ordered
			WHERE queue = $1 AND NOT EXISTS (SELECT FROM {schema}.queues WHERE name = $1 AND ordered)
			LIMIT $2
			FOR UPDATE SKIP LOCKED))`,
		queue, 10*orderedAtOnce)
	return err
}

// keysOf is the name under which a store notes that it looks for the keys of a queue, which are known so many times. That may wait for others for long,
// and must not keep the store from counting the queue, nor from looking for the keys the first time.
func keysOf(queue string, known int) string {
	return queue + strings.Repeat("\x00", 1+min(max(known, 0), 1))
}

// A knowledge says how many times the keys of a queue are known, under the limits of this version.
type knowledge struct {
	version int64
	known   int
	ordered bool
}

// knowledgeOf reads what is known of the keys of a queue, if claims find jobs by key there.
func (s *Store) knowledgeOf(ctx context.Context, queue string) (k knowledge, found bool, err error) {
	_, err = read(ctx, s, nil, func(t *txn) (struct{}, error) {
		return struct{}{}, t.each(func(rows *sql.Rows) error { found = true; return rows.Scan(&k.version, &k.known, &k.ordered) }, `
			SELECT limit_version, keys_known, ordered
			FROM {schema}.queues
			WHERE name = $1 AND `+isByKey+` AND counted`,
			queue)
	})
	return k, found, err
}

// knowKeys looks for keys of a queue that nobody may know of, and reads hints.
func (s *Store) knowKeys(ctx context.Context, queue string) error {
	k, found, err := s.knowledgeOf(ctx, queue)
	if err != nil || !found {
		return err
	}
	if k.ordered { // the jobs may be so many that nobody could end who is cut off
		ctx = context.WithoutCancel(ctx)
	}
	for ; k.known < keysKnown; k.known++ {
		if begun, err := s.know(ctx, queue, k); !begun || err != nil {
			return err
		}
	}
	if !s.limits.begin(keysOf(queue, k.known)) {
		return nil
	}
	defer s.limits.end(keysOf(queue, k.known))
	return s.merge(ctx, queue, k.version)
}

// longestKnow is how long SetPolicy waits until claims may take jobs with keys. Mostly that takes a moment, unless somebody has a long transaction.
const longestKnow = time.Second

// knowSoon waits a little until claims may take jobs with keys of an ordered queue. It leaves to the background what is not done by then.
func (s *Store) knowSoon(ctx context.Context, queue string) {
	soon, cancel := context.WithTimeout(ctx, longestKnow)
	defer cancel()
	for {
		k, found, err := s.knowledgeOf(soon, queue)
		if err == nil && (!found || k.known >= keysInOrder) {
			return
		}
		begun := false
		if err == nil {
			begun, err = s.know(soon, queue, k)
		}
		if err != nil || !begun && !sqlkit.Rest(soon, longestBusy) {
			s.countLater(queue, s.knowKeys)
			return
		}
	}
}

// keysKnown is how many times all keys of a queue must be looked for: see know. Claims take jobs with keys of an ordered queue when they are known
// keysInOrder times.
const (
	keysInOrder = 1
	keysKnown   = 2
)

// know leaves hints for all keys of a queue once more, because there may have been transactions that added or finished jobs before they could see that
// the queue limits its keys. At first, it waits for those that have changed jobs, and then for all that are running: some may change jobs later
// by what they saw when they began, if they are isolated so. The latter may take long, if somebody else has a long transaction. It reports whether it has
// begun: it does not if the store does the same already.
func (s *Store) know(ctx context.Context, queue string, k knowledge) (begun bool, err error) {
	if !s.limits.begin(keysOf(queue, k.known)) {
		return false, nil
	}
	defer s.limits.end(keysOf(queue, k.known))
	older := s.adding
	if k.known > 0 {
		older = s.anything
	}
	wait, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	if err := s.outlast(wait, older); err != nil {
		return true, err
	}
	if k.ordered {
		if err := s.order(ctx, queue, k.version); err != nil {
			return true, err
		}
	}
	if err := s.knowAgain(ctx, queue, k); err != nil || !k.ordered {
		return true, err
	}
	return true, s.merge(ctx, queue, k.version) // so that those who wait for their turn find it soon
}

func (s *Store) knowAgain(ctx context.Context, queue string, k knowledge) error {
	_, err := write(ctx, s, nil, func(t *txn) (struct{}, error) {
		n, err := t.exec(`
			UPDATE {schema}.queues
			SET keys_known = $3 + 1
			WHERE name = $1 AND `+isByKey+` AND limit_version = $2 AND counted AND keys_known = $3`,
			queue, k.version, k.known)
		if err != nil || n == 0 {
			return struct{}{}, err
		}
		t.woken.Add(store.Wakeup{Queue: queue})
		return struct{}{}, t.hintAll(queue)
	})
	return err
}

// orderedAtOnce is how many jobs a transaction looks at.
const orderedAtOnce = 2000

// order makes the table ordered have a row for each live job with a key of the queue, and none for others, unless the queue has other limits meanwhile. It
// does so in steps, each in a transaction of its own, because the jobs may be many.
func (s *Store) order(ctx context.Context, queue string, version int64) error {
	var last int64
	for more := true; more; {
		next, err := write(ctx, s, nil, func(t *txn) (int64, error) { return t.orderSome(queue, version, last) })
		if err != nil {
			return err
		}
		more, last = next > last, next
	}
	var from orderedJob
	for more := true; more; {
		next, err := write(ctx, s, nil, func(t *txn) (orderedJob, error) { return t.disorderSome(queue, version, from) })
		if err != nil {
			return err
		}
		more, from = next != from && next != orderedJob{}, next
	}
	return nil
}

// orderSome adds the next jobs to the table ordered, and returns the id of the last one. It waits for nobody who ends one of them.
func (t *txn) orderSome(queue string, version, after int64) (last int64, err error) {
	if is, err := t.lockOrder(queue, version); err != nil || !is {
		return after, err
	}
	last = after
	err = t.each(func(rows *sql.Rows) error { return rows.Scan(&last) }, orderSomeQuery, queue, after, orderedAtOnce)
	return last, err
}

var orderSomeQuery = `
	WITH part AS MATERIALIZED (
		SELECT id, limit_key
		FROM (` + liveOf(lanes[cursor.Fresh].indexed) + `
			UNION ALL` + liveOf(lanes[cursor.Retries].indexed) + `
			UNION ALL` + liveOf(isBlocked) + `
		) AS jobs
		ORDER BY id
		LIMIT $3
	),
	added AS (
		INSERT INTO {schema}.ordered (queue, limit_key, job_id)
		SELECT $1, limit_key, id
		FROM part
		WHERE limit_key IS NOT NULL AND NOT EXISTS (
			SELECT
			FROM {schema}.ordered
			WHERE ordered.limit_key = part.limit_key AND ordered.queue = $1 AND ordered.job_id = part.id
			OFFSET 0)
		ON CONFLICT DO NOTHING
	)
	SELECT max(id)
	FROM part
	HAVING count(*) > 0`

// liveOf returns the query for the next jobs of a queue, by one of the indexes that have live ones.
func liveOf(condition string) string {
	return `
			(SELECT id, limit_key
			FROM {schema}.jobs
			WHERE ` + condition + ` AND queue = $1 AND id > $2
			ORDER BY id
			LIMIT $3)`
}

// An orderedJob is the place of a row in the table ordered, among those of its queue.
type orderedJob struct {
	key string
	id  int64
}

// disorderSome looks at the next rows of the table ordered, and deletes those whose jobs are not live. It returns the last one at which it has looked. It
// locks the jobs: somebody who is requeueing one relies on the row.
func (t *txn) disorderSome(queue string, version int64, after orderedJob) (last orderedJob, err error) {
	if is, err := t.lockOrder(queue, version); err != nil || !is {
		return after, err
	}
	err = t.each(func(rows *sql.Rows) error { return rows.Scan(&last.key, &last.id) }, disorderSomeQuery, queue, after.key, after.id, orderedAtOnce)
	return last, err
}

var disorderSomeQuery = `
	WITH part AS MATERIALIZED (
		SELECT limit_key, job_id
		FROM {schema}.ordered
		WHERE queue = $1 AND (limit_key, queue, job_id) > ($2, $1, $3)
		ORDER BY limit_key, queue, job_id
		LIMIT $4
	),
	ended AS MATERIALIZED (
		SELECT part.limit_key, part.job_id
		FROM part
		CROSS JOIN LATERAL (
			SELECT
			FROM {schema}.jobs
			WHERE jobs.id = ANY (ARRAY[part.job_id])
				AND (NOT ` + isLive + ` OR (jobs.queue, jobs.limit_key) IS DISTINCT FROM ($1, part.limit_key))
			FOR UPDATE SKIP LOCKED
		) AS jobs
	),
	gone AS MATERIALIZED (
		SELECT limit_key, job_id
		FROM part
		WHERE NOT EXISTS (SELECT FROM {schema}.jobs WHERE jobs.id = part.job_id OFFSET 0)
	),
	deleted AS (
		DELETE FROM {schema}.ordered
		WHERE ctid = ANY (ARRAY(
			SELECT known.ctid
			FROM (SELECT * FROM ended UNION ALL SELECT * FROM gone) AS stale
			CROSS JOIN LATERAL (
				SELECT ctid
				FROM {schema}.ordered
				WHERE ordered.limit_key = stale.limit_key AND ordered.queue = $1 AND ordered.job_id = stale.job_id
				LIMIT 1
			) AS known))
	)
	SELECT limit_key, job_id
	FROM part
	ORDER BY limit_key DESC, job_id DESC
	LIMIT 1`

// lockOrder lets nobody set other limits for the queue, and reports whether it is still ordered under this version of them.
func (t *txn) lockOrder(queue string, version int64) (is bool, err error) {
	err = t.each(func(rows *sql.Rows) error { is = true; return ignored(rows) }, `
		SELECT
		FROM {schema}.queues
		WHERE name = $1 AND ordered AND limit_version = $2
		FOR SHARE`,
		queue, version)
	return is, err
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
	err = t.each(func(rows *sql.Rows) error { return rows.Scan(&p.MaxPerKey, &p.Fair, &p.Ordered) }, `
		SELECT coalesce(max_per_key, 0), fair, ordered
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
	b := keyBatch{queue: queue, keys: bykey.NewKeys(p, t.now), atOnce: mergedAtOnce, hints: true, ordered: p.Ordered, turns: p.Fair}
	if err := b.lock(t); err != nil {
		return false, err
	}
	b.keys.Hinted()
	if err := t.lookAt(queue, 1, b.keys); err != nil {
		return false, err
	}
	rows, err := b.keys.Rows(nil)
	if err != nil {
		return false, err
	}
	return b.more() && b.deleted > 0, t.writeKeys(queue, rows)
}
