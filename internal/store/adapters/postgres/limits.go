package postgres

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// The table slots.
//
// A claim on a queue with MaxInFlight locks the row of the queue, and then counts the jobs in flight by another statement, which sees what all
// claims before it have committed. No index has the jobs in flight of a queue, because every claim and every end would have to write it. So
// the claims on such a queue add their jobs to the table slots. Nobody changes a slot when a lease ends: it counts as long as its job is in
// flight, and the next claim deletes it.
//
// Jobs that were claimed before the limit was set have no slots. Until they have, nothing is claimed from the queue. A claim that did not see
// the limit may still be running, so the store waits for those before it adds the slots.

// limits is what a store knows of the queues that are limited. It may be wrong: the rows of the table queues decide.
type limits struct {
	held sqlkit.Held

	mu       sync.Mutex          // guards the fields below
	known    map[string]struct{} // queues that are limited
	counting map[string]struct{} // queues whose jobs in flight the store gives slots now
}

func newLimits() *limits {
	return &limits{known: map[string]struct{}{}, counting: map[string]struct{}{}}
}

func (l *limits) has(queue string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, known := l.known[queue]
	return known
}

func (l *limits) learn(queue string, limited bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if limited {
		l.known[queue] = struct{}{}
	} else {
		delete(l.known, queue)
	}
}

// begin reports whether nobody counts the queue, and makes the caller do so until it calls end.
func (l *limits) begin(queue string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, already := l.counting[queue]
	l.counting[queue] = struct{}{}
	return !already
}

func (l *limits) end(queue string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.counting, queue)
}

// tellHeld wakes the queues of which a claim has left out jobs because of a limit. Call it when leases may have ended.
func (s *Store) tellHeld() { s.hub.Tell(s.limits.held.Take()...) }

// admit locks the queue, if it is limited, until the transaction ends, and lowers the limit of the claim to the room that there is. It reports
// whether there is any.
func (c *claim) admit(t *txn) (bool, error) {
	var p store.Policy
	var counted bool
	var first int64
	err := t.each(func(rows *sql.Rows) error { return rows.Scan(&p.MaxInFlight, &counted, &first) }, `
		SELECT max_in_flight, counted, first_slot
		FROM {schema}.queues
		WHERE name = $1 AND max_in_flight IS NOT NULL
		FOR UPDATE`,
		c.Queue)
	c.limited, c.admitted = p.MaxInFlight > 0, true
	c.s.limits.learn(c.Queue, c.limited)
	switch {
	case err != nil || !c.limited:
		return true, err
	case !counted:
		c.uncounted, c.limit = true, 0
		return false, nil
	}
	inFlight, err := t.countSlots(c.Queue, first)
	if err != nil {
		return false, err
	}
	if c.limit = p.Room(c.Limit, inFlight); c.limit < c.Limit {
		c.s.limits.held.Note(c.Queue)
	}
	c.quota = min(c.quota, c.limit)
	return c.limit > 0, nil
}

// fewSlots is how many slots before the first that counts a claim passes.
const fewSlots = 1000

// countSlots counts the jobs in flight that have slots, and deletes the slots of others. It moves the first slot when it has to pass too many
// before that, because a vacuum may not be able to remove them for long.
func (t *txn) countSlots(queue string, from int64) (inFlight int, err error) {
	var first int64
	err = t.each(func(rows *sql.Rows) error { return rows.Scan(&inFlight, &first) }, `
		WITH slot AS MATERIALIZED (
			SELECT slots.number, slots.job_id, jobs.taken IS NOT NULL AS taken
			FROM {schema}.slots
			LEFT JOIN LATERAL (
				SELECT TRUE AS taken
				FROM {schema}.jobs
				WHERE jobs.id = ANY (ARRAY[slots.job_id]) AND jobs.lease_expires_at IS NOT NULL
			) AS jobs ON TRUE
			WHERE slots.queue = $1 AND slots.number >= $2
		),
		free AS (
			DELETE FROM {schema}.slots
			WHERE queue = $1 AND number = ANY (ARRAY(SELECT number FROM slot WHERE NOT taken))
		)
		SELECT count(DISTINCT job_id) FILTER (WHERE taken), coalesce(min(number) FILTER (WHERE taken), max(number) + 1, $2)
		FROM slot`,
		queue, from)
	if err != nil || first-from <= fewSlots {
		return inFlight, err
	}
	_, err = t.exec(`
		UPDATE {schema}.queues
		SET first_slot = $2
		WHERE name = $1`,
		queue, first)
	return inFlight, err
}

// addSlots returns the statement that adds slots for the jobs of these arguments.
func addSlots(queue, ids string) string {
	return `
		INSERT INTO {schema}.slots (queue, job_id)
		SELECT ` + queue + `, unnest(` + ids + `::bigint[])`
}

// setLimit makes claims keep to the limit. A queue that was not limited before is not counted then.
func (t *txn) setLimit(queue string, p store.Policy) error {
	t.woken.Add(store.Wakeup{Queue: queue}) // there may be room
	if p.MaxInFlight > 0 {
		_, err := t.exec(`
			INSERT INTO {schema}.queues (name, paused, max_in_flight)
			VALUES ($1, FALSE, $2)
			ON CONFLICT (name) DO UPDATE
			SET max_in_flight = excluded.max_in_flight`,
			queue, p.MaxInFlight)
		return err
	}
	n, err := t.exec(`
		UPDATE {schema}.queues
		SET max_in_flight = NULL,
			counted = FALSE,
			first_slot = 0
		WHERE name = $1 AND max_in_flight IS NOT NULL`,
		queue)
	if err != nil || n == 0 {
		return err
	}
	_, err = t.exec(`
		DELETE FROM {schema}.slots
		WHERE queue = $1`,
		queue)
	return err
}

// count gives slots to the jobs in flight of a queue that was not limited before. First it waits for all claims that may have begun before the
// limit was set.
func (s *Store) count(ctx context.Context, queue string) error {
	if !s.limits.begin(queue) {
		return nil
	}
	defer s.limits.end(queue)
	uncounted, err := read(ctx, s, nil, func(t *txn) (bool, error) { return t.uncounted(queue, ``) })
	if err != nil || !uncounted {
		return err
	}
	older, err := s.claiming(ctx)
	for wait := time.Millisecond; err == nil && len(older) > 0; wait = min(2*wait, longestBusy) {
		if !sqlkit.Rest(ctx, wait) {
			return ctx.Err()
		}
		var still []string
		still, err = s.claiming(ctx)
		older = slices.DeleteFunc(older, func(one string) bool { return !slices.Contains(still, one) })
	}
	if err != nil {
		return err
	}
	_, err = write(ctx, s, nil, func(t *txn) (struct{}, error) { return struct{}{}, t.countAll(queue) })
	return err
}

// claiming returns the transactions that may be claims: they read the table of queues, and lock jobs. A transaction has these locks before
// it takes the snapshot in which it looks for limits, so one that is not among them sees what was committed before.
func (s *Store) claiming(ctx context.Context) ([]string, error) {
	return read(ctx, s, nil, func(t *txn) ([]string, error) {
		return sqlkit.Values[string](t.each, `
			SELECT DISTINCT virtualtransaction
			FROM pg_locks AS reads
			JOIN pg_locks AS locks USING (database, virtualtransaction)
			WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())
				AND reads.relation = $1::text::regclass
				AND locks.relation = $2::text::regclass AND locks.mode IN ('RowShareLock', 'RowExclusiveLock')`,
			t.s.schema+`.queues`, t.s.schema+`.jobs`)
	})
}

// uncounted reports whether the queue is limited, and not counted yet.
func (t *txn) uncounted(queue, locking string) (found bool, err error) {
	err = t.each(func(*sql.Rows) error { found = true; return nil }, `
		SELECT
		FROM {schema}.queues
		WHERE name = $1 AND max_in_flight IS NOT NULL AND NOT counted`+locking,
		queue)
	return found, err
}

// countAll adds slots for all jobs in flight, unless another store has done so.
func (t *txn) countAll(queue string) error {
	if uncounted, err := t.uncounted(queue, ` FOR UPDATE`); err != nil || !uncounted {
		return err
	}
	ids, err := sqlkit.Values[int64](t.each, `
		SELECT id
		FROM {schema}.jobs
		WHERE queue = $1 AND lease_expires_at IS NOT NULL AND id = ANY (ARRAY(SELECT unnest(ids) FROM {schema}.leases))`,
		queue)
	if err == nil {
		_, err = t.exec(addSlots(`$1`, `$2`), queue, arrayOf(ids))
	}
	if err != nil {
		return err
	}
	t.woken.Add(store.Wakeup{Queue: queue})
	_, err = t.exec(`
		UPDATE {schema}.queues
		SET counted = TRUE
		WHERE name = $1`,
		queue)
	return err
}
