package postgres

import (
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

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
	return rowText{selected(all), updated, `
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

const (
	// presentEpoch is for calls that raise tokens. The statement that locks the jobs must read it: see fence.
	presentEpoch = `
	(SELECT epoch FROM {schema}.fence WHERE one) AS epoch`

	weight = `octet_length(jobs.payload) + coalesce(octet_length(jobs.checkpoint), 0)
		+ coalesce(octet_length(jobs.progress), 0) + coalesce(octet_length(jobs.result), 0)`
)

// byID locks the jobs that exist, in the order of their ids. It waits for other transactions that have locked them.
func (t *txn) byID(ids []int64) ([]*store.Record, error) {
	return t.records(`
		SELECT`+columns+`,`+presentEpoch+`
		FROM {schema}.jobs
		WHERE id = ANY ($1::bigint[])
		ORDER BY id
		FOR UPDATE`,
		arrayOf(ids))
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
	_, err := t.exec(text.update, values.args()...)
	return err
}

// insert adds the jobs in their order and sets their ids.
func (t *txn) insert(jobs []store.Job) error {
	if len(jobs) == 0 {
		return nil
	}
	with := ordinary
	if slices.ContainsFunc(jobs, func(j store.Job) bool { return j.Extras != nil }) {
		with = withExtras
	}
	values := newRowArrays(with.columns, len(jobs))
	var e store.Record
	for _, e.Job = range jobs {
		values.add(with.columns, &e)
		t.woken.AddFor(e.Job, t.now)
	}
	next := 0
	return t.each(func(rows *sql.Rows) error {
		next++
		return rows.Scan(&jobs[next-1].ID)
	}, with.query, append(values.args(), t.now)...)
}

// An insertion is the statement that inserts jobs.
type insertion struct {
	columns sqlkit.Columns
	query   string
}

// The insertions of ordinary jobs, and of jobs with extras, which have more columns.
var ordinary, withExtras = newInsertion(sqlkit.Inserted), newInsertion(sqlkit.Inserted | sqlkit.Rare)

func newInsertion(uses sqlkit.Uses) insertion {
	columns := sqlkit.All.For(uses)
	return insertion{columns, `
		INSERT INTO {schema}.jobs (unleased_state, enqueued_at, ` + columns.Names() + `)
		SELECT 'ready', $` + strconv.Itoa(len(columns)+1) + `, ` + columns.Names() + `
		FROM unnest(` + arrays(columns, 1) + `) WITH ORDINALITY AS new (` + columns.Names() + `, place)
		ORDER BY place
		RETURNING id`}
}

// rowArrays are the values of rows, one array for each column.
type rowArrays []array

// newRowArrays allocates room for that many rows at once.
func newRowArrays(columns sqlkit.Columns, rows int) rowArrays {
	r := make(rowArrays, len(columns))
	room := rows*numberBytes + 2
	all := make([]byte, len(columns)*room)
	for i := range r {
		r[i].text = all[i*room : i*room : (i+1)*room]
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
		args[i] = r[i].String()
	}
	return args
}

// arrays returns the parameters for rowArrays, beginning at that argument number.
func arrays(columns sqlkit.Columns, first int) string {
	var e store.Record
	all := make([]string, len(columns))
	for i, c := range columns {
		all[i] = fmt.Sprintf(`$%d::%s[]`, first+i, typeOf(c.Field(&e)))
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
