package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"maps"
	"slices"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// groups are what a call knows of groups.
type groups struct {
	expected map[string]bool              // those in which jobs of the call will be
	known    map[string]store.GroupStatus // as they are now
	noted    map[string]bool              // those whose changes the call has noted
	smaller  map[string][]int64           // those that have lost jobs by it, with the ids of these, or something that waited for them
}

// group returns a group at which the call has looked.
func (t *txn) group(name string) store.GroupStatus {
	g := t.groups.known[name]
	g.Live = g.Live || t.groups.expected[name]
	return g
}

// lookAt looks at the groups that the waits are for.
func (t *txn) lookAt(waits []store.KeptWait) error {
	var unknown []string
	for _, w := range waits {
		if _, known := t.groups.known[w.Group]; w.Group != "" && !known {
			unknown = append(unknown, w.Group)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	found, err := sqlkit.Groups(t.each, `
		SELECT`+status+`
		FROM (SELECT value AS name FROM json_each(?)) AS names
		LEFT JOIN groups ON groups.name = names.name`,
		list(unknown))
	if t.groups.known == nil {
		t.groups.known = map[string]store.GroupStatus{}
	}
	for _, g := range found {
		t.groups.known[g.Name] = g.GroupStatus
	}
	return err
}

// status is what sqlkit.Groups reads of the groups of a table names.
const status = ` names.name, opened_at, coalesce(spoiled, FALSE), coalesce(live, 0) > 0,
			EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_group_dead WHERE group_name = names.name AND state = 'failed' AND retry_at IS NULL)`

// A stretch is jobs of a group whose ids follow one another.
type stretch struct {
	name        string
	first, last int64
}

// stretches returns those of the jobs.
func stretches(jobs []*store.Job) (all []stretch) {
	for _, j := range jobs {
		name := j.Group()
		if name == "" {
			continue
		}
		if n := len(all); n > 0 && all[n-1].name == name && all[n-1].last == j.ID-1 {
			all[n-1].last = j.ID
			continue
		}
		all = append(all, stretch{name, j.ID, j.ID})
	}
	return all
}

// addRuns adds the runs of jobs that were just inserted. One that follows the last run of its group makes that longer.
func (t *txn) addRuns(jobs []*store.Job) error {
	added := stretches(jobs)
	if len(added) == 0 {
		return nil
	}
	rows := make([][3]any, len(added))
	for i, s := range added {
		rows[i] = [3]any{s.name, s.first, s.last}
	}
	text, _ := json.Marshal(rows) // numbers and valid strings: cannot fail
	_, err := t.exec(`
		INSERT INTO group_runs (name, first_id, last_id)
		SELECT value ->> 0, coalesce((
				SELECT first_id
				FROM (SELECT first_id, last_id FROM group_runs WHERE name = value ->> 0 ORDER BY first_id DESC LIMIT 1)
				WHERE last_id = (value ->> 1) - 1),
			value ->> 1), value ->> 2
		FROM json_each(?)
		WHERE TRUE
		ON CONFLICT (name, first_id) DO UPDATE
		SET last_id = excluded.last_id`,
		string(text))
	return err
}

// enter counts jobs that have become live.
func (t *txn) enter(jobs ...*store.Job) error {
	entered := map[string]int64{}
	for _, s := range stretches(jobs) {
		entered[s.name] += s.last - s.first + 1
	}
	for name, n := range entered {
		delete(t.groups.known, name)
		_, err := t.exec(`
			INSERT INTO groups (name, live)
			VALUES (?, ?)
			ON CONFLICT (name) DO UPDATE
			SET live = live + excluded.live`,
			name, n)
		if err != nil {
			return err
		}
	}
	return nil
}

// leave counts jobs of a group that are live no longer. It reports whether something may follow from that now.
func (t *txn) leave(name string, n int) (follows bool, err error) {
	delete(t.groups.known, name)
	return follows, t.each(func(rows *sql.Rows) error { return rows.Scan(&follows) }, `
		UPDATE groups
		SET live = live - ?
		WHERE name = ?
		RETURNING spoiled OR opened_at IS NULL AND live = 0 OR EXISTS (SELECT 1 FROM ends)`,
		n, name)
}

// leaveEach counts jobs of groups, or of none, that have succeeded, and returns how many these are. It notes the changes only if something
// may follow now: most of the jobs of a group end while others are live.
func (t *txn) leaveEach(ended map[string]int) (all int, err error) {
	var names []string
	follows := false
	for name, n := range ended {
		if all += n; name == "" || n == 0 {
			continue
		}
		names = append(names, name)
		some, err := t.leave(name, n)
		if err != nil {
			return 0, err
		}
		follows = follows || some
	}
	if !follows {
		return all, nil
	}
	slices.Sort(names)
	for _, name := range names {
		if err := t.noteGroup(name); err != nil {
			return 0, err
		}
	}
	return all, nil
}

// noteGroup notes that something has changed in a group, if a job waits for it. Once is enough until those that wait are told.
func (t *txn) noteGroup(name string) error {
	delete(t.groups.known, name)
	if t.groups.noted[name] {
		return nil
	}
	n, err := t.exec(`
		INSERT INTO ends (job_id, token, ended_as, group_name)
		SELECT 0, 0, '', ?1
		WHERE EXISTS (SELECT 1 FROM waits INDEXED BY waits_on_group WHERE on_group = ?1)`,
		name)
	t.heard = t.heard || n > 0
	if t.groups.noted == nil {
		t.groups.noted = map[string]bool{}
	}
	t.groups.noted[name] = n > 0
	return err
}

// concernedBy returns the ids of the next jobs for which the change of a group may mean something, so many at most.
func (t *txn) concernedBy(e end, most int) ([]int64, error) {
	delete(t.groups.noted, e.group)
	if err := t.lookAt([]store.KeptWait{{Group: e.group}}); err != nil {
		return nil, err
	}
	if is := t.group(e.group); !is.Spoiled && (is.Open || is.Live) {
		return nil, nil
	}
	return sqlkit.Values[int64](t.each, `
		SELECT DISTINCT job_id
		FROM waits INDEXED BY waits_on_group
		WHERE on_group = ? AND met = 0 AND job_id > ?
		ORDER BY job_id
		LIMIT ?`,
		e.group, e.upTo, most)
}

// markGroupsMet marks all waits of jobs that have become ready.
func (t *txn) markGroupsMet(ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := t.exec(`
		UPDATE waits
		SET met = 1
		WHERE job_id IN (SELECT value FROM json_each(?)) AND met = 0`,
		list(ids))
	return err
}

func (t *txn) open(name string) error {
	_, err := t.exec(`
		INSERT INTO groups (name, opened_at)
		VALUES (?, ?)
		ON CONFLICT (name) DO UPDATE
		SET opened_at = coalesce(opened_at, excluded.opened_at)`,
		name, t.now.UnixMicro())
	return err
}

func (t *txn) spoil(name string) error {
	_, err := t.exec(`
		INSERT INTO groups (name, spoiled)
		VALUES (?, TRUE)
		ON CONFLICT (name) DO UPDATE
		SET spoiled = TRUE`,
		name)
	return err
}

// losing is for a job that is about to be deleted: the group in which it is, and those for which it waits, lose something.
func (t *txn) losing(e *store.Record) error {
	if t.groups.smaller == nil {
		t.groups.smaller = map[string][]int64{}
	}
	if name := e.Group(); name != "" {
		t.groups.smaller[name] = append(t.groups.smaller[name], e.ID)
	}
	if e.Links&store.LinkWaits == 0 {
		return nil
	}
	needed, err := sqlkit.Values[string](t.each, `
		SELECT on_group
		FROM waits
		WHERE job_id = ? AND on_group IS NOT NULL`,
		e.ID)
	for _, name := range needed {
		if _, known := t.groups.smaller[name]; !known {
			t.groups.smaller[name] = nil
		}
	}
	return err
}

// forgetSmaller forgets, at the end of a call, what is left of groups that have lost jobs, if that is nothing.
func (t *txn) forgetSmaller() error {
	if len(t.groups.smaller) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(t.groups.smaller))
	for _, name := range names {
		if err := t.forgetRuns(name, t.groups.smaller[name]); err != nil {
			return err
		}
	}
	t.groups.smaller = nil
	return t.forgetGroups(names)
}

// forgetRuns forgets those among the runs in which the deleted jobs were that have no jobs any more.
func (t *txn) forgetRuns(name string, deleted []int64) error {
	_, err := t.exec(`
		DELETE FROM group_runs
		WHERE name = ?1 AND first_id IN (
				SELECT (SELECT first_id FROM group_runs WHERE name = ?1 AND first_id <= value ORDER BY first_id DESC LIMIT 1)
				FROM json_each(?2))
			AND NOT EXISTS (SELECT 1 FROM jobs WHERE id BETWEEN first_id AND last_id)`,
		name, list(deleted))
	return err
}

// forgetGroups forgets those among the groups that no longer exist.
func (t *txn) forgetGroups(names []string) error {
	_, err := t.exec(`
		DELETE FROM groups
		WHERE name IN (SELECT value FROM json_each(?)) AND opened_at IS NULL
			AND NOT EXISTS (SELECT 1 FROM group_runs WHERE name = groups.name)
			AND NOT EXISTS (SELECT 1 FROM waits INDEXED BY waits_on_group WHERE on_group = groups.name)`,
		list(names))
	return err
}

// SealGroup is part of the contract.
func (s *Store) SealGroup(ctx context.Context, name string) error {
	_, err := write(ctx, s, store.CheckGroup(name), load{}, func(t *txn) (struct{}, error) { return struct{}{}, t.seal(name) })
	return err
}

func (t *txn) seal(name string) error {
	n, err := t.exec(`
		UPDATE groups
		SET opened_at = NULL
		WHERE name = ? AND opened_at IS NOT NULL`,
		name)
	switch {
	case err != nil:
		return err
	case n == 0:
		return store.NotOpen(name)
	}
	if err := t.noteGroup(name); err != nil {
		return err
	}
	return t.forgetGroups([]string{name})
}

// Groups is part of the contract.
func (s *Store) Groups(ctx context.Context, filter store.GroupFilter, page store.Page) (store.GroupPage, error) {
	after, invalid := filter.Position(page)
	return readOn(ctx, s, s.readers, invalid, func(t *txn) (store.GroupPage, error) { return t.groupPage(filter, page, after) })
}

// groupPage steps from name to name through the indexes.
func (t *txn) groupPage(filter store.GroupFilter, page store.Page, after string) (store.GroupPage, error) {
	names, matching := allGroups, ``
	if filter.Name != "" {
		names = oneGroup
	}
	if filter.OpenFor != 0 {
		matching = ` AND opened_at <= ?4`
		if filter.Name == "" {
			names = openGroups
		}
	}
	found, err := sqlkit.Groups(t.each, `
		WITH RECURSIVE`+names+`
		SELECT`+status+`
		FROM names
		LEFT JOIN groups ON groups.name = names.name
		WHERE names.name > ?1`+matching+`
		ORDER BY names.name
		LIMIT ?2`,
		after, page.Limit+1, filter.Name, t.now.Add(-filter.OpenFor.Truncate(store.Resolution)).UnixMicro())
	return sqlkit.GroupPageOf(found, filter, page), err
}

// The names of groups: all behind the first argument, as many as the second says of each sort; the one of the third; those that are open.
const (
	allGroups = `
			filled(name, n) AS (
				SELECT min(name), 1 FROM group_runs WHERE name > ?1
				UNION ALL
				SELECT (SELECT min(name) FROM group_runs WHERE name > filled.name), n + 1
				FROM filled
				WHERE filled.name IS NOT NULL AND n < ?2
			),
			awaited(name, n) AS (
				SELECT min(on_group), 1 FROM waits WHERE on_group > ?1
				UNION ALL
				SELECT (SELECT min(on_group) FROM waits WHERE on_group > awaited.name), n + 1
				FROM awaited
				WHERE awaited.name IS NOT NULL AND n < ?2
			),
			names(name) AS (
				SELECT name FROM filled
				UNION
				SELECT name FROM awaited
				UNION
				SELECT name FROM (SELECT name FROM groups WHERE name > ?1 ORDER BY name LIMIT ?2)
			)`
	oneGroup = `
			names(name) AS (
				SELECT ?3
				WHERE EXISTS (SELECT 1 FROM groups WHERE name = ?3)
					OR EXISTS (SELECT 1 FROM group_runs WHERE name = ?3)
					OR EXISTS (SELECT 1 FROM waits INDEXED BY waits_on_group WHERE on_group = ?3)
			)`
	openGroups = `
			names(name) AS (SELECT name FROM groups INDEXED BY groups_open WHERE opened_at IS NOT NULL AND name > ?1)`
)
