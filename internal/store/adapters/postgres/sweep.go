package postgres

import (
	"context"
	"database/sql"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lib/pq"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Sweeps.
//
// A mark is exact as long as the database behaves as package cursor requires. If somebody changes the database without any
// sign, a due job may lie before the mark: another store enqueued it while the clock was set back, or somebody wrote the row by
// hand. A sweep finds it. It reads each index from its beginning and stores the first job of each queue, lane and priority,
// regardless of the marks. These are the heads. The head of the table leases is its first row: when it is due, and its id. Every store compares the heads with its own marks. If a job waits now, and lies
// before the mark as it was before the question was sent, the mark is wrong and moves back to the job. If a job was merely
// claimed since the sweep, that proves nothing and costs nothing.
//
// The stores of a schema share the work. Each checks regularly, in one message: it reports the queues that it claims from,
// reads the heads, and asks for the turn. The store that gets the turn sweeps what no store has swept lately, for a hundredth
// of the time until the next turn. Meanwhile it holds no lock and no transaction. So sweeps work through a transaction pooler,
// and nobody has to wait if the store dies.
//
// While another session holds a snapshot, millions of dead entries can precede the first job, and LIMIT does not count them. If
// the sweep of a queue takes too long, it is cancelled and continues in slices: ranges of due times, or of ids within one
// moment. A slice that takes too long makes the next one smaller, and a quick one makes it larger. The queue's row stores the
// place where the next turn continues. A full round takes whatever time it needs, at a hundredth of a core.

const (
	sweepEvery  = 12 * time.Second     // how old a sweep may get, in real time
	mostSwept   = 100                  // queues in one statement
	leastSlice  = 5 * time.Millisecond // the time for a statement, so that it can finish on a busy machine
	forgetSweep = 24 * time.Hour       // after this time without claims, a queue is dropped
)

// A sweeper decides when its store checks.
type sweeper struct {
	most atomic.Int32 // queues in one statement

	mu      sync.Mutex    // guards the fields below
	every   time.Duration // how old a sweep may get
	limit   time.Duration // how long a turn may keep the server busy
	busy    bool
	checked time.Time // by the process's monotonic clock
}

func newSweeper() *sweeper {
	w := &sweeper{every: sweepEvery, limit: sweepEvery / 120, checked: time.Now()}
	w.learn(mostSwept)
	return w
}

// learn sets how many queues one statement sweeps, also for the next turn.
func (w *sweeper) learn(most int) { w.most.Store(int32(max(1, min(most, mostSwept)))) }

// begin reports whether a check is due. The caller must then call end.
func (w *sweeper) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy || time.Since(w.checked) < w.every/2 {
		return false
	}
	w.busy, w.checked = true, time.Now()
	return true
}

func (w *sweeper) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = false
}

// times returns how old a sweep may get, and how long a turn may keep the server busy.
func (w *sweeper) times() (every, limit time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.every, w.limit
}

// checkInBackground starts a check if one is due. Only claims and recoveries call it: a store that does not claim does not need
// it.
func (s *Store) checkInBackground() {
	if s.sweeper.begin() {
		s.background(func(ctx context.Context) {
			defer s.sweeper.end()
			_, _ = s.check(ctx) // the next check tries again
		})
	}
}

// check compares the heads with the marks, and sweeps if it gets the turn.
func (s *Store) check(ctx context.Context) (swept bool, err error) {
	every, limit := s.sweeper.times()
	before := s.cursors.All()
	known := map[string]bool{cursor.Leases: true}
	for name := range before {
		known[cursor.QueueOf(name)] = true
	}
	queues := slices.Collect(maps.Keys(known))
	var stale []sweeping
	scan := func(rows *sql.Rows) error {
		var h head
		var of sweeping
		if err := rows.Scan(&of.turn, &of.queue, &of.place, &h.queue, &h.state, &h.priority, (*sqlkit.Time)(&h.at), &h.id); err != nil {
			return err
		}
		if of.turn {
			stale = append(stale, of)
		} else {
			s.compare(h, before)
		}
		return nil
	}
	args := []any{arrayOfTexts(queues), (every / 2).Seconds(), (every * 5 / 6).Seconds(), forgetSweep.Seconds()}
	if _, ran, err := s.statement(ctx, s.with.write, true, scan, checkQuery, args); ran && err != nil {
		return false, err
	} else if !ran {
		stale = nil
		if err := s.alone(ctx, s.with.write, scan, checkQuery, args...); err != nil {
			return false, err
		}
	}
	if len(stale) == 0 {
		return false, nil
	}
	return true, s.sweep(ctx, stale, limit)
}

// The database's clock decides here, and may jump, so a time far in the future counts as old too. All stores use the row of the
// leases. A statement cannot write a row twice, and the store that has the turn already writes this one. So the upsert does not
// refresh that row, and the statement deletes only rows of queues that are not its own.
const checkQuery = `
	WITH wanted AS MATERIALIZED (
		SELECT unnest($1::text[]) AS queue
	),
	known AS (
		INSERT INTO {schema}.sweeps AS known (queue, wanted_at)
		SELECT wanted.queue, clock_timestamp()
		FROM wanted
		LEFT JOIN {schema}.sweeps ON sweeps.queue = ANY (ARRAY[wanted.queue])
		WHERE sweeps.queue IS NULL OR wanted.queue <> '' AND abs(extract(epoch FROM clock_timestamp() - sweeps.wanted_at)) > $4::float8 / 24
		ORDER BY wanted.queue
		ON CONFLICT (queue) DO UPDATE
		SET wanted_at = excluded.wanted_at
	),
	stale AS MATERIALIZED (
		SELECT queue, place
		FROM {schema}.sweeps
		WHERE (swept_at IS NULL OR abs(extract(epoch FROM clock_timestamp() - swept_at)) > $2::float8)
			AND (queue = ANY ($1::text[]) OR abs(extract(epoch FROM clock_timestamp() - wanted_at)) <= $4::float8)
		ORDER BY swept_at NULLS FIRST
	),
	turn AS (
		UPDATE {schema}.sweeps
		SET turn_at = clock_timestamp()
		WHERE queue = '' AND (turn_at IS NULL OR abs(extract(epoch FROM clock_timestamp() - turn_at)) > $3::float8)
			AND EXISTS (SELECT 1 FROM stale)
		RETURNING queue
	),
	forgotten AS (
		DELETE FROM {schema}.sweeps
		WHERE queue = ANY (ARRAY(
			SELECT queue
			FROM {schema}.sweeps
			WHERE queue <> ALL ($1::text[]) AND abs(extract(epoch FROM clock_timestamp() - wanted_at)) > $4::float8
				AND EXISTS (SELECT 1 FROM turn)
			FOR UPDATE SKIP LOCKED))
	)
	SELECT TRUE, stale.queue, stale.place, '', '', 0, NULL::timestamptz, 0::bigint
	FROM turn CROSS JOIN stale
	UNION ALL
	SELECT FALSE, '', '', jobs.queue, jobs.unleased_state, jobs.priority,
		CASE jobs.unleased_state WHEN 'ready' THEN jobs.run_at ELSE jobs.retry_at END, jobs.id
	FROM wanted
	JOIN {schema}.sweeps ON sweeps.queue = ANY (ARRAY[wanted.queue])
	CROSS JOIN LATERAL unnest(sweeps.heads || sweeps.found) AS head (id)
	JOIN {schema}.jobs ON jobs.id = ANY (ARRAY[head.id])
	WHERE wanted.queue <> '' AND jobs.finished_at IS NULL AND jobs.lease_expires_at IS NULL AND jobs.unleased_state <> 'blocked'
	UNION ALL
	SELECT FALSE, '', '', '', '', 0, leases.due_at, leases.id
	FROM {schema}.sweeps
	CROSS JOIN LATERAL (
		SELECT due_at, id
		FROM {schema}.leases
		WHERE leases.due_at = TIMESTAMPTZ 'epoch' + heads[1] * interval '1 microsecond' AND leases.id = heads[2]
		LIMIT 1
	) AS leases
	WHERE sweeps.queue = ''`

// A head is the first job that a sweep has found, or the first row of the table leases.
type head struct {
	queue    string      // [cursor.Leases] for a row of leases
	state    store.State // in which the job waits
	priority int
	at       time.Time // when it is due
	id       int64
}

// compare moves a mark back to the job if the job lies before it. The marks are copies from before the job was read.
func (s *Store) compare(h head, before map[string]cursor.Queue) {
	lane, priority := cursor.Fresh, h.priority
	if h.state == store.Failed {
		lane = cursor.Retries
	}
	if h.queue == cursor.Leases {
		priority = store.MaxPriority
	}
	if s.cursors.Correct(before, h.queue, lane, priority, cursor.Position{At: h.at, ID: h.id}) && h.queue != cursor.Leases {
		s.hub.Tell(store.Wakeup{Queue: h.queue})
	}
}

// A sweeping is the work of a turn for one queue.
type sweeping struct {
	turn  bool
	queue string
	place string
}

// sweep does as much as the limit allows. Half of the time is for whole queues, many at a time, and the rest for one of the
// queues that take too long.
func (s *Store) sweep(ctx context.Context, all []sweeping, limit time.Duration) error {
	began := time.Now()
	var whole []string
	slow := map[string]bool{}
	for _, one := range all {
		if one.place == "" {
			whole = append(whole, one.queue)
		} else {
			slow[one.queue] = true
		}
	}
	for len(whole) > 0 && time.Since(began) < limit/2 {
		n := min(int(s.sweeper.most.Load()), len(whole))
		err := s.alone(ctx, s.with.write.within(max(limit/5, leastSlice)), ignored, sweepQuery, arrayOfTexts(whole[:n]))
		switch {
		case err == nil:
			whole = whole[n:]
			s.sweeper.learn(2 * n)
		case codeOf(err) != codeCancelled:
			return err
		case n > 1:
			s.sweeper.learn(n / 4)
		default:
			slow[whole[0]] = true
			whole = whole[1:]
		}
	}
	for _, one := range all { // sweep the one that has waited longest; the others follow in later turns
		if slow[one.queue] {
			return s.sweepSlices(ctx, one, limit, began.Add(limit))
		}
	}
	return nil
}

// alone runs one statement in a transaction.
func (s *Store) alone(ctx context.Context, with opening, scan sqlkit.Scan, query string, args ...any) error {
	_, err := call(ctx, s, nil, with, func(t *txn) (struct{}, error) { return struct{}{}, t.each(scan, query, args...) })
	return err
}

// ignored is for statements that return no row.
func ignored(*sql.Rows) error { return nil }

// sweepQuery reads the heads of queues from the beginning.
var sweepQuery = `
	INSERT INTO {schema}.sweeps (queue, wanted_at, swept_at, heads)
	SELECT wanted.queue, clock_timestamp(), clock_timestamp(), CASE wanted.queue WHEN '' THEN coalesce((
			SELECT ARRAY[` + dueMicros + `, id]
			FROM {schema}.leases
			ORDER BY due_at, id
			LIMIT 1), '{}')
		ELSE ARRAY(` + lanes[cursor.Retries].sql(headsOfQueue) + `
			UNION ALL` + lanes[cursor.Fresh].sql(headsOfQueue) + `)
		END
	FROM unnest($1::text[]) AS wanted (queue)
	ORDER BY wanted.queue
	ON CONFLICT (queue) DO UPDATE
	SET swept_at = excluded.swept_at,
		heads = excluded.heads,
		found = '{}',
		place = ''`

// found is the condition of jobs that only marks find: all, but for jobs with keys in queues that limit those, which claims by key find too.
const found = `(jobs.limit_key IS NULL OR NOT EXISTS (SELECT FROM {schema}.queues WHERE name = jobs.queue AND ` + isByKey + `))`

const headsOfQueue = `
			SELECT first.id
			FROM generate_series(-9, 9) AS level (priority)
			CROSS JOIN LATERAL (
				SELECT jobs.id
				FROM {schema}.jobs
				WHERE {waits} AND jobs.queue = wanted.queue AND jobs.priority = level.priority AND ` + found + `
				ORDER BY {due}, jobs.id
				LIMIT 1
			) AS first`

// A place is how far a sweep in slices has come in a queue.
type place struct {
	Range int       // the index among the queue's ranges
	At    time.Time // no job waits before it, nor at it with a smaller id
	ID    int64
	Step  int64 // the size of the next slice: in microseconds, or in ids within the moment; 0 means to the end
	ByID  bool
}

// to returns the end of the next slice, which is not beyond the horizon.
func (p place) to(horizon time.Time) cursor.Position {
	switch {
	case p.ByID && p.ID < math.MaxInt64-p.Step:
		return cursor.Position{At: p.At, ID: p.ID + p.Step}
	case p.ByID:
		return cursor.Position{At: p.At.Add(store.Resolution)}
	case p.Step == 0:
		return cursor.Position{At: horizon}
	default:
		return cursor.Earlier(cursor.Position{At: time.UnixMicro(p.At.UnixMicro() + p.Step)}, cursor.Position{At: horizon})
	}
}

// passed returns the next place after an empty slice.
func (p place) passed(to cursor.Position, horizon time.Time, quick bool) place {
	if !to.At.Before(horizon) {
		return p.next()
	}
	if p.ByID && to.At.After(p.At) {
		p.ByID, p.Step = false, 1
	}
	if p.At, p.ID = to.At, to.ID; quick {
		p.Step *= 2
	}
	return p
}

// tooLong returns the next place after the slice was cancelled.
func (p place) tooLong(horizon time.Time) place {
	const part = 16
	switch {
	case p.Step == 0:
		p.Step = max(1, (horizon.UnixMicro()-p.At.UnixMicro())/part)
	case p.Step > 1:
		p.Step = max(1, p.Step/part)
	case !p.ByID:
		p.ByID, p.Step = true, 1<<40
	}
	return p
}

// next returns the beginning of the next range.
func (p place) next() place { return place{Range: p.Range + 1} }

// dueMicros is when a row of the table leases is due, in microseconds since 1970.
const dueMicros = `(extract(epoch FROM due_at) * 1000000)::bigint`

// sliceOf returns the query for the head in a slice of an index.
func sliceOf(head, table, due string) string {
	return `
		SELECT ` + head + `
		FROM {schema}.` + table + ` AND (` + due + `, id) >= ($1::text::timestamptz, $2::bigint) AND (` + due + `, id) < ($3::text::timestamptz, $4::bigint)
		ORDER BY ` + due + `, id
		LIMIT 1`
}

func sliceOfLane(l lane) string {
	return sliceOf(`ARRAY[id]`, `jobs WHERE queue = $5 AND priority = $6 AND `+found+` AND `+l.waits(), l.due)
}

var (
	sliceOfLeases = sliceOf(`ARRAY[`+dueMicros+`, id]`, `leases WHERE TRUE`, `due_at`)
	slicesOfLanes = [cursor.Lanes]string{sliceOfLane(lanes[cursor.Retries]), sliceOfLane(lanes[cursor.Fresh])}
)

// slice returns the query for the head between the place and to. The ranges of a queue are the levels of its retries, then
// of its fresh jobs.
func (p place) slice(queue string, to cursor.Position) (query string, args []any) {
	args = []any{placeText(cursor.Position{At: p.At}), p.ID, placeText(to), to.ID, queue, cursor.PriorityOf(p.Range % cursor.Levels)}
	if queue == cursor.Leases {
		return sliceOfLeases, args[:4]
	}
	return slicesOfLanes[p.Range/cursor.Levels], args
}

// ranges returns how many ranges the queue has.
func ranges(queue string) int {
	if queue == cursor.Leases {
		return 1
	}
	return int(cursor.Lanes) * cursor.Levels
}

// sweepSlices continues where an earlier turn stopped, and stores where the next one continues.
func (s *Store) sweepSlices(ctx context.Context, of sweeping, limit time.Duration, until time.Time) error {
	var p place
	if of.place != "" {
		if err := json.Unmarshal([]byte(of.place), &p); err != nil {
			return err
		}
	}
	horizon := s.now.present.Latest().Add(time.Minute) // no mark is beyond it
	var found []int64
	large := p != place{} // it takes more than one turn
	for p.Range < ranges(of.queue) && time.Now().Before(until) {
		var head pq.Int64Array
		to, began := p.to(horizon), time.Now()
		scan := func(rows *sql.Rows) error { return rows.Scan(&head) }
		query, args := p.slice(of.queue, to)
		switch err := s.alone(ctx, s.with.get.within(max(limit/10, leastSlice)), scan, query, args...); {
		case codeOf(err) == codeCancelled:
			p, large = p.tooLong(horizon), true
		case err != nil:
			return err
		case head != nil:
			found = append(found, head...)
			p = p.next()
		default:
			p = p.passed(to, horizon, time.Since(began) < limit/40)
		}
	}
	done := p.Range == ranges(of.queue)
	if done {
		p = place{}
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if done && !large { // it can be swept as a whole again
		text = nil
	}
	return s.alone(ctx, s.with.write, ignored, `
		UPDATE {schema}.sweeps
		SET swept_at = clock_timestamp(),
			heads = CASE WHEN $4::boolean THEN found || $2::bigint[] ELSE heads END,
			found = CASE WHEN $4::boolean THEN '{}' ELSE found || $2::bigint[] END,
			place = $3
		WHERE queue = $1`,
		of.queue, arrayOf(found), string(text), done)
}
