package cost

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lib/pq"

	"github.com/seed-ed332417/jq/bench/internal/peer"
)

// A Meter measures the costs of a run: New before the queue is opened, Begin, End, and Finish after the queue is closed.
//
// The server's sessions report transactions and tuples up to ten seconds late, or when they end. So Finish reads them.
type Meter struct {
	place    peer.Place
	admin    *sql.DB // to another database, so that the meter's own transactions do not count; nil without Postgres
	database string
	counts   bool // statements
	inside   bool // the peer runs in this process
	off      bool // the processes of this program include a server, so that their CPU time means nothing

	server, producer int // processes
	began            bool
	before, spent    Costs
	calls            map[string]float64 // by text
}

// New returns a meter. If statements is set, it counts them, which costs the server some time for each.
func New(ctx context.Context, p peer.Peer, place peer.Place, statements bool) (*Meter, error) {
	m := &Meter{place: place, inside: !p.Node, off: place.Redis != ""}
	if place.Admin == "" {
		return m, nil
	}
	config, err := pq.NewConfig(place.DSN)
	if err != nil {
		return nil, err
	}
	m.database = config.Database
	if m.admin, err = sql.Open("postgres", place.Admin); err != nil {
		return nil, err
	}
	if err := m.prepare(ctx, statements); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// prepare finds the server's first process, and lets new sessions of the database count their statements, if the server can.
func (m *Meter) prepare(ctx context.Context, statements bool) error {
	var file, libraries string
	err := m.admin.QueryRowContext(ctx, `
		SELECT pg_read_file('postmaster.pid'),
			current_setting('shared_preload_libraries')`).Scan(&file, &libraries)
	if err != nil {
		return err
	}
	line, _, _ := strings.Cut(file, "\n")
	if m.server, err = strconv.Atoi(line); err != nil {
		return err
	}
	m.counts = statements && strings.Contains(libraries, "pg_stat_statements")
	if !m.counts {
		return nil
	}
	name := pq.QuoteIdentifier(m.database)
	for _, statement := range []string{
		"CREATE EXTENSION IF NOT EXISTS pg_stat_statements",
		"ALTER DATABASE " + name + " SET pg_stat_statements.track = top",
		"ALTER DATABASE " + name + " SET compute_query_id = on",
	} {
		if _, err := m.admin.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// Counts reports whether the meter counts statements.
func (m *Meter) Counts() bool { return m.counts }

// Begin begins to measure. producer is the process that enqueues, or zero if it is this one.
func (m *Meter) Begin(ctx context.Context, producer int) error {
	if m.off {
		return nil
	}
	m.began, m.producer = true, producer
	late, err := m.late(ctx)
	if err != nil {
		return err
	}
	if m.counts {
		if _, err := m.admin.ExecContext(ctx, `SELECT pg_stat_statements_reset(0, oid, 0) FROM pg_database WHERE datname = $1`, m.database); err != nil {
			return err
		}
	}
	if m.before, err = m.now(ctx); err != nil {
		return err
	}
	maps.Copy(m.before, late)
	return nil
}

// End reads what is known at once. The jobs have ended.
func (m *Meter) End(ctx context.Context) error {
	if !m.began {
		return nil
	}
	after, err := m.now(ctx)
	if err != nil {
		return err
	}
	m.spent = after.minus(m.before)
	if !m.counts {
		return nil
	}
	m.calls, err = m.queries(ctx)
	m.spent[Statements] = 0
	for _, calls := range m.calls {
		m.spent[Statements] += calls
	}
	return err
}

// Spent returns what is known at once of all costs so far, also without Begin.
func (m *Meter) Spent(ctx context.Context) (Costs, error) {
	c, err := m.now(ctx)
	if err != nil || !m.counts {
		return c, err
	}
	calls, err := m.queries(ctx)
	for _, n := range calls {
		c[Statements] += n
	}
	return c, err
}

// Finish returns the costs of each of the jobs, and the statements, or nothing without Begin. All sessions of the database are
// about to end.
func (m *Meter) Finish(ctx context.Context, jobs int64) (Costs, []Query, error) {
	if !m.began {
		return nil, nil, nil
	}
	if m.admin != nil {
		if err := m.awaitSessions(ctx); err != nil {
			return nil, nil, err
		}
	}
	late, err := m.late(ctx)
	if err != nil {
		return nil, nil, err
	}
	maps.Copy(m.spent, late.minus(m.before))
	if m.admin != nil {
		m.spent[Transactions] -= lateTransactions
	}
	for kind := range m.spent {
		m.spent[kind] /= float64(jobs)
	}
	return m.spent, perJob(m.calls, jobs), nil
}

// Close closes the meter.
func (m *Meter) Close() error {
	if m.admin == nil {
		return nil
	}
	return m.admin.Close()
}

// now reads the counters that are exact at any time.
func (m *Meter) now(ctx context.Context) (Costs, error) {
	c := Costs{}
	if m.admin != nil {
		var wal, ids float64
		err := m.admin.QueryRowContext(ctx, `
			SELECT pg_current_wal_insert_lsn() - '0/0',
				pg_snapshot_xmax(pg_current_snapshot())::text`).Scan(&wal, &ids)
		if err != nil {
			return nil, err
		}
		c[WAL], c[IDs] = wal, ids
	}
	if m.inside && m.producer == 0 {
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		c[Allocations], c[Allocated] = float64(memory.Mallocs), float64(memory.TotalAlloc)
	}
	all, err := processes(os.DirFS("/proc"))
	if err != nil || len(all) == 0 {
		return c, nil // this system tells nothing
	}
	microseconds := func(spent time.Duration) float64 { return float64(spent) / float64(time.Microsecond) }
	servers := slices.Clone(m.place.Servers)
	if m.admin != nil {
		servers = append(servers, m.server)
	}
	c[Process] = microseconds(tree(all, os.Getpid(), servers...))
	for _, one := range servers {
		c[Server] += microseconds(tree(all, one))
	}
	if m.producer != 0 {
		c[Producer] = microseconds(tree(all, m.producer))
	}
	return c, nil
}

// lateTransactions is how many transactions of its own late leaves in the database: that of the connection and that of the
// statement.
const lateTransactions = 2

// late reads the counters that sessions report late. It reads the transactions first, because the rest needs a session in the
// database.
func (m *Meter) late(ctx context.Context) (c Costs, err error) {
	if m.admin == nil {
		return nil, nil
	}
	var transactions, updated, hot, deleted float64
	err = m.admin.QueryRowContext(ctx, `SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1`, m.database).Scan(&transactions)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("postgres", m.place.DSN)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	err = db.QueryRowContext(ctx, `
		SELECT coalesce(sum(n_tup_upd), 0),
			coalesce(sum(n_tup_hot_upd), 0),
			coalesce(sum(n_tup_del), 0)
		FROM pg_stat_user_tables`).Scan(&updated, &hot, &deleted)
	return Costs{Transactions: transactions, HOT: hot, Dead: updated - hot + deleted}, err
}

// queries returns how often each statement ran since Begin.
func (m *Meter) queries(ctx context.Context) (calls map[string]float64, err error) {
	rows, err := m.admin.QueryContext(ctx, `
		SELECT query,
			sum(calls)
		FROM pg_stat_statements
		WHERE dbid = (SELECT oid FROM pg_database WHERE datname = $1)
		GROUP BY query`, m.database)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	calls = map[string]float64{}
	for rows.Next() {
		var text string
		var n float64
		if err := rows.Scan(&text, &n); err != nil {
			return nil, err
		}
		calls[onOneLine(text)] += n
	}
	return calls, rows.Err()
}

// patience is how long sessions may take to end.
const patience = 10 * time.Second

// awaitSessions waits until all sessions of the database have ended.
func (m *Meter) awaitSessions(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := peer.Until(ctx, func() (bool, error) {
		var sessions int
		err := m.admin.QueryRowContext(ctx, `
			SELECT count(*)
			FROM pg_stat_activity
			WHERE datname = $1 AND backend_type = 'client backend'`, m.database).Scan(&sessions)
		return sessions == 0, err
	})
	if err != nil {
		return fmt.Errorf("waiting for the end of all sessions, which report their transactions then: %w", err)
	}
	return nil
}
