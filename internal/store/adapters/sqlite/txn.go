package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// A txn is one call inside a transaction: the writer's, a reader's or a caller's own.
type txn struct {
	ctx    context.Context
	tx     store.Tx
	now    time.Time
	strict bool     // a lease that does not hold is an error
	woken  []string // the queues in which jobs became claimable at once
}

// exec runs a statement and returns how many rows it changed.
func (t *txn) exec(query string, args ...any) (int, error) {
	result, err := t.tx.ExecContext(t.ctx, query, args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// each runs a query and calls scan for each row.
func (t *txn) each(scan func(rows *sql.Rows) error, query string, args ...any) error {
	rows, err := t.tx.QueryContext(t.ctx, query, args...)
	if err != nil {
		return err
	}
	for rows.Next() && err == nil {
		err = scan(rows)
	}
	if err == nil {
		err = rows.Err()
	}
	if closed := rows.Close(); err == nil {
		err = closed
	}
	return err
}

// entries runs a query for whole rows of the table jobs.
func (t *txn) entries(query string, args ...any) ([]*sqlkit.Entry, error) {
	return t.entriesTo(dests, query, args...)
}

// entriesTo runs a query for some columns of the table jobs, read to the destinations.
func (t *txn) entriesTo(dests func(*sqlkit.Columns) []any, query string, args ...any) ([]*sqlkit.Entry, error) {
	var found []*sqlkit.Entry
	var c sqlkit.Columns
	into := dests(&c)
	err := t.each(func(rows *sql.Rows) error {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		e := c.Entry()
		found = append(found, &e)
		c.Tags = nil // the entry's now
		return nil
	}, query, args...)
	return found, err
}

// wake notes that jobs of the queue have become claimable.
func (t *txn) wake(queue string) {
	if !slices.Contains(t.woken, queue) {
		t.woken = append(t.woken, queue)
	}
}

// wakeFor notes it if the job is due now.
func (t *txn) wakeFor(j store.Job) {
	if j.Claimable(t.now) {
		t.wake(j.Queue)
	}
}

// list is the values as a JSON array, for json_each.
func list[T int64 | string | store.State](values []T) string {
	text, _ := json.Marshal(values) // numbers and valid strings: cannot fail
	return string(text)
}

// leases are the leases as a JSON object from id to token, for json_each.
func leases(held []store.Lease) string {
	text := make([]byte, 0, 24*len(held)+2)
	text = append(text, '{')
	for i, l := range held {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, '"')
		text = strconv.AppendInt(text, l.ID, 10)
		text = append(text, `":`...)
		text = strconv.AppendInt(text, l.Token, 10)
	}
	return string(append(text, '}'))
}

// Every column of the table jobs, in the order of dests.
const columns = `
	id, queue, kind, priority, state, run_at, retry_at, token, lease_expires_at, worker,
	attempts, retries, max_retries, backoff_base, backoff_cap, backoff_jitter, timeout,
	unique_key, unique_for, enqueued_at, finished_at, finished_by, claim_token, claimed_at, ended_at, ending,
	checkpoint_seq, progress_seq, trace, tags, error, payload, checkpoint, progress, result`

// dests is where the columns are read to.
func dests(c *sqlkit.Columns) []any {
	return []any{
		&c.ID, &c.Queue, &c.Kind, &c.Priority, &c.State, &c.RunAt, &c.RetryAt, &c.Token, &c.LeaseExpiresAt, &c.Worker,
		&c.Attempts, &c.Retries, &c.MaxRetries, &c.BackoffBase, &c.BackoffCap, &c.BackoffJitter, &c.Timeout,
		&c.UniqueKey, &c.UniqueFor, &c.EnqueuedAt, &c.FinishedAt, &c.FinishedBy, &c.ClaimToken, &c.ClaimedAt, &c.EndedAt, &c.Ending,
		&c.CheckpointSeq, &c.ProgressSeq, &c.Trace, &c.Tags, &c.Error, &c.Payload, &c.Checkpoint, &c.Progress, &c.Result,
	}
}

// write runs a call that changes something in the writer's next transaction.
func write[T any](ctx context.Context, s *Store, invalid error, l load, run func(t *txn) (T, error)) (T, error) {
	var answer, none T
	if err := s.enter(ctx); err != nil {
		return none, err
	}
	if invalid != nil {
		return none, invalid
	}
	err := s.writer.do(ctx, l, func(t *txn) (err error) {
		answer, err = run(t)
		return err
	})
	if err != nil {
		return none, err
	}
	return answer, nil
}

// read runs a call that changes nothing on one snapshot of the file.
func read[T any](ctx context.Context, s *Store, invalid error, run func(t *txn) (T, error)) (T, error) {
	var none T
	if err := s.enter(ctx); err != nil {
		return none, err
	}
	if invalid != nil {
		return none, invalid
	}
	var answer T
	err := s.readers.do(ctx, func(tx store.Tx) (err error) {
		answer, err = run(&txn{ctx: ctx, tx: tx, now: s.now.get()})
		return err
	})
	if err != nil {
		return none, s.closedOr(brokenOff(ctx, err))
	}
	return answer, nil
}

// prepared is a connection that prepares each statement once. What filters are made of varies without end, so it keeps only
// so many.
type prepared struct {
	*sqlx.Conn
	statements map[string]*sql.Stmt
}

const maxPrepared = 200

var _ store.Tx = (*prepared)(nil)

func newPrepared(conn *sqlx.Conn) *prepared {
	return &prepared{Conn: conn, statements: map[string]*sql.Stmt{}}
}

func (p *prepared) statement(ctx context.Context, query string) (*sql.Stmt, error) {
	if kept, ok := p.statements[query]; ok {
		return kept, nil
	}
	if len(p.statements) == maxPrepared {
		p.forget()
	}
	s, err := p.PrepareContext(ctx, query)
	if err == nil {
		p.statements[query] = s
	}
	return s, err
}

// ExecContext is that of a connection.
func (p *prepared) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	s, err := p.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	return s.ExecContext(ctx, args...)
}

// QueryContext is that of a connection.
func (p *prepared) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	s, err := p.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	return s.QueryContext(ctx, args...)
}

// QueryRowContext is that of a connection.
func (p *prepared) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	s, err := p.statement(ctx, query)
	if err != nil {
		return p.Conn.QueryRowContext(ctx, query, args...) // which has the same error
	}
	return s.QueryRowContext(ctx, args...)
}

func (p *prepared) forget() {
	for _, s := range p.statements {
		_ = s.Close()
	}
	clear(p.statements)
}

// discard closes the connection, which is done or in trouble: the pool is not to hand it out again.
func (p *prepared) discard() {
	p.forget()
	_ = p.Raw(func(any) error { return driver.ErrBadConn })
	_ = p.Close()
}
