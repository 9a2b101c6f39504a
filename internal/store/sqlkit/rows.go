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

// A Query runs a query and calls scan for each row. It is [Each] with the other arguments filled in.
type Query func(scan Scan, query string, args ...any) error

// Each runs a query and calls scan for each row.
func Each(ctx context.Context, tx store.Tx, scan Scan, query string, args ...any) error {
	return EachOf(ctx, tx, []Scan{scan}, query, args...)
}

// EachOf runs a text of several queries. It calls the first scan for each row of the first query, and so on.
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
	closed := rows.Close() // rows.Err is complete only after Close
	return cmp.Or(err, rows.Err(), closed)
}

// errUnanswered means that the text has fewer queries than there are scans.
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

// Records returns the rows of a query for columns of the table jobs, which it finds by their names. Fields that the query does
// not select are zero.
func Records(each Query, query string, args ...any) ([]*store.Record, error) {
	return Fitting(each, nil, query, args...)
}

// A Room counts how many bytes of documents an answer can still take.
type Room struct {
	left int
	Full bool // a job did not fit; no later job is let in either
}

// NewRoom returns the whole room of one answer.
func NewRoom() *Room { return &Room{left: store.MaxAnswerBytes} }

// Take takes the room for a job's documents, and reports whether there was enough.
func (r *Room) Take(e *store.Record) bool {
	weight := e.Weight()
	r.Full = r.Full || weight > r.left
	if !r.Full {
		r.left -= weight
	}
	return !r.Full
}

// errFull stops a query early.
var errFull = errors.New("there is no room for the next row")

// Fitting returns the first rows of a query for columns of the table jobs, as many as the room has space for. It keeps no other
// row in memory.
func Fitting(each Query, room *Room, query string, args ...any) ([]*store.Record, error) {
	var found []*store.Record
	var row store.Record
	var into []any
	err := each(func(rows *sql.Rows) (err error) {
		if into == nil {
			if into, err = fieldsOf(&row, rows, 0); err != nil {
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
		row.Tags = nil // it belongs to the record now
		return nil
	}, query, args...)
	if errors.Is(err, errFull) {
		err = nil
	}
	return found, err
}

// fields has, by the name of a column, where a record keeps its value.
var fields = func() map[string]func(*store.Record) any {
	found := map[string]func(*store.Record) any{}
	for _, c := range slices.Concat(All, Columns{epoch, Links}) {
		found[c.Name] = c.Field
	}
	return found
}()

// fieldsOf returns where the record keeps the columns of the rows, behind the first ones.
func fieldsOf(e *store.Record, rows *sql.Rows, first int) ([]any, error) {
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	names = names[first:]
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

// RecordBehind reads a row of which the columns of the table jobs stand behind others, for which it has the destinations.
func RecordBehind(rows *sql.Rows, others []any) (*store.Record, error) {
	var e store.Record
	into, err := fieldsOf(&e, rows, len(others))
	if err != nil {
		return nil, err
	}
	return &e, rows.Scan(append(slices.Clip(others), into...)...)
}

// Values returns the rows of a query for one column, such as names or ids.
func Values[T any](each Query, query string, args ...any) ([]T, error) {
	var found []T
	err := each(func(rows *sql.Rows) error {
		var value T
		err := rows.Scan(&value)
		found = append(found, value)
		return err
	}, query, args...)
	return found, err
}

// Queues returns the rows of a query for name and paused of queues and then the columns of their policies, in this order.
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

// Policy returns the row of a query for the columns of a policy. If there is no row, it returns the policy of a queue whose
// policy was never set.
func Policy(each Query, query string, args ...any) (store.Policy, error) {
	var p store.Policy
	err := each(func(rows *sql.Rows) error { return scanPolicy(rows, &p) }, query, args...)
	return p, err
}

// scanPolicy reads retain_succeeded, retain_cancelled, retain_dead, max_in_flight, max_per_key, fair, ordered, rate_n, rate_per, owner, declared and
// version, which follow the other columns. NULL means that the policy does not set the column.
func scanPolicy(rows *sql.Rows, p *store.Policy, others ...any) error {
	var most, ofKey, n, declared, version sql.NullInt64
	var fair, ordered sql.NullBool
	var owner sql.NullString
	err := rows.Scan(append(others, (*Micros)(&p.RetainSucceeded), (*Micros)(&p.RetainCancelled), (*Micros)(&p.RetainDead),
		&most, &ofKey, &fair, &ordered, &n, (*Micros)(&p.Rate.Per), &owner, &declared, &version)...)
	p.MaxInFlight, p.MaxPerKey, p.Fair, p.Ordered, p.Rate.N = int(most.Int64), int(ofKey.Int64), fair.Bool, ordered.Bool, int(n.Int64)
	p.Owner, p.Declared, p.Version = owner.String, declared.Int64, version.Int64
	return err
}

// Limit returns a limit of a policy for a column, or NULL if it is not set.
func Limit(n int) any {
	if n == 0 {
		return nil
	}
	return n
}

// Setting returns a duration of a policy for a column of microseconds, or NULL if it is not set.
func Setting(d time.Duration) any {
	if d == 0 {
		return nil
	}
	return d.Microseconds()
}

// Workers returns a page of workers as of now. The query returns the workers that match and come after a name, sorted by name,
// with name, host, pid, queues, slots, running, stale_after and beat_at, in this order. One more column says whether workers
// follow that the query did not return. If they do and the page has room, Workers runs the query again for them.
func Workers(
	each Query, now time.Time, filter store.WorkerFilter, page store.Page, after, query string, args func(after string) []any,
) (store.WorkerPage, error) {
	scan := func(rows *sql.Rows, follow *bool) (store.Worker, error) { return scanWorker(rows, now, follow) }
	list, full, err := paged(each, page.Limit, store.MaxPageNames, scan, query, func(last []store.Worker) []any {
		if len(last) > 0 {
			after = last[len(last)-1].Name
		}
		return args(after)
	})
	found := store.WorkerPage{Workers: list}
	if full {
		found.Next = filter.Cursor(list[len(list)-1].Name)
	}
	return found, err
}

func scanWorker(rows *sql.Rows, now time.Time, follow *bool) (store.Worker, error) {
	var w store.Worker
	err := rows.Scan(&w.Name, &w.Host, &w.PID, (*List)(&w.Queues), &w.Slots, &w.Running, (*Micros)(&w.StaleAfter), (*Time)(&w.BeatAt), follow)
	w.Stale = !w.BeatAt.Add(w.StaleAfter).After(now)
	return w, err
}

// paged returns the first rows of a query that find room on a page, and whether more follow. The function args returns the
// arguments of the query for the rows behind those that were read. It reads at most one row that does not fit.
func paged[T interface{ Weight() int }](
	each Query, limit, room int, scan func(rows *sql.Rows, follow *bool) (T, error), query string, args func(read []T) []any,
) (list []T, full bool, err error) {
	for follow := true; follow; {
		follow = false
		err := each(func(rows *sql.Rows) error {
			one, err := scan(rows, &follow)
			if err != nil {
				return err
			}
			if room -= one.Weight(); len(list) == limit || len(list) > 0 && room < 0 { // the first one always fits, even if another program wrote it
				return errFull
			}
			list = append(list, one)
			return nil
		}, query, args(list)...)
		switch {
		case errors.Is(err, errFull):
			return list, true, nil
		case err != nil:
			return nil, false, err
		}
	}
	return list, false, nil
}
