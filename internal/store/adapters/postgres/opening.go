package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/seed-ed332417/jq/internal/store"
)

// Openings are the messages that begin the store's transactions. Each is answered with one row of five columns: the present, when the
// message had arrived, the number of the first transaction that has not ended, that of this one, and since when the server runs.
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

	// The first statement, asked for when the opening is sent, and whether nothing is expected to come after it. May be nil.
	first func() (c pipelinedCall, only bool)
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

// A setting is one of the server's, for a session or a transaction of the store.
type setting struct{ name, value string }

// settings are those under which the store's statements are planned and run: time-outs, and plan nodes that are disabled.
//
// Writers find rows by their ids, and searches for the first jobs of a sort go through an index in its order, whatever the statistics
// say of a table that was small or empty when they were taken: with any other plan, the time grows with what was done before. If a
// disabled plan node is the only choice, Postgres uses it at a huge cost estimate, which triggers JIT compilation. So jit is off.
//
// Joins by an id say id = ANY (ARRAY[other.id]). For a plain id = other.id, the planner knows one more plan, a scan of the whole index. That
// is as cheap as any while the table is small, and a prepared statement keeps it when the table has grown.
func (o Options) settings() []setting {
	all := []setting{
		{"statement_timeout", millis(o.Timeout)},
		{"lock_timeout", millis(o.LockTimeout)},
		{"idle_in_transaction_session_timeout", millis(o.Timeout)},
		{"jit", "off"},
		{"client_min_messages", "warning"}, // else nobody might tell of a commit that was not confirmed
	}
	for _, node := range slowNodes {
		all = append(all, setting{node, "off"})
	}
	return all
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// slowNodes are the plan nodes that only a count may use, which needs every row.
var slowNodes = []string{
	"enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_bitmapscan", "enable_sort", "enable_incremental_sort",
}

// openings writes them out. Heartbeats have connections of their own, so that they wait behind no other call; so have the calls that only
// read, so that no other call waits behind them, and Ping, which waits behind none. The store's own sessions have the settings. Through a
// proxy, sessions are shared with everybody: each transaction brings the settings along, and prepares nothing.
//
// A transaction that writes takes its number before it reads the clock. So no job that it makes due by that time can appear before a moment
// at which every transaction with a lower number had ended (see package cursor).
func (s *Store) openings(o Options) openings {
	var settings, free strings.Builder
	if o.Pooled {
		for _, one := range o.settings() {
			fmt.Fprintf(&settings, "SET LOCAL %s = %s; ", one.name, one.value)
		}
	}
	for _, node := range slowNodes {
		fmt.Fprintf(&free, "SET LOCAL %s = on; ", node)
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

// atStart are the settings of a session. A prepared statement is planned at once for whatever its arguments will be.
func (o Options) atStart() []setting {
	return append(o.settings(), setting{"plan_cache_mode", planMode})
}

const planMode = "force_generic_plan"

// startup are they for the server. What a DSN has in its options comes before them, and counts for nothing then.
func (o Options) startup() string {
	var text strings.Builder
	for _, one := range o.atStart() {
		fmt.Fprintf(&text, " -c %s=%s", one.name, one.value)
	}
	return text.String()
}

// others are the settings that stand in a DSN by their own names, without those of the session, over which they would win.
func (o Options) others(given map[string]string) map[string]string {
	left := maps.Clone(given)
	maps.DeleteFunc(left, func(name, _ string) bool {
		return slices.ContainsFunc(o.atStart(), func(one setting) bool { return strings.EqualFold(one.name, name) })
	})
	return left
}
