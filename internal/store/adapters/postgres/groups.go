package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Groups.
//
// Whoever ends a job of a group adds a row to the table ends in the same transaction, and looks after the commit whether the group is
// done. Of two that end the last two jobs at the same time, the one that commits last sees both. If it crashes before it looks, the row is
// left for Settle. A job that begins to wait for a group is looked at once more after its commit, for the same reason.
//
// These rows also say how many more jobs of the group are live, or how many fewer, and so does a row for each call that adds jobs. A group
// has as many live jobs as the table group_counts and the rows say. Steps take the rows and count them there: calls that did so would wait
// for each other.

// mostNoted is how many rows of the table ends are searched at a time for others about the same groups.
const mostNoted = 10_000

// spoils is how a row of the table ends about a group ends if the group was spoiled with it.
const spoils = store.Cancelled

// statusColumns are what sqlkit.Groups reads of the groups of a table names.
var statusColumns = `names.name, (SELECT opened_at FROM {schema}.open_groups WHERE open_groups.name = names.name),
			` + isSpoiled + `,
			` + hasLive + `,
			EXISTS (SELECT FROM {schema}.jobs WHERE ` + isDead + ` AND group_name = ANY (ARRAY[names.name]))`

// hasLive adds up how many jobs of the groups of a table names are live.
var hasLive = liveFrom(`0`)

func liveFrom(number string) string {
	return `(coalesce((SELECT live FROM {schema}.group_counts WHERE group_counts.name = names.name), 0)
				+ coalesce((SELECT sum(live) FROM {schema}.ends WHERE group_name IS NOT NULL AND group_name = ANY (ARRAY[names.name]) AND number >= ` + number + `), 0) > 0)`
}

const (
	isDead = `group_name IS NOT NULL AND unleased_state = 'failed' AND finished_at IS NOT NULL` // as in the index jobs_group_dead

	// What is known of a group of a table names.
	hasRuns   = `EXISTS (SELECT FROM {schema}.group_runs WHERE group_runs.name = names.name OFFSET 0)`
	isOpen    = `EXISTS (SELECT FROM {schema}.open_groups WHERE open_groups.name = names.name OFFSET 0)`
	isSpoiled = `EXISTS (SELECT FROM {schema}.spoils WHERE spoils.name = names.name OFFSET 0)`

	// nearNumbers is how far behind the numbers of others a row of the table ends is expected at most.
	nearNumbers = 1000
)

// statuses returns how groups are at one moment.
func (t *txn) statuses(names []string) (map[string]store.GroupStatus, error) {
	if len(names) == 0 {
		return nil, nil
	}
	found, err := sqlkit.Groups(t.each, `
		SELECT `+statusColumns+`
		FROM unnest($1::text[]) AS names (name)`,
		arrayOfTexts(names))
	known := make(map[string]store.GroupStatus, len(found))
	for _, g := range found {
		known[g.Name] = g.GroupStatus
	}
	return known, err
}

// groupsIn returns the groups that the waits are for.
func groupsIn(waits map[int64][]store.KeptWait) []string {
	var names []string
	for _, some := range waits {
		for _, w := range some {
			if w.Group != "" {
				names = append(names, w.Group)
			}
		}
	}
	return distinct(names)
}

// openGroups opens groups. It takes their names in order, because another call may open some of them at the same time. It locks those that
// were open, so that none is sealed before the call is committed.
func (t *txn) openGroups(names []string) error {
	names = distinct(names)
	for open := 0; open < len(names); {
		_, err := t.exec(`
			INSERT INTO {schema}.open_groups (name, opened_at)
			SELECT name, $2::timestamptz
			FROM unnest($1::text[]) WITH ORDINALITY AS opened (name, place)
			ORDER BY place
			ON CONFLICT (name) DO NOTHING`,
			arrayOfTexts(names), t.now)
		if err != nil {
			return err
		}
		if open, err = t.exec(`
			SELECT FROM {schema}.open_groups
			WHERE name = ANY ($1::text[])
			ORDER BY name
			FOR KEY SHARE`,
			arrayOfTexts(names)); err != nil {
			return err
		}
	}
	return nil
}

// joinGroups adds to their groups jobs that were just inserted: as runs of ids, and to those that are live.
func (t *txn) joinGroups(jobs []store.Job) error {
	type run struct{ first, last int64 }
	runs, live := map[string][]run{}, map[string]int64{}
	for i := range jobs {
		j := &jobs[i]
		name := j.Group()
		if name == "" {
			continue
		}
		if own := runs[name]; len(own) > 0 && own[len(own)-1].last == j.ID-1 {
			own[len(own)-1].last = j.ID
		} else {
			runs[name] = append(own, run{j.ID, j.ID})
		}
		if !j.Terminal() {
			live[name]++
		}
	}
	if len(runs) == 0 {
		return nil
	}
	names, counts := newArray(ofTexts, 0), newArray(ofNumbers, 0)
	of, firsts, lasts := newArray(ofTexts, 0), newArray(ofNumbers, 0), newArray(ofNumbers, 0)
	for _, name := range slices.Sorted(maps.Keys(runs)) {
		names.string(name)
		counts.int(live[name])
		for _, r := range runs[name] {
			of.string(name)
			firsts.int(r.first)
			lasts.int(r.last)
		}
	}
	_, err := t.exec(`
		WITH counted AS (
			INSERT INTO {schema}.ends (job_id, token, ended_as, group_name, live)
			SELECT 0, 0, '', name, live
			FROM unnest($1::text[], $2::bigint[]) AS joined (name, live)
		)
		INSERT INTO {schema}.group_runs (name, first_id, last_id)
		SELECT name, first_id, last_id
		FROM unnest($3::text[], $4::bigint[], $5::bigint[]) AS runs (name, first_id, last_id)`,
		names, counts, of, firsts, lasts)
	return err
}

// spoil notes that groups are spoiled. It does so although they may be already: somebody may be forgetting it.
func (t *txn) spoil(names []string) error {
	if len(names) == 0 {
		return nil
	}
	_, err := t.exec(`
		INSERT INTO {schema}.spoils (name)
		SELECT DISTINCT name
		FROM unnest($1::text[]) AS spoiled (name)`,
		arrayOfTexts(names))
	return err
}

// noteSpoiled lets Settle look at those among the groups that are spoiled, because they may no longer exist.
func (t *txn) noteSpoiled(names []string) error {
	if len(names) == 0 {
		return nil
	}
	n, err := t.exec(`
		INSERT INTO {schema}.ends (job_id, token, ended_as, group_name)
		SELECT DISTINCT 0, 0, '', name
		FROM {schema}.spoils
		WHERE name = ANY ($1::text[])`,
		arrayOfTexts(names))
	t.heard = t.heard || n > 0
	return err
}

// forgetSpoiled forgets those among the groups that no longer exist, and keeps one row about each of the others.
func (t *txn) forgetSpoiled(names []string) error {
	if len(names) == 0 {
		return nil
	}
	_, err := t.exec(`
		DELETE FROM {schema}.spoils
		WHERE name = ANY ($1::text[])
			AND EXISTS (SELECT FROM {schema}.spoils AS earlier WHERE earlier.name = spoils.name AND earlier.number < spoils.number OFFSET 0)`,
		arrayOfTexts(names))
	if err != nil {
		return err
	}
	_, err = t.exec(`
		DELETE FROM {schema}.spoils
		USING unnest($1::text[]) AS names (name)
		WHERE spoils.name = ANY (ARRAY[names.name])
			AND NOT `+hasRuns+`
			AND NOT EXISTS (SELECT FROM {schema}.waits WHERE on_group IS NOT NULL AND on_group = names.name OFFSET 0)
			AND NOT `+isOpen,
		arrayOfTexts(names))
	return err
}

// forgetRuns deletes the runs of ids of which no job is left, after the deletion of jobs in groups. It locks the runs first: of two calls that
// delete the last two jobs of one, the second sees that none is left.
func (t *txn) forgetRuns(groups, ids *array) error {
	if ids.empty() {
		return nil
	}
	names, first := newArray(ofTexts, 0), newArray(ofNumbers, 0)
	err := t.each(func(rows *sql.Rows) error {
		var name string
		var id int64
		err := rows.Scan(&name, &id)
		names.string(name)
		first.int(id)
		return err
	}, `
		SELECT run.name, run.first_id
		FROM (
			SELECT DISTINCT run.name, run.first_id
			FROM unnest($1::text[], $2::bigint[]) AS deleted (name, id)
			CROSS JOIN LATERAL (
				SELECT name, first_id
				FROM {schema}.group_runs
				WHERE name = ANY (ARRAY[deleted.name]) AND first_id <= deleted.id
				ORDER BY name DESC, first_id DESC
				LIMIT 1
			) AS run
			ORDER BY name, first_id
		) AS run
		CROSS JOIN LATERAL (
			SELECT
			FROM {schema}.group_runs
			WHERE group_runs.name = run.name AND group_runs.first_id = run.first_id
			FOR UPDATE
		) AS locked`,
		groups, ids)
	if err != nil || first.empty() {
		return err
	}
	_, err = t.exec(`
		DELETE FROM {schema}.group_runs
		USING unnest($1::text[], $2::bigint[]) AS run (name, first_id)
		WHERE group_runs.name = ANY (ARRAY[run.name]) AND group_runs.first_id = run.first_id
			AND NOT EXISTS (SELECT FROM {schema}.jobs WHERE jobs.id >= group_runs.first_id AND jobs.id <= group_runs.last_id)`,
		names, first)
	return err
}

// followGroups does what follows from the changes of groups that a call has noted, from a number on, if one of them is done or spoiled and a
// job waits for it. The rows that say so are left to Settle otherwise.
func (s *Store) followGroups(ctx context.Context, names []string, from int64) {
	_, follows, err := s.exist(ctx, existToTell, arrayOfTexts(names), from)
	if err == nil && follows == -1 { // on a session that is shared
		follows, err = read(ctx, s, nil, func(t *txn) (some int, err error) {
			err = t.each(func(*sql.Rows) error { some++; return nil }, `
				SELECT
				FROM `+fmt.Sprintf(toTell, 1, 2)+`
				LIMIT 1`,
				arrayOfTexts(names), from)
			return some, err
		})
	}
	switch {
	case err != nil:
		s.tellLeft()
	case follows != 0:
		s.follow(ctx)
	case s.uncounted.Add(1)%mostUncounted == 0:
		s.tellLeft()
	}
}

// mostUncounted is after how many calls that end jobs of groups somebody is told to count them.
const mostUncounted = 100

var existToTell = existing(fmt.Sprintf(toTell, 4, 5))

// toTell are groups whose change means something for a job that waits. Their names are the argument with the first number. It leaves out
// rows of the table ends far before what was counted last, and before the argument with the second number: mostly they were counted too, and stay
// in the index while another transaction holds a snapshot. If it overlooks the end of a job for that reason, Settle looks later.
var toTell = `unnest($%d::text[]) AS names (name)
		CROSS JOIN LATERAL (SELECT FROM {schema}.waits WHERE on_group IS NOT NULL AND on_group = names.name AND NOT met LIMIT 1) AS waits
		WHERE ` + isSpoiled + ` OR NOT ` + isOpen + `
			AND NOT ` + liveFrom(`least($%d::bigint, coalesce((SELECT behind_from FROM {schema}.group_counts WHERE group_counts.name = names.name), 0))`)

// tellGroups tells jobs of the next changes of groups. It returns how many jobs and changes these are.
func (t *txn) tellGroups(did *step, limit int, ends []endRow) (n int, err error) {
	var names []string
	from := map[string]*endRow{}
	for _, e := range ends {
		if from[e.group] == nil {
			names = append(names, e.group)
			from[e.group] = &endRow{group: e.group, number: e.number, End: e.End, upTo: math.MaxInt64}
		}
	}
	spoiledAt, err := t.takeNoted(from, names, ends[0].number)
	if err != nil {
		return 0, err
	}
	is, err := t.statuses(names) // later than the rows were taken: whoever has added one sees that the job has ended
	if err != nil {
		return 0, err
	}
	last := ends[len(ends)-1]
	next := reached{look: did.next.look, end: last.number, only: last.only + 1}
	var spoiled []string
	var kept []endRow
	told := 0
	for _, name := range names {
		e, g := from[name], is[name]
		if g.Spoiled {
			spoiled = append(spoiled, name)
		}
		if !g.Spoiled && (g.Open || g.Live) {
			continue
		}
		if at := spoiledAt[name]; at > last.number && e.As != spoils { // the ends of jobs between come first
			e.number, e.As = at, spoils
			kept = append(kept, *e)
			continue
		}
		if told >= mostTold || limit <= 0 {
			kept = append(kept, *e)
			next.end, next.only = min(next.end, e.number), 0
			continue
		}
		before := len(did.changed)
		some, more, err := t.tellGroup(did, e, limit)
		if err != nil {
			return 0, err
		}
		told += some
		limit -= len(did.changed) - before
		if more {
			kept = append(kept, *e)
			next.end, next.only = min(next.end, e.number), 0
		}
	}
	did.next = next
	if err := cmp.Or(t.forgetSpoiled(spoiled), t.forgetCounts(is)); err != nil {
		return 0, err
	}
	return told + len(ends), t.keepNoted(kept)
}

// forgetCounts forgets how many jobs are live of those among the groups that have none.
func (t *txn) forgetCounts(is map[string]store.GroupStatus) error {
	names := newArray(ofTexts, 0)
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if !is[name].Live {
			names.string(name)
		}
	}
	if names.empty() {
		return nil
	}
	_, err := t.exec(`
		DELETE FROM {schema}.group_counts
		WHERE name = ANY ($1::text[]) AND live = 0`,
		names)
	return err
}

// takeNoted counts and deletes rows about the groups from the number on, and notes up to which jobs each group was told. It returns the number
// of the first row with which a group was spoiled.
func (t *txn) takeNoted(from map[string]*endRow, names []string, number int64) (map[string]int64, error) {
	spoiledAt := map[string]int64{}
	return spoiledAt, t.each(func(rows *sql.Rows) error {
		var name string
		var as store.State
		var at, upTo int64
		err := rows.Scan(&name, &as, &at, &upTo)
		from[name].upTo = min(from[name].upTo, upTo)
		if as == spoils {
			spoiledAt[name] = min(cmp.Or(spoiledAt[name], at), at)
		}
		return err
	}, `
		WITH taken AS (
			DELETE FROM {schema}.ends
			WHERE number >= $2 AND group_name = ANY ($1::text[])
				AND number <= (
					SELECT max(number)
					FROM (SELECT number FROM {schema}.ends WHERE number >= $2 ORDER BY number LIMIT $3) AS near)
			RETURNING group_name, ended_as, number, up_to, live
		),
		counted AS (
			INSERT INTO {schema}.group_counts (name, live, behind_from)
			SELECT group_name, sum(live), max(number) - $4::bigint
			FROM taken
			GROUP BY group_name
			ON CONFLICT (name) DO UPDATE
			SET live = group_counts.live + excluded.live,
				behind_from = excluded.behind_from
		)
		SELECT group_name, ended_as, number, up_to
		FROM taken`,
		arrayOfTexts(names), number, mostNoted, nearNumbers)
}

// keepNoted puts rows back.
func (t *txn) keepNoted(kept []endRow) error {
	if len(kept) == 0 {
		return nil
	}
	numbers, upTo, as, names := newArray(ofNumbers, 0), newArray(ofNumbers, 0), newArray(ofTexts, 0), newArray(ofTexts, 0)
	for _, e := range kept {
		numbers.int(e.number)
		upTo.int(e.upTo)
		as.string(string(e.As))
		names.string(e.group)
	}
	_, err := t.exec(`
		INSERT INTO {schema}.ends (number, job_id, token, ended_as, up_to, group_name)
		SELECT number, 0, 0, ended_as, up_to, name
		FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[]) AS kept (number, up_to, ended_as, name)`,
		numbers, upTo, as, names)
	return err
}

// tellGroup tells the next jobs that something has changed in a group. It returns how many these are, and whether there may be more behind
// those up to which e says then. Those that somebody else has locked are looked at later.
func (t *txn) tellGroup(did *step, e *endRow, limit int) (n int, more bool, err error) {
	most := atMost(limit)
	ids, err := sqlkit.Values[int64](t.each, `
		SELECT job_id
		FROM (
			SELECT DISTINCT on_group, job_id
			FROM {schema}.waits
			WHERE on_group IS NOT NULL AND on_group = ANY (ARRAY[$1::text]) AND NOT met AND job_id > $2
			ORDER BY on_group, job_id
			LIMIT $3
		) AS next
		ORDER BY on_group, job_id`,
		e.group, e.upTo, most)
	if err != nil || len(ids) == 0 {
		return 0, false, err
	}
	h, err := t.hearing(ids)
	if err != nil {
		return 0, false, err
	}
	more = len(ids) == most
	locked := newArray(ofNumbers, 0)
	for _, id := range ids {
		if len(h.changed) == limit {
			more = true
			break
		}
		n++
		switch {
		case h.locked[id]:
			h.hearGroup(id, e.group, t.now)
		case h.found[id] != nil:
			locked.int(id)
		}
		e.upTo = id
	}
	return n, more, cmp.Or(h.write(did), t.lookLater(locked))
}

// SealGroup is part of the contract.
func (s *Store) SealGroup(ctx context.Context, name string) error {
	_, err := write(ctx, s, store.CheckGroup(name), func(t *txn) (struct{}, error) { return struct{}{}, t.seal(name) })
	return err
}

func (t *txn) seal(name string) error {
	n, err := t.exec(`
		DELETE FROM {schema}.open_groups
		WHERE name = $1`,
		name)
	switch {
	case err != nil:
		return err
	case n == 0:
		return store.NotOpen(name)
	}
	t.heard = true
	return t.noteEnds([]noted{{group: name}})
}

// Groups is part of the contract.
func (s *Store) Groups(ctx context.Context, filter store.GroupFilter, page store.Page) (store.GroupPage, error) {
	after, invalid := filter.Position(page)
	return read(ctx, s, invalid, func(t *txn) (store.GroupPage, error) { return t.groupPage(filter, page, after) })
}

// groupPage steps from name to name through the indexes.
func (t *txn) groupPage(filter store.GroupFilter, page store.Page, after string) (store.GroupPage, error) {
	names, args := allGroups, []any{after, page.Limit + 1}
	var opened any
	if filter.OpenFor != 0 {
		opened = t.now.Add(-filter.OpenFor.Truncate(store.Resolution))
	}
	switch {
	case filter.Name != "":
		names, args = oneGroup, append(args, opened, filter.Name)
	case filter.OpenFor != 0:
		names, args = openGroups, append(args, opened)
	}
	found, err := sqlkit.Groups(t.each, `
		WITH RECURSIVE`+names+`
		SELECT `+statusColumns+`
		FROM names
		ORDER BY names.name
		LIMIT $2`,
		args...)
	return sqlkit.GroupPageOf(found, filter, page), err
}

// The names of groups: all behind the first argument, as many as the second says of each sort; those that were opened no later than the
// third; and the one of the fourth.
const (
	allGroups = `
			filled (name, n) AS (
				(SELECT name, 1 FROM {schema}.group_runs WHERE name > $1 ORDER BY name LIMIT 1)
				UNION ALL
				SELECT (SELECT name FROM {schema}.group_runs WHERE name > filled.name ORDER BY name LIMIT 1), n + 1
				FROM filled
				WHERE filled.name IS NOT NULL AND n < $2
			),
			awaited (name, n) AS (
				(SELECT on_group, 1 FROM {schema}.waits WHERE on_group IS NOT NULL AND on_group > $1 ORDER BY on_group LIMIT 1)
				UNION ALL
				SELECT (SELECT on_group FROM {schema}.waits WHERE on_group IS NOT NULL AND on_group > awaited.name ORDER BY on_group LIMIT 1), n + 1
				FROM awaited
				WHERE awaited.name IS NOT NULL AND n < $2
			),
			names (name) AS (
				SELECT name FROM filled WHERE name IS NOT NULL
				UNION
				SELECT name FROM awaited WHERE name IS NOT NULL
				UNION
				SELECT name FROM {schema}.open_groups WHERE name > $1
			)`
	openGroups = `
			names (name) AS (SELECT name FROM {schema}.open_groups WHERE name > $1 AND opened_at <= $3)`
	oneGroup = `
			names (name) AS (
				SELECT name
				FROM (SELECT $4::text COLLATE "C") AS names (name)
				WHERE name > $1
					AND CASE
						WHEN $3::timestamptz IS NOT NULL THEN EXISTS (SELECT FROM {schema}.open_groups WHERE open_groups.name = names.name AND opened_at <= $3)
						ELSE ` + isOpen + `
							OR ` + hasRuns + `
							OR EXISTS (SELECT FROM {schema}.waits WHERE on_group IS NOT NULL AND on_group = ANY (ARRAY[names.name]))
					END
			)`
)
