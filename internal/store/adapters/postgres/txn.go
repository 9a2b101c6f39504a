package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net"
	"slices"
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
	strict bool         // a stale lease is an error
	woken  sqlkit.Woken // the wake-ups to send with the commit
	heard  bool         // something follows from what the call has noted: see follow
	left   []string     // groups in which the call has noted changes, from which mostly nothing follows

	leftFrom int64 // the number of the first of these

	live map[int64]bool // whether jobs of groups are live, of those that the call has read

	shown   shown          // in the answer to the opening
	horizon cursor.Horizon // as known when the opening was answered

	// Only for the store's own transactions.
	conn    *sqlx.Conn
	session *session        // of the connection
	wire    context.Context // for statements: ends with ctx, or its end interrupts them
	unwatch func()          // after the statements
	cancel  func()          // ends the context
	open    bool            // begun, and not committed yet
	limited bool            // see opening

	// Only for a caller's transaction.
	unproven bool // it may be none: see prove
}

// over reports whether the transaction has already ended: it was a single statement.
func (t *txn) over() bool { return t.conn != nil && !t.open }

// begin opens a transaction. If the pool returns a dead connection, begin tries another one, until it has tried as many as the
// pool can have.
func (s *Store) begin(ctx context.Context, with opening) (*txn, error) {
	for try := 0; ; try++ {
		t, err := s.take(ctx, with)
		if err != nil {
			return nil, err
		}
		t.open = true
		t.wire, t.unwatch = t.session.until(t.ctx)
		if err = t.start(with); err == nil {
			err = t.recognise()
		}
		if err == nil {
			return t, nil
		}
		err = t.reason(err)
		t.end(err)
		if codeOf(err) != "" || errors.Is(err, errSilent) || ctx.Err() != nil || try > s.options.MaxConns {
			return nil, err
		}
	}
}

// take takes a connection for a transaction.
func (s *Store) take(ctx context.Context, with opening) (*txn, error) {
	conn, err := with.connect(ctx)
	if err != nil {
		return nil, err
	}
	t := &txn{s: s, tx: conn, conn: conn, unwatch: func() {}}
	t.ctx, t.cancel = context.WithTimeoutCause(ctx, max(s.options.Timeout, mostStatements*with.limit)+lingering, errSilent)
	if t.session, err = sessionOf(conn); err != nil {
		t.end(err)
		return nil, err
	}
	t.session.prepares, t.limited = with.prepares, with.limited
	return t, nil
}

// A shown is the answer to an opening.
type shown struct {
	sent   time.Time // when the opening was sent, by the process's clock
	asOf   time.Time // transactions with this number or a higher one read this time or a later one
	number int64     // of this transaction, 0 if it has none
	next   bool      // the number is the next one that the server will give
	xmin   int64     // every transaction with a lower number has ended
	since  time.Time // when the server started

	// Only for a caller's transaction.
	numbered bool   // it had a number before the call
	database string // its database
}

// start sends the opening and reads the time.
func (t *txn) start(with opening) error {
	var database, arrived time.Time
	row := []any{&database, &arrived, &t.shown.xmin, &t.shown.number, &t.shown.since}
	if t.conn == nil {
		row = append([]any{&t.shown.numbered, &t.shown.database}, row...)
	}
	n := t.s.now
	before := n.read(time.Time{}) // of an injected clock
	t.shown.sent = time.Now()
	t.s.roundTrips.transactions.Add(1)
	t.s.roundTrips.messages.Add(1)
	if err := sqlkit.Each(t.wire, t.tx, func(rows *sql.Rows) error { return rows.Scan(row...) }, with.begin+with.ask); err != nil {
		return err
	}
	if t.session != nil {
		t.session.worked = time.Now()
	}
	t.now, t.shown.asOf = n.get(database, t.shown.sent), before
	if n.clock == nil {
		t.shown.asOf = store.Truncate(arrived)
	}
	return nil
}

// commit sends the wake-ups and commits. From here on it ignores the caller's context for a while, so that the
// result is known if the server answers in time.
func (t *txn) commit() error {
	var text strings.Builder
	now, later := t.s.limiter.sort(t.woken)
	for _, w := range now {
		text.WriteString(`SELECT pg_notify(` + pq.QuoteLiteral(t.s.channel()) + `, ` + pq.QuoteLiteral(told(t.s.name, w)) + `); `)
	}
	if t.limited { // a limit that passes while the server commits could end the next call
		text.WriteString(`SET LOCAL statement_timeout = ` + millis(t.s.options.Timeout) + `; `)
	}
	text.WriteString(`COMMIT`)
	ctx, cancel := linger(t.ctx, lingering)
	defer cancel()
	t.unwatch()
	wire, unwatch := t.session.until(ctx)
	t.unwatch = func() {}
	t.s.roundTrips.messages.Add(1)
	t.session.Warned()
	_, err := t.conn.ExecContext(wire, text.String())
	unwatch()
	t.s.hub.Tell(t.woken...) // a store does not listen to its own notifications; even after an error the commit may have happened
	if err != nil {
		t.s.limiter.put(t.woken) // the commit may have happened, and pending notifications were not sent
		return err
	}
	t.open = false
	t.s.limiter.put(later)
	if t.shown.number != 0 && (t.session.Warned() || ctx.Err() != nil) {
		return errUnconfirmed
	}
	return nil
}

// errSilent is the error of a transaction that the server's time-outs should have ended long ago.
var errSilent = errors.New("the server is silent")

// reason returns the error, or errSilent if the transaction ran out of time. An interrupted session calls any end of a context a
// cancellation.
func (t *txn) reason(err error) error {
	switch {
	case codeOf(err) == "" && errors.Is(context.Cause(t.ctx), errSilent):
		return errSilent
	case errors.Is(err, context.Canceled) && t.ctx.Err() != nil:
		return t.ctx.Err()
	default:
		return err
	}
}

// end rolls back an open transaction and returns the connection. err is the error of the transaction, if any.
//
// A connection in trouble is discarded: a table has changed since a statement was prepared, or the server was replaced or
// accepts no writes; a new connection may lead to one that does. If the rollback fails too, and the caller did not cancel the
// transaction, the server may have died. If it confirms commits before it syncs them, or is another server now, it has lost
// claims, and jobs are claimable again behind the marks. So end forgets all positions.
func (t *txn) end(err error) {
	t.unwatch()
	if t.open {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), t.s.options.Timeout)
		defer cancel()
		wire, unwatch := t.session.until(ctx)
		t.s.roundTrips.messages.Add(1)
		_, failed := t.conn.ExecContext(wire, `ROLLBACK`)
		if unwatch(); failed != nil {
			discard(t.conn)
			if t.ctx.Err() == nil || t.silent(err) {
				t.s.cursors.Forget()
			}
		}
	}
	if err != nil && (stalePlan(err) || codeOf(err) == codeReadOnly || errors.Is(err, errReplaced) || errors.Is(err, errElsewhere)) {
		discard(t.conn)
	}
	t.cancel()
	_ = t.conn.Close()
}

// silent reports whether the server did not even answer a request to cancel.
func (t *txn) silent(err error) bool {
	var network *net.OpError
	return errors.Is(context.Cause(t.ctx), errSilent) || errors.As(err, &network) && network.Timeout()
}

func discard(conn *sqlx.Conn) {
	_ = conn.Raw(func(conn any) error {
		conn.(Conn).Discard()
		return driver.ErrBadConn
	})
}

// exec runs a statement and returns how many rows it changed.
func (t *txn) exec(query string, args ...any) (int, error) {
	if err := t.prove(); err != nil {
		return 0, err
	}
	t.s.roundTrips.messages.Add(1)
	return sqlkit.Exec(t.wire, t.tx, t.s.sql(query), t.args(args)...)
}

// remove deletes rows, which may be gone.
func (t *txn) remove(query string, args ...any) error {
	n, err := t.exec(query, args...)
	if err == nil && n == 0 {
		err = t.foundNothing()
	}
	return err
}

// foundNothing writes to the log for a call that has found nothing to change, so that its commit waits for a standby: see confirm.go.
func (t *txn) foundNothing() error {
	_, err := t.exec(`
		SELECT pg_logical_emit_message(TRUE, 'jq', '')`)
	return err
}

// each runs a query and calls scan for each row.
func (t *txn) each(scan func(rows *sql.Rows) error, query string, args ...any) error {
	if err := t.prove(); err != nil {
		return err
	}
	t.s.roundTrips.messages.Add(1)
	return sqlkit.Each(t.wire, t.tx, scan, t.s.sql(query), t.args(args)...)
}

// args returns the arguments for the driver. Not every driver of a caller's transaction knows what to do with an array.
func (t *txn) args(list []any) []any {
	if t.conn != nil {
		return list
	}
	list = slices.Clone(list)
	for i, arg := range list {
		if a, ok := arg.(*array); ok {
			list[i] = a.String()
		}
	}
	return list
}

// records runs a query for columns of the table jobs.
func (t *txn) records(query string, args ...any) ([]*store.Record, error) {
	found, err := sqlkit.Records(t.each, query, args...)
	for _, e := range found {
		if e.Group() == "" {
			continue
		}
		if t.live == nil {
			t.live = map[int64]bool{}
		}
		t.live[e.ID] = !e.Terminal()
	}
	return found, err
}
