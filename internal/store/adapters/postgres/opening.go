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

// Openings are the messages that begin the store's transactions. The answer is one row of five columns: the present, the time when the
// message arrived, the lowest transaction number that has not ended, the number of this transaction, and the start time of the server.
type openings struct {
	write, beat, get, probe opening // for statements that recur
	bulk, page, count       opening // for statements that are made for a filter
	caller                  opening // for a caller's transaction that has begun: see join
}

// An opening is how a transaction begins, and on which connections.
type opening struct {
	db       *sqlx.DB
	wait     time.Duration // for a connection; 0 means until the call's context ends
	limit    time.Duration // for a statement; 0 means only the limits of every call
	begin    string
	ask      string // the query for the row
	prepares bool   // sessions prepare its statements
	limited  bool   // its statements have a time limit of their own
	sends    func() // called right before a single statement is sent; may be nil
}

// mostStatements is how many statements a read with a limit has, besides its opening.
const mostStatements = 2

// connect waits for a connection.
func (o opening) connect(ctx context.Context) (*sqlx.Conn, error) {
	if o.wait == 0 {
		return o.db.Connx(ctx)
	}
	waiting, cancel := context.WithTimeout(ctx, o.wait)
	defer cancel()
	conn, err := o.db.Connx(waiting)
	switch {
	case err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
		return conn, err
	case o.limit > 0:
		return nil, &store.OverlongError{Limit: o.wait, Waited: true}
	default:
		return nil, fmt.Errorf("no connection was free within %v", o.wait) // it is not the caller's context that has ended
	}
}

// A setting is a server setting for a session or a transaction of the store.
type setting struct{ name, value string }

// settings are the time-outs and disabled plan nodes under which the store's statements run.
//
// Writers must find rows by id, and searches for first jobs must follow an index in its order. The statistics may be from a
// time when the table was small or empty; with any other plan, the time would grow with the number of old rows. If a disabled
// plan node is the only choice, Postgres uses it at a huge cost estimate, which triggers JIT compilation. So jit is off.
//
// Joins by id are written as id = ANY (ARRAY[other.id]). For a plain id = other.id, the planner knows one more plan, a scan of
// the whole index. While the table is small that plan is as cheap as any, and a prepared statement would keep it when the table
// has grown. The array must be for the first column of the index. That is not enough where an argument has the value of another column,
// or where the index alone can answer. There the row is looked for by a subquery that is no join, because it ends with OFFSET 0 or a LIMIT,
// or by an array of ctids or keys that is made first.
func (o Options) settings() []setting {
	all := []setting{
		{"statement_timeout", millis(o.Timeout)},
		{"lock_timeout", millis(o.LockTimeout)},
		{"idle_in_transaction_session_timeout", millis(o.Timeout)},
		{"jit", "off"},
		{"client_min_messages", "warning"}, // otherwise the store might miss that a commit was not confirmed
	}
	for _, node := range slowNodes {
		all = append(all, setting{node, "off"})
	}
	return all
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// slowNodes are the plan nodes that only a count may use, because it needs every row.
var slowNodes = []string{
	"enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_bitmapscan", "enable_sort", "enable_incremental_sort",
}

// pingLimit is how long Ping waits, for a connection and for its statement.
const pingLimit = 2 * time.Second

// openings builds the openings. The store's own sessions have the settings. Sessions that are shared with others get them in
// each transaction, and prepare nothing.
//
// A writing transaction takes its number before it reads the clock. So once every transaction with a lower number has ended, no
// job that is due by that time can appear any more (see package cursor).
func (s *Store) openings(o Options) openings {
	var settings, free strings.Builder
	if s.shared {
		all := o.settings()
		if !o.Pooled { // the driver prepares statements
			all = o.atStart()
		}
		for _, one := range all {
			fmt.Fprintf(&settings, "SET LOCAL %s = '%s'; ", one.name, one.value)
		}
	}
	for _, node := range slowNodes {
		fmt.Fprintf(&free, "SET LOCAL %s = on; ", node)
	}
	const each = `SET LOCAL plan_cache_mode = force_custom_plan; ` // plan each statement for its arguments
	const writes = `BEGIN ISOLATION LEVEL READ COMMITTED; `        // without READ WRITE, so that a user's default of read-only applies to the store too
	const reads = `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; `
	own := !s.shared
	write := opening{db: s.db, begin: writes + settings.String(), prepares: own, ask: `
		SELECT ` + shownRow}
	get := opening{db: s.db, begin: reads + settings.String(), prepares: own, ask: `
		SELECT clock_timestamp(), statement_timestamp(), 0, 0, pg_postmaster_start_time()`}
	on := func(with opening, db *sqlx.DB) opening {
		with.db = db
		return with
	}
	page, probe := on(get, s.slow).within(o.ReadTimeout), on(get, s.urgent).within(pingLimit)
	page.wait, page.limit, probe.wait = o.ReadTimeout, o.ReadTimeout, pingLimit
	anew := func(with opening, also string) opening {
		with.begin, with.prepares = with.begin+also, false
		return with
	}
	return openings{
		write: write, beat: on(write, s.urgent), get: get, probe: probe, caller: opening{ask: askCaller},
		bulk: anew(write, each), page: anew(page, each), count: anew(page, each+free.String()),
	}
}

// shownRow is the answer to the opening of a transaction that writes.
const shownRow = `CASE WHEN pg_current_xact_id() IS NOT NULL THEN clock_timestamp() END, statement_timestamp(),
	pg_snapshot_xmin(pg_current_snapshot())::text::bigint, pg_current_xact_id()::text::bigint,
	pg_postmaster_start_time()`

// askCaller is the opening of a call in a caller's transaction.
const askCaller = `
		SELECT pg_current_xact_id_if_assigned() IS NOT NULL, current_database()::text, ` + shownRow

// within limits each statement to that time.
func (o opening) within(most time.Duration) opening {
	o.begin += `SET LOCAL statement_timeout = ` + millis(most) + `; `
	o.limited = true
	return o
}

// atStart returns the settings where statements are prepared, which sessions of the store's own get at their start. Prepared
// statements get a generic plan at once. Single statements have the isolation level of the session.
func (o Options) atStart() []setting {
	return append(o.settings(), setting{"plan_cache_mode", planMode}, setting{"default_transaction_isolation", "read committed"})
}

const planMode = "force_generic_plan"

// startup returns the settings as server options. They follow the options of the DSN and so override them.
func (o Options) startup() string {
	var text strings.Builder
	for _, one := range o.atStart() {
		fmt.Fprintf(&text, " -c %s=%s", one.name, strings.ReplaceAll(one.value, " ", `\ `))
	}
	return text.String()
}

// others returns the DSN's other settings, without those that would override the session's.
func (o Options) others(given map[string]string) map[string]string {
	left := maps.Clone(given)
	maps.DeleteFunc(left, func(name, _ string) bool {
		return slices.ContainsFunc(o.atStart(), func(one setting) bool { return strings.EqualFold(one.name, name) })
	})
	return left
}
