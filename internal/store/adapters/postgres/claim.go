package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// FetchAndClaim is part of the contract. A claim whose answer to the commit was lost is released behind the call.
func (s *Store) FetchAndClaim(ctx context.Context, req store.ClaimRequest) ([]store.Job, error) {
	invalid := store.CheckLease(req.Check(), req.TTL, s.options.MaxLease)
	var c claim
	with, hopeful := s.with.write, false
	with.ahead = func() (first pipelinedCall, only bool) {
		c = claim{ClaimRequest: req, cursor: s.cursors.get(req.Queue), horizon: s.horizon.known()}
		if c.mustLook() {
			first = c.firsts()
		}
		return first, c.cursor.short && !c.cursor.told && !hopeful
	}
	run := func(t *txn) ([]store.Job, error) { return c.run(t) }
	jobs, err := call(ctx, s, invalid, with, run)
	if hopeful = err == nil && c.missed; hopeful {
		jobs, err = call(ctx, s, nil, with, run)
	}
	s.checkInBackground()
	switch {
	case err == nil:
		s.cursors.change(req.Queue, c.cursor, c.moveOn)
	case len(c.leases) > 0:
		s.cursors.change(req.Queue, c.cursor, func(t *claimCursor) { t.looked = time.Time{} })
		if errors.Is(err, store.ErrInDoubt) {
			s.background(func(ctx context.Context) { s.release(ctx, c) })
		}
	}
	return jobs, err
}

// release gives back what a lost claim may have taken. What fails is left to the end of the leases.
func (s *Store) release(ctx context.Context, c claim) {
	_, _ = once(ctx, s, s.with.write, c.undo)
}

// undo releases the leases that the claim itself has given. If it was not applied, the next claim gives leases with the same
// tokens, but at another time or to another worker.
func (c *claim) undo(t *txn) ([]store.Outcome, error) {
	jobs, err := t.byLease(columns, c.leases)
	if err != nil {
		return nil, err
	}
	var nacks []store.NAck
	for _, l := range c.leases {
		if e := jobs[l.ID]; e != nil && e.Lease() == l && e.ClaimedAt.Equal(c.at) && e.Worker == c.Worker {
			nacks = append(nacks, store.NAck{Lease: l, Form: store.Release})
		}
	}
	return t.nack(nacks)
}

// A claim is one claim under way.
type claim struct {
	store.ClaimRequest
	cursor  claimCursor // where it began
	horizon time.Time   // what is due before it can be seen
	stuck   bool        // the horizon stands still

	retries, fresh lane
	seen           [2][levels]position // the first jobs from the marks on, of retries and of fresh ones
	looked         bool                // at them
	missed         bool                // something may be due, but the transaction is over
	short          bool                // there was less than asked for
	at             time.Time           // when it gives leases
	leases         []store.Lease
}

// A lane is one of the two from which jobs are claimed.
type lane struct {
	from [levels]position // where to begin
	none [levels]bool     // nothing is due in the level
	last [levels]position // behind what was taken
}

// run takes what is due, the retries first.
func (c *claim) run(t *txn) ([]store.Job, error) {
	horizon := t.horizon
	if cursor := t.s.cursors.get(c.Queue); cursor.age != c.cursor.age { // forgotten, by this claim or another
		c.cursor, t.ahead, horizon = cursor, false, t.s.horizon.known()
		if c.missed = t.whole; c.missed {
			return nil, nil
		}
	}
	if c.stuck = t.stuck; !t.ahead { // a look that was made before knows nothing of what has ended since
		c.horizon = horizon
	}
	c.fresh.from, c.retries.from = c.cursor.fresh.start(), c.cursor.retries.start()
	if t.ahead || c.mustLook() {
		if err := c.look(t); err != nil {
			return nil, err
		}
	}
	if t.whole {
		c.short, c.missed = true, !c.retries.empty() || !c.fresh.empty()
		return nil, nil
	}
	chosen, err := c.take(t)
	if err != nil {
		return nil, err
	}
	if c.short = len(chosen) < c.Limit; c.short && !c.looked {
		// What was taken so far is taken once more: its rows are locked by this transaction.
		if err := c.look(t); err != nil {
			return nil, err
		}
		if chosen, err = c.take(t); err != nil {
			return nil, err
		}
		c.short = len(chosen) < c.Limit
	}
	return c.lease(t, chosen)
}

// mustLook says that the claim has to begin at the marks.
func (c *claim) mustLook() bool { return c.cursor.short || time.Since(c.cursor.looked) > lookEvery }

// take chooses the jobs, each lane filling what the other leaves.
func (c *claim) take(t *txn) ([]*store.Record, error) {
	retries, fresh, err := c.due(t, c.RetryQuota, c.Limit)
	if err != nil {
		return nil, err
	}
	if room := c.Limit - len(fresh); len(retries) == c.RetryQuota && room > len(retries) && !c.retries.empty() {
		if retries, _, err = c.due(t, room, 0); err != nil {
			return nil, err
		}
	}
	return append(retries, fresh...), nil
}

// due locks the first due jobs: retries up to a quota, then fresh ones up to the limit for both. In each lane a level is one
// range of its index: what is not yet due lies behind what is, and is never walked over.
func (c *claim) due(t *txn, quota, limit int) (retries, fresh []*store.Record, err error) {
	if c.retries.empty() && c.fresh.empty() {
		return nil, nil, nil
	}
	weigh := max(quota, limit) > few
	found, err := c.find(t, quota, limit, weigh)
	if err == nil && !weigh && tooHeavy(found) {
		found, err = c.find(t, quota, limit, true) // among the same jobs, which are locked by this transaction
	}
	slices.SortFunc(found, func(a, b *store.Record) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Next().Compare(b.Next()), cmp.Compare(a.ID, b.ID))
	})
	for _, e := range found {
		if e.State == store.Failed {
			retries = append(retries, e)
		} else {
			fresh = append(fresh, e)
		}
	}
	return retries, fresh, err
}

// few is how many jobs are read before they are weighed. To let the server weigh them would slow down small claims.
const few = 16

// tooHeavy says that the jobs may be more than there is room for, in either lane.
func tooHeavy(found []*store.Record) bool {
	weight := 0
	for _, e := range found {
		weight += e.Weight()
	}
	return weight > store.MaxAnswerBytes
}

// The columns of a waiting job that a claim does not set anew or know before: a third fewer to read.
const claimColumns = `
	jobs.id, jobs.kind, jobs.priority, jobs.state, jobs.run_at, jobs.retry_at, jobs.token, jobs.attempts, jobs.retries,
	jobs.max_retries, jobs.backoff_base, jobs.backoff_cap, jobs.backoff_jitter, jobs.timeout, jobs.unique_key, jobs.unique_for,
	jobs.enqueued_at, jobs.claim_token, jobs.trace, jobs.tags, jobs.error, jobs.payload, jobs.checkpoint, jobs.progress, jobs.result`

// find locks jobs of both lanes, in no order between them.
func (c *claim) find(t *txn, quota, limit int, weigh bool) ([]*store.Record, error) {
	retryLevels, retryTimes, retryIDs := c.retries.places()
	freshLevels, freshTimes, freshIDs := c.fresh.places()
	return t.records(`
		WITH retries AS MATERIALIZED (`+lightEnough(weigh, `
			SELECT`+claimColumns+`
			FROM unnest($3::smallint[], $4::timestamptz[], $5::bigint[]) AS place (priority, due_at, id)
			CROSS JOIN LATERAL (
				SELECT *
				FROM {schema}.jobs
				WHERE jobs.state = 'failed' AND jobs.retry_at IS NOT NULL
					AND jobs.queue = $1 AND jobs.priority = place.priority
					AND (jobs.retry_at, jobs.id) >= (place.due_at, place.id) AND jobs.retry_at <= $2
				ORDER BY jobs.retry_at, jobs.id
				LIMIT $9
				FOR UPDATE SKIP LOCKED
			) AS jobs
			WHERE NOT EXISTS (SELECT 1 FROM {schema}.queues WHERE queues.name = $1 AND queues.paused)
			LIMIT $9`)+`
		),
		fresh AS MATERIALIZED (`+lightEnough(weigh, `
			SELECT`+claimColumns+`
			FROM unnest($6::smallint[], $7::timestamptz[], $8::bigint[]) AS place (priority, due_at, id)
			CROSS JOIN LATERAL (
				SELECT *
				FROM {schema}.jobs
				WHERE jobs.state = 'ready'
					AND jobs.queue = $1 AND jobs.priority = place.priority
					AND (jobs.run_at, jobs.id) >= (place.due_at, place.id) AND jobs.run_at <= $2
				ORDER BY jobs.run_at, jobs.id
				LIMIT $10
				FOR UPDATE SKIP LOCKED
			) AS jobs
			WHERE NOT EXISTS (SELECT 1 FROM {schema}.queues WHERE queues.name = $1 AND queues.paused)
			LIMIT greatest($10 - (SELECT count(*) FROM retries), 0)`)+`
		)
		SELECT`+claimColumns+`,`+presentEpoch+` FROM retries AS jobs
		UNION ALL
		SELECT`+claimColumns+`,`+presentEpoch+` FROM fresh AS jobs`,
		c.Queue, t.now, retryLevels, retryTimes, retryIDs, freshLevels, freshTimes, freshIDs, quota, limit)
}

// lightEnough are the first rows of a query, in its order, as long as their documents weigh no more than an answer can hold. The
// server knows the length of a large document without reading it.
func lightEnough(weigh bool, query string) string {
	if !weigh {
		return query
	}
	return `
			SELECT *
			FROM (SELECT *, sum(` + weight + `) OVER (ROWS UNBOUNDED PRECEDING) AS heaped FROM (` + query + `
			) AS jobs) AS jobs
			WHERE heaped <= ` + strconv.Itoa(store.MaxAnswerBytes)
}

// look begins at the marks, and moves them to the first jobs.
func (c *claim) look(t *txn) error {
	if !t.ahead {
		first := c.firsts()
		if err := t.each(first.scan, first.query, first.args...); err != nil {
			return err
		}
	}
	c.looked = true
	c.retries, c.fresh = begin(c.seen[0], t.now), begin(c.seen[1], t.now)
	t.s.cursors.change(c.Queue, c.cursor, func(kept *claimCursor) {
		kept.retries.mark = moved(kept.retries.mark, c.seen[0], c.horizon)
		kept.fresh.mark = moved(kept.fresh.mark, c.seen[1], c.horizon)
		kept.looked, kept.told = time.Now(), false
	})
	return nil
}

// firsts asks for the first job of each level that is claimable from the mark on, due or not, also where an open transaction
// holds it.
func (c *claim) firsts() pipelinedCall {
	retries, fresh := lane{from: c.cursor.retries.mark}, lane{from: c.cursor.fresh.mark}
	retryLevels, retryTimes, retryIDs := retries.places()
	freshLevels, freshTimes, freshIDs := fresh.places()
	c.seen = [2][levels]position{}
	return pipelinedCall{func(rows *sql.Rows) error {
		var number, priority int
		var at sqlkit.Time
		var id int64
		err := rows.Scan(&number, &priority, &at, &id)
		c.seen[number][levelOf(priority)] = position{time.Time(at), id}
		return err
	}, `
		SELECT 0, place.priority, first.retry_at, first.id
		FROM unnest($2::smallint[], $3::timestamptz[], $4::bigint[]) AS place (priority, due_at, id)
		CROSS JOIN LATERAL (
			SELECT jobs.retry_at, jobs.id
			FROM {schema}.jobs
			WHERE jobs.state = 'failed' AND jobs.retry_at IS NOT NULL
				AND jobs.queue = $1 AND jobs.priority = place.priority
				AND (jobs.retry_at, jobs.id) >= (place.due_at, place.id)
			ORDER BY jobs.retry_at, jobs.id
			LIMIT 1
		) AS first
		UNION ALL
		SELECT 1, place.priority, first.run_at, first.id
		FROM unnest($5::smallint[], $6::timestamptz[], $7::bigint[]) AS place (priority, due_at, id)
		CROSS JOIN LATERAL (
			SELECT jobs.run_at, jobs.id
			FROM {schema}.jobs
			WHERE jobs.state = 'ready'
				AND jobs.queue = $1 AND jobs.priority = place.priority
				AND (jobs.run_at, jobs.id) >= (place.due_at, place.id)
			ORDER BY jobs.run_at, jobs.id
			LIMIT 1
		) AS first`,
		[]any{c.Queue, retryLevels, retryTimes, retryIDs, freshLevels, freshTimes, freshIDs}}
}

// begin is the lane from the first jobs that are due in it.
func begin(seen [levels]position, now time.Time) lane {
	l := lane{from: seen}
	for i, first := range seen {
		l.none[i] = first == position{} || first.at.After(now)
	}
	return l
}

// moved are the marks after a look that has seen the first jobs, none in a level being the zero position.
func moved(marks, seen [levels]position, horizon time.Time) [levels]position {
	if horizon.IsZero() {
		return marks
	}
	limit := position{at: horizon.Add(-slack)}
	for i, first := range seen {
		if first == (position{}) {
			first = limit
		}
		marks[i] = later(marks[i], earlier(first, limit))
	}
	return marks
}

// places are where to begin, for a statement.
func (l *lane) places() (priorities, times, ids string) {
	var p, t, i array
	for level, from := range l.from {
		if l.none[level] {
			continue
		}
		p.int(int64(priorityOf(level)))
		t.place(from)
		i.int(from.id)
	}
	return p.String(), t.String(), i.String()
}

func (l *lane) empty() bool { return !slices.Contains(l.none[:], false) }

// lease gives the worker a lease on each of the jobs.
func (c *claim) lease(t *txn, chosen []*store.Record) ([]store.Job, error) {
	if len(chosen) == 0 {
		return nil, nil
	}
	if err := t.moveAttempts(chosen); err != nil {
		return nil, err
	}
	c.at = t.now
	jobs := make([]store.Job, len(chosen))
	ids := make([]int64, len(chosen))
	for i, e := range chosen {
		c.pass(e.Job)
		e.Queue = c.Queue
		e.Claim(c.ClaimRequest, t.now)
		jobs[i], ids[i] = e.Job, e.ID
		c.leases = append(c.leases, e.Lease())
	}
	err := t.last(`
		UPDATE {schema}.jobs
		SET state = 'in_flight',
			token = greatest(token, $5::bigint) + 1,
			attempts = attempts + 1,
			lease_expires_at = $2,
			lease_for = $6,
			worker = $3,
			retry_at = NULL,
			checkpoint_seq = 0,
			progress_seq = 0,
			finished_by = '',
			claim_token = greatest(token, $5::bigint) + 1,
			claimed_at = $4,
			ended_at = NULL,
			ending = ''
		WHERE id = ANY ($1::bigint[])`,
		arrayOf(ids), jobs[0].LeaseExpiresAt, c.Worker, t.now, store.Floor(chosen[0].Epoch), int64(sqlkit.MicrosOf(chosen[0].LeaseFor)))
	return jobs, err
}

// pass notes that the job, which is claimable, is behind where the claim has ended.
func (c *claim) pass(j store.Job) {
	l := &c.fresh
	if j.State == store.Failed {
		l = &c.retries
	}
	level := levelOf(j.Priority)
	l.last[level] = later(l.last[level], position{j.Next(), j.ID + 1})
}

// moveOn brings the cursors to where the claim has ended, once it is committed.
func (c *claim) moveOn(t *claimCursor) {
	t.short = c.short
	for i := range levels {
		t.fresh.cursor[i] = later(t.fresh.cursor[i], c.clip(c.fresh.last[i]))
		t.retries.cursor[i] = later(t.retries.cursor[i], c.clip(c.retries.last[i]))
	}
}

// clip keeps a cursor from going beyond the horizon, unless that stands still.
func (c *claim) clip(p position) position {
	if c.stuck {
		return p
	}
	return earlier(p, position{at: c.horizon})
}

// moveAttempts makes room in the rows for the next attempt: the latest moves to its own table, and the oldest ones go where
// they are too many.
func (t *txn) moveAttempts(records []*store.Record) error {
	moving, crowded := sqlkit.Crowding(records)
	if len(moving) > 0 {
		_, err := t.exec(`
			INSERT INTO {schema}.attempts (job_id, token, worker, started_at, ended_at, ending, error)
			SELECT id, claim_token, worker, claimed_at, ended_at, ending,
				CASE WHEN ending IN ('failed', 'expired') THEN error ELSE '' END
			FROM {schema}.jobs
			WHERE id = ANY ($1::bigint[])`,
			arrayOf(moving))
		if err != nil {
			return err
		}
	}
	if len(crowded) == 0 {
		return nil
	}
	_, err := t.exec(`
		DELETE FROM {schema}.attempts
		WHERE job_id = ANY ($1::bigint[])
			AND token < (
				SELECT later.token
				FROM {schema}.attempts AS later
				WHERE later.job_id = attempts.job_id
				ORDER BY later.token DESC
				LIMIT 1 OFFSET $2::bigint - 2)`,
		arrayOf(crowded), store.MaxAttemptsKept)
	return err
}
