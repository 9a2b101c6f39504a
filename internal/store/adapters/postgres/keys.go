package postgres

import (
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
	"github.com/seed-ed332417/jq/internal/store/bykey"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Limits for each key, and turns: see bykey.Keys.
//
// A claim locks the rows of the keys at which it looks, and skips those that another claim has locked. Only then, by a later statement, it counts
// which of the jobs that claims have taken are in flight, and reads which jobs wait. So it sees what all claims on the same keys before it have
// committed, and whatever the hints tell that it has read and deleted before.
//
// One claim at a time turns the hints of a queue into rows: otherwise two of them could wait for each other. The others go on with the keys that
// are there. A claim waits for another one only if it holds no key itself, and would find nothing.
//
// Claims on a fair queue lock the queue first, as under MaxInFlight: a claim that skips keys which others have locked would take too many jobs of those that
// are left.
//
// Claims on an ordered queue read the first live job of each key from the table ordered, by the same statement. They take no job with a key while that
// table may lack one with a smaller id: see know.
//
// Jobs without a key are found as in other queues. If the queue is fair, the row of the empty key says when it is their turn.

// keysAtOnce is how many hints a claim reads, and how many keys for which a time has come. A merge reads fewer, because all claims on the queue wait for it.
const (
	keysAtOnce   = 10_000
	mergedAtOnce = 1000
)

// claimByKey takes due jobs of keys that have room, and jobs without a key.
func (c *claim) claimByKey(t *txn) ([]store.Job, error) {
	for {
		keys := bykey.NewKeys(c.policy, t.now)
		taken, others, err := c.choose(t, keys)
		if err != nil {
			return nil, err
		}
		c.some = !keys.None()
		if len(taken) == 0 && !c.some && !c.keysWait() {
			if again, err := c.await(t); err != nil {
				return nil, err
			} else if again {
				continue
			}
		}
		return c.takeChosen(t, keys, taken, others)
	}
}

// keysWait reports whether the claim must leave jobs with keys alone, because some that have smaller ids may not be known yet.
func (c *claim) keysWait() bool { return c.policy.Ordered && c.known < keysInOrder }

// choose locks keys, and jobs among theirs. In place of those that somebody else has locked it chooses others. It also chooses among jobs without a key, of
// which it locks more than it needs.
func (c *claim) choose(t *txn, keys *bykey.Keys) (chosen, others []bykey.Waiting, err error) {
	locked := map[int64]*store.Record{}
	for first, enough := true, true; ; {
		if enough && keys.More(c.limit, c.quota, chosen) {
			if err := c.lockKeys(t, keys, first); err != nil {
				return nil, nil, err
			}
			if first {
				if others, err = c.withoutKeys(t); err != nil {
					return nil, nil, err
				}
				keys.AddOthers(others)
			}
			first, enough = false, false
		}
		if !enough {
			if err := t.lookAt(c.Queue, c.limit, keys); err != nil {
				return nil, nil, err
			}
			chosen, enough = keys.Choose(c.limit, c.quota)
			continue
		}
		missing, err := c.lockChosen(t, chosen, locked)
		if err != nil || len(missing) == 0 {
			return chosen, others, err
		}
		keys.Skip(missing)
		chosen, enough = keys.Choose(c.limit, c.quota)
	}
}

// await waits for another claim that reads hints, or has locked the first key. It reports whether there was one.
func (c *claim) await(t *txn) (bool, error) {
	if c.hinted && !c.merges {
		c.merges = true
		return true, t.lockHints(c.Queue)
	}
	for _, stands := range []string{`fresh`, `retry`} {
		found, err := sqlkit.Values[string](t.each, strings.ReplaceAll(`
			SELECT limit_key
			FROM {schema}.keys
			WHERE queue = $1 AND {stands}_level IS NOT NULL
			ORDER BY {stands}_level, {stands}_at, {stands}_id
			LIMIT 1
			FOR UPDATE`, `{stands}`, stands),
			c.Queue)
		if err != nil || len(found) > 0 {
			return true, err
		}
	}
	return false, nil
}

// lockHints waits until the transaction is the one that reads the hints of the queue.
func (t *txn) lockHints(queue string) error {
	return t.each(ignored, `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, t.s.mergeLock(queue))
}

// claimsLock is the name of the lock that claims by key share, and that keeps them out of a merge: they would skip its keys.
func (s *Store) claimsLock(queue string) string { return `claims of ` + s.schema + ` ` + queue }

// mergeLock is the name of the lock for reading the hints of a queue.
func (s *Store) mergeLock(queue string) string { return `hints of ` + s.schema + ` ` + queue }

// takeChosen claims the jobs, and writes the keys.
func (c *claim) takeChosen(t *txn, keys *bykey.Keys, taken, others []bykey.Waiting) ([]store.Job, error) {
	records := make([]*store.Record, len(taken))
	for i, w := range taken {
		records[i] = w.Record
	}
	for _, w := range others {
		c.locked = c.locked || !slices.ContainsFunc(taken, func(one bykey.Waiting) bool { return one.ID == w.ID })
	}
	c.short = c.short && !c.locked
	if len(taken) < c.limit && c.policy.KeyLimit() > 0 {
		c.leavesOut(t)
	}
	rows, err := keys.Rows(taken)
	if err != nil {
		return nil, err
	}
	if len(taken) == 0 {
		return nil, t.writeKeys(c.Queue, rows)
	}
	c.keys = rows
	c.lookBack(taken)
	return c.lease(t, records)
}

// lockKeys locks keys that stand, behind those that it has locked. At first, it also locks keys for which a time has come, and those that have
// hints, which it deletes. It looks where due jobs without a key begin then and, if they have turns, locks the row of those, too.
func (c *claim) lockKeys(t *txn, keys *bykey.Keys, first bool) error {
	b := keyBatch{queue: c.Queue, keys: keys, atOnce: keysAtOnce, hints: first && c.merges, number: c.firstHint, dues: first, ordered: c.policy.Ordered, turns: first && c.policy.Fair}
	if first {
		b.plan = c.plan
	}
	b.fresh, b.retry, b.most = keys.From()
	if c.keysWait() {
		b.hints, b.dues, b.most = false, false, 0
	}
	if err := b.lock(t); err != nil {
		return err
	}
	if b.hints {
		c.plan.SawRows(c.firstHint, b.first, b.last, cursor.Opening{XMin: t.shown.xmin, Number: t.shown.number, Sent: t.shown.sent})
	}
	c.backlog = c.backlog || b.more()
	keys.Stood()
	keys.Hinted()
	return nil
}

// A keyBatch locks some keys.
type keyBatch struct {
	queue        string
	keys         *bykey.Keys
	atOnce       int
	hints, dues  bool         // read hints, and keys for which a time has come
	ordered      bool         // each hint of a key matters
	turns        bool         // give the claim its number, and lock the turns of jobs without a key, if there are such jobs
	plan         *cursor.Plan // look for these from its marks, unless there is none
	fresh, retry bykey.Place  // behind which to read keys that stand
	most         int          // how many of these to read

	number      int64 // no hint has a smaller one
	first, last int64 // the numbers of those that it has read, if there are any
	read        int   // how many
	deleted     int   // how many of these are gone: those of keys that another claim has locked stay
}

// more reports whether there may be more hints than it has read.
func (b *keyBatch) more() bool { return b.read == b.atOnce }

func (b *keyBatch) lock(t *txn) error {
	var lines []bykey.Line
	err := t.each(func(rows *sql.Rows) error {
		var as, name, state string
		var flag bool
		var at time.Time
		var turn, number, level int64
		if err := rows.Scan(&as, &name, &state, &flag, (*sqlkit.Time)(&at), &turn, &number, &level); err != nil {
			return err
		}
		switch as {
		case `line`:
			lines = append(lines, bykey.Line{Key: name, Retry: flag, Priority: int(level), At: at.UnixMicro()})
			return nil
		case `hints`:
			b.first, b.last, b.read = turn, number, int(level)
			return nil
		case `deleted`:
			if b.deleted = int(number); b.deleted > 0 {
				b.keys.Holds()
			}
			return nil
		case `claim`:
			b.keys.Number(number)
			return nil
		case `first`:
			b.plan.Saw(cursor.Lane(turn), int(level), cursor.Position{At: at, ID: number})
			return nil
		case `told`:
			return b.keys.AddHinted(name, state, flag)
		case `stands`:
			b.keys.Stands(flag, bykey.Place{Level: int(level), At: turn, ID: number})
		}
		return b.keys.Add(name, state)
	}, lockKeysQuery, b.args(t)...)
	for _, l := range lines {
		if b.keys.Has(l.Key) {
			b.keys.Hint(l)
		}
	}
	return err
}

func (b *keyBatch) args(t *txn) []any {
	args := append(make([]any, 0, 22),
		b.queue, t.now, b.atOnce, b.hints, b.number, b.dues, b.most,
		b.fresh.Level, b.fresh.At, b.fresh.ID, b.retry.Level, b.retry.At, b.retry.ID, b.turns, t.s.schema+`.turns`)
	retries, fresh := noPlaces, noPlaces
	if b.plan != nil {
		retries, fresh = b.plan.Marks(cursor.Retries), b.plan.Marks(cursor.Fresh)
	}
	return append(places(places(args, retries), fresh), b.ordered)
}

func noPlaces(func(int, cursor.Position) bool) {}

// lockKeysQuery counts the rows that are known of a key, so that the planner asks for each key, and does not join them with all keys of the queue. It
// has the argument numbers of: 1 the queue, 2 now, 3 how many of a sort, 4 and 5 hints, 6 keys for which a time has come, 7 how many that stand, and
// behind which of fresh jobs, 8 to 10, and of retries, 11 to 13, 14 whether keys have turns: then it numbers the claim, by the sequence 15, and locks the
// empty key, 16 to 21 where to look for jobs without a key, and 22 whether each hint matters: otherwise keys that stand are left out if the hints only tell of
// leases that have ended.
var lockKeysQuery = `
	WITH first AS MATERIALIZED (` + firstWithoutKey(cursor.Retries, 16) + `
		UNION ALL` + firstWithoutKey(cursor.Fresh, 19) + `
	),
	hinted AS MATERIALIZED (
		SELECT number, limit_key, retry, priority, due_at, ctid AS place
		FROM {schema}.hints
		WHERE $4 AND queue = $1 AND number >= $5
		ORDER BY number
		LIMIT $3
	),
	names AS MATERIALIZED (
		SELECT limit_key
		FROM hinted
		UNION
		SELECT ''
		WHERE $14 AND EXISTS (SELECT FROM first)
	),
	told AS MATERIALIZED (
		SELECT keys.*
		FROM names
		CROSS JOIN LATERAL (
			SELECT *
			FROM {schema}.keys
			WHERE keys.queue = $1 AND keys.limit_key = ANY (ARRAY[names.limit_key])
			FOR UPDATE SKIP LOCKED
		) AS keys
	),
	made AS (
		INSERT INTO {schema}.keys (queue, limit_key, state)
		SELECT $1, limit_key, ''
		FROM names
		WHERE (limit_key IN (SELECT limit_key FROM told)) IS NOT TRUE
			AND (
				SELECT count(*)
				FROM (SELECT FROM {schema}.keys WHERE keys.queue = $1 AND keys.limit_key = names.limit_key LIMIT 1) AS known
			) = 0
		ON CONFLICT DO NOTHING
		RETURNING limit_key
	),
	deleted AS (
		DELETE FROM {schema}.hints
		WHERE ctid = ANY (ARRAY(
			SELECT place
			FROM hinted
			WHERE (limit_key IN (SELECT limit_key FROM told UNION ALL SELECT limit_key FROM made)) IS TRUE))
		RETURNING number
	),
	line AS MATERIALIZED (
		SELECT limit_key, coalesce(retry, FALSE) AS retry, coalesce(priority, 0) AS priority, min(due_at) AS due_at
		FROM hinted
		WHERE due_at IS NOT NULL
		GROUP BY 1, 2, 3
	),
	due AS MATERIALIZED (
		SELECT *
		FROM {schema}.keys
		WHERE $6 AND queue = $1 AND look_at <= $2
		ORDER BY look_at, limit_key
		LIMIT $3
		FOR UPDATE SKIP LOCKED
	),
	fresh AS MATERIALIZED (` + standing(`fresh`, 8) + `
	),
	retries AS MATERIALIZED (` + standing(`retry`, 11) + `
	)
	SELECT 'stands', limit_key, state, FALSE, NULL::timestamptz, fresh_at, fresh_id, fresh_level FROM fresh
	UNION ALL
	SELECT 'stands', limit_key, state, TRUE, NULL, retry_at, retry_id, retry_level FROM retries
	UNION ALL
	SELECT 'due', limit_key, state, FALSE, look_at, 0, 0, 0 FROM due
	UNION ALL
	SELECT 'told', limit_key, state, stands, NULL, 0, 0, 0
	FROM (SELECT *, fresh_level IS NOT NULL OR retry_level IS NOT NULL OR look_at IS NOT NULL AS stands FROM told) AS told
	WHERE $22 OR NOT stands OR (limit_key IN (SELECT limit_key FROM line)) IS TRUE
	UNION ALL
	SELECT 'made', limit_key, '', FALSE, NULL, 0, 0, 0 FROM made
	UNION ALL
	SELECT 'line', limit_key, '', retry, due_at, 0, 0, priority FROM line
	UNION ALL
	SELECT 'hints', '', '', FALSE, NULL, coalesce(min(number), 0), coalesce(max(number), 0), count(*) FROM hinted
	UNION ALL
	SELECT 'deleted', '', '', FALSE, NULL, 0, count(*), 0 FROM deleted
	UNION ALL
	SELECT 'claim', '', '', FALSE, NULL, 0, nextval($15::text::regclass), 0 WHERE $14
	UNION ALL
	SELECT 'first', '', '', FALSE, due_at, lane, id, priority FROM first`

// firstWithoutKey returns the query for the first claimable jobs of a lane that are due and have no key, from marks on.
func firstWithoutKey(lane cursor.Lane, marks int) string {
	return firstsOf(lane, marks, `$1`, ` AND jobs.limit_key IS NULL AND {due} <= $2`)
}

// standing returns the query that locks the next keys that stand in a lane, behind the place of these arguments.
func standing(lane string, n int) string {
	return strings.ReplaceAll(fmt.Sprintf(`
		SELECT *
		FROM {schema}.keys
		WHERE queue = $1 AND {lane}_level IS NOT NULL AND ({lane}_level, {lane}_at, {lane}_id) > ($%d, $%d, $%d)
		ORDER BY {lane}_level, {lane}_at, {lane}_id
		LIMIT $7
		FOR UPDATE SKIP LOCKED`, n, n+1, n+2), `{lane}`, lane)
}

// lookAt reads the jobs of the lines that are unread, in an ordered queue the first live ones of their keys, and which of the jobs that claims have taken
// are in flight.
func (t *txn) lookAt(queue string, limit int, keys *bykey.Keys) error {
	lines := keys.Unread(limit)
	names, retries, numbers := newArray(ofTexts, 0), newArray(ofNumbers, 0), [3]*array{}
	for i := range numbers {
		numbers[i] = newArray(ofNumbers, len(lines)*numberBytes)
	}
	times := newArray(ofTimes, len(lines)*numberBytes)
	for _, l := range lines {
		names.string(l.Key)
		if l.Retry {
			retries.int(1)
		} else {
			retries.int(0)
		}
		numbers[0].int(int64(l.Priority))
		times.int(l.At - sqlkit.PostgresEpoch)
		numbers[1].int(l.ID)
		numbers[2].int(int64(l.Want))
	}
	heads := slices.ContainsFunc(lines, func(l *bykey.Line) bool { return l.Head })
	return t.each(func(rows *sql.Rows) error {
		var place, id, weight, priority int64
		var at time.Time
		var expired bool
		if err := rows.Scan(&place, (*sqlkit.Time)(&at), &id, &weight, &priority, &expired); err != nil {
			return err
		}
		d := bykey.Waiting{At: at.UnixMicro(), ID: id, Weight: int(weight), Priority: int(priority), Expired: expired}
		switch {
		case place == 0:
			keys.InFlight(id)
		case heads:
			lines[place-1].ReadHead(d)
		default:
			lines[place-1].Read(d)
		}
		return nil
	}, lookAtQuery[heads], queue, t.now, names, retries, numbers[0], times, numbers[1], numbers[2], arrayOf(keys.Taken()))
}

// lookAtQuery has the queries for lines and, if that is what they are, for the heads of keys.
var lookAtQuery = map[bool]string{
	false: lookAtWith(waitingOf(cursor.Fresh, `0`) + `
	UNION ALL` + waitingOf(cursor.Retries, `1`)),
	true: lookAtWith(waitingHeads),
}

func lookAtWith(waiting string) string {
	return `
	WITH line AS MATERIALIZED (
		SELECT *
		FROM unnest($3::text[], $4::bigint[], $5::bigint[], $6::timestamptz[], $7::bigint[], $8::bigint[])
			WITH ORDINALITY AS line (limit_key, retry, priority, due_at, id, want, place)
	)` + waiting + `
	UNION ALL
	SELECT 0, NULL::bytea, taken.id, 0, 0, FALSE
	FROM unnest($9::bigint[]) AS taken (id)
	CROSS JOIN LATERAL (
		SELECT
		FROM {schema}.jobs
		WHERE jobs.id = ANY (ARRAY[taken.id]) AND jobs.lease_expires_at IS NOT NULL AND jobs.queue = $1
	) AS jobs`
}

// isLive is the condition of jobs that have not ended. One that is in flight has the state in which it waited.
const isLive = `(jobs.unleased_state IN ('ready', 'blocked') OR jobs.unleased_state = 'failed' AND jobs.retry_at IS NOT NULL)`

// waitingHeads is the query for the first live job of each key, if that waits. It goes from id to id: rows of jobs that are not live are few.
var waitingHeads = strings.ReplaceAll(`
	SELECT line.place, timestamptz_send(CASE jobs.unleased_state WHEN 'ready' THEN jobs.run_at ELSE jobs.retry_at END), jobs.id, jobs.weight, jobs.priority, coalesce(jobs.expires_at <= $2, FALSE)
	FROM line
	CROSS JOIN LATERAL (
		SELECT jobs.*
		FROM {schema}.ordered
		CROSS JOIN LATERAL (
			SELECT id, unleased_state, run_at, retry_at, lease_expires_at, expires_at, priority, {weight} AS weight
			FROM {schema}.jobs
			WHERE jobs.id = ANY (ARRAY[ordered.job_id]) AND jobs.queue = $1 AND jobs.limit_key = line.limit_key AND `+isLive+`
			OFFSET 0
		) AS jobs
		WHERE ordered.queue = $1 AND ordered.limit_key = ANY (ARRAY[line.limit_key])
		ORDER BY ordered.limit_key, ordered.job_id
		LIMIT 1
	) AS jobs
	WHERE jobs.lease_expires_at IS NULL AND jobs.unleased_state <> 'blocked'`, `{weight}`, weightOf(`jobs`))

// waitingOf returns the query for the first jobs of the lines of a lane. It asks for the first one that has expired only if it comes to one.
func waitingOf(of cursor.Lane, retry string) string {
	return lanes[of].sql(strings.ReplaceAll(`
	SELECT line.place, timestamptz_send(jobs.due_at), jobs.id, jobs.weight, 0, jobs.expired
	FROM line
	CROSS JOIN LATERAL (
		SELECT {due} AS due_at, jobs.id, `+weightOf(`jobs`)+` AS weight, coalesce(jobs.expires_at <= $2, FALSE) AS expired
		FROM {schema}.jobs
		WHERE {inLine} AND (jobs.expires_at IS NULL OR jobs.expires_at > $2 OR jobs.id = (
			SELECT jobs.id
			FROM {schema}.jobs
			WHERE {inLine} AND jobs.expires_at <= $2
			ORDER BY jobs.limit_key, {due}, jobs.id
			LIMIT 1))
		ORDER BY jobs.limit_key, {due}, jobs.id
		LIMIT line.want
	) AS jobs
	WHERE line.retry = `+retry, `{inLine}`, `{waits} AND jobs.queue = $1 AND jobs.limit_key = ANY (ARRAY[line.limit_key]) AND jobs.priority = line.priority
			AND ({due}, jobs.id) >= (line.due_at, line.id)`))
}

// withoutKeys locks due jobs without a key, as many as the claim may take of each lane, after it has looked where they begin.
func (c *claim) withoutKeys(t *txn) ([]bykey.Waiting, error) {
	c.plan.Looked(t.now)
	var found []*store.Record
	if !c.plan.Empty(cursor.Retries) || !c.plan.Empty(cursor.Fresh) {
		var err error
		if found, err = c.find(t, c.limit, 2*c.limit, true); err != nil {
			return nil, err
		}
	}
	c.short = len(found) < c.limit
	all := make([]bykey.Waiting, len(found))
	for i, e := range found {
		all[i] = bykey.Waiting{
			Retry: laneOf(e) == cursor.Retries, Priority: e.Priority, At: e.Next().UnixMicro(), ID: e.ID, Weight: e.Weight(), Record: e,
		}
	}
	return all, nil
}

// lockChosen locks and reads the jobs that have keys, but for those that are locked. It returns those that others have locked or changed since. In an
// ordered queue, those with keys are in no lane of retries.
func (c *claim) lockChosen(t *txn, chosen []bykey.Waiting, locked map[int64]*store.Record) (missing []bykey.Waiting, err error) {
	var ids []int64
	for _, w := range chosen {
		if w.Record == nil && locked[w.ID] == nil {
			ids = append(ids, w.ID)
		}
	}
	if len(ids) > 0 {
		found, err := t.records(lockChosenQuery, arrayOf(ids), t.now, c.Queue)
		if err != nil {
			return nil, err
		}
		maps.Copy(locked, sqlkit.Keyed(found))
	}
	for i := range chosen {
		w := &chosen[i]
		if w.Record == nil {
			w.Record = locked[w.ID]
		}
		if w.Record == nil || !c.policy.Ordered && (laneOf(w.Record) == cursor.Retries) != w.Retry {
			missing = append(missing, *w)
		}
	}
	return missing, nil
}

var lockChosenQuery = `
	SELECT` + claimColumns + `,` + presentEpoch + `
	FROM unnest($1::bigint[]) AS chosen (id)
	CROSS JOIN LATERAL (
		SELECT *
		FROM {schema}.jobs
		WHERE jobs.id = chosen.id AND jobs.queue = $3 AND jobs.lease_expires_at IS NULL
			AND (jobs.unleased_state = 'ready' AND jobs.run_at <= $2 OR jobs.unleased_state = 'failed' AND jobs.retry_at <= $2)
			AND (jobs.expires_at IS NULL OR jobs.expires_at > $2)
		FOR UPDATE SKIP LOCKED
	) AS jobs`
