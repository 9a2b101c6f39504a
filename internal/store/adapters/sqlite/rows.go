package sqlite

import (
	"database/sql/driver"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// columns are all columns of the table jobs.
var columns = ` ` + sqlkit.All.Names()

// claimColumns are the columns that a claim must read: a third fewer, without those that it sets or that a waiting job implies.
var claimColumns = ` ` + sqlkit.All.For(sqlkit.Claimed).Except("state", "retry_at", "result").Names() + `,` + presentEpoch

// presentEpoch is for calls that raise tokens, and presentLinks for those that may end jobs.
const (
	presentLinks = `
	links, `
	presentEpoch = `
	(SELECT epoch FROM fence) AS epoch`
)

// byID loads the jobs that exist.
func (t *txn) byID(ids []int64) (map[int64]*store.Record, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	return t.named(store.Filter{IDs: ids})
}

// named reads the jobs that the filter names, if they match what it says about waits.
func (t *txn) named(f store.Filter) (map[int64]*store.Record, error) {
	where := chosen(store.Filter{IDs: f.IDs, WaitsFor: f.WaitsFor, WaitsForGroup: f.WaitsForGroup, Unneeded: f.Unneeded}, unbounded, t.now)
	records, err := t.records(`
		SELECT`+columns+`,`+presentLinks+presentEpoch+`
		FROM `+where.text(),
		where.args...)
	return sqlkit.Keyed(records), err
}

var (
	updated, replaced         = sqlkit.All.For(sqlkit.Updated), sqlkit.All.For(sqlkit.Replaced)
	updateQuery, replaceQuery = updating(updated), updating(replaced)
)

func updating(columns sqlkit.Columns) string {
	return `
	UPDATE jobs
	SET ` + columns.Each(`{name} = ?`, 0) + `
	WHERE id = ?`
}

// update writes the columns that operations change.
func (t *txn) update(e *store.Record) error {
	_, err := t.exec(updateQuery, append(values(make([]any, 0, len(updated)+1), updated, e), e.ID)...)
	return err
}

// updateEnd writes what operations change in a job that may have ended by that, and had not if it lived.
func (t *txn) updateEnd(e *store.Record, lived bool) error {
	if err := t.update(e); err != nil {
		return err
	}
	return t.noteEnd(e, lived)
}

// insert adds the jobs and sets their ids, which are consecutive.
func (t *txn) insert(rows []*store.Job) error {
	for left := rows; len(left) > 0; {
		size := insertSizes[slices.IndexFunc(insertSizes, func(size int) bool { return size <= len(left) })]
		query, args := insertion(left[:size], t.now)
		result, err := t.run(query, args...)
		if err != nil {
			return err
		}
		last, err := result.LastInsertId()
		if err != nil {
			return err
		}
		for i, j := range left[:size] {
			j.ID = last - int64(size-1-i)
		}
		left = left[size:]
	}
	return t.openWindows(rows)
}

// The columns that an insert writes. The payload is the last.
var inserted = sqlkit.All.For(sqlkit.Inserted | sqlkit.Rare)

// The numbers of jobs in one statement: batches insert twice as fast.
var insertSizes = []int{50, 5, 1}

// The statements that insert jobs, by their number. The second ones are for jobs that differ in their payloads alone.
var insertQueries, insertPayloads = func() (queries, payloads map[int]string) {
	queries, payloads = map[int]string{}, map[int]string{}
	row, shared := `('ready', ?, `+inserted.Each(`?`, 0)+`)`, inserted[:len(inserted)-1].Each(`?`, 0)
	into := `
		INSERT INTO jobs (state, enqueued_at, ` + inserted.Names() + `)`
	for _, n := range insertSizes {
		queries[n] = into + `
		VALUES ` + strings.Repeat(row+`, `, n-1) + row
		payloads[n] = into + `
		SELECT 'ready', ?, ` + shared + `, column1
		FROM (VALUES ` + strings.Repeat(`(?), `, n-1) + `(?))`
	}
	return queries, payloads
}()

// insertion returns the statement that inserts the jobs. Every argument that it can leave out saves time, and clients often add
// many jobs that differ in their payloads alone.
func insertion(jobs []*store.Job, now time.Time) (query string, args []any) {
	differ := slices.ContainsFunc(jobs[1:], func(j *store.Job) bool { return !alike(jobs[0], j) })
	var e store.Record
	for i, j := range jobs {
		if i > 0 && !differ {
			args = append(args, value(&j.Payload))
			continue
		}
		e.Job = *j
		args = values(append(args, now.UnixMicro()), inserted, &e)
	}
	if differ {
		return insertQueries[len(jobs)], args
	}
	return insertPayloads[len(jobs)], args
}

// alike reports whether all columns that an insert writes have the same values, except the payload.
func alike(a, b *store.Job) bool {
	return a.Queue == b.Queue && a.Kind == b.Kind && a.Priority == b.Priority && a.RunAt.Equal(b.RunAt) &&
		a.MaxRetries == b.MaxRetries && a.Backoff == b.Backoff && a.Timeout == b.Timeout &&
		a.UniqueKey == b.UniqueKey && a.UniqueFor == b.UniqueFor && a.Trace == b.Trace && slices.Equal(a.Tags, b.Tags) &&
		(a.Extras == b.Extras || a.Extras != nil && b.Extras != nil && *a.Extras == *b.Extras)
}

// values appends the values of the columns, as arguments of a statement.
func values(args []any, columns sqlkit.Columns, e *store.Record) []any {
	for _, c := range columns {
		args = append(args, value(c.Field(e)))
	}
	return args
}

// value returns the value of a column, given a pointer to the record's field. Times are microseconds since 1970, and durations
// microseconds. The zero time and an empty document are NULL.
func value(field any) any {
	switch v := field.(type) {
	case *sqlkit.Int:
		return int64(*v)
	case *int64:
		return *v
	case *string:
		return *v
	case *sqlkit.Time:
		return micros(time.Time(*v))
	case sqlkit.ExpiresAt:
		return micros(v.Time())
	case *sqlkit.Micros:
		return time.Duration(*v).Microseconds()
	case driver.Valuer:
		text, _ := v.Value() // valid strings and numbers: cannot fail
		return text
	case *[]byte:
		if len(*v) > 0 {
			return string(*v)
		}
		return nil
	default:
		panic(fmt.Sprintf("no column has a %T", field))
	}
}

// moveAttempts prepares the rows for the next attempt: it moves the latest attempt to its own table and deletes the oldest ones
// beyond the limit.
func (t *txn) moveAttempts(records []*store.Record) error {
	moving, crowded := sqlkit.Crowding(records)
	if len(moving) > 0 {
		_, err := t.exec(`
			INSERT INTO attempts (job_id, token, worker, started_at, ended_at, ending, error)
			SELECT id, claim_token, worker, claimed_at, ended_at, ending,
				CASE WHEN ending IN ('failed', 'expired') THEN error WHEN ending = 'snoozed' THEN reason ELSE '' END
			FROM jobs
			WHERE id IN (SELECT value FROM json_each(?))`,
			list(moving))
		if err != nil {
			return err
		}
	}
	for _, id := range crowded {
		_, err := t.exec(`
			DELETE FROM attempts
			WHERE job_id = ?1
				AND token < (
					SELECT token
					FROM attempts
					WHERE job_id = ?1
					ORDER BY token DESC
					LIMIT 1 OFFSET ?2)`,
			id, store.MaxAttemptsKept-2) // one place is for the attempt that begins
		if err != nil {
			return err
		}
	}
	return nil
}
