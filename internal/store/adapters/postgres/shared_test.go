package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
)

// onDB opens a store on a *sql.DB.
func onDB(t *testing.T, db *sql.DB, o Options) *Store {
	t.Helper()
	o.Schema = spares.Take(t, pgtest.DSN(t))
	s, err := OpenDB(t.Context(), db, &o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// One connection is enough, and it is the caller's again after each call, with its settings and its handler of notices.
func TestADBRemainsTheCallers(t *testing.T) {
	t.Parallel()
	connector, err := pq.NewConnector(pgtest.DSN(t))
	require.NoError(t, err)
	notices := 0
	for _, db := range []*sql.DB{
		sql.OpenDB(pq.ConnectorWithNoticeHandler(connector, func(*pq.Error) { notices++ })),
		sql.OpenDB(ConfirmCommits(connector)),
	} {
		db.SetMaxOpenConns(1)
		settings := func() (all string) {
			t.Helper()
			require.NoError(t, db.QueryRowContext(t.Context(), `
				SELECT string_agg(name || '=' || setting, ' ' ORDER BY name)
				FROM pg_settings
				WHERE name <> 'transaction_isolation' AND name NOT LIKE 'plpgsql.%'`).Scan(&all)) // that appear with the first trigger
			return all
		}
		before := settings()
		s := onDB(t, db, Options{})
		for range 3 {
			enqueue(t, s, 2)
			held := claimN(t, s, 2)
			_, err := s.Extend(t.Context(), leasesOf(held), time.Minute)
			require.NoError(t, err)
			_, err = s.Ack(t.Context(), acksOf(held))
			require.NoError(t, err)
		}
		assert.Equal(t, int64(6), countIn(t, s, store.Succeeded))
		tx, err := s.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		enqueue(t, s.InTx(tx), 1)
		require.NoError(t, tx.Commit())
		assert.Equal(t, before, settings())
		require.NoError(t, s.Close())
		assert.Zero(t, db.Stats().InUse)
		require.NoError(t, db.PingContext(t.Context()))
		_, err = db.ExecContext(t.Context(), `DO $$ BEGIN RAISE WARNING 'heard'; END $$`)
		require.NoError(t, err)
		require.NoError(t, db.Close())
	}
	assert.Equal(t, 1, notices, "those of the store are its own")
}

func TestADBThatGivesNoConnectionIsUnavailable(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("postgres", pgtest.DSN(t))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	db.SetMaxOpenConns(1)
	s := onDB(t, db, Options{Timeout: 2 * time.Second})
	held, err := db.Conn(t.Context())
	require.NoError(t, err)
	_, err = s.OldestDue(t.Context())
	require.ErrorIs(t, err, store.ErrUnavailable)
	assert.NotErrorIs(t, err, context.DeadlineExceeded, "it is not the caller's context that has ended")
	assert.ErrorContains(t, err, "all 1 connections of the *sql.DB are in use, raise its SetMaxOpenConns")
	require.NoError(t, held.Close())
	enqueue(t, s, 1)
}

// A foreign connector is one of another driver.
type foreign struct{ driver.Connector }

func (foreign) Driver() driver.Driver { return nil }

func TestOpenDBRefusesOtherDrivers(t *testing.T) {
	t.Parallel()
	_, err := OpenDB(t.Context(), nil, nil)
	require.EqualError(t, err, "jq: the *sql.DB is nil: want one of lib/pq")
	db := sql.OpenDB(foreign{})
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	_, err = OpenDB(t.Context(), db, nil)
	require.ErrorContains(t, err, "or use jqpgx.Open for a pool of pgx")
}
