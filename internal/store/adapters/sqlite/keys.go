package sqlite

import (
	"database/sql"
	"slices"
	"strings"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/bykey"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Limits for each key, and turns: see bykey.Keys. In a queue that has them, waiting jobs without a key have the empty one, which is not limited. So
// claims find them as they find the others.

// isWaiting is the condition of jobs that wait, isKeyed that of jobs that claims find by key, and isLimited that of jobs whose queue limits its keys.
const (
	isWaiting = `({job}.state = 'ready' OR {job}.state = 'failed' AND {job}.retry_at IS NOT NULL)`
	isKeyed   = `EXISTS (SELECT 1 FROM policies WHERE name = {job}.queue AND ` + isByKey + `)`
	isLimited = `EXISTS (SELECT 1 FROM policies WHERE name = {job}.queue AND (max_per_key IS NOT NULL OR ordered))`
	isByKey   = `(max_per_key IS NOT NULL OR fair OR ordered)`
	hint      = `
			INSERT INTO hints (queue, limit_key, lane, priority, due_at)
			VALUES (NEW.queue, coalesce(NEW.limit_key, ''), NEW.state = 'failed', NEW.priority, iif(NEW.state = 'ready', NEW.run_at, NEW.retry_at))
			ON CONFLICT DO UPDATE
			SET due_at = min(due_at, excluded.due_at);
			UPDATE jobs SET limit_key = '' WHERE id = NEW.id AND limit_key IS NULL;`
	// A row stands nowhere only if the key has no room, or no job waits. Where there is no row, none waits of which no hint tells.
	hintEnded = `
			INSERT OR IGNORE INTO hints (queue, limit_key, lane, priority, due_at)
			SELECT queue, limit_key, 2, 0, 0
			FROM keys
			WHERE queue = OLD.queue AND limit_key = OLD.limit_key AND coalesce(fresh_level, retry_level, look_at) IS NULL;`
)

// keyTriggers leave the hints, whoever changes a job. They exist as long as claims on a queue find jobs by key, since they make every change of a job slower.
var keyTriggers = map[string]string{
	`jobs_added`: `
		AFTER INSERT ON jobs
		WHEN ` + ofRow(`NEW`, isWaiting) + ` AND ` + ofRow(`NEW`, isKeyed) + `
		BEGIN` + hint + `
		END`,
	`jobs_moved`: `
		AFTER UPDATE OF state, priority, run_at, retry_at, expires_at, queue, limit_key ON jobs
		WHEN ` + ofRow(`NEW`, isWaiting) + ` AND (OLD.state, OLD.priority, OLD.run_at, OLD.retry_at, OLD.expires_at, OLD.queue, OLD.limit_key)
			IS NOT (NEW.state, NEW.priority, NEW.run_at, NEW.retry_at, NEW.expires_at, NEW.queue, NEW.limit_key)
			AND ` + ofRow(`NEW`, isKeyed) + `
		BEGIN` + hint + `
		END`,
	`jobs_left`: `
		AFTER UPDATE OF id, state, queue, limit_key ON jobs
		WHEN OLD.state = 'in_flight' AND OLD.limit_key <> '' AND (NEW.state <> 'in_flight' AND NOT ` + ofRow(`NEW`, isWaiting) + ` OR NOT ` + sameKey + `)
			AND ` + ofRow(`OLD`, isLimited) + `
		BEGIN` + hintEnded + `
		END`,
	`jobs_gone`: `
		AFTER DELETE ON jobs
		WHEN OLD.state = 'in_flight' AND OLD.limit_key <> '' AND ` + ofRow(`OLD`, isLimited) + `
		BEGIN` + hintEnded + `
		END`,
}

// policyTriggers are the triggers that exist as long as a policy meets the condition.
var policyTriggers = map[string]map[string]string{isByKey: keyTriggers, `ordered`: orderedTriggers}

func ofRow(row, condition string) string { return strings.ReplaceAll(condition, `{job}`, row) }

// limitKeys makes claims keep to what the policy says of keys, if that is something else.
func (t *txn) limitKeys(queue string, before, now store.Policy) error {
	if before.MaxPerKey == now.MaxPerKey && before.Fair == now.Fair && before.Ordered == now.Ordered {
		return nil
	}
	if err := t.forgetKeys(queue); err != nil {
		return err
	}
	if err := t.createTriggers(); err != nil || !now.ByKey() {
		return err
	}
	if now.Ordered {
		if err := t.putInOrder(queue); err != nil {
			return err
		}
	}
	for _, l := range []lane{freshLane, retryLane} {
		if err := t.hintAll(queue, l); err != nil {
			return err
		}
	}
	return t.readHints(queue, now)
}

// forgetKeys deletes what claims on the queue know of its keys, and drops the triggers, which would note that.
func (t *txn) forgetKeys(queue string) error {
	for _, triggers := range policyTriggers {
		for name := range triggers {
			if _, err := t.exec(`DROP TRIGGER IF EXISTS ` + name); err != nil {
				return err
			}
		}
	}
	for _, table := range []string{`keys`, `hints`, `ordered`} {
		if _, err := t.exec(`DELETE FROM `+table+` WHERE queue = ?`, queue); err != nil {
			return err
		}
	}
	return nil
}

// createTriggers creates those that the policies need.
func (t *txn) createTriggers() error {
	for policy, triggers := range policyTriggers {
		some, err := sqlkit.Values[int](t.each, `SELECT 1 FROM policies WHERE `+policy+` LIMIT 1`)
		if err != nil {
			return err
		}
		for name, trigger := range triggers {
			if len(some) == 0 {
				break
			}
			if _, err := t.exec(`CREATE TRIGGER ` + name + trigger); err != nil {
				return err
			}
		}
	}
	return nil
}

// readHints reads all hints of a queue, as claims do.
func (t *txn) readHints(queue string, p store.Policy) error {
	for more := true; more; {
		number, err := t.countTurns(queue)
		if err != nil {
			return err
		}
		keys := bykey.NewKeys(p, t.now)
		keys.Number(number)
		if more, err = t.addHinted(queue, keys); err != nil {
			return err
		}
		if err := t.readLines(queue, keys, 1); err != nil {
			return err
		}
		rows, err := keys.Rows(nil)
		if err != nil {
			return err
		}
		if err := t.writeKeys(queue, rows); err != nil {
			return err
		}
	}
	return nil
}

// hintAll leaves hints for all keys that have jobs in a lane. Those without a key are given the empty one.
func (t *txn) hintAll(queue string, l lane) error {
	_, err := t.exec(l.text(`
		UPDATE jobs
		SET limit_key = ''
		WHERE {waits} AND queue = ? AND limit_key IS NULL`),
		queue)
	if err != nil {
		return err
	}
	_, err = t.exec(l.text(`
		INSERT INTO hints (queue, limit_key, lane, priority, due_at)
		SELECT queue, limit_key, {lane}, priority, min({due})
		FROM jobs INDEXED BY {index}
		WHERE {waits} AND queue = ? AND limit_key IS NOT NULL
		GROUP BY limit_key, priority
		ON CONFLICT DO UPDATE
		SET due_at = min(due_at, excluded.due_at)`),
		queue)
	return err
}

// countTurns returns the number of a claim that gives turns to keys of the queue.
func (t *txn) countTurns(queue string) (number int64, err error) {
	err = t.each(func(rows *sql.Rows) error { return rows.Scan(&number) }, `
		INSERT INTO queues (name, paused, turns)
		VALUES (?, FALSE, 1)
		ON CONFLICT (name) DO UPDATE
		SET turns = turns + 1
		RETURNING turns`,
		queue)
	return number, err
}

// claimByKey takes due jobs of keys that have room, and jobs without a key.
func (t *txn) claimByKey(req store.ClaimRequest, room room, held *sqlkit.Held) ([]store.Job, error) {
	limit := room.limit
	quota := min(limit, req.RetryQuota)
	keys := bykey.NewKeys(room.policy, t.now)
	keys.Number(room.turns + 1)
	if _, err := t.addHinted(req.Queue, keys); err != nil {
		return nil, err
	}
	var chosen []bykey.Waiting
	for due := any(t.now.UnixMicro()); keys.More(limit, quota, chosen); due = nil {
		if err := t.addStanding(req.Queue, keys, due); err != nil {
			return nil, err
		}
		for enough := false; !enough; {
			if err := t.readLines(req.Queue, keys, limit); err != nil {
				return nil, err
			}
			chosen, enough = keys.Choose(limit, quota)
		}
	}
	records, err := t.chosenOf(chosen)
	if err != nil {
		return nil, err
	}
	if len(chosen) < limit && room.policy.KeyLimit() > 0 {
		held.Note(req.Queue, 0)
	}
	rows, err := keys.Rows(chosen)
	if err != nil {
		return nil, err
	}
	if err := t.writeKeys(req.Queue, rows); err != nil {
		return nil, err
	}
	if room.policy.Fair && len(rows) > 0 {
		if _, err := t.countTurns(req.Queue); err != nil {
			return nil, err
		}
	}
	return t.lease(records, req)
}

// How many hints, and keys for which a time has come, a claim reads: it must end before its caller loses patience, or none would ever be read.
const (
	hintsAtOnce = 10_000
	keysAtOnce  = 10_000
)

// addHinted adds keys for which there are hints, and deletes these. It reports whether more may be left.
func (t *txn) addHinted(queue string, keys *bykey.Keys) (more bool, err error) {
	var hints []bykey.Line
	var names []string
	var lane, priority int
	err = t.each(func(rows *sql.Rows) error {
		var h bykey.Line
		err := rows.Scan(&h.Key, &lane, &priority, &h.At)
		names = append(names, h.Key)
		if h.Retry, h.Priority = lane == 1, priority; lane < 2 {
			hints = append(hints, h)
		}
		return err
	}, `
		SELECT limit_key, lane, priority, due_at
		FROM hints
		WHERE queue = ?
		ORDER BY limit_key, lane, priority
		LIMIT ?`,
		queue, hintsAtOnce)
	if err != nil || len(names) == 0 {
		return false, err
	}
	more = len(names) == hintsAtOnce
	_, err = t.exec(`
		DELETE FROM hints
		WHERE queue = ? AND (limit_key, lane, priority) <= (?, ?, ?)`,
		queue, names[len(names)-1], lane, priority)
	if err != nil {
		return false, err
	}
	names = slices.Compact(names) // the primary key is in this order
	err = t.each(func(rows *sql.Rows) error {
		var name, state string
		var stands bool
		if err := rows.Scan(&name, &state, &stands); err != nil {
			return err
		}
		return keys.AddHinted(name, state, stands)
	}, `
		SELECT limit_key, state, fresh_level IS NOT NULL OR retry_level IS NOT NULL OR look_at IS NOT NULL
		FROM keys
		WHERE queue = ? AND limit_key IN (SELECT value FROM json_each(?))`,
		queue, list(names))
	if err != nil {
		return false, err
	}
	for _, name := range names {
		if keys.Has(name) {
			continue
		}
		if err := keys.Add(name, ""); err != nil {
			return false, err
		}
	}
	for _, h := range hints {
		keys.Hint(h)
	}
	keys.Hinted()
	return more, nil
}

// addStanding adds the next keys that stand, as many as the claim must read, and those for which a time has come, if due is not NULL.
func (t *txn) addStanding(queue string, keys *bykey.Keys, due any) error {
	fresh, retry, n := keys.From()
	defer keys.Stood()
	return t.each(func(rows *sql.Rows) error {
		var lane int
		var name, state string
		var at bykey.Place
		if err := rows.Scan(&lane, &name, &state, &at.Level, &at.At, &at.ID); err != nil {
			return err
		}
		if lane < 2 {
			keys.Stands(lane == 1, at)
		}
		return keys.Add(name, state)
	}, standingQuery, queue, due, n, fresh.Level, fresh.At, fresh.ID, retry.Level, retry.At, retry.ID, keysAtOnce)
}

var standingQuery = standing(`0`, `fresh`, `(?4, ?5, ?6)`) + `
		UNION ALL` + standing(`1`, `retry`, `(?7, ?8, ?9)`) + `
		UNION ALL
		SELECT *
		FROM (
			SELECT 2, limit_key, state, 0, 0, 0
			FROM keys INDEXED BY keys_look_at
			WHERE queue = ?1 AND look_at <= ?2
			ORDER BY look_at
			LIMIT ?10)`

// standing returns the query for the next keys that stand in a lane, behind a place.
func standing(number, lane, place string) string {
	return strings.NewReplacer(`{number}`, number, `{lane}`, lane, `{place}`, place).Replace(`
		SELECT *
		FROM (
			SELECT {number}, limit_key, state, {lane}_level, {lane}_at, {lane}_id
			FROM keys INDEXED BY keys_{lane}
			WHERE queue = ?1 AND {lane}_level IS NOT NULL AND ({lane}_level, {lane}_at, {lane}_id) > {place}
			ORDER BY {lane}_level, {lane}_at, {lane}_id
			LIMIT ?3)`)
}

// readLines reads the jobs of the lines that are unread, and how many jobs of each limited key are in flight.
func (t *txn) readLines(queue string, keys *bykey.Keys, limit int) error {
	for _, l := range keys.Unread(limit) {
		if l.Head {
			if err := t.readHead(queue, l); err != nil {
				return err
			}
			continue
		}
		from := freshLane
		if l.Retry {
			from = retryLane
		}
		err := t.each(func(rows *sql.Rows) error {
			var w bykey.Waiting
			err := rows.Scan(&w.At, &w.ID, &w.Weight, &w.Expired)
			l.Read(w)
			return err
		}, from.byKey, queue, l.Key, l.Priority, l.At, l.ID, t.now.UnixMicro(), l.Want)
		if err != nil {
			return err
		}
	}
	slots, err := t.slotsOf(queue, keys.Uncounted())
	for name, n := range slots {
		keys.Slots(name, n)
	}
	return err
}

// slotsOf returns how many jobs of the keys are in flight, if any are.
func (t *txn) slotsOf(queue string, names []string) (map[string]int, error) {
	if len(names) == 0 {
		return nil, nil
	}
	slots := map[string]int{}
	err := t.each(func(rows *sql.Rows) error {
		var name string
		var n int
		err := rows.Scan(&name, &n)
		slots[name] = n
		return err
	}, `
		SELECT limit_key, count(*)
		FROM jobs INDEXED BY jobs_in_flight_by_key
		WHERE state = 'in_flight' AND queue = ? AND limit_key <> '' AND limit_key IN (SELECT value FROM json_each(?))
		GROUP BY limit_key`,
		queue, list(names))
	return slots, err
}

// chosenOf reads the jobs in their order.
func (t *txn) chosenOf(chosen []bykey.Waiting) ([]*store.Record, error) {
	ids := make([]int64, len(chosen))
	for i, w := range chosen {
		ids[i] = w.ID
	}
	found, err := t.records(`
		SELECT`+claimColumns+`
		FROM jobs NOT INDEXED
		WHERE id IN (SELECT value FROM json_each(?))`,
		list(ids))
	if err != nil {
		return nil, err
	}
	byID := sqlkit.Keyed(found)
	records := make([]*store.Record, len(chosen))
	for i, w := range chosen {
		records[i] = byID[w.ID]
	}
	return records, nil
}

// writeKeys writes the rows of keys, and leaves those alone that have not changed.
func (t *txn) writeKeys(queue string, rows []bykey.Row) error {
	for _, r := range rows {
		if r.State == "" {
			if _, err := t.exec(`DELETE FROM keys WHERE queue = ? AND limit_key = ?`, queue, r.Name); err != nil {
				return err
			}
			continue
		}
		args := []any{queue, r.Name, r.State}
		for _, at := range []*bykey.Place{r.Fresh, r.Retry} {
			if at == nil {
				args = append(args, nil, nil, nil)
			} else {
				args = append(args, at.Level, at.At, at.ID)
			}
		}
		_, err := t.exec(`
			INSERT INTO keys (queue, limit_key, state, fresh_level, fresh_at, fresh_id, retry_level, retry_at, retry_id, look_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT DO UPDATE
			SET state = excluded.state,
				fresh_level = excluded.fresh_level,
				fresh_at = excluded.fresh_at,
				fresh_id = excluded.fresh_id,
				retry_level = excluded.retry_level,
				retry_at = excluded.retry_at,
				retry_id = excluded.retry_id,
				look_at = excluded.look_at
			WHERE (state, fresh_level, fresh_at, fresh_id, retry_level, retry_at, retry_id, look_at)
				IS NOT (excluded.state, excluded.fresh_level, excluded.fresh_at, excluded.fresh_id,
					excluded.retry_level, excluded.retry_at, excluded.retry_id, excluded.look_at)`,
			append(args, micros(r.LookAt))...)
		if err != nil {
			return err
		}
	}
	return nil
}
