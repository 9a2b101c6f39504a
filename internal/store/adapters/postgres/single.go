package postgres

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Single statements.
//
// A call about a few jobs is mostly one statement, which is a transaction of its own. Each further message would cost both sides
// more than the statement itself. The statement finds out by itself whether the call is as simple as it seems. If not, it changes
// nothing, and the call runs in a transaction of several statements, which can do everything.
//
// If the answer to a statement that writes is lost, the call is in doubt. In a transaction of several statements only the COMMIT
// has this risk. So such a statement is sent only on a session that has worked a moment ago. If a server dies or falls silent, the
// calls that are under way are in doubt, and at most one more for each session.
//
// Sessions that are shared with others run no single statements, because they get the store's settings for each transaction.

// warmFor is how long after its latest use a session may be sent a statement that writes.
const warmFor = 2 * time.Second

// statement runs one statement as a transaction of its own. It reports whether it was run: if not, for whatever reason may pass,
// nothing was applied, and the call goes on in a transaction.
func (s *Store) statement(
	ctx context.Context, with opening, writes bool, scan sqlkit.Scan, query string, args []any,
) (t *txn, ran bool, err error) {
	if s.shared {
		return nil, false, nil
	}
	if err := sqlkit.Admit(ctx, s.closed, nil); err != nil {
		return nil, false, err
	}
	if t, err = s.take(ctx, with); err != nil {
		return nil, true, sqlkit.Because(ctx, s.closed, ours(err))
	}
	if writes && !t.session.warm() {
		t.end(nil)
		return nil, false, nil
	}
	if with.sends != nil {
		with.sends()
	}
	err = t.send(writes, scan, query, args)
	t.end(err)
	code := codeOf(err)
	if err != nil && code == "" && (ctx.Err() == nil || t.silent(err)) {
		s.cursors.Forget() // see end
	}
	switch {
	case err == nil:
	case passing(ours(err)),
		code == codeReadOnly, // perhaps on a standby: the opening of a transaction shows that
		!writes && code == "" && ctx.Err() == nil && !t.silent(err): // a read may have met a dead connection
		return nil, false, nil
	case errors.Is(err, errUnconfirmed):
		err = sqlkit.InDoubt(err, advice)
	case writes && code != codeCancelled:
		err = committed(err)
	default:
		err = ours(err)
	}
	return t, true, sqlkit.Because(ctx, s.closed, err)
}

// send sends a statement that is a transaction of its own.
func (t *txn) send(writes bool, scan sqlkit.Scan, query string, args []any) error {
	ctx := t.ctx
	if writes {
		longer, cancel := linger(t.ctx, lingering) // so that the result is known if the server answers in time
		defer cancel()
		ctx = longer
	}
	wire, unwatch := t.session.until(ctx)
	t.session.Warned()
	t.shown.sent = time.Now()
	t.s.roundTrips.transactions.Add(1)
	t.s.roundTrips.messages.Add(1)
	err := sqlkit.Each(wire, t.tx, scan, t.s.sql(query), args...)
	unwatch()
	switch {
	case err != nil:
		return t.reason(err)
	case writes && (t.session.Warned() || ctx.Err() != nil):
		return errUnconfirmed
	default:
		t.session.worked = time.Now()
		return nil
	}
}

// Each row of a single statement begins with its now and with what the opening of a transaction shows. The first arguments are the
// time of an injected clock or NULL, the latest now of the store, and when the server started that the store knows. On another
// server, the statement must change nothing and return no row.
const (
	// presentNow is the store's now. statementNow is the one when the statement began, for which an index can be searched.
	presentNow   = `coalesce($1::timestamptz, greatest(clock_timestamp(), ` + latestNow + `))`
	statementNow = `coalesce($1::timestamptz, greatest(statement_timestamp(), ` + latestNow + `))`
	latestNow    = `CASE WHEN statement_timestamp() >= $2::timestamptz - interval '5 s' THEN $2::timestamptz END`

	onKnownServer = `pg_postmaster_start_time() = $3::timestamptz`

	shownByWrite = shownByAll + `pg_current_xact_id()::text::bigint`
	// A transaction that only reads has no number. Instead it shows the next one that the server will give.
	shownByRead = shownByAll + `pg_snapshot_xmax(pg_current_snapshot())::text::bigint + age(pg_snapshot_xmax(pg_current_snapshot())::xid)`
	shownByAll  = `statement_timestamp(), pg_snapshot_xmin(pg_current_snapshot())::text::bigint, pg_postmaster_start_time(), `
)

// single runs a single statement. scan gets the destinations for the columns with which each row begins. single reports whether
// there was a row: if not, nothing was applied.
func (s *Store) single(
	ctx context.Context, with opening, writes bool, scan func(rows *sql.Rows, shown []any) error, query string, args ...any,
) (t *txn, some bool, err error) {
	shown := shown{next: !writes}
	var at, arrived time.Time
	into := []any{(*sqlkit.Time)(&at), (*sqlkit.Time)(&arrived), &shown.xmin, &shown.since, &shown.number}
	n := s.now
	before := n.read(time.Time{}) // of an injected clock
	var injected any
	if n.clock != nil {
		injected = n.present.Read(n.clock.Now)
	}
	t, ran, err := s.statement(ctx, with, writes, func(rows *sql.Rows) error {
		some = true
		return scan(rows, into)
	}, query, append([]any{injected, orNull(n.present.Latest()), orNull(s.server.started())}, args...))
	if err != nil || !ran || !some {
		return t, false, err
	}
	shown.sent, shown.asOf = t.shown.sent, before
	if n.clock == nil {
		shown.asOf = store.Truncate(arrived)
		n.get(at, shown.sent)
	}
	t.now, t.shown = at, shown
	switch err := t.recognise(); {
	case err == nil:
		return t, true, nil
	case writes: // on a server that was replaced meanwhile
		return t, false, sqlkit.InDoubt(err, advice)
	default:
		return nil, false, nil
	}
}

// existing returns a single statement that finds out which of these rows exist. Its own arguments begin with the fourth.
func existing(rows ...string) string {
	exist := make([]string, len(rows))
	for i, some := range rows {
		exist[i] = `CASE WHEN EXISTS (SELECT 1 FROM ` + some + `) THEN ` + strconv.Itoa(1<<i) + ` ELSE 0 END`
	}
	return `
	SELECT ` + statementNow + `, ` + shownByRead + `, ` + strings.Join(exist, ` + `) + `
	WHERE ` + onKnownServer
}

// exist runs a statement of [existing]. The answer has a bit for each of the rows that exist: 1 for the first one, 2 for the second one,
// and so on. It has all bits if the statement could not be run.
func (s *Store) exist(ctx context.Context, query string, args ...any) (now time.Time, bits int, err error) {
	t, some, err := s.single(ctx, s.with.write, false, func(rows *sql.Rows, shown []any) error {
		return rows.Scan(append(shown, &bits)...)
	}, query, args...)
	if err != nil || !some {
		return time.Time{}, -1, err
	}
	return t.now, bits, nil
}

func orNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t
}
