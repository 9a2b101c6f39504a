package postgres

import (
	"cmp"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/lib/pq"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// The table leases.
//
// Its rows say when to look whether leases have expired. Each job in flight is in some row that is due no later than its lease
// expires. A claim writes a row for its jobs. Nobody changes a row when a lease is extended or ends: a recovery that finds the
// row due looks at its jobs. It deletes the row, and writes new rows for the jobs that are still in flight. So a claim needs one entry in an index for all its jobs, and an extension needs none.
//
// The first row of a claim is due before its leases expire, since most jobs end soon, and no row is due much later. The table then
// holds few jobs that have ended, which those who look for jobs in flight would read in vain.

const (
	firstDue   = 2 * time.Second // when the row of a claim is due at the latest
	jobsInRow  = 200             // so many fit without being compressed
	spanOfRow  = time.Second     // how far apart the leases of a row may expire
	latestDue  = time.Minute     // how long a row whose jobs have ended may stay
	firstRows  = 16              // how many rows a recovery reads at first
	mostRows   = 1024            // and at once
	mostRead   = 5_000           // how many rows one transaction reads,
	mostLeased = 100_000         // and how many jobs of them
)

// A leased is a job in flight, and when its row is due: never later than its lease expires.
type leased struct {
	id  int64
	due time.Time
}

// leaseRows returns the rows for the jobs, as arguments of noteLeases.
func leaseRows(jobs []leased) (due, members *array) {
	inOrderOfEnds(jobs)
	due, members = newArray(ofTimes, 0), newArray(ofTexts, 0)
	for len(jobs) > 0 {
		n := 0
		row := newArray(ofNumbers, min(len(jobs), jobsInRow)*numberBytes)
		for ; n < min(len(jobs), jobsInRow) && jobs[n].due.Sub(jobs[0].due) < spanOfRow; n++ {
			row.int(jobs[n].id)
		}
		due.stamp(jobs[0].due)
		members.string(row.String())
		jobs = jobs[n:]
	}
	return due, members
}

// noteLeases returns the statement that inserts rows, whose arguments begin at that number.
func noteLeases(first int) string {
	return fmt.Sprintf(`
		INSERT INTO {schema}.leases (due_at, ids)
		SELECT due_at, ids::bigint[]
		FROM unnest($%d::timestamptz[], $%d::text[]) AS noted (due_at, ids)`, first, first+1)
}

// noteLeases adds rows for leases that expire before the rows that they are in are due.
func (t *txn) noteLeases(jobs []leased) error {
	if len(jobs) == 0 {
		return nil
	}
	due, members := leaseRows(jobs)
	_, err := t.exec(noteLeases(1), due, members)
	return err
}

// A leaseRow is a row of the table leases that is due, and locked.
type leaseRow struct {
	due time.Time
	id  int64
	ids []int64
}

// recover recovers leases in the order in which they expired. A lease that was extended may expire after one in a later row. So
// it recovers only leases that expired before the first row whose jobs it has not read is due, and reads more rows if that is
// not enough. If it leaves rows that are due for another transaction, it returns where that one begins.
func (t *txn) recover(expired time.Time, limit int, from cursor.Position) (recovered []store.Recovered, left cursor.Position, err error) {
	var rows []leaseRow
	inFlight := map[int64]time.Time{}
	read, all := 0, false
	for jobs := 0; len(recovered) < limit && jobs < mostLeased && read < mostRead && !(all && read == len(rows)); {
		if !all && read+1 >= len(rows) {
			most := max(firstRows, min(len(rows), mostRows))
			next, err := t.dueRows(expired, most, from)
			if err != nil {
				return nil, left, err
			}
			rows, all = append(rows, next...), len(next) < most
			if !all {
				from = cursor.Position{At: next[most-1].due, ID: next[most-1].id + 1}
			}
			continue
		}
		first := read
		for wanted := jobs + limit - len(recovered); jobs < wanted && (read+1 < len(rows) || all && read < len(rows)); read++ {
			jobs += len(rows[read].ids)
		}
		if err := t.findLeases(rows[first:read], inFlight); err != nil {
			return nil, left, err
		}
		before := expired.Add(store.Resolution)
		if read < len(rows) {
			before = rows[read].due
		}
		some, err := t.recoverBefore(before, limit-len(recovered), inFlight)
		if err != nil {
			return nil, left, err
		}
		recovered = append(recovered, some...)
	}
	if read < len(rows) {
		left = cursor.Position{At: rows[read].due, ID: rows[read].id}
	}
	return recovered, left, t.putRight(rows[:read], inFlight)
}

// dueRows locks the first rows that are due by then. It skips those that another recovery has locked.
func (t *txn) dueRows(by time.Time, limit int, from cursor.Position) (due []leaseRow, err error) {
	err = t.each(func(rows *sql.Rows) error {
		var row leaseRow
		err := rows.Scan((*sqlkit.Time)(&row.due), &row.id, (*pq.Int64Array)(&row.ids))
		due = append(due, row)
		return err
	}, `
		SELECT due_at, id, ids
		FROM {schema}.leases
		WHERE (due_at, id) >= ($1::text::timestamptz, $2::bigint) AND due_at <= $3
		ORDER BY due_at, id
		LIMIT $4
		FOR UPDATE SKIP LOCKED`,
		placeText(from), from.ID, by, limit)
	return due, err
}

// findLeases adds the jobs of the rows that are in flight, with the ends of their leases.
func (t *txn) findLeases(rows []leaseRow, inFlight map[int64]time.Time) error {
	var ids []int64
	for _, row := range rows {
		ids = append(ids, row.ids...)
	}
	if len(ids) == 0 {
		return nil
	}
	return t.each(func(rows *sql.Rows) error {
		var id int64
		var expires time.Time
		err := rows.Scan(&id, (*sqlkit.Time)(&expires))
		inFlight[id] = expires
		return err
	}, `
		SELECT id, lease_expires_at
		FROM {schema}.jobs
		WHERE id = ANY ($1::bigint[]) AND lease_expires_at IS NOT NULL`,
		arrayOf(ids))
}

// recoverBefore recovers the first leases that expired before then, and removes their jobs from those in flight. It skips jobs
// that others have locked.
func (t *txn) recoverBefore(then time.Time, limit int, inFlight map[int64]time.Time) (recovered []store.Recovered, err error) {
	var expired []leased
	for id, expires := range inFlight {
		if expires.Before(then) {
			expired = append(expired, leased{id, expires})
		}
	}
	inOrderOfEnds(expired)
	for len(expired) > 0 && len(recovered) < limit {
		n := min(len(expired), limit-len(recovered))
		ids := newArray(ofNumbers, n*numberBytes)
		for _, one := range expired[:n] {
			ids.int(one.id)
		}
		expired = expired[n:]
		found, err := t.records(`
			SELECT`+columns+`,`+presentEpoch+`
			FROM {schema}.jobs
			WHERE id = ANY ($1::bigint[]) AND lease_expires_at < $2
			ORDER BY lease_expires_at, id
			FOR UPDATE SKIP LOCKED`,
			ids, then)
		if err != nil {
			return nil, err
		}
		for _, e := range found {
			recovered = append(recovered, e.Recover(t.now))
			t.woken.AddFor(e.Job, t.now)
			t.freed(e.Job)
			delete(inFlight, e.ID)
		}
		if err := t.update(withoutDocuments, found); err != nil {
			return nil, err
		}
	}
	return recovered, nil
}

// inOrderOfEnds sorts jobs by when they are due, then by id.
func inOrderOfEnds(jobs []leased) {
	slices.SortFunc(jobs, func(a, b leased) int { return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.id, b.id)) })
}

// putRight deletes the rows and writes new ones for the jobs that are still in flight. It leaves a row with a lease that has
// expired as it is: a new row is never due before the transaction's now, so every mark stays exact.
func (t *txn) putRight(rows []leaseRow, inFlight map[int64]time.Time) error {
	gone, goneDue := newArray(ofNumbers, 0), newArray(ofTimes, 0)
	var still []leased
	for _, row := range rows {
		if slices.ContainsFunc(row.ids, func(id int64) bool {
			expires, held := inFlight[id]
			return held && !expires.After(t.now)
		}) {
			continue
		}
		gone.int(row.id)
		goneDue.stamp(row.due)
		for _, id := range row.ids {
			if expires, held := inFlight[id]; held {
				still = append(still, leased{id, t.now.Add(min(expires.Sub(t.now), latestDue))})
				delete(inFlight, id) // another row may have it too
			}
		}
	}
	if gone.empty() {
		return nil
	}
	due, members := leaseRows(still)
	_, err := t.exec(`
		WITH gone AS (
			DELETE FROM {schema}.leases
			USING unnest($1::timestamptz[], $2::bigint[]) AS gone (due_at, id)
			WHERE leases.due_at = ANY (ARRAY[gone.due_at]) AND leases.id = gone.id
		)`+noteLeases(3),
		goneDue, gone, due, members)
	return err
}
