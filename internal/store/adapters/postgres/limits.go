package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/bykey"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
	"github.com/seed-ed332417/jq/internal/store/trial"
)

// The table slots.
//
// A claim on a queue with MaxInFlight locks the row of the queue, and then counts the jobs in flight by another statement, or by a function, which sees what all
// claims before it have committed. No index has the jobs in flight of a queue, because every claim and every end would have to write it. So
// the claims on such a queue add their jobs to the table slots. Nobody changes a slot when a lease ends: it counts as long as its job is in
// flight, and a later claim deletes it.
//
// Jobs that were claimed before the limit was set have no slots. Until they have, nothing is claimed from the queue. A claim that did not see
// the limit may still be running, so the store waits for those before it adds the slots.

// limits is what a store knows of the queues that are limited. It may be wrong: the rows of the table queues decide.
type limits struct {
	held  sqlkit.Held
	often bykey.Often

	some     atomic.Bool         // whether any is known, so that those who end leases need no lock
	mu       sync.Mutex          // guards the fields below
	known    map[string]limited  // queues that are limited
	counting map[string]struct{} // queues whose jobs in flight the store gives slots now
}

// limited is what a store knows of a queue that is limited.
type limited struct {
	turn  chan struct{} // with those of its claims that are running, if claims lock the queue
	byKey bool          // claims find its jobs by their keys
	ends  bool          // the end of a lease makes room

	ordered bool // the end of a job that waits may let the next one of its key go

	across  *bykey.Across
	counted *trial.Trial // of claims by one statement, if MaxInFlight is the only limit
	most    int          // MaxInFlight
}

func newLimits() *limits {
	often := bykey.Often{Jobs: keysAtOnce / 2, Time: time.Second} // a job leaves up to two hints
	return &limits{often: often, known: map[string]limited{}, counting: map[string]struct{}{}}
}

// of returns what is known of the queue: nothing if it is not limited.
func (l *limits) of(queue string) limited {
	if !l.some.Load() {
		return limited{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known[queue]
}

func (l *limits) has(queue string) bool { return l.of(queue) != limited{} }

// learn learns the limits of a queue. If jobs are claimed by their keys now and were not before, or the other way round, it calls switched before
// anybody else learns that, and reports it.
func (l *limits) learn(queue string, p store.Policy, switched func()) (another bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.known[queue]
	if another = k.byKey != p.ByKey(); another {
		switched()
	}
	k.byKey, k.ends, k.ordered = p.ByKey(), p.KeyLimit() > 0 || p.MaxInFlight > 0, p.Ordered
	switch {
	case p.MaxInFlight == 0 && p.Rate.N == 0 && !p.Fair:
		k.turn = nil
	case k.turn == nil:
		k.turn = make(chan struct{}, atOnce)
	}
	switch k.most = p.MaxInFlight; {
	case !onlyInFlight(p):
		k.counted = nil
	case k.counted == nil:
		k.counted = &trial.Trial{}
	}
	k.across = k.across.Under(p, l.often)
	if l.known[queue] = k; k == (limited{}) {
		delete(l.known, queue)
	}
	l.some.Store(len(l.known) > 0)
	return another
}

// learnLimits learns the limits of a queue. If the marks of the queue become those of jobs without a key, or were, it forgets all marks.
func (s *Store) learnLimits(queue string, p store.Policy) (forgot bool) {
	return s.limits.learn(queue, p, s.cursors.Forget)
}

// atOnce is how many claims of a store on a queue that claims lock run at once: one waits for the row of the queue while another one has it.
const atOnce = 2

// inTurn waits until few enough claims of the store on the queue are running. More would only wait for the row, with connections that others need.
func (l limited) inTurn(ctx context.Context) (done func(), err error) {
	if l.turn == nil {
		return func() {}, nil
	}
	select {
	case l.turn <- struct{}{}:
		return func() { <-l.turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
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

// counts reports whether somebody counts the queue.
func (l *limits) counts(queue string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, already := l.counting[queue]
	return already
}

func (l *limits) end(queue string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.counting, queue)
}

// tellHeld wakes the queues of which a claim has left out jobs because of a limit. Call it when leases may have ended.
func (s *Store) tellHeld() { s.hub.Tell(s.limits.held.Take()...) }

// freed notes that the lease of the job has ended: that may make room in its queue.
func (t *txn) freed(j store.Job) {
	if t.s.limits.of(j.Queue).ends {
		t.woken.Add(store.Wakeup{Queue: j.Queue})
	}
}

// unheld notes that a job has ended that was not in flight. In a queue that is ordered, the next one of its key may go.
func (t *txn) unheld(j store.Job) {
	if j.LimitKey() != "" && t.s.limits.of(j.Queue).ordered {
		t.woken.Add(store.Wakeup{Queue: j.Queue})
	}
}

// admit reads the limits of the queue, and lowers the limit of the claim to the room that there is. It reports whether there is any.
func (c *claim) admit(t *txn) (bool, error) {
	c.seen = c.s.limits.held.Taken()
	q, err := c.readLimits(t)
	if err != nil || !c.limited {
		return true, err
	}
	c.uncounted = !q.counted && (c.counts || c.policy.ByKey())
	if q.paused || c.uncounted {
		c.limit = 0
		return false, nil
	}
	c.unknown, c.known = c.policy.ByKey() && q.known < keysKnown, q.known
	if c.counts {
		var inFlight int
		if inFlight, c.slot, err = t.countSlots(c.Queue, q.firstSlot, c.policy.MaxInFlight, c.Limit); err != nil {
			return false, err
		}
		if c.limit = c.policy.Room(c.Limit, inFlight); c.limit < c.Limit {
			c.leavesOut(t)
		}
	}
	if c.policy.Rate.N > 0 {
		if err := c.keepToRate(t); err != nil {
			return false, err
		}
	}
	c.quota = min(c.quota, c.limit)
	return c.limit > 0, nil
}

// queueLimits is the row of a queue with limits.
type queueLimits struct {
	paused    bool
	counted   bool
	firstSlot int64
	known     int // keys_known
}

// readLimits reads the limits of the queue. If it has MaxInFlight or a rate or is fair, it locks the queue until the transaction ends, and then reads the time
// again.
func (c *claim) readLimits(t *txn) (q queueLimits, err error) {
	var locked time.Time
	asked, p := time.Now(), &c.policy
	c.firstHint = c.plan.FirstRow()
	err = t.each(func(rows *sql.Rows) error {
		return rows.Scan(new(sql.NullString), &p.MaxInFlight, &p.MaxPerKey, &p.Fair, &p.Ordered, &p.Rate.N, (*sqlkit.Micros)(&p.Rate.Per), &q.paused, &q.counted,
			&q.firstSlot, &q.known, &c.hinted, &c.merges, &locked)
	}, admitQuery, c.Queue, c.s.mergeLock(c.Queue), c.s.claimsLock(c.Queue), c.firstHint)
	c.counts, c.limited = p.MaxInFlight > 0, p.Limited()
	c.admitted = c.limited // otherwise a later look may find that it is limited now
	if p.Rate.N > 0 {
		t.now = c.s.now.get(locked, asked)
	}
	if err == nil && c.s.learnLimits(c.Queue, *p) {
		c.plan = c.s.cursors.Plan(c.Queue)
		c.plan.Open(t.horizon, false)
	}
	return q, err
}

// leavesOut notes that the claim may have left out jobs because of a limit.
func (c *claim) leavesOut(t *txn) {
	if c.s.limits.held.Note(c.Queue, c.seen) {
		t.woken.Add(store.Wakeup{Queue: c.Queue}) // a lease has ended since, and nobody was told
	}
}

// admitQuery reads the limits of a queue, locks it if it has MaxInFlight or a rate or is fair, and then reads the time. If claims find its jobs by key, the claim
// waits for a merge, which would hold keys that it needs. If there are hints, it takes the lock for reading them, unless another claim has it. It also locks no job, which shows
// that the transaction may be a claim: see claiming.
var admitQuery = `
	WITH counted AS MATERIALIZED (
		SELECT *
		FROM {schema}.queues
		WHERE name = $1 AND (coalesce(max_in_flight, rate_n) IS NOT NULL OR fair)
		FOR UPDATE
	),
	claims AS MATERIALIZED (
		SELECT
		FROM {schema}.jobs
		WHERE id = 0
		FOR UPDATE
	),
	queue AS MATERIALIZED (
		SELECT *, ` + isByKey + ` AND EXISTS (SELECT FROM {schema}.hints WHERE queue = $1 AND number >= $4) AS hinted
		FROM (
			SELECT * FROM counted
			UNION ALL
			SELECT * FROM {schema}.queues WHERE name = $1 AND coalesce(max_in_flight, rate_n) IS NULL AND max_per_key IS NOT NULL AND NOT fair
		) AS queue
		WHERE NOT EXISTS (SELECT FROM claims)
	)
	SELECT CASE WHEN ` + isByKey + ` THEN pg_advisory_xact_lock_shared(hashtextextended($3, 0))::text END,
		coalesce(max_in_flight, 0), coalesce(max_per_key, 0), fair, ordered, coalesce(rate_n, 0), rate_per, paused, counted, first_slot, keys_known, hinted,
		CASE WHEN hinted THEN pg_try_advisory_xact_lock(hashtextextended($2, 0)) ELSE FALSE END, clock_timestamp()
	FROM queue`

// The slots of a queue are cleaned when there are more than fewSlots, and written anew when the numbers of deleted ones before them are
// several times as many: no vacuum can remove those while somebody has an old snapshot.
const (
	fewSlots  = 200
	mostSlots = 5 * fewSlots
)

// countSlots counts the jobs in flight that have slots, and returns the number of the next slot. There may be fewer if there is room for more in any
// case: then it does not look which of the jobs are still in flight. Otherwise it deletes the slots of those that are not, but for the
// last slot, so that no number is given again.
func (t *txn) countSlots(queue string, from int64, most, more int) (inFlight int, next int64, err error) {
	var verified bool
	err = t.each(func(rows *sql.Rows) error { return rows.Scan(&inFlight, &next, &verified) }, `
		WITH slot AS MATERIALIZED (
			SELECT number, job_id
			FROM {schema}.slots
			WHERE queue = $1 AND number >= $2
		),
		bound AS MATERIALIZED (
			SELECT slots, next, slots + $3 > $4 OR slots > $5 AS verified
			FROM (SELECT count(*) AS slots, coalesce(max(number) + 1, $2) AS next FROM slot) AS counted
		),
		taken AS MATERIALIZED (
			SELECT slot.number, slot.job_id
			FROM bound
			CROSS JOIN slot
			CROSS JOIN LATERAL (
				SELECT
				FROM {schema}.jobs
				WHERE jobs.id = ANY (ARRAY[slot.job_id]) AND jobs.lease_expires_at IS NOT NULL
			) AS jobs
			WHERE bound.verified
		),
		free AS (
			DELETE FROM {schema}.slots
			WHERE queue = $1 AND number = ANY (ARRAY(
				SELECT number FROM slot WHERE number < (SELECT next - 1 FROM bound WHERE verified)
				EXCEPT
				SELECT number FROM taken))
		)
		SELECT CASE WHEN verified THEN (SELECT count(DISTINCT job_id) FROM taken) ELSE slots END, next, verified
		FROM bound`,
		queue, from, more, most, fewSlots)
	if err != nil || !verified || next-from <= int64(mostSlots+4*inFlight) {
		return inFlight, next, err
	}
	_, err = t.exec(`
		WITH gone AS (
			DELETE FROM {schema}.slots
			WHERE queue = $1
			RETURNING job_id
		),
		again AS (
			INSERT INTO {schema}.slots (queue, number, job_id)
			SELECT $1, $2::bigint - 1 + row_number() OVER (), gone.job_id
			FROM (SELECT DISTINCT job_id FROM gone) AS gone
			CROSS JOIN LATERAL (
				SELECT
				FROM {schema}.jobs
				WHERE jobs.id = ANY (ARRAY[gone.job_id]) AND jobs.lease_expires_at IS NOT NULL
			) AS jobs
		)
		UPDATE {schema}.queues
		SET first_slot = $2
		WHERE name = $1`,
		queue, next)
	return inFlight, next + int64(inFlight), err
}

// addSlots returns the statement that adds slots for the jobs of these arguments, from a number on.
func addSlots(queue, ids, number string) string {
	return `
		INSERT INTO {schema}.slots (queue, number, job_id)
		SELECT ` + queue + `, ` + number + `::bigint - 1 + place, id
		FROM unnest(` + ids + `::bigint[]) WITH ORDINALITY AS added (id, place)`
}

// setLimits makes claims keep to the limits of the policy. A queue that had no limit for each key, or another one, or that was not limited at all,
// is not counted then. What is known of its keys stays so if the limits of those do not change: claims on a queue that is ordered wait for that.
func (t *txn) setLimits(queue string, p store.Policy) error {
	t.woken.Add(store.Wakeup{Queue: queue}) // there may be room
	if p.MaxInFlight > 0 || p.ByKey() {
		_, err := t.exec(`
			INSERT INTO {schema}.queues (name, paused, max_in_flight, max_per_key, fair, ordered, limit_version)
			VALUES ($1, FALSE, $2, $3, $4, $5, $6)
			ON CONFLICT (name) DO UPDATE
			SET max_in_flight = excluded.max_in_flight,
				max_per_key = excluded.max_per_key,
				fair = excluded.fair,
				ordered = excluded.ordered,
				limit_version = excluded.limit_version,
				keys_known = CASE WHEN queues.counted AND (queues.max_in_flight IS NOT NULL OR excluded.max_in_flight IS NULL)
						AND (excluded.max_per_key, excluded.fair, excluded.ordered) IS NOT DISTINCT FROM (queues.max_per_key, queues.fair, queues.ordered)
					THEN queues.keys_known ELSE 0 END,
				counted = queues.counted AND (queues.max_in_flight IS NOT NULL OR excluded.max_in_flight IS NULL)
					AND (excluded.max_per_key IS NULL AND NOT excluded.fair
						OR (excluded.max_per_key, excluded.fair, excluded.ordered) IS NOT DISTINCT FROM (queues.max_per_key, queues.fair, queues.ordered))
			WHERE (queues.max_in_flight, queues.max_per_key, queues.fair, queues.ordered)
				IS DISTINCT FROM (excluded.max_in_flight, excluded.max_per_key, excluded.fair, excluded.ordered)`,
			queue, sqlkit.Limit(p.MaxInFlight), sqlkit.Limit(p.KeyLimit()), p.Fair, p.Ordered, p.Version)
		if err != nil {
			return err
		}
	} else {
		_, err := t.exec(`
			UPDATE {schema}.queues
			SET max_in_flight = NULL,
				max_per_key = NULL,
				fair = FALSE,
				ordered = FALSE,
				counted = FALSE
			WHERE name = $1 AND `+isCounted,
			queue)
		if err != nil {
			return err
		}
	}
	if !p.ByKey() {
		if err := t.forgetKeys(queue); err != nil {
			return err
		}
	}
	if p.MaxInFlight > 0 {
		return nil
	}
	return t.forgetSlots(queue)
}

// forgetSlots deletes the slots of a queue. No number is given again.
func (t *txn) forgetSlots(queue string) error {
	n, err := t.exec(`
		UPDATE {schema}.queues
		SET first_slot = greatest(first_slot, slots.next)
		FROM (SELECT max(number) + 1 AS next FROM {schema}.slots WHERE queue = $1) AS slots
		WHERE name = $1 AND slots.next IS NOT NULL`,
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

// longestLook is how long a count waits, at most, before it looks again who still claims.
const longestLook = 250 * time.Millisecond

// count gives slots to the jobs in flight of a queue that was not limited before, and returns when they have some.
func (s *Store) count(ctx context.Context, queue string) error {
	for {
		version, uncounted, err := s.toCount(ctx, queue)
		switch {
		case err != nil || !uncounted:
			return err
		case s.limits.begin(queue):
			err = s.countFor(ctx, queue, version)
			s.limits.end(queue)
		case !sqlkit.Rest(ctx, longestBusy):
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// countLater counts a queue in the background, and logs a failure: it would go on unseen, while claims take nothing from the queue. That others have
// to be waited for is no failure.
func (s *Store) countLater(queue string, count func(context.Context, string) error) {
	s.background(func(ctx context.Context) {
		err := count(ctx, queue)
		if err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, store.ErrClosed) {
			s.options.Logger.WarnContext(ctx, "jq: counting the jobs or the keys of a queue with limits failed; until a later claim has it counted, claims may take nothing from it",
				"schema", s.options.Schema, "queue", queue, "error", err)
		}
	})
}

// countFor waits for all claims that may have begun before the limits of this version were set. Then it counts, unless there are others by then.
func (s *Store) countFor(ctx context.Context, queue string, version int64) error {
	if err := s.outlast(ctx, s.claiming); err != nil {
		return err
	}
	return s.countNow(ctx, queue, version)
}

func (s *Store) countNow(ctx context.Context, queue string, version int64) error {
	_, err := write(ctx, s, nil, func(t *txn) (struct{}, error) { return struct{}{}, t.countAll(queue, version) })
	if err != nil {
		return err
	}
	if err := s.merge(ctx, queue, version); err != nil {
		return err
	}
	_, err = write(ctx, s, nil, func(t *txn) (struct{}, error) {
		t.woken.Add(store.Wakeup{Queue: queue})
		_, err := t.exec(`
			UPDATE {schema}.queues
			SET counted = TRUE,
				keys_known = 0
			WHERE name = $1 AND NOT counted AND `+isCounted+` AND limit_version = $2`,
			queue, version)
		return struct{}{}, err
	})
	return err
}

// outlast waits until all transactions have ended that are running now.
func (s *Store) outlast(ctx context.Context, running func(context.Context) ([]string, error)) error {
	older, err := running(ctx)
	for wait := time.Millisecond; err == nil && len(older) > 0; wait = min(2*wait, longestLook) {
		if !sqlkit.Rest(ctx, wait) {
			return ctx.Err()
		}
		var still []string
		still, err = running(ctx)
		older = slices.DeleteFunc(older, func(one string) bool { return !slices.Contains(still, one) })
	}
	return err
}

// claiming returns the transactions that may be claims: they read the table of queues, and lock jobs. A transaction has these locks before
// it takes the snapshot in which it looks for limits, so one that is not among them sees what was committed before.
func (s *Store) claiming(ctx context.Context) ([]string, error) {
	return s.locking(ctx, `queues`, `RowShareLock`, `RowExclusiveLock`)
}

// locking returns the transactions that have read the table, and have one of the locks on that of jobs.
func (s *Store) locking(ctx context.Context, table string, locks ...string) ([]string, error) {
	return read(ctx, s, nil, func(t *txn) ([]string, error) {
		return sqlkit.Values[string](t.each, `
			SELECT DISTINCT virtualtransaction
			FROM pg_locks AS reads
			JOIN pg_locks AS locks USING (database, virtualtransaction)
			WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())
				AND reads.relation = $1::text::regclass
				AND locks.relation = $2::text::regclass AND locks.mode = ANY ($3::text[])`,
			t.s.schema+`.`+table, t.s.schema+`.jobs`, arrayOfTexts(locks))
	})
}

// toCount returns the version of the limit, and whether the queue is limited and not counted yet.
func (s *Store) toCount(ctx context.Context, queue string) (version int64, found bool, err error) {
	_, err = read(ctx, s, nil, func(t *txn) (struct{}, error) {
		return struct{}{}, t.each(func(rows *sql.Rows) error { found = true; return rows.Scan(&version) }, `
			SELECT limit_version
			FROM {schema}.queues
			WHERE name = $1 AND `+isCounted+` AND NOT counted`,
			queue)
	})
	return version, found, err
}

// countAll adds slots for all jobs in flight, and hints for all keys, unless the queue is counted, or has other limits. It leaves hints once: reading
// them may take longer than whoever began it has time.
func (t *txn) countAll(queue string, version int64) error {
	var first int64
	var counts, byKey, found bool
	err := t.each(func(rows *sql.Rows) error { found = true; return rows.Scan(&first, &counts, &byKey) }, `
		SELECT first_slot, max_in_flight IS NOT NULL, `+isByKey+`
		FROM {schema}.queues
		WHERE name = $1 AND `+isCounted+` AND NOT counted AND keys_known >= 0 AND limit_version = $2
		FOR UPDATE`,
		queue, version)
	if err != nil || !found {
		return err
	}
	ids, err := sqlkit.Values[int64](t.each, `
		SELECT id
		FROM {schema}.jobs
		WHERE queue = $1 AND lease_expires_at IS NOT NULL AND id = ANY (ARRAY(SELECT unnest(ids) FROM {schema}.leases))`,
		queue)
	if err != nil {
		return err
	}
	if counts {
		_, err := t.exec(`
			DELETE FROM {schema}.slots
			WHERE queue = $1`, // if rows were changed by hand
			queue)
		if err != nil {
			return err
		}
		if _, err := t.exec(addSlots(`$1`, `$2`, `$3`), queue, arrayOf(ids), first); err != nil {
			return err
		}
	}
	if !byKey {
		return nil
	}
	if err := t.beginKeys(queue, ids); err != nil {
		return err
	}
	_, err = t.exec(`
		UPDATE {schema}.queues
		SET keys_known = -1
		WHERE name = $1`,
		queue)
	return err
}
