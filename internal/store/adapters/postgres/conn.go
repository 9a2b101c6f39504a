package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Openings are what begins the store's transactions, in one message each. The row that answers has five columns: the present,
// when the message had arrived, the number of the first transaction that has not ended, that of this one, and since when the
// server runs.
type openings struct {
	write, beat, get  opening // for statements that come again and again
	brief, probe      opening // likewise, of readings for others than the store itself
	bulk, page, count opening // for statements made for a filter
	caller            opening // for a caller's transaction, which has begun: see join
}

// An opening is how a transaction begins, and on whose connections.
type opening struct {
	db       *sqlx.DB
	limit    time.Duration // of the wait for a connection, and of a statement; 0 if they have no other limit than those of every call
	begin    string
	ask      string // for the row
	prepares bool   // its statements are planned once in a session

	// What else goes with it if it can, and whether nothing is expected to come after that. It may be nil.
	ahead func() (first pipelinedCall, only bool)
}

// A setting is one of the server's, for a session or a transaction of the store.
type setting struct{ name, value string }

// settings are those under which the store's statements are planned and run: time-outs, and ways that are forbidden.
//
// Writers find rows by their ids, and what looks for the first jobs of a sort goes through an index in its order, whatever
// the statistics say of a table that was small or empty when they were taken: for any other way, the time grows with what has
// been done before. A way that is forbidden, and taken since there is no other, is priced so high that the server would compile
// the statement, which takes longer than to run it.
//
// Who joins by an id says id = ANY (ARRAY[other.id]). With a plain id = other.id, the server knows one more way, through the whole
// index. That is as short as any while the table is small, and a prepared statement keeps it when the table has grown.
func (o Options) settings() []setting {
	all := []setting{
		{"statement_timeout", millis(o.Timeout)},
		{"lock_timeout", millis(o.LockTimeout)},
		{"idle_in_transaction_session_timeout", millis(o.Timeout)},
		{"jit", "off"},
		{"client_min_messages", "warning"}, // else nobody might tell of a commit that was not confirmed
	}
	for _, way := range costly {
		all = append(all, setting{way, "off"})
	}
	return all
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// costly are the ways that nothing but a count may go, which needs every row.
var costly = []string{
	"enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_bitmapscan", "enable_sort", "enable_incremental_sort",
}

// openings writes them out. Heartbeats have connections of their own: they wait behind no other call. So have readings for others than
// the store itself: no other call waits behind them, and Ping waits behind none. The store's own sessions have the settings. A proxy's sessions are everybody's: each transaction brings the settings along, and prepares nothing.
//
// A writer has its number before it reads the clock: what it makes due by that time can then not appear before a moment at
// which every transaction with a lower number had ended (see cursor.go).
func (s *Store) openings(o Options) openings {
	var settings, free strings.Builder
	if o.Pooled {
		for _, one := range o.settings() {
			fmt.Fprintf(&settings, "SET LOCAL %s = %s; ", one.name, one.value)
		}
	}
	for _, way := range costly {
		fmt.Fprintf(&free, "SET LOCAL %s = on; ", way)
	}
	const each = `SET LOCAL plan_cache_mode = auto; `       // each statement is planned for its arguments
	const writes = `BEGIN ISOLATION LEVEL READ COMMITTED; ` // not READ WRITE: who lets the user only read means us, too
	const reads = `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; `
	own := !o.Pooled
	const row = `CASE WHEN pg_current_xact_id() IS NOT NULL THEN clock_timestamp() END, statement_timestamp(),
			pg_snapshot_xmin(pg_current_snapshot())::text::bigint, pg_current_xact_id()::text::bigint,
			pg_postmaster_start_time()`
	caller := opening{ask: `
		SELECT pg_current_xact_id_if_assigned() IS NOT NULL, current_database()::text, ` + row}
	write := opening{db: s.db, begin: writes + settings.String(), prepares: own, ask: `
		SELECT ` + row}
	get := opening{db: s.db, begin: reads + settings.String(), prepares: own, ask: `
		SELECT clock_timestamp(), statement_timestamp(), 0, 0, pg_postmaster_start_time()`}
	on := func(with opening, db *sqlx.DB) opening {
		with.db = db
		return with
	}
	page := on(get, s.readers)
	page.limit = o.ReadTimeout
	limit := `SET LOCAL statement_timeout = ` + millis(o.ReadTimeout) + `; `
	anew := func(with opening, also string) opening {
		with.begin, with.prepares = with.begin+also, false
		return with
	}
	return openings{
		write: write, beat: on(write, s.beats), get: get, caller: caller,
		brief: on(get, s.briefs), probe: on(get, s.probe),
		bulk: anew(write, each), page: anew(page, each+limit), count: anew(page, each+limit+free.String()),
	}
}

// mostTries is how often a call is begun anew that was in the way of another.
const mostTries = 10

// tries is how often it is begun in all. Each connection may have stale plans, and is then used no more.
func (s *Store) tries(err error) int {
	if stalePlan(err) {
		return mostTries + max(s.options.MaxConns, s.options.Readers)
	}
	return mostTries
}

// lingering is for how long the answer to a commit is waited for after the caller has gone.
const lingering = time.Second

// write runs a call that changes something in a transaction of its own.
func write[T any](ctx context.Context, s *Store, invalid error, run func(t *txn) (T, error)) (T, error) {
	return call(ctx, s, invalid, s.with.write, run)
}

// read runs a short call that changes nothing on one snapshot of the database.
func read[T any](ctx context.Context, s *Store, invalid error, run func(t *txn) (T, error)) (T, error) {
	return call(ctx, s, invalid, s.with.brief, run)
}

func call[T any](ctx context.Context, s *Store, invalid error, with opening, run func(t *txn) (T, error)) (T, error) {
	var none T
	if err := sqlkit.Admit(ctx, s.closed, invalid); err != nil {
		return none, err
	}
	for try := 1; ; try++ {
		answer, err := once(ctx, s, with, run)
		switch {
		case err == nil:
			return answer, nil
		case !passing(err) || try >= s.tries(err) || !pause(ctx, try):
			return none, sqlkit.Because(ctx, s.closed, err)
		}
	}
}

// pause waits a little, longer after each try, and says whether the context still goes on.
func pause(ctx context.Context, try int) bool {
	return rest(ctx, time.Duration(rand.Int64N(int64(try)*int64(2*time.Millisecond))))
}

// rest waits, and says whether the context still goes on.
func rest(ctx context.Context, d time.Duration) bool {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// once runs the call in one transaction. An error comes with nothing applied, or is ErrInDoubt.
func once[T any](ctx context.Context, s *Store, with opening, run func(t *txn) (T, error)) (answer T, err error) {
	var none T
	t, err := s.begin(ctx, with)
	if err != nil {
		return none, ours(err)
	}
	defer t.end()
	if answer, err = run(t); err != nil {
		if err = t.noted(err); with.limit > 0 && codeOf(err) == codeCancelled && ctx.Err() == nil {
			return none, &store.OverlongError{Limit: with.limit}
		}
		return none, ours(err)
	}
	if err := ctx.Err(); err != nil {
		return none, ours(err)
	}
	if t.open {
		switch err := t.commit(); {
		case errors.Is(err, errUnconfirmed):
			return none, sqlkit.InDoubt(err, advice)
		case err != nil:
			return none, committed(t.noted(err))
		}
	}
	return answer, nil
}

// errSilent is the end of a transaction that the server should have ended long ago, by its time-outs.
var errSilent = errors.New("the server is silent")

// noted is the error, or errSilent if it came because the transaction was out of time. It notes if the server did not even
// answer when it was asked to cancel, and if the connection is of no use any more: a statement was prepared for tables that are
// others now, the server was replaced, or takes no writes, and another connection may lead to one that does.
func (t *txn) noted(err error) error {
	t.stale = stalePlan(err) || codeOf(err) == codeReadOnly || errors.Is(err, errReplaced)
	var network *net.OpError
	overdue := errors.Is(context.Cause(t.ctx), errSilent)
	t.silent = overdue || errors.As(err, &network) && network.Timeout()
	if overdue && codeOf(err) == "" {
		return errSilent
	}
	return err
}

// begin opens a transaction. Nothing is lost by a connection that has died in the pool: another one is taken, until all
// that can be there have been tried.
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
			t.open = !t.whole
			return t, nil
		}
		err = t.noted(err)
		t.end()
		if codeOf(err) != "" || errors.Is(err, errSilent) || ctx.Err() != nil || try > with.db.Stats().MaxOpenConnections {
			return nil, err
		}
	}
}

// mostStatements is how many a reading with a limit has, beside its opening.
const mostStatements = 2

// connect waits for a connection, for as long as the opening says.
func (o opening) connect(ctx context.Context) (*sqlx.Conn, error) {
	if o.limit == 0 {
		return o.db.Connx(ctx)
	}
	waiting, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	conn, err := o.db.Connx(waiting)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil, &store.OverlongError{Limit: o.limit, Waited: true}
	}
	return conn, err
}

// start sends the opening, and learns what time it is.
func (t *txn) start(with opening) error {
	var database, arrived time.Time
	row := []any{&database, &arrived, &t.xmin, &t.number, &t.since}
	if t.conn == nil {
		row = append([]any{&t.numbered, &t.database}, row...)
	}
	message, scans, err := t.compose(with, func(rows *sql.Rows) error { return rows.Scan(row...) })
	if err != nil {
		return err
	}
	n := t.s.now
	before := n.read(time.Time{}) // of an injected clock
	t.sent = time.Now()
	t.s.roundTrips.transactions.Add(1)
	t.s.roundTrips.messages.Add(1)
	if err := sqlkit.EachOf(t.ctx, t.tx, scans, message); err != nil {
		return err
	}
	t.now, t.asOf = n.get(database, t.sent), before
	if n.clock == nil {
		t.asOf = store.Truncate(arrived)
	}
	return nil
}

// commit tells of jobs that have become claimable, and commits. From here on the caller's context no longer decides, so
// that the answer is known if the server gives it in time.
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
	if t.number != 0 && (bool(t.session.warned) || ctx.Err() != nil) {
		return errUnconfirmed
	}
	return nil
}

// linger is a context that ends a while after the other one.
func linger(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		late := time.AfterFunc(d, cancel)
		context.AfterFunc(longer, func() { late.Stop() })
	})
	return longer, func() {
		stop()
		cancel()
	}
}

// end gives the connection back, and rolls back what was not committed. A connection in trouble is not used again. If it was
// not the caller who broke it off, the server may have died, and where it answers before it syncs, or is another one now, it
// has forgotten claims: jobs are claimable again that no claim would look for.
func (t *txn) end() {
	if t.open {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), t.s.options.Timeout)
		defer cancel()
		t.s.roundTrips.messages.Add(1)
		if _, err := t.conn.ExecContext(ctx, `ROLLBACK`); err != nil {
			discard(t.conn)
			if t.ctx.Err() == nil || t.silent {
				t.s.forget()
			}
		}
	}
	if t.stale {
		discard(t.conn)
	}
	t.cancel()
	_ = t.conn.Close()
}

func discard(conn *sqlx.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}

// background runs something behind the calls, for as long as a call takes. A store that is closed waits for it.
func (s *Store) background(f func(ctx context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sqlkit.Closed(s.closed) {
		return
	}
	s.running.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.options.Timeout)
		defer cancel()
		f(ctx)
	})
}
