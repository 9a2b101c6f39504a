package postgres

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// A txn is one call inside a transaction: the store's own or a caller's.
type txn struct {
	ctx    context.Context
	s      *Store
	tx     store.Tx
	now    time.Time
	strict bool     // a lease that does not hold is an error
	woken  []string // the queues in which jobs became claimable at once

	numbered bool   // a caller's transaction had its number before the call
	database string // on which it is

	conn    *sqlx.Conn // of the store's own transaction, nil in a caller's
	session *session   // likewise, of the connection
	cancel  func()     // lets go of its context, likewise
	open    bool       // it was begun, and has not been committed
	silent  bool       // the server does not answer
	stale   bool       // it has other tables now than those for which the session has prepared its statements

	ahead bool   // what can go with the opening did
	whole bool   // and the COMMIT as well
	final string // goes with the COMMIT

	sent   time.Time // when the opening was sent, by the process's own clock
	asOf   time.Time // every transaction that has this one's number, or a higher one, reads a later time, or the same
	number int64     // of this one, 0 if it can not write
	xmin   int64     // every transaction with a lower number has ended
	since  time.Time // the server runs

	horizon time.Time // as it was known when the opening was answered
	stuck   bool      // it stands still
}

// exec runs a statement and returns how many rows it changed.
func (t *txn) exec(query string, args ...any) (int, error) {
	t.s.roundTrips.messages.Add(1)
	return sqlkit.Exec(t.ctx, t.tx, t.s.sql(query), args...)
}

// each runs a query and calls scan for each row.
func (t *txn) each(scan func(rows *sql.Rows) error, query string, args ...any) error {
	t.s.roundTrips.messages.Add(1)
	return sqlkit.Each(t.ctx, t.tx, scan, t.s.sql(query), args...)
}

// records runs a query for columns of the table jobs.
func (t *txn) records(query string, args ...any) ([]*store.Record, error) {
	return sqlkit.Records(t.each, query, args...)
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

// The columns of the table jobs. Most operations decide without the documents, which may be large.
const (
	columns = `
	jobs.id, jobs.queue, jobs.kind, jobs.priority, jobs.state, jobs.run_at, jobs.retry_at, jobs.token, jobs.lease_expires_at,
	jobs.worker, jobs.attempts, jobs.retries, jobs.max_retries, jobs.backoff_base, jobs.backoff_cap, jobs.backoff_jitter,
	jobs.timeout, coalesce(jobs.lease_for, 0) AS lease_for, jobs.unique_key, jobs.unique_for, jobs.enqueued_at, jobs.finished_at, jobs.finished_by, jobs.claim_token,
	jobs.claimed_at, jobs.ended_at, jobs.ending, jobs.checkpoint_seq, jobs.progress_seq, jobs.trace, jobs.tags, jobs.error`

	withDocuments = columns + `, jobs.payload, jobs.checkpoint, jobs.progress, jobs.result`

	// For who raises tokens. It is read by the statement that locks the jobs: see fence.
	presentEpoch = `
	(SELECT epoch FROM {schema}.fence WHERE one) AS epoch`

	weight = `octet_length(jobs.payload) + coalesce(octet_length(jobs.checkpoint), 0)
		+ coalesce(octet_length(jobs.progress), 0) + coalesce(octet_length(jobs.result), 0)`
)
