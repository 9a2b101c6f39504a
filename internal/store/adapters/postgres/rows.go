package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// rowText is the SQL to read and write some columns of the table jobs. Most operations do not need the documents, which may be
// large, and leave them out.
type rowText struct {
	columns string         // for a SELECT
	updated sqlkit.Columns // the columns that operations change
	update  string
}

var (
	withDocuments    = textOf(sqlkit.All, sqlkit.Updated)
	withoutDocuments = textOf(sqlkit.All.Without(sqlkit.Document), sqlkit.Updated)
	withReplaced     = textOf(sqlkit.All, sqlkit.Replaced)
)

func textOf(all sqlkit.Columns, changed sqlkit.Uses) rowText {
	updated := slices.Concat(all[:1], all.For(changed))
	set := updated[1:].Each(`{name} = new.{name}`, 0)
	if changed == sqlkit.Updated {
		set = keepUnleased.Replace(set)
	}
	return rowText{selected(all) + `, jobs.links`, updated, `
		UPDATE {schema}.jobs
		SET ` + set + `
		FROM unnest(` + arrays(updated, 1) + `) AS new (` + updated.Names() + `)
		WHERE jobs.id = ANY (ARRAY[new.id])`}
}

// columns are the columns that most operations read.
var columns = withoutDocuments.columns

// selected returns the columns for a SELECT.
func selected(all sqlkit.Columns) string {
	return ` ` + presently.Replace(all.Each(`jobs.{name}`, 0))
}

// presentState is the state of a job. Only a job in flight has a lease.
const presentState = `CASE WHEN lease_expires_at IS NULL THEN unleased_state ELSE 'in_flight' END`

// While a job is in flight, the columns unleased_state and retry_at keep what they were when it waited.
var (
	presently = strings.NewReplacer(
		`jobs.state`, presentState+` AS state`,
		`jobs.retry_at`, `CASE WHEN lease_expires_at IS NULL THEN retry_at END AS retry_at`)
	keepUnleased = strings.NewReplacer(
		`state = new.state`, `unleased_state = CASE new.state WHEN 'in_flight' THEN jobs.unleased_state ELSE new.state END`,
		`retry_at = new.retry_at`, `retry_at = CASE new.state WHEN 'in_flight' THEN jobs.retry_at ELSE new.retry_at END`)
	waitedAs = strings.NewReplacer(`jobs.state`, `jobs.unleased_state AS state`)
)

// presentEpoch is for calls that raise tokens. The statement that locks the jobs must read it: see fence.
const presentEpoch = `
	(SELECT epoch FROM {schema}.fence WHERE one) AS epoch`

// weightOf returns the size of the documents of a row.
func weightOf(row string) string {
	return strings.ReplaceAll(`octet_length({row}.payload) + coalesce(octet_length({row}.checkpoint), 0)
		+ coalesce(octet_length({row}.progress), 0) + coalesce(octet_length({row}.result), 0)`, `{row}`, row)
}

// byID locks the jobs that exist, in the order of their ids. It waits for other transactions that have locked them.
func (t *txn) byID(ids []int64) ([]*store.Record, error) { return t.named(store.Filter{IDs: ids}) }

// named loads and locks the jobs that the filter names, if they match what it says about waits.
func (t *txn) named(f store.Filter) ([]*store.Record, error) {
	w := chosen(store.Filter{IDs: f.IDs, WaitsFor: f.WaitsFor, WaitsForGroup: f.WaitsForGroup, Unneeded: f.Unneeded}, t.now)
	return t.records(`
		SELECT`+columns+`,`+presentEpoch+`
		FROM {schema}.jobs`+w.text()+`
		ORDER BY id
		FOR UPDATE`,
		w.args...)
}

// byLease loads the jobs that exist, and locks those with the same token, in the order of their ids. It waits for other
// transactions that have locked them. A lease with another token is lost for good, so its job stays unlocked and no claim skips
// it.
func (t *txn) byLease(wanted rowText, held []store.Lease) (map[int64]*store.Record, error) {
	if len(held) == 0 {
		return nil, nil
	}
	ordered := slices.Clone(held)
	inOrder(ordered)
	for {
		found, others, err := t.lockLeases(wanted, ordered, `FOR UPDATE`)
		if err != nil {
			return nil, err
		}
		reached := func(l store.Lease) bool { return others[l.ID] != nil && others[l.ID].Token == l.Token }
		if slices.ContainsFunc(held, reached) {
			continue // a claim has just given the job this token
		}
		maps.Copy(found, others)
		return found, nil
	}
}

// lockLeases loads the jobs of the leases. It returns those with the right token that it could lock, and the others without a
// lock.
func (t *txn) lockLeases(wanted rowText, held []store.Lease, lock string) (locked, others map[int64]*store.Record, err error) {
	ids, tokens := leases(held)
	records, err := t.records(`
		SELECT`+wanted.columns+`
		FROM unnest($1::bigint[], $2::bigint[]) AS lease (id, token)
		CROSS JOIN LATERAL (
			SELECT *
			FROM {schema}.jobs
			WHERE jobs.id = lease.id AND jobs.token = lease.token
			`+lock+`
		) AS jobs`,
		ids, tokens)
	if err != nil {
		return nil, nil, err
	}
	locked = sqlkit.Keyed(records)
	var missing []int64
	for _, l := range held {
		if locked[l.ID] == nil {
			missing = append(missing, l.ID)
		}
	}
	if len(missing) == 0 {
		return locked, nil, nil
	}
	records, err = t.records(`
		SELECT`+wanted.columns+`
		FROM {schema}.jobs
		WHERE id = ANY ($1::bigint[])`,
		arrayOf(missing))
	return locked, sqlkit.Keyed(records), err
}

// update writes the columns that operations change. It writes a repeated job once.
func (t *txn) update(text rowText, jobs []*store.Record) error {
	values := newRowArrays(text.updated, len(jobs))
	written := make(map[int64]bool, len(jobs))
	for _, e := range jobs {
		if !written[e.ID] {
			written[e.ID] = true
			values.add(text.updated, e)
		}
	}
	if len(written) == 0 {
		return nil
	}
	if _, err := t.exec(text.update, values.args()...); err != nil {
		return err
	}
	return t.noteEndsOf(jobs)
}

// insert adds the jobs in their order and sets their ids, unless they have some because jobs among them wait. In a caller's
// transaction, it also notifies, and proves that it is in one: it adds nothing under another number.
func (t *txn) insert(jobs []store.Job, w *waiting) error {
	if len(jobs) == 0 {
		return nil
	}
	with, group := ordinary, jobs[0].Group()
	switch {
	case w != nil:
		with = withLinks
	case slices.ContainsFunc(jobs, func(j store.Job) bool {
		return j.Scheduled() != nil || !j.ExpiresAt().IsZero() || j.LimitKey() != "" || j.Group() != group
	}):
		with = withExtras
	}
	values := newRowArrays(with.columns, len(jobs))
	var woken sqlkit.Woken
	var e store.Record
	for _, e.Job = range jobs {
		if w != nil {
			e.Links = w.links[e.ID]
		}
		values.add(with.columns, &e)
		woken.AddFor(e.Job, t.now)
	}
	query, args := with.query, append(values.args(), t.now)
	if with.oneGroup {
		args = append(args, group)
	}
	var now, later []store.Wakeup
	if t.conn == nil {
		now, later = t.s.callerLimiter.sort(woken)
		query, args = with.inTx, append(args, t.shown.number, t.s.channel(), arrayOfTexts(toldToAll(now)))
		t.unproven = false
	} else {
		for _, w := range woken {
			t.woken.Add(w)
		}
	}
	next := 0
	err := t.each(func(rows *sql.Rows) error {
		next++
		return rows.Scan(&jobs[next-1].ID)
	}, query, args...)
	if err == nil && next == 0 {
		return store.NotInTx(t.tx)
	}
	t.s.callerLimiter.put(t.shown.number, later) // even after an error: the answer may have been lost, and the caller may commit
	if err != nil {
		t.s.callerLimiter.unsent(now)
		return err
	}
	if err := t.joinGroups(jobs); err != nil || w == nil {
		return err
	}
	return w.keep(t)
}

// insertSingle adds jobs without keys by a single statement, and reports whether it did. The statement reads the time after it has
// its number, and so the due times are never before what every mark relies on. An injected clock cannot be read there.
func (s *Store) insertSingle(ctx context.Context, jobs []store.NewJob) (added []store.Enqueued, done bool, err error) {
	if s.shared || s.now.clock != nil || len(jobs) > maxJobsBatched || slices.ContainsFunc(jobs, func(n store.NewJob) bool { return !n.RunAt.IsZero() || n.Scheduled != nil }) {
		return nil, false, nil
	}
	with := insertionsLater[slices.ContainsFunc(jobs, func(n store.NewJob) bool { return n.Group != "" || n.LimitKey != "" })]
	values, delays := newRowArrays(with.columns, len(jobs)), newArray(ofNumbers, len(jobs)*numberBytes)
	var woken sqlkit.Woken
	var e store.Record
	for _, n := range jobs {
		e.Job = n.Row(0, time.Time{})
		values.add(with.columns, &e)
		delay := n.Delay.Truncate(store.Resolution)
		delays.int(delay.Microseconds())
		if delay == 0 {
			woken.Add(store.Wakeup{Queue: n.Queue})
		}
	}
	var now, later []store.Wakeup
	sending, open := newArray(ofTexts, 0), s.with.write
	open.sends = func() {
		now, later = s.limiter.sort(woken)
		for _, w := range now {
			sending.string(told(s.name, w))
		}
	}
	ids := make([]int64, 0, len(jobs))
	_, some, err := s.single(ctx, open, true, func(rows *sql.Rows, shown []any) error {
		var id int64
		err := rows.Scan(append(shown, &id)...)
		ids = append(ids, id)
		return err
	}, with.query, append(values.args(), delays, sending, s.channel())...)
	switch {
	case errors.Is(err, store.ErrInDoubt): // the jobs may be there, and what was to be sent may not have been
		s.limiter.put(woken)
		s.hub.Tell(woken...)
		return nil, false, err
	case err != nil || !some:
		s.limiter.unsent(now)
		return nil, false, err
	}
	s.hub.Tell(woken...) // a store does not listen to its own notifications
	s.limiter.put(later)
	added = make([]store.Enqueued, len(jobs))
	for i, id := range ids {
		added[i] = store.Enqueued{ID: id, State: store.Ready}
	}
	return added, true, nil
}

// insertionsLater are the insertions by a single statement: of jobs without a group and a limit key, and of others, which it also adds to their
// groups. The row of a job is made before it is known when the job is due.
var insertionsLater = map[bool]insertion{
	false: newInsertionLater(sqlkit.All.For(sqlkit.Inserted).Except("run_at"), false),
	true:  newInsertionLater(sqlkit.All.For(sqlkit.Inserted|sqlkit.Rare).Except("run_at", "scheduled", "expires_at"), true),
}

func newInsertionLater(columns sqlkit.Columns, inGroups bool) insertion {
	delay, names := 4+len(columns), columns.Names()
	insert := `
	INSERT INTO {schema}.jobs (unleased_state, enqueued_at, run_at, ` + names + `)
	SELECT 'ready', present.now, present.now + new.delay * interval '1 microsecond', ` + columns.Each(`new.{name}`, 0) + `
	FROM present, unnest(` + arrays(columns, 4) + fmt.Sprintf(`, $%d::bigint[]) WITH ORDINALITY AS new (`, delay) + names + `, delay, place)
	WHERE (SELECT count(*) FROM sent) >= 0
	ORDER BY new.place
	RETURNING `
	if inGroups {
		insert = `,
	added AS (` + insert + `jobs.id, jobs.enqueued_at, jobs.group_name
	),
	counted AS (
		INSERT INTO {schema}.ends (job_id, token, ended_as, group_name, live)
		SELECT 0, 0, '', group_name, count(*)
		FROM added
		WHERE group_name IS NOT NULL
		GROUP BY group_name
	),
	runs AS (
		INSERT INTO {schema}.group_runs (name, first_id, last_id)
		SELECT group_name, min(id), max(id)
		FROM (
			SELECT group_name, id, id - row_number() OVER (PARTITION BY group_name ORDER BY id) AS run
			FROM added
			WHERE group_name IS NOT NULL
		) AS members
		GROUP BY group_name, run
	)
	SELECT enqueued_at, ` + shownByWrite + `, id
	FROM added`
	} else {
		insert += `enqueued_at, ` + shownByWrite + `, id`
	}
	return insertion{columns: columns, query: fmt.Sprintf(`
	WITH present AS MATERIALIZED (
		SELECT CASE WHEN pg_current_xact_id() IS NOT NULL THEN `+presentNow+` END AS now
		WHERE `+onKnownServer+`
	),
	sent AS MATERIALIZED (
		SELECT pg_notify($%d, told)
		FROM present, unnest($%d::text[]) AS woken (told)
	)`, delay+2, delay+1) + insert}
}

// An insertion has the statements that insert jobs: in the store's own transactions, and in those of callers.
type insertion struct {
	columns     sqlkit.Columns
	oneGroup    bool // an argument behind the time is the group of all jobs, or empty
	query, inTx string
}

// The insertions of ordinary jobs, which may all be in one group, of jobs with other extras or in several groups, and of jobs of which some wait
// for others.
var (
	ordinary   = newInsertion(sqlkit.All.For(sqlkit.Inserted), `unleased_state, `, `'ready', `, true)
	withExtras = newInsertion(sqlkit.All.For(sqlkit.Inserted|sqlkit.Rare), `unleased_state, `, `'ready', `, false)
	withLinks  = newInsertion(slices.Concat(sqlkit.All[:1], sqlkit.Columns{sqlkit.Links, unleasedState}, sqlkit.All.For(sqlkit.Inserted|sqlkit.Rare|sqlkit.Linked)), ``, ``, false)

	unleasedState = sqlkit.Column{Name: "unleased_state", Field: func(e *store.Record) any { return (*string)(&e.State) }}
)

func newInsertion(columns sqlkit.Columns, more, values string, oneGroup bool) insertion {
	now := len(columns) + 1
	next := now + 1
	if oneGroup {
		more, values = more+`group_name, `, values+fmt.Sprintf(`nullif($%d, ''), `, next)
		next++
	}
	insert := func(where string) string {
		return `
		INSERT INTO {schema}.jobs (` + more + `enqueued_at, ` + columns.Names() + `)
		SELECT ` + values + `$` + strconv.Itoa(now) + `, ` + columns.Names() + `
		FROM unnest(` + arrays(columns, 1) + `) WITH ORDINALITY AS new (` + columns.Names() + `, place)` + where + `
		ORDER BY place
		RETURNING id`
	}
	return insertion{columns, oneGroup, insert(``), fmt.Sprintf(`
		WITH sent AS MATERIALIZED (
			SELECT pg_notify($%d, told)
			FROM unnest($%d::text[]) AS woken (told)
		)`, next+1, next+2) + insert(fmt.Sprintf(`
		WHERE pg_current_xact_id()::text::bigint = $%d AND (SELECT count(*) FROM sent) >= 0`, next))}
}

// rowArrays are the values of rows, one array for each column.
type rowArrays []*array

func newRowArrays(columns sqlkit.Columns, rows int) rowArrays {
	var e store.Record
	r := make(rowArrays, len(columns))
	for i, c := range columns {
		r[i] = newArray(kindOf(c.Field(&e)), rows*numberBytes)
	}
	return r
}

func (r rowArrays) add(columns sqlkit.Columns, e *store.Record) {
	for i, c := range columns {
		r[i].field(c.Field(e))
	}
}

// args returns the arrays as arguments of a statement.
func (r rowArrays) args() []any {
	args := make([]any, len(r), len(r)+1)
	for i := range r {
		args[i] = r[i]
	}
	return args
}

// arrays returns the parameters for rowArrays, beginning at that argument number.
func arrays(columns sqlkit.Columns, first int) string {
	var e store.Record
	all := make([]string, len(columns))
	for i, c := range columns {
		all[i] = fmt.Sprintf(`$%d::%v[]`, first+i, kindOf(c.Field(&e)))
	}
	return strings.Join(all, `, `)
}

// moveAttempts prepares the rows for the next attempt: it moves the latest attempt to its own table and deletes the oldest ones
// beyond the limit.
func (t *txn) moveAttempts(records []*store.Record) error {
	moving, crowded := sqlkit.Crowding(records)
	if len(moving) > 0 {
		_, err := t.exec(`
			INSERT INTO {schema}.attempts (job_id, token, worker, started_at, ended_at, ending, error)
			SELECT id, claim_token, worker, claimed_at, ended_at, ending,
				CASE WHEN ending IN ('failed', 'expired') THEN error WHEN ending = 'snoozed' THEN reason ELSE '' END
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
	// The oldest to be kept is looked for once per job. A subquery in the condition would run for each of its attempts.
	_, err := t.exec(`
		DELETE FROM {schema}.attempts
		WHERE ctid = ANY (ARRAY(
			SELECT old.ctid
			FROM unnest($1::bigint[]) AS crowded (id)
			CROSS JOIN LATERAL (
				SELECT token
				FROM {schema}.attempts
				WHERE job_id = crowded.id
				ORDER BY token DESC
				LIMIT 1 OFFSET $2::bigint - 2
			) AS oldest
			CROSS JOIN LATERAL (
				SELECT ctid
				FROM {schema}.attempts
				WHERE job_id = crowded.id AND token < oldest.token
				OFFSET 0
			) AS old))`,
		arrayOf(crowded), store.MaxAttemptsKept)
	return err
}
