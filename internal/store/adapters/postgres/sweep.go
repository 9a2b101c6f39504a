package postgres

import (
	"context"
	"database/sql"
	"encoding/json"
	"math"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Sweeps.
//
// A mark is exact as long as the database does what cursor.go counts on. Where it was changed behind the store's back, and no
// sign shows it, a job that is due may lie before the mark: another store enqueued it while the clock was set back, or somebody
// wrote the row by hand. A sweep finds it. It reads each index from the head and keeps the first job of each queue, lane and
// priority, whatever the marks say: the heads. Every store compares the heads with its own marks. A job that is waiting now, and
// lies before where the mark was before the question was asked, proves the mark wrong, so the mark goes back to it. A job that
// was merely claimed since the sweep proves nothing and costs nothing.
//
// The stores of a schema share the work. Each of them checks every so often, in one message: it tells which queues it claims
// from, reads the heads, and asks for the turn. Who has the turn sweeps what nobody has swept of late, for a hundredth of the
// time until the next turn. It holds no lock and no transaction meanwhile, so it works through a transaction pooler, and nobody
// waits if it dies.
//
// While another session holds a snapshot, millions of dead entries can stand before the first job, and no LIMIT counts them. A
// sweep of a queue that takes too long is cancelled, and goes on in slices, as do those that follow: ranges of due times, or of ids within one moment,
// which shrink when one takes too long and grow when it does not. The row of the queue has the place where the next turn goes on.
// A round then takes as long as it takes, by a hundredth of a core.

const (
	sweepEvery  = 12 * time.Second     // how old a sweep gets, in real time
	mostSwept   = 100                  // queues in one statement
	leastSlice  = 5 * time.Millisecond // for a statement, so that it can come to an end on a busy machine
	forgetSweep = 24 * time.Hour       // when nobody claims from the queue any more
)

// A sweeper decides when its store checks.
type sweeper struct {
	mu      sync.Mutex    // guards what follows
	every   time.Duration // how old a sweep gets
	limit   time.Duration // for how long a turn may keep the server busy
	most    int           // queues in one statement
	busy    bool
	checked time.Time // by the process's own monotonic clock
}

func newSweeper() *sweeper {
	return &sweeper{every: sweepEvery, limit: sweepEvery / 120, most: mostSwept, checked: time.Now()}
}

// now is how old a sweep gets, and for how long a turn may keep the server busy.
func (w *sweeper) now() (every, limit time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.every, w.limit
}

// begin says whether a check is due, which ends by end.
func (w *sweeper) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy || time.Since(w.checked) < w.every/2 {
		return false
	}
	w.busy, w.checked = true, time.Now()
	return true
}

// atOnce is how many queues a statement can sweep.
func (w *sweeper) atOnce() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.most
}

// learn changes it, for the next turn too.
func (w *sweeper) learn(most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.most = max(1, min(most, mostSwept))
}

// pace changes how old a sweep gets.
func (w *sweeper) pace(every time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.every = every
}

func (w *sweeper) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = false
}

// checkInBackground checks behind the calls, where that is due. Nobody misses what is hidden from a store that does not claim.
func (s *Store) checkInBackground() {
	if s.sweeper.begin() {
		s.background(func(ctx context.Context) {
			defer s.sweeper.end()
			_, _ = s.check(ctx) // the next one tries again
		})
	}
}

// check compares the heads with the marks, and sweeps if it has the turn.
func (s *Store) check(ctx context.Context) (swept bool, err error) {
	every, limit := s.sweeper.now()
	marks := s.cursors.all()
	leases, _ := s.leases.get()
	queues := []string{""}
	for queue := range marks {
		queues = append(queues, queue)
	}
	var stale []sweeping
	err = s.single(ctx, s.with.write, pipelinedCall{func(rows *sql.Rows) error {
		var h head
		var of sweeping
		if err := rows.Scan(&of.turn, &of.queue, &of.place, &h.queue, &h.state, &h.priority, (*sqlkit.Time)(&h.at), &h.id); err != nil {
			return err
		}
		if of.turn {
			stale = append(stale, of)
		} else {
			s.compare(h, marks, leases)
		}
		return nil
	}, checkQuery, []any{arrayOfTexts(queues), (every / 2).Seconds(), (every * 5 / 6).Seconds(), forgetSweep.Seconds()}})
	if err != nil || len(stale) == 0 {
		return false, err
	}
	return true, s.sweep(ctx, stale, time.Now().Add(limit))
}

// The database's clock decides here, and may jump: what is far ahead of it is as old as what is far behind. The row of the leases is wanted by
// all, and never noted as such again: who has the turn writes it already, and a statement can not write a row twice. So it forgets
// only queues that are none of its own; all stores name that row.
const checkQuery = `
	WITH wanted AS MATERIALIZED (
		SELECT unnest($1::text[]) AS queue
	),
	known AS (
		INSERT INTO {schema}.sweeps AS known (queue, wanted_at)
		SELECT wanted.queue, clock_timestamp()
		FROM wanted
		LEFT JOIN {schema}.sweeps ON sweeps.queue = wanted.queue
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
		WHERE queue IN (
			SELECT queue
			FROM {schema}.sweeps
			WHERE queue <> ALL ($1::text[]) AND abs(extract(epoch FROM clock_timestamp() - wanted_at)) > $4::float8
				AND EXISTS (SELECT 1 FROM turn)
			FOR UPDATE SKIP LOCKED)
	)
	SELECT TRUE, stale.queue, stale.place, '', '', 0, NULL::timestamptz, 0::bigint
	FROM turn CROSS JOIN stale
	UNION ALL
	SELECT FALSE, '', '', jobs.queue, jobs.state, jobs.priority,
		CASE jobs.state WHEN 'ready' THEN jobs.run_at WHEN 'failed' THEN jobs.retry_at ELSE jobs.lease_expires_at END, jobs.id
	FROM wanted
	JOIN {schema}.sweeps ON sweeps.queue = ANY (ARRAY[wanted.queue])
	CROSS JOIN LATERAL unnest(sweeps.heads || sweeps.found) AS head (id)
	JOIN {schema}.jobs ON jobs.id = ANY (ARRAY[head.id])
	WHERE jobs.finished_at IS NULL`

// A head is a job in flight, or one that waits, which a sweep has come upon first.
type head struct {
	queue    string
	state    store.State
	priority int
	at       time.Time // it is due, or its lease ends
	id       int64
}

// compare brings a mark back to the job if that lies before it. The marks are those from before the job was read.
func (s *Store) compare(h head, marks map[string]claimCursor, leases position) {
	at, level := position{h.at, h.id}, levelOf(h.priority)
	known := marks[h.queue]
	switch {
	case h.state == store.InFlight && at.before(leases):
		s.leases.bringBack(at)
	case h.state == store.Ready && at.before(known.fresh.mark[level]):
		s.cursors.bringBack(h.queue, func(t *claimCursor) *places { return &t.fresh }, level, at)
	case h.state == store.Failed && at.before(known.retries.mark[level]):
		s.cursors.bringBack(h.queue, func(t *claimCursor) *places { return &t.retries }, level, at)
	default:
		return
	}
	s.hub.Tell(h.queue)
}

// A sweeping is what a turn has to do for one queue.
type sweeping struct {
	turn  bool
	queue string
	place string
}

// sweep does as much as it can until then: half of the time is for queues as a whole, many at a time, and the rest for one of
// those that take too long.
func (s *Store) sweep(ctx context.Context, all []sweeping, until time.Time) error {
	var whole []sweeping
	slow := map[string]bool{}
	for _, one := range all {
		if one.place == "" {
			whole = append(whole, one)
		} else {
			slow[one.queue] = true
		}
	}
	_, limit := s.sweeper.now()
	half := until.Add(-limit / 2)
	for len(whole) > 0 && time.Now().Before(half) {
		n := min(s.sweeper.atOnce(), len(whole))
		names := make([]string, n)
		for i, one := range whole[:n] {
			names[i] = one.queue
		}
		err := s.single(ctx, s.within(s.with.write, limit/5), pipelinedCall{func(*sql.Rows) error { return nil }, sweepQuery, []any{arrayOfTexts(names)}})
		switch {
		case err == nil:
			whole = whole[n:]
			s.sweeper.learn(2 * n)
		case codeOf(err) != codeCancelled:
			return err
		case n > 1:
			s.sweeper.learn(n / 4)
		default:
			slow[whole[0].queue] = true
			whole = whole[1:]
		}
	}
	for _, one := range all { // the one that was swept the longest time ago; the next one has the next turn
		if slow[one.queue] {
			return s.sweepSlices(ctx, one, until)
		}
	}
	return nil
}

// within lets no statement take longer: a turn has room for several that are cancelled.
func (s *Store) within(with opening, most time.Duration) opening {
	with.begin += `SET LOCAL statement_timeout = ` + millis(max(most, leastSlice)) + `; `
	return with
}

// sweepQuery reads the heads of queues from the beginning.
const sweepQuery = `
	INSERT INTO {schema}.sweeps (queue, wanted_at, swept_at, heads)
	SELECT wanted.queue, clock_timestamp(), clock_timestamp(), CASE wanted.queue WHEN '' THEN ARRAY(
			SELECT id
			FROM {schema}.jobs
			WHERE state = 'in_flight'
			ORDER BY lease_expires_at, id
			LIMIT 1)
		ELSE ARRAY(
			SELECT first.id
			FROM generate_series(-9, 9) AS level (priority)
			CROSS JOIN LATERAL (
				SELECT id
				FROM {schema}.jobs
				WHERE state = 'failed' AND retry_at IS NOT NULL AND queue = wanted.queue AND jobs.priority = level.priority
				ORDER BY retry_at, id
				LIMIT 1
			) AS first
			UNION ALL
			SELECT first.id
			FROM generate_series(-9, 9) AS level (priority)
			CROSS JOIN LATERAL (
				SELECT id
				FROM {schema}.jobs
				WHERE state = 'ready' AND queue = wanted.queue AND jobs.priority = level.priority
				ORDER BY run_at, id
				LIMIT 1
			) AS first)
		END
	FROM unnest($1::text[]) AS wanted (queue)
	ORDER BY wanted.queue
	ON CONFLICT (queue) DO UPDATE
	SET swept_at = excluded.swept_at,
		heads = excluded.heads,
		found = '{}',
		place = ''
	RETURNING 1`

// A place is how far a sweep in slices has come in a queue.
type place struct {
	Range int       // of those of the queue
	At    time.Time // nothing before it waits, and nothing at it with a smaller id
	ID    int64
	Step  int64 // how far the next slice goes: in microseconds, or by ids within the moment; 0 is to the end
	ByID  bool
}

// to is where the next slice ends, which is not beyond the horizon.
func (p place) to(horizon time.Time) position {
	switch {
	case p.ByID && p.ID < math.MaxInt64-p.Step:
		return position{p.At, p.ID + p.Step}
	case p.ByID:
		return position{p.At.Add(store.Resolution), 0}
	case p.Step == 0:
		return position{horizon, 0}
	default:
		return earlier(position{time.UnixMicro(p.At.UnixMicro() + p.Step), 0}, position{horizon, 0})
	}
}

// passed is the place when the slice is done, which was empty.
func (p place) passed(to position, horizon time.Time, quick bool) place {
	if !to.at.Before(horizon) {
		return p.next()
	}
	if p.ByID && to.at.After(p.At) {
		p.ByID, p.Step = false, 1
	}
	if p.At, p.ID = to.at, to.id; quick {
		p.Step *= 2
	}
	return p
}

// tooLong is the place when the slice was cancelled.
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

// next is the beginning of the next range.
func (p place) next() place { return place{Range: p.Range + 1} }

// The ranges of a queue, or of the leases.
const (
	sliceOfRetries = `
		SELECT id
		FROM {schema}.jobs
		WHERE state = 'failed' AND retry_at IS NOT NULL AND queue = $1 AND priority = $2
			AND (retry_at, id) >= ($3::text::timestamptz, $4::bigint) AND (retry_at, id) < ($5::text::timestamptz, $6::bigint)
		ORDER BY retry_at, id
		LIMIT 1`
	sliceOfFresh = `
		SELECT id
		FROM {schema}.jobs
		WHERE state = 'ready' AND queue = $1 AND priority = $2
			AND (run_at, id) >= ($3::text::timestamptz, $4::bigint) AND (run_at, id) < ($5::text::timestamptz, $6::bigint)
		ORDER BY run_at, id
		LIMIT 1`
	sliceOfLeases = `
		SELECT id
		FROM {schema}.jobs
		WHERE state = 'in_flight'
			AND (lease_expires_at, id) >= ($1::text::timestamptz, $2::bigint) AND (lease_expires_at, id) < ($3::text::timestamptz, $4::bigint)
		ORDER BY lease_expires_at, id
		LIMIT 1`
)

// slice asks for the first job between the place and there.
func (p place) slice(queue string, to position) pipelinedCall {
	from := position{p.At, p.ID}
	places := []any{from.text(), from.id, to.text(), to.id}
	switch {
	case queue == "":
		return pipelinedCall{query: sliceOfLeases, args: places}
	case p.Range < levels:
		return pipelinedCall{query: sliceOfRetries, args: append([]any{queue, priorityOf(p.Range)}, places...)}
	default:
		return pipelinedCall{query: sliceOfFresh, args: append([]any{queue, priorityOf(p.Range - levels)}, places...)}
	}
}

// ranges is how many the queue has.
func ranges(queue string) int {
	if queue == "" {
		return 1
	}
	return 2 * levels
}

// sweepSlices goes on where an earlier turn has come to, and writes down where the next one goes on.
func (s *Store) sweepSlices(ctx context.Context, of sweeping, until time.Time) error {
	var p place
	if of.place != "" {
		if err := json.Unmarshal([]byte(of.place), &p); err != nil {
			return err
		}
	}
	horizon := s.now.present.Latest().Add(time.Minute) // no mark is beyond it
	_, limit := s.sweeper.now()
	var found []int64
	large := p != place{} // it takes more than one turn
	for p.Range < ranges(of.queue) && time.Now().Before(until) {
		var id int64
		to, began := p.to(horizon), time.Now()
		e := p.slice(of.queue, to)
		e.scan = func(rows *sql.Rows) error { return rows.Scan(&id) }
		switch err := s.single(ctx, s.within(s.with.get, limit/10), e); {
		case codeOf(err) == codeCancelled:
			p, large = p.tooLong(horizon), true
		case err != nil:
			return err
		case id != 0:
			found = append(found, id)
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
	return s.single(ctx, s.with.write, pipelinedCall{func(*sql.Rows) error { return nil }, `
		UPDATE {schema}.sweeps
		SET swept_at = clock_timestamp(),
			heads = CASE WHEN $4::boolean THEN found || $2::bigint[] ELSE heads END,
			found = CASE WHEN $4::boolean THEN '{}' ELSE found || $2::bigint[] END,
			place = $3
		WHERE queue = $1
		RETURNING 1`,
		[]any{of.queue, arrayOf(found), string(text), done}})
}

// single runs a statement in a transaction of its own: in one message, where it comes again in its session.
func (s *Store) single(ctx context.Context, with opening, e pipelinedCall) error {
	with.ahead = func() (pipelinedCall, bool) { return e, true }
	_, err := call(ctx, s, nil, with, func(t *txn) (struct{}, error) {
		if t.ahead {
			return struct{}{}, nil
		}
		return struct{}{}, t.each(e.scan, e.query, e.args...)
	})
	return err
}
