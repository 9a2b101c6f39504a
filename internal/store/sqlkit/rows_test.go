package sqlkit_test

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // any database will do: none of its tables is used

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// database is one without tables.
func database(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// queries runs queries in a database.
func queries(t *testing.T) sqlkit.Query {
	t.Helper()
	db := database(t)
	return func(scan func(rows *sql.Rows) error, query string, args ...any) error {
		return sqlkit.Each(t.Context(), db, scan, query, args...)
	}
}

func TestEachTellsOfErrors(t *testing.T) {
	each, stop := queries(t), errors.New("enough")
	rows := 0
	err := each(func(*sql.Rows) error { rows++; return stop }, `SELECT 1 UNION ALL SELECT 2`)
	assert.ErrorIs(t, err, stop)
	assert.Equal(t, 1, rows, "rows until the error")
	assert.Error(t, each(func(*sql.Rows) error { return nil }, `SELECT FROM`), "a query that is none")
	assert.Error(t, each(func(*sql.Rows) error { return nil }, `SELECT 1 UNION ALL SELECT abs(-9223372036854775808)`), "a row that can not be made")
}

// A query that has no answer is none that has found nothing.
func TestEachOfWantsAllAnswers(t *testing.T) {
	rows := 0
	count := func(*sql.Rows) error { rows++; return nil }
	err := sqlkit.EachOf(t.Context(), database(t), []sqlkit.Scan{count, count}, `SELECT 1 UNION ALL SELECT 2`)
	assert.ErrorContains(t, err, "a query was not answered")
	assert.Equal(t, 2, rows)
}

func TestEntriesReadColumnsByTheirNames(t *testing.T) {
	found, err := sqlkit.Records(queries(t), `
		SELECT 'q' AS queue, 7 AS id, '["a","b"]' AS tags, 1500000 AS run_at, 2000 AS unique_for, 'failed' AS state, NULL AS payload, 'x' AS payload
		UNION ALL
		SELECT 's', 9, '["c"]', 0, 0, 'ready', NULL, 'y'
		UNION ALL
		SELECT 'r', 8, NULL, NULL, 0, 'ready', NULL, NULL`)
	require.NoError(t, err)
	job := func(j store.Job) *store.Record { return &store.Record{Job: j} }
	want := []*store.Record{
		job(store.Job{
			ID: 7, Queue: "q", Tags: []string{"a", "b"}, RunAt: time.UnixMicro(1_500_000).UTC(), UniqueFor: 2 * time.Millisecond,
			State: store.Failed, Payload: []byte("x"),
		}),
		job(store.Job{ID: 9, Queue: "s", Tags: []string{"c"}, RunAt: time.UnixMicro(0).UTC(), State: store.Ready, Payload: []byte("y")}),
		job(store.Job{ID: 8, Queue: "r", State: store.Ready}),
	}
	assert.Equal(t, want, found, "each row is its own, and shares nothing with the others")
}

func TestEntriesKnowEveryColumn(t *testing.T) {
	found, err := sqlkit.Records(queries(t), `SELECT `+sqlkit.All.Each(`NULL AS {name}`, 0)+`, 1 AS epoch WHERE FALSE`)
	assert.NoError(t, err)
	assert.Empty(t, found)
}

func TestEntriesRefuseUnknownColumns(t *testing.T) {
	_, err := sqlkit.Records(queries(t), `SELECT 1 AS id, 2 AS colour`)
	assert.EqualError(t, err, `the table jobs has no column "colour"`)
}

func TestCountsGatherRowsByQueue(t *testing.T) {
	now := time.UnixMicro(100).UTC()
	counts, err := sqlkit.Counts(queries(t), now, `
		SELECT * FROM (VALUES
			('a', 'in_flight', 1, 0, NULL), ('a', 'ready', 4, 3, 50), ('a', 'retrying', 2, 1, 40), ('b', 'dead', 5, 0, NULL),
			('b', 'retrying', 2, 1, 40), ('b', 'ready', 2, 1, 60))`)
	require.NoError(t, err)
	at := func(micros int64) time.Time { return time.UnixMicro(micros).UTC() }
	assert.Equal(t, store.Counts{Now: now, Queues: []store.QueueCount{
		{Queue: "a", Jobs: map[store.State]int64{store.InFlight: 1, store.Ready: 4, store.Retrying: 2}, Due: 4, OldestDue: at(40)},
		{Queue: "b", Jobs: map[store.State]int64{store.Dead: 5, store.Retrying: 2, store.Ready: 2}, Due: 2, OldestDue: at(40)},
	}}, counts)
}

func TestWorkersAreStaleWhenTheirTimeIsUp(t *testing.T) {
	found, err := sqlkit.Workers(queries(t), time.UnixMicro(100).UTC(), store.WorkerFilter{}, store.Page{Limit: 2}, "", `
		SELECT 'at', 'h', 1, '["q"]', 2, 1, 60, 40, FALSE
		UNION ALL
		SELECT 'before', 'h', 1, NULL, 2, 1, 61, 40, FALSE`, afterAny)
	require.NoError(t, err)
	at := store.Worker{
		Name: "at", Host: "h", PID: 1, Queues: []string{"q"}, Slots: 2, Running: 1, StaleAfter: 60 * time.Microsecond,
		BeatAt: time.UnixMicro(40).UTC(), Stale: true,
	}
	before := at
	before.Name, before.Queues, before.StaleAfter, before.Stale = "before", nil, 61*time.Microsecond, false
	assert.Equal(t, store.WorkerPage{Workers: []store.Worker{at, before}}, found)
}

// afterAny has no arguments.
func afterAny(string) []any { return nil }

func TestWorkersEndWhereTheirQueuesFindNoRoom(t *testing.T) {
	const rows = `
		WITH workers(name, bytes) AS (VALUES ('a', 1048575), ('b', 1), ('c', 0), ('d', 1), ('e', 1))
		SELECT name, '', 0, '["' || substr(hex(zeroblob(bytes)), 1, bytes) || '"]', 0, 0, 1, 0, `
	page := func(after string, limit int, query string) (names, next string) {
		found, err := sqlkit.Workers(queries(t), time.UnixMicro(0), store.WorkerFilter{}, store.Page{Limit: limit}, after, query,
			func(after string) []any { return []any{after} })
		require.NoError(t, err)
		for _, w := range found.Workers {
			names += w.Name
		}
		return names, found.Next
	}
	for _, c := range []struct {
		after string
		limit int
		names string
		last  bool
	}{{"", 5, "abc", false}, {"", 1, "a", false}, {"", 3, "abc", false}, {"a", 4, "bcde", true}, {"a", 5, "bcde", true}, {"a", 3, "bcd", false}} {
		for _, query := range []string{
			`FALSE FROM workers WHERE name > ?`,
			`name < 'e' FROM workers WHERE name > ? LIMIT 1`,
			`name < 'e' FROM workers WHERE name > ? LIMIT 2`,
		} {
			names, next := page(c.after, c.limit, rows+query)
			assert.Equal(t, c.names, names, "%+v %s", c, query)
			want := store.WorkerFilter{}.Cursor(names[len(names)-1:])
			if c.last {
				want = ""
			}
			assert.Equal(t, want, next, "%+v %s", c, query)
		}
	}
	found, err := sqlkit.Workers(queries(t), time.UnixMicro(0), store.WorkerFilter{}, store.Page{Limit: 2}, "", `
		SELECT 'a', '', 0, '["' || hex(zeroblob(600000)) || '"]', 0, 0, 1, 0, FALSE
		UNION ALL
		SELECT 'b', '', 0, NULL, 0, 0, 1, 0, FALSE`, afterAny)
	require.NoError(t, err)
	assert.Len(t, found.Workers, 1, "one that was written by hand, and is larger than any page, is listed alone")
	assert.NotEmpty(t, found.Next)
}
