package cost

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/bench/internal/peer"
	"github.com/seed-ed332417/jq/internal/pgtest"
)

// stat is a line of /proc/<pid>/stat with the name, the parent and the four CPU times.
func stat(name, parent, user, system, childrenUser, childrenSystem string) *fstest.MapFile {
	line := strings.Join([]string{"1 (" + name + ") S", parent, "1 1 0 -1 4194304 106 0 0 0", user, system, childrenUser, childrenSystem, "20 0 1 0"}, " ")
	return &fstest.MapFile{Data: []byte(line)}
}

func TestCPUIsThatOfAWholeTree(t *testing.T) {
	proc := fstest.MapFS{
		"1/stat":               &fstest.MapFile{Data: stat("init", "0", "900", "900", "900", "900").Data},
		"10/stat":              stat("postgres: 1 2) R 3", "1", "1", "2", "30", "40"),
		"11/stat":              stat("backend", "10", "5", "0", "0", "0"),
		"11/task/11/schedstat": &fstest.MapFile{Data: []byte("57000000 1 2")},
		"12/stat":              stat("backend", "10", "5", "0", "0", "0"),
		"12/task/12/schedstat": &fstest.MapFile{Data: []byte("20000000 1 2")}, // of two threads, one of which has ended
		"13/stat":              stat("grandchild", "12", "100", "0", "0", "0"),
		"20/stat":              stat("other", "1", "700", "0", "0", "0"),
		"meminfo":              &fstest.MapFile{},
		"sys/kernel/core/stat": &fstest.MapFile{},
	}
	all, err := processes(proc)
	require.NoError(t, err)
	require.Len(t, all, 6)
	const ticks = 10 * time.Millisecond
	require.Equal(t, (3+70)*ticks+57*time.Millisecond+5*ticks+100*ticks, tree(all, 10))
	require.Equal(t, (3+70)*ticks+57*time.Millisecond, tree(all, 10, 12), "without those below another")
	require.Zero(t, tree(all, 99), "it has ended")
}

func TestStatsThatAreNoneAreRefused(t *testing.T) {
	for _, line := range []string{"", "1 (sh) S 1", "1 (sh) S x 1 1 0 -1 4194304 106 0 0 0 1 2 3 4 20 0 1 0"} {
		_, err := parse(line)
		require.Error(t, err, "%q", line)
	}
}

func TestKindsHaveTitles(t *testing.T) {
	var titles []string
	for _, kind := range Kinds() {
		titles = append(titles, kind.Title())
	}
	require.Equal(t, []string{
		"transactions", "transaction ids", "statements", "server CPU µs", "process CPU µs", "producer CPU µs", "WAL bytes", "dead tuples",
		"HOT updates", "allocations", "allocated bytes",
	}, titles)
}

func TestStatementsAreOnOneLineAndCounted(t *testing.T) {
	require.Equal(t, "SELECT 1 FROM jobs", onOneLine("\n\tSELECT 1\n\tFROM jobs"))
	require.Equal(t, strings.Repeat("é", longest/2)+"…", onOneLine(strings.Repeat("é", longest)))
	got := perJob(map[string]float64{"b": 10, "a": 10, "c": 25}, 10)
	require.Equal(t, []Query{{"c", 2.5}, {"a", 1}, {"b", 1}}, got)
}

// What a session does is counted exactly, and what the meter does itself is not.
func TestMeterCountsWhatASessionDoes(t *testing.T) {
	place, m := metered(t)
	execute(t, place.DSN, "CREATE TABLE job (id int PRIMARY KEY, name text) WITH (fillfactor = 50)",
		"INSERT INTO job SELECT i, i FROM generate_series(1, 4) i")
	require.NoError(t, m.awaitSessions(t.Context()), "a session that has not ended would report its transactions after Begin")

	require.NoError(t, m.Begin(t.Context(), 0))
	execute(t, place.DSN, "BEGIN", "UPDATE job SET name = 'x' WHERE id = 1", "COMMIT", // HOT
		"UPDATE job SET id = 10 WHERE id = 2", "DELETE FROM job WHERE id = 3", "BEGIN", "SELECT 1", "ROLLBACK")
	require.NoError(t, m.End(t.Context()))
	costs, queries, err := m.Finish(t.Context(), 4)
	require.NoError(t, err)

	for kind, want := range map[Kind]float64{
		Transactions: 5, // with that in which the session begins
		IDs:          3,
		Statements:   8,
		Dead:         2,
		HOT:          1,
	} {
		require.InDelta(t, want/4, costs[kind], 1e-9, "%s: %v", kind, costs)
	}
	for _, kind := range []Kind{WAL, Allocations, Allocated} {
		require.Positive(t, costs[kind], "%s", kind)
	}
	require.NotContains(t, costs, Producer)
	require.Equal(t, Query{"BEGIN", 0.5}, queries[0])
	require.Len(t, queries, 7, "%v", queries)
}

// A session that listens reads each notification in a transaction, which has no statement and no id.
func TestHearingANotificationIsATransaction(t *testing.T) {
	place, m := metered(t)
	listener := pq.NewListener(place.DSN, time.Second, time.Second, nil)
	require.NoError(t, listener.Listen("jobs"))
	require.NoError(t, m.Begin(t.Context(), 0))
	const times = 20
	for range times {
		execute(t, place.DSN, "NOTIFY jobs")
		<-listener.Notify
	}
	require.NoError(t, listener.Close())
	require.NoError(t, m.End(t.Context()))
	costs, _, err := m.Finish(t.Context(), 1)
	require.NoError(t, err)
	require.InDelta(t, times, costs[Statements], 0.001)
	require.InDelta(t, 3*times, costs[Transactions], 3, "of a new session, its statement, and the listener, which also began some time")
}

// Those who subtract themselves get what has been spent so far, although nobody has begun.
func TestMeterTellsWhatWasSpentSoFar(t *testing.T) {
	place, m := metered(t)
	execute(t, place.DSN, "CREATE TABLE job (id int PRIMARY KEY)")
	before, err := m.Spent(t.Context())
	require.NoError(t, err)
	execute(t, place.DSN, "INSERT INTO job SELECT generate_series(1, 100000)", "DELETE FROM job", "SELECT 1")
	after, err := m.Spent(t.Context())
	require.NoError(t, err)
	require.InDelta(t, 3, after[Statements]-before[Statements], 0)
	require.Greater(t, after[WAL]-before[WAL], 1e6)
	if before[Server] > 0 { // the system tells
		require.Greater(t, after[Server], before[Server])
	}
}

// metered returns a meter on an empty database of a new server.
func metered(t *testing.T) (peer.Place, *Meter) {
	t.Helper()
	server, err := pgtest.Start(t.Context(), pgtest.Options{Settings: []string{
		"shared_preload_libraries=pg_stat_statements", "pg_stat_statements.track=none", "compute_query_id=off", "autovacuum=off",
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	place := peer.Place{Admin: server.DSN, DSN: strings.Replace(server.DSN, "dbname=postgres", "dbname=jobs", 1)}
	execute(t, place.Admin, "CREATE DATABASE jobs")
	m, err := New(t.Context(), peer.Peer{}, place, true)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return place, m
}

// Without Begin there is nothing to tell.
func TestRunsThatAreNotMeasuredHaveNoCosts(t *testing.T) {
	for _, place := range []peer.Place{{}, {Redis: "a server that this program has started"}} {
		m, err := New(t.Context(), peer.Peer{}, place, true)
		require.NoError(t, err)
		require.False(t, m.Counts())
		if place.Redis != "" {
			require.NoError(t, m.Begin(t.Context(), 0))
		}
		require.NoError(t, m.End(t.Context()))
		costs, queries, err := m.Finish(t.Context(), 1)
		require.NoError(t, err)
		require.Empty(t, costs)
		require.Empty(t, queries)
		require.NoError(t, m.Close())
	}
}

// execute runs the statements in one session.
func execute(t *testing.T, dsn string, statements ...string) {
	t.Helper()
	db, err := sql.Open("postgres", dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	session, err := db.Conn(context.Background())
	require.NoError(t, err)
	defer func() { require.NoError(t, session.Close()) }()
	for _, statement := range statements {
		_, err := session.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
}
