package postgres

import (
	"context"
	"database/sql"
	"strconv"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// single claims the few jobs that the store was told of, or finds that none is due, by a single statement each. It reports
// whether that was all.
func (c *claim) single(ctx context.Context, invalid error) (jobs []store.Job, done bool, err error) {
	if invalid != nil {
		return nil, false, nil
	}
	l := c.s.limits.of(c.Queue)
	if l.byKey {
		return c.acrossKeys(ctx, l.across)
	}
	if !c.plan.ExpectsFew() {
		return c.ofCounted(ctx, l)
	}
	looked := c.plan.Stale() || c.plan.ExpectsNothing()
	if looked {
		due, counts, err := c.look(ctx)
		if err != nil || !counts || !due {
			return nil, counts && err == nil, err
		}
		c.plan = c.s.cursors.Plan(c.Queue)
	}
	if c.limited {
		return c.ofCounted(ctx, l)
	}
	if jobs, done, err = c.takeFew(ctx); done || looked {
		return jobs, done, err
	}
	due, counts, err := c.look(ctx) // perhaps another store was quicker
	return nil, counts && !due && err == nil, err
}

var lookQuery = `
	SELECT ` + presentNow + `, ` + shownByRead + `, first.lane, first.priority, first.due_at, first.id
	FROM (SELECT) AS always
	LEFT JOIN (` + firstsAt(4) + `) AS first ON TRUE
	WHERE ` + onKnownServer

// look moves the marks to the first jobs, and reports whether one of them is due.
func (c *claim) look(ctx context.Context) (due, counts bool, err error) {
	t, some, err := c.s.single(ctx, c.s.with.write, false, func(rows *sql.Rows, shown []any) error {
		var lane, priority, id sql.NullInt64
		var at time.Time
		err := rows.Scan(append(shown, &lane, &priority, (*sqlkit.Time)(&at), &id)...)
		if id.Valid {
			c.sawFirst(cursor.Lane(lane.Int64), int(priority.Int64), cursor.Position{At: at, ID: id.Int64})
		}
		return err
	}, lookQuery, c.marks()...)
	if err != nil || !some || !c.plan.Open(t.horizon, true) {
		return false, false, err
	}
	c.plan.Looked(t.now)
	return !c.plan.Empty(cursor.Retries) || !c.plan.Empty(cursor.Fresh), true, nil
}

// A fewKind says what a statement that takes a few jobs does about limits: it takes none in a queue that has one, or takes jobs across keys, or counts them.
type fewKind struct {
	first  string // the parts of the statement that come before it looks for jobs
	admits string // the condition of the queue
	keys   string // the parts of the statement that read those of the jobs which it has found
	writes string // and the part that writes them
	counts string // the condition of the number of jobs
}

var (
	takeFewQuery = takeFewOf(fewKind{
		admits: `NOT EXISTS (SELECT 1 FROM {schema}.queues WHERE name = $4 AND (paused OR ` + isLimited + `))`,
		counts: `jobs BETWEEN 1 AND ` + strconv.Itoa(few),
	})
	takeAcrossQuery  = takeFewOf(fewAcross)
	takeCountedQuery = takeFewOf(fewCounted)
)

// takeFewOf returns the statement that takes fresh jobs from the marks on. It takes none if there are more than a few, if a retry is due, or if a job has
// an attempt that must be moved. The leases run from a time that it reads when the rows that it has locked have given it a number.
func takeFewOf(kind fewKind) string {
	return `
	WITH` + kind.first + ` found AS MATERIALIZED (
		SELECT ` + waitedAs.Replace(claimed.Each(`jobs.{name}`, 0)) + `,` + presentEpoch + `
		FROM ` + placesAt(8) + `
		CROSS JOIN LATERAL (
			SELECT *
			FROM {schema}.jobs
			WHERE ` + lanes[cursor.Fresh].waits() + ` AND jobs.queue = $4 AND jobs.priority = place.priority
				AND (jobs.run_at, jobs.id) >= (place.due_at, place.id) AND jobs.run_at <= ` + statementNow + `
				AND (jobs.expires_at IS NULL OR jobs.expires_at > ` + statementNow + `)
			ORDER BY jobs.run_at, jobs.id
			LIMIT $11
			FOR UPDATE SKIP LOCKED
		) AS jobs
		WHERE ` + onKnownServer + ` AND ` + kind.admits + `
		LIMIT $11
	),` + kind.keys + `
	given AS MATERIALIZED (
		SELECT now, now + $13::bigint * interval '1 microsecond' AS until
		FROM (
			SELECT ` + presentNow + ` AS now, count(*) AS jobs, sum(` + weightOf(`found`) + `) AS heaped,
				bool_and(claim_token = 0) AS new, min(expires_at) AS expires_at
			FROM found
		) AS counted
		WHERE ` + kind.counts + ` AND heaped <= ` + strconv.Itoa(store.MaxAnswerBytes) + `
			AND new AND (expires_at IS NULL OR expires_at > now)
			AND NOT EXISTS (
				SELECT 1
				FROM ` + placesAt(5) + `
				CROSS JOIN LATERAL (
					SELECT 1
					FROM {schema}.jobs
					WHERE ` + lanes[cursor.Retries].waits() + ` AND jobs.queue = $4 AND jobs.priority = place.priority
						AND (jobs.retry_at, jobs.id) >= (place.due_at, place.id) AND jobs.retry_at <= ` + statementNow + `
					ORDER BY jobs.retry_at, jobs.id
					LIMIT 1
				) AS due
			)
	),
	` + kind.writes + `noted AS (
		INSERT INTO {schema}.leases (due_at, ids)
		SELECT now + $14::bigint * interval '1 microsecond', ARRAY(SELECT id FROM found)
		FROM given
	)
	UPDATE {schema}.jobs` + giveLeases(`given.until`, `$13`, `$12`, `given.now`, `found.epoch * `+strconv.Itoa(store.FenceStep)) + `
	FROM given, found
	WHERE jobs.id = ANY (ARRAY[found.id])
	RETURNING given.now, ` + shownByWrite + `, ` + claimedOf(`found`) + `, found.epoch`
}

// takeFew takes up to a few jobs from the marks on.
func (c *claim) takeFew(ctx context.Context) (jobs []store.Job, done bool, err error) {
	jobs, _, err = c.takeBy(ctx, takeFewQuery, append(c.marks(), min(c.Limit, few+1)))
	return jobs, err != nil || len(jobs) > 0, err
}

// takeBy takes the jobs that a statement of [takeFewOf] gives the worker, which has these arguments and more. It reports whether the statement was run.
func (c *claim) takeBy(ctx context.Context, query string, args []any, more ...any) (jobs []store.Job, ran bool, err error) {
	var chosen []*store.Record
	length := c.TTL.Truncate(store.Resolution)
	args = append(append(args, c.Worker, length.Microseconds(), min(length, firstDue).Microseconds()), more...)
	t, some, err := c.s.single(ctx, c.s.with.write, true, func(rows *sql.Rows, shown []any) error {
		e, err := sqlkit.RecordBehind(rows, shown)
		chosen, c.at = append(chosen, e), time.Time(*shown[0].(*sqlkit.Time))
		return err
	}, query, args...)
	inOrderOfClaims(chosen)
	exact := err == nil && some && c.plan.Open(t.horizon, true)
	for _, e := range chosen {
		if exact {
			c.plan.Took(cursor.Fresh, e.Priority, cursor.Position{At: e.RunAt, ID: e.ID})
		}
		e.Queue = c.Queue
		e.Claim(c.ClaimRequest, c.at)
		jobs, c.leases = append(jobs, e.Job), append(c.leases, e.Lease())
	}
	if err != nil || !some {
		return nil, t != nil, err
	}
	if len(jobs) < c.Limit {
		c.plan.Answered()
	}
	return jobs, true, c.noteAgain(ctx)
}

// noteAgain adds a row for the leases if an injected clock has moved since the call read it, which was before the statement had its
// number: otherwise the mark of the leases may have passed the row that it wrote.
func (c *claim) noteAgain(ctx context.Context) error {
	if n := c.s.now; n.clock == nil || !n.read(time.Time{}).After(c.at) {
		return nil
	}
	_, err := write(ctx, c.s, nil, func(t *txn) (struct{}, error) {
		due := c.at.Add(min(c.TTL, firstDue))
		if due.Before(t.now) {
			due = t.now
		}
		leases := make([]leased, len(c.leases))
		for i, l := range c.leases {
			leases[i] = leased{l.ID, due}
		}
		return struct{}{}, t.noteLeases(leases)
	})
	if err != nil {
		return sqlkit.InDoubt(err, advice)
	}
	return nil
}
