package postgres

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// writeWorkers adds n workers with the same queues, as JSON.
func writeWorkers(t *testing.T, s *Store, n int, queues string) {
	t.Helper()
	_, err := s.db.ExecContext(t.Context(), s.sql(`
		INSERT INTO {schema}.workers (name, host, pid, queues, slots, running, stale_after, beat_at)
		SELECT to_char(i, '0000'), '', 0, `+queues+`, 0, 0, 1, now()
		FROM generate_series(1, $1::bigint) AS i`), n)
	require.NoError(t, err)
}

// The driver keeps all that the server sends, however early one stops to read. 400 workers of 255 kB made 103 MB of it: 40 show
// the same.
func TestServerSendsNoMoreWorkersThanAPageHolds(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{Timeout: time.Minute})
	writeWorkers(t, s, 40, `'["' || repeat(repeat('q', 255) || '","', 999) || repeat('q', 255) || '"]'`)
	var asked string
	spied(t, s, "AS follow", func(query string) { asked = query })
	page, err := s.Workers(t.Context(), store.WorkerFilter{}, store.Page{Limit: store.MaxItems})
	require.NoError(t, err)
	require.Len(t, page.Workers, 4)
	require.NotEmpty(t, asked)
	sent := 0
	rows, err := s.db.QueryContext(t.Context(), `SELECT name FROM (`+asked+`) AS sent`, time.Time{}, "", store.MaxItems+1)
	require.NoError(t, err)
	for rows.Next() {
		sent++
	}
	require.NoError(t, rows.Err())
	require.NoError(t, rows.Close())
	assert.Equal(t, 5, sent, "those on the page, and one to tell that there are more")
	all, err := store.AllWorkers(t.Context(), s)
	require.NoError(t, err)
	assert.Len(t, all, 40)
}

// Names that are nine times as long as JSON do not end a page early.
func TestPageOfWorkersHoldsTheLongestJSON(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{Timeout: time.Minute})
	writeWorkers(t, s, store.MaxItems+1, `'["' || repeat('\u0001","', 999) || '\u0001"]'`)
	page, err := s.Workers(t.Context(), store.WorkerFilter{}, store.Page{Limit: store.MaxItems})
	require.NoError(t, err)
	require.Len(t, page.Workers, store.MaxItems)
	assert.Equal(t, store.MaxItems, page.Workers[0].Weight())
	page, err = s.Workers(t.Context(), store.WorkerFilter{}, store.Page{Limit: store.MaxItems, Cursor: page.Next})
	require.NoError(t, err)
	assert.Len(t, page.Workers, 1)
	assert.Empty(t, page.Next)
}
