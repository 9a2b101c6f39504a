package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
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

// mostNoted is how many rows of the table ends are searched at a time for others about the same groups.
const mostNoted = 10_000

// spoils is how a row of the table ends about a group ends if the group was spoiled with it.
const spoils = store.Cancelled

// statusColumns are what sqlkit.Groups reads of the groups of a table names.
var statusColumns = `names.name, (SELECT opened_at FROM {schema}.open_groups WHERE open_groups.name = names.name),
			EXISTS (SELECT FROM {schema}.spoils WHERE spoils.name = names.name),
			` + hasLive + `,
			EXISTS (SELECT FROM {schema}.jobs WHERE ` + ofName + ` AND unleased_state = 'failed' AND ` + isLive + ` = 0)`

// hasLive looks for the newest live job of each state. The entries of jobs that have ended are mostly before it in the index, and stay there
// while another transaction holds a snapshot.
var hasLive = `(` + newestLive(`ready`) + ` OR ` + newestLive(`failed`) + ` OR ` + newestLive(`blocked`) + `)`

func newestLive(state string) string {
	return `(SELECT id FROM {schema}.jobs WHERE group_name IS NOT NULL AND group_name = names.name AND unleased_state = '` + state + `' AND ` + isLive + ` = 1
				ORDER BY id DESC LIMIT 1) IS NOT NULL`
}

const (
	ofName = `group_name IS NOT NULL AND group_name = ANY (ARRAY[names.name])`
	isLive = `(CASE WHEN finished_at IS NULL THEN 1 ELSE 0 END)` // as in the index jobs_group
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
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// openGroups opens groups. It takes their names in order, because another call may open some of them at the same time. It locks those that
// were open, so that none is sealed before the call is committed.
func (t *txn) openGroups(names []string) error {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
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
			AND EXISTS (SELECT FROM {schema}.spoils AS earlier WHERE earlier.name = spoils.name AND earlier.number < spoils.number)`,
		arrayOfTexts(names))
	if err != nil {
		return err
	}
	_, err = t.exec(`
		DELETE FROM {schema}.spoils
		USING unnest($1::text[]) AS names (name)
		WHERE spoils.name = ANY (ARRAY[names.name])
			AND NOT EXISTS (SELECT FROM {schema}.jobs WHERE `+ofName+`)
			AND NOT EXISTS (SELECT FROM {schema}.waits WHERE on_group IS NOT NULL AND on_group = ANY (ARRAY[names.name]))
			AND NOT EXISTS (SELECT FROM {schema}.open_groups WHERE open_groups.name = names.name)`,
		arrayOfTexts(names))
	return err
}

// followGroups does what follows from the changes of groups that a call has noted, if one of them is done or spoiled and a job waits for
// it. The rows that say so are left to Settle otherwise.
func (s *Store) followGroups(ctx context.Context, names []string) {
	_, follows, err := s.exist(ctx, existToTell, arrayOfTexts(names))
	if err == nil && follows == -1 { // on a session that is shared
		follows, err = read(ctx, s, nil, func(t *txn) (some int, err error) {
			err = t.each(func(*sql.Rows) error { some++; return nil }, `
				SELECT
				FROM {schema}.`+fmt.Sprintf(toTell, 1)+`
				LIMIT 1`,
				arrayOfTexts(names))
			return some, err
		})
	}
	switch {
	case err != nil:
		s.tellLeft()
	case follows != 0:
		s.follow(ctx)
	}
}

var existToTell = existing(fmt.Sprintf(toTell, 4))

// toTell are waits for which the change of a group means something. The names of the groups are the argument with that number.
var toTell = `waits JOIN unnest($%d::text[]) AS names (name) ON on_group = ANY (ARRAY[names.name])
		WHERE on_group IS NOT NULL AND NOT met AND (
			EXISTS (SELECT FROM {schema}.spoils WHERE spoils.name = names.name)
			OR NOT EXISTS (SELECT FROM {schema}.open_groups WHERE open_groups.name = names.name) AND NOT ` + hasLive + `)`

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
	if err := t.forgetSpoiled(spoiled); err != nil {
		return 0, err
	}
	return told + len(ends), t.keepNoted(kept)
}

// takeNoted deletes rows about the groups from the number on, and notes up to which jobs each group was told. It returns the number of the
// first row with which a group was spoiled.
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
		DELETE FROM {schema}.ends
		WHERE number >= $2 AND group_name = ANY ($1::text[])
			AND number <= (
				SELECT max(number)
				FROM (SELECT number FROM {schema}.ends WHERE number >= $2 ORDER BY number LIMIT $3) AS near)
		RETURNING group_name, ended_as, number, up_to`,
		arrayOfTexts(names), number, mostNoted)
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
		SELECT DISTINCT job_id
		FROM {schema}.waits
		WHERE on_group IS NOT NULL AND on_group = ANY (ARRAY[$1::text]) AND NOT met AND job_id > $2
		ORDER BY job_id
		LIMIT $3`,
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
				(SELECT group_name, 1 FROM {schema}.jobs WHERE group_name IS NOT NULL AND group_name > $1 ORDER BY group_name LIMIT 1)
				UNION ALL
				SELECT (SELECT group_name FROM {schema}.jobs WHERE group_name IS NOT NULL AND group_name > filled.name ORDER BY group_name LIMIT 1), n + 1
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
						ELSE EXISTS (SELECT FROM {schema}.open_groups WHERE open_groups.name = names.name)
							OR EXISTS (SELECT FROM {schema}.jobs WHERE ` + ofName + `)
							OR EXISTS (SELECT FROM {schema}.waits WHERE on_group IS NOT NULL AND on_group = ANY (ARRAY[names.name]))
					END
			)`
)
