package sqlkit

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A Scan reads a row.
type Scan = func(rows *sql.Rows) error

// A Query runs a query and calls scan for each row. It is [Each] with all but these filled in.
type Query func(scan Scan, query string, args ...any) error

// Each runs a query and calls scan for each row.
func Each(ctx context.Context, tx store.Tx, scan Scan, query string, args ...any) error {
	return EachOf(ctx, tx, []Scan{scan}, query, args...)
}

// EachOf runs a text of several queries, and calls for the rows of each its scan.
func EachOf(ctx context.Context, tx store.Tx, scans []Scan, text string, args ...any) error {
	rows, err := tx.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	for i, scan := range scans {
		if i > 0 && !rows.NextResultSet() {
			err = cmp.Or(err, rows.Err(), errUnanswered)
			break
		}
		for err == nil && rows.Next() {
			err = scan(rows)
		}
	}
	closed := rows.Close() // and only then they tell whether all was well to the end
	return cmp.Or(err, rows.Err(), closed)
}

// errUnanswered is the end of a text that has fewer queries than it should.
var errUnanswered = errors.New("a query was not answered")

// Exec runs a statement and returns how many rows it changed.
func Exec(ctx context.Context, tx store.Tx, query string, args ...any) (int, error) {
	result, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// Records are the rows of a query for columns of the table jobs, by their names. What was not selected is zero.
func Records(each Query, query string, args ...any) ([]*store.Record, error) {
	return Fitting(each, nil, query, args...)
}

// A Room is what is left of the bytes that the documents of an answer can have.
type Room struct {
	left int
	Full bool // a job found no room, and those that come after it find none either
}

// NewRoom is the room of an answer.
func NewRoom() *Room { return &Room{left: store.MaxAnswerBytes} }

// Take lets a job in, if there is room for its documents.
func (r *Room) Take(e *store.Record) bool {
	weight := e.Weight()
	r.Full = r.Full || weight > r.left
	if !r.Full {
		r.left -= weight
	}
	return !r.Full
}

// errFull ends a query.
var errFull = errors.New("there is no room for the next row")

// Fitting are the first rows of a query for columns of the table jobs, as many as there is room for. No other row is kept.
func Fitting(each Query, room *Room, query string, args ...any) ([]*store.Record, error) {
	var found []*store.Record
	var row store.Record
	var into []any
	err := each(func(rows *sql.Rows) (err error) {
		if into == nil {
			if into, err = fieldsOf(&row, rows); err != nil {
				return err
			}
		}
		if err := rows.Scan(into...); err != nil {
			return err
		}
		e := row
		if room != nil && !room.Take(&e) {
			return errFull
		}
		found = append(found, &e)
		row.Tags = nil // the record's now
		return nil
	}, query, args...)
	if errors.Is(err, errFull) {
		err = nil
	}
	return found, err
}

// fields are where a record has the values of the columns, by their names.
var fields = func() map[string]func(*store.Record) any {
	found := map[string]func(*store.Record) any{}
	for _, c := range slices.Concat(All, Columns{epoch}) {
		found[c.Name] = c.Field
	}
	return found
}()

// fieldsOf are where the record has the values of the columns of the rows.
func fieldsOf(e *store.Record, rows *sql.Rows) ([]any, error) {
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	into := make([]any, len(names))
	for i, name := range names {
		field, known := fields[name]
		if !known {
			return nil, fmt.Errorf("the table jobs has no column %q", name)
		}
		into[i] = field(e)
	}
	return into, nil
}

// Attempts are the rows of a query for token, worker, started_at, ended_at, ending and error of attempts, in this order.
func Attempts(each Query, query string, args ...any) ([]store.Attempt, error) {
	var found []store.Attempt
	err := each(func(rows *sql.Rows) error {
		var a store.Attempt
		err := rows.Scan(&a.Token, &a.Worker, (*Time)(&a.StartedAt), (*Time)(&a.EndedAt), &a.Ending, &a.Error)
		found = append(found, a)
		return err
	}, query, args...)
	return found, err
}

// Names are the rows of a query for one name.
func Names(each Query, query string, args ...any) ([]string, error) {
	var found []string
	err := each(func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		found = append(found, name)
		return err
	}, query, args...)
	return found, err
}

// Queues are the rows of a query for name and paused of queues, and the columns of their policies, in this order.
func Queues(each Query, query string, args ...any) ([]store.Queue, error) {
	var found []store.Queue
	err := each(func(rows *sql.Rows) error {
		var q store.Queue
		err := scanPolicy(rows, &q.Policy, &q.Name, &q.Paused)
		found = append(found, q)
		return err
	}, query, args...)
	return found, err
}

// Policy is the row of a query for the columns of a policy, and that of a queue whose policy was never set where there is none.
func Policy(each Query, query string, args ...any) (store.Policy, error) {
	var p store.Policy
	err := each(func(rows *sql.Rows) error { return scanPolicy(rows, &p) }, query, args...)
	return p, err
}

// scanPolicy reads retain_succeeded, retain_cancelled, retain_dead and version, behind other columns. What a policy does not set
// is NULL.
func scanPolicy(rows *sql.Rows, p *store.Policy, others ...any) error {
	var version sql.NullInt64
	err := rows.Scan(append(others, (*Micros)(&p.RetainSucceeded), (*Micros)(&p.RetainCancelled), (*Micros)(&p.RetainDead), &version)...)
	p.Version = version.Int64
	return err
}

// Setting is a duration of a policy for a column of microseconds, and NULL where it is not set.
func Setting(d time.Duration) any {
	if d == 0 {
		return nil
	}
	return d.Microseconds()
}

// Workers are a page of the rows of a query for name, host, pid, queues, slots, running, stale_after and beat_at of workers, in this
// order, as they stand at now. The rows are those that match and come after a name, by name. Behind them a column says of each whether
// others follow: where a query stops early all the same, it is made again for these. Of the rows that find no room, one is read.
func Workers(
	each Query, now time.Time, filter store.WorkerFilter, page store.Page, after, query string, args func(after string) []any,
) (store.WorkerPage, error) {
	var found store.WorkerPage
	room := store.MaxPageNames
	for follow := true; follow; {
		follow = false
		err := each(func(rows *sql.Rows) error {
			w, err := scanWorker(rows, now, &follow)
			if err != nil {
				return err
			}
			n := len(found.Workers)
			if room -= w.Weight(); n == page.Limit || n > 0 && room < 0 { // the first has room, whoever wrote it
				found.Next = filter.Cursor(after)
				return errFull
			}
			found.Workers, after = append(found.Workers, w), w.Name
			return nil
		}, query, args(after)...)
		switch {
		case errors.Is(err, errFull):
			return found, nil
		case err != nil:
			return store.WorkerPage{}, err
		}
	}
	return found, nil
}

func scanWorker(rows *sql.Rows, now time.Time, follow *bool) (store.Worker, error) {
	var w store.Worker
	err := rows.Scan(&w.Name, &w.Host, &w.PID, (*List)(&w.Queues), &w.Slots, &w.Running, (*Micros)(&w.StaleAfter), (*Time)(&w.BeatAt), follow)
	w.Stale = !w.BeatAt.Add(w.StaleAfter).After(now)
	return w, err
}
