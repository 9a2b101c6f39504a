package postgres

import (
	"context"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
	"github.com/seed-ed332417/jq/internal/store/bykey"
)

// Claims across keys: see bykey.Across. The claim finds jobs by the marks of all jobs, and locks the rows of their keys, by the statement that takes them. A key
// that has no row has nothing in flight, but two statements that make rows could wait for each other.

// acrossKeys takes as many jobs as the claim may, whatever their keys, unless there are fewer, or a key may have no room.
func (c *claim) acrossKeys(ctx context.Context, a *bykey.Across) (jobs []store.Job, done bool, err error) {
	if c.Limit > few || !a.Tries() {
		return nil, false, nil
	}
	queue := cursor.AcrossKeys(c.Queue)
	c.plan = c.s.cursors.Plan(queue)
	begin := c.plan.Starts
	if c.plan.Stale() {
		if _, counts, err := c.look(ctx); err != nil || !counts {
			return nil, false, err
		}
		c.plan = c.s.cursors.Plan(queue)
		begin = c.plan.Marks // jobs may have appeared behind the cursors
	}
	jobs, ran, err := c.takeBy(ctx, takeAcrossQuery, append(c.from(begin), c.Limit), a.Limit, a.Most(), c.s.claimsLock(c.Queue))
	if ran && err == nil {
		c.vain = a.Took(jobs)
	}
	return jobs, err != nil || len(jobs) > 0, err
}

// lookBack moves the marks of all jobs back to those that a claim by key takes, where these lie before them: the clock of another store was set back, or a row
// was changed by hand. Sweeps leave out jobs that have keys.
func (c *claim) lookBack(taken []bykey.Waiting) {
	if c.s.limits.of(c.Queue).across == nil {
		return
	}
	queue := cursor.AcrossKeys(c.Queue)
	before := map[string]cursor.Queue{queue: c.s.cursors.Get(queue)}
	for _, w := range taken {
		c.s.cursors.Correct(before, c.Queue, laneOf(w.Record), w.Record.Priority, cursor.Position{At: w.Record.Next(), ID: w.ID})
	}
}

// fewAcross takes jobs across keys, of which a claim may have $15. It takes none if others have locked one of the rows, if the queue has other limits, or while the rows
// may not show all that is in flight. It writes the rows that it has locked by INSERT with ON CONFLICT, for which
// the server always uses the index: it would compare an update with all keys of the queue if they were few when it planned the statement.
var fewAcross = fewKind{
	admits: `EXISTS (
			SELECT
			FROM {schema}.queues
			WHERE name = $4 AND NOT paused AND counted AND max_per_key = $15 AND max_in_flight IS NULL AND rate_n IS NULL AND NOT fair AND NOT ordered
				AND pg_try_advisory_xact_lock_shared(hashtextextended($17, 0)))`,
	keys: `
	chosen AS MATERIALIZED (
		SELECT limit_key, jsonb_agg(id) AS ids
		FROM found
		WHERE limit_key IS NOT NULL
		GROUP BY limit_key
	),
	key AS MATERIALIZED (
		SELECT chosen.limit_key, state, coalesce(state -> 'taken', '[]') || ids AS taken
		FROM chosen
		LEFT JOIN LATERAL (
			SELECT state::jsonb
			FROM {schema}.keys
			WHERE keys.queue = $4 AND keys.limit_key = ANY (ARRAY[chosen.limit_key])
			FOR UPDATE SKIP LOCKED
		) AS known ON TRUE
	),`,
	writes: `
	written AS (
		INSERT INTO {schema}.keys (queue, limit_key, state)
		SELECT $4, key.limit_key, (key.state || jsonb_build_object('taken', key.taken))::text
		FROM given, key
		ON CONFLICT (limit_key, queue) DO UPDATE
		SET state = EXCLUDED.state
	),`,
	counts: `jobs = $11 AND NOT EXISTS (SELECT FROM key WHERE state IS NULL OR jsonb_array_length(taken) > $16)`,
}
