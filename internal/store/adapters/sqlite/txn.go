package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// A txn is one call inside a transaction: the writer's, a reader's or a caller's own.
type txn struct {
	ctx    context.Context
	tx     store.Tx
	now    time.Time
	strict bool         // a stale lease is an error
	woken  sqlkit.Woken // the wake-ups to send after the commit
	heard  bool         // the call has noted an end of a job that others wait for, or a change of a group
	groups groups       // what the call knows of groups
	failed error        // of the call's first statement that has failed; no other one runs then

	latest *string // the group in which a job was that the writer's latest Ack has finished, or none
}

// run runs a statement, unless one has failed: SQLite may have ended the transaction with that, and would commit the next one by itself.
func (t *txn) run(query string, args ...any) (result sql.Result, err error) {
	if t.failed == nil {
		result, t.failed = t.tx.ExecContext(t.ctx, query, args...)
	}
	return result, t.failed
}

// exec runs a statement and returns how many rows it changed.
func (t *txn) exec(query string, args ...any) (int, error) {
	result, err := t.run(query, args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// each runs a query and calls scan for each row. That scan wants no more rows is no failure of the query.
func (t *txn) each(scan func(rows *sql.Rows) error, query string, args ...any) error {
	if t.failed != nil {
		return t.failed
	}
	stopped := false
	err := sqlkit.Each(t.ctx, t.tx, func(rows *sql.Rows) error {
		err := scan(rows)
		stopped = err != nil
		return err
	}, query, args...)
	if !stopped {
		t.failed = err
	}
	return err
}

// records runs a query for columns of the table jobs.
func (t *txn) records(query string, args ...any) ([]*store.Record, error) {
	return sqlkit.Records(t.each, query, args...)
}

// list returns the values as a JSON array, for json_each.
func list[T int64 | string | store.State](values []T) string {
	text, _ := json.Marshal(values) // numbers and valid strings: cannot fail
	return string(text)
}
