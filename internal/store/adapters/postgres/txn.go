package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// A txn is one call inside a transaction: the store's own or a caller's.
type txn struct {
	ctx    context.Context
	s      *Store
	tx     store.Tx
	now    time.Time
	strict bool         // a lease that does not hold is an error
	woken  sqlkit.Woken // the queues in which jobs became claimable at once

	shown   shown          // by the opening
	horizon cursor.Horizon // as it was known when the opening was answered

	// Of the store's own transactions alone.
	conn    *sqlx.Conn
	session *session // of the connection
	cancel  func()   // ends the context
	open    bool     // it was begun, and has not been committed
	ahead   bool     // the first statement went with the opening
	final   string   // a statement that goes with the COMMIT
}

// over reports whether the COMMIT went with the opening: nothing can be done in the transaction any more.
func (t *txn) over() bool { return t.conn != nil && !t.open }

// begin opens a transaction. A connection that has died in the pool costs nothing: begin takes another one, until it has tried as many as
// there can be.
func (s *Store) begin(ctx context.Context, with opening) (*txn, error) {
	for try := 0; ; try++ {
		conn, err := with.connect(ctx)
		if err != nil {
			return nil, err
		}
		t := &txn{s: s, tx: conn, conn: conn, open: true}
		t.ctx, t.cancel = context.WithTimeoutCause(ctx, max(s.options.Timeout, mostStatements*with.limit)+lingering, errSilent)
		if t.session, err = sessionOf(conn); err == nil {
			t.session.prepares = with.prepares
			err = t.start(with)
		}
		if err == nil {
			err = t.recognise()
		}
		if err == nil {
			return t, nil
		}
		err = t.reason(err)
		t.end(err)
		if codeOf(err) != "" || errors.Is(err, errSilent) || ctx.Err() != nil || try > with.db.Stats().MaxOpenConnections {
			return nil, err
		}
	}
}

// A shown is what the answer to an opening shows.
type shown struct {
	sent   time.Time // when the opening was sent, by the process's own clock
	asOf   time.Time // every transaction that has this one's number, or a higher one, reads a later time, or the same
	number int64     // of this transaction, 0 if it can not write
	xmin   int64     // every transaction with a lower number has ended
	since  time.Time // the server runs

	// Of a caller's transaction alone.
	numbered bool   // it had its number before the call
	database string // on which it is
}

// start sends the opening, and learns what time it is.
func (t *txn) start(with opening) error {
	var database, arrived time.Time
	row := []any{&database, &arrived, &t.shown.xmin, &t.shown.number, &t.shown.since}
	if t.conn == nil {
		row = append([]any{&t.shown.numbered, &t.shown.database}, row...)
	}
	message, scans, over, err := t.compose(with, func(rows *sql.Rows) error { return rows.Scan(row...) })
	if err != nil {
		return err
	}
	n := t.s.now
	before := n.read(time.Time{}) // of an injected clock
	t.shown.sent = time.Now()
	t.s.roundTrips.transactions.Add(1)
	t.s.roundTrips.messages.Add(1)
	if err := sqlkit.EachOf(t.ctx, t.tx, scans, message); err != nil {
		return err
	}
	t.open = t.open && !over
	t.now, t.shown.asOf = n.get(database, t.shown.sent), before
	if n.clock == nil {
		t.shown.asOf = store.Truncate(arrived)
	}
	return nil
}

// commit tells of jobs that have become claimable, and commits. From here on the caller's context no longer decides, so that the answer is
// known if the server gives it in time.
func (t *txn) commit() error {
	var text strings.Builder
	if t.final != "" {
		text.WriteString(t.final + `; `)
	}
	now, later := t.s.limiter.sort(t.woken)
	for _, queue := range now {
		text.WriteString(`SELECT pg_notify(` + pq.QuoteLiteral(t.s.channel()) + `, ` + pq.QuoteLiteral(told(t.s.name, queue)) + `); `)
	}
	text.WriteString(`COMMIT`)
	ctx, cancel := linger(t.ctx, lingering)
	defer cancel()
	t.s.roundTrips.messages.Add(1)
	t.session.warned = false
	_, err := t.conn.ExecContext(ctx, text.String())
	t.s.hub.Tell(t.woken...) // those in this process do not listen to their own store; it may be committed although there is an error
	if err != nil {
		t.s.limiter.put(t.woken) // it may be committed; and what waited for it has not been told of
		return err
	}
	t.open = false
	t.s.limiter.put(later)
	if t.shown.number != 0 && (bool(t.session.warned) || ctx.Err() != nil) {
		return errUnconfirmed
	}
	return nil
}

// errSilent is the end of a transaction that the server should have ended long ago, by its time-outs.
var errSilent = errors.New("the server is silent")

// reason is the error, or errSilent if it came because the transaction was out of time.
func (t *txn) reason(err error) error {
	if codeOf(err) == "" && errors.Is(context.Cause(t.ctx), errSilent) {
		return errSilent
	}
	return err
}

// end gives the connection back, and rolls back what was not committed. The error is that of the transaction, if it has failed.
//
// A connection in trouble is not used again: a statement was prepared for tables that are others now, or the server was replaced or takes no
// writes, and another connection may lead to one that does. If the rollback fails too and it was not the caller who broke the transaction
// off, the server may have died. If it answers before it syncs, or is another one now, it has forgotten claims: jobs are claimable again
// that no claim would look for.
func (t *txn) end(err error) {
	if t.open {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), t.s.options.Timeout)
		defer cancel()
		t.s.roundTrips.messages.Add(1)
		if _, failed := t.conn.ExecContext(ctx, `ROLLBACK`); failed != nil {
			discard(t.conn)
			if t.ctx.Err() == nil || t.silent(err) {
				t.s.cursors.Forget()
			}
		}
	}
	if err != nil && (stalePlan(err) || codeOf(err) == codeReadOnly || errors.Is(err, errReplaced)) {
		discard(t.conn)
	}
	t.cancel()
	_ = t.conn.Close()
}

// silent reports whether the server did not even answer when it was asked to cancel.
func (t *txn) silent(err error) bool {
	var network *net.OpError
	return errors.Is(context.Cause(t.ctx), errSilent) || errors.As(err, &network) && network.Timeout()
}

func discard(conn *sqlx.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
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
