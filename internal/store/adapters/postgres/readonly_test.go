package postgres

import (
	"sync/atomic"
	"testing"

	"github.com/lib/pq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
)

// counted counts the connections that the store opens for its calls.
func counted(t *testing.T, s *Store, dsn string) *atomic.Int64 {
	t.Helper()
	config, err := pq.NewConfig(dsn)
	require.NoError(t, err)
	config.BinaryParameters, config.Options = true, s.options.startup()
	inner, err := pq.NewConnectorConfig(config)
	require.NoError(t, err)
	s.pool.close()
	opened := &atomic.Int64{}
	s.use(newPool(wrapping{inner, func(c Conn) Conn {
		opened.Add(1)
		return c
	}}, s.options, s.pool.most, true))
	s.with = s.openings(s.options)
	return opened
}

// A write to a standby had the code of a stale plan, and was tried on one connection after another.
func TestAStandbyRefusesAWriteOnce(t *testing.T) {
	t.Parallel()
	primary := ownServer(t, pgtest.Options{})
	standby, err := primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, standby.Stop()) })
	there := openOn(t, primary.DSN, "primary")
	ids := enqueue(t, there, 1)
	require.NoError(t, standby.CaughtUp(t.Context()))
	s, err := Open(t.Context(), standby.DSN, &Options{NoMigrate: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	opened := counted(t, s, standby.DSN)
	for i := range int64(3) {
		_, err = s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
		require.ErrorIs(t, err, store.ErrUnavailable)
		assert.ErrorContains(t, err, "perhaps a standby")
		assert.Equal(t, i+1, opened.Load(), "connections: one that leads to a standby is used no more")
	}
	j, err := s.Get(t.Context(), ids[0])
	require.NoError(t, err)
	assert.Equal(t, store.Ready, j.State)
}

// Who makes a user or a database read-only, as some services do when the disk is nearly full, means the store as well.
func TestWhatMayOnlyReadIsDenied(t *testing.T) {
	t.Parallel()
	c := ownServer(t, pgtest.Options{})
	s := openOn(t, c.DSN, "store")
	enqueue(t, s, 1)
	admin := s.callers // whose session is of before
	only := func(on string) {
		_, err := admin.ExecContext(t.Context(), `ALTER DATABASE postgres SET default_transaction_read_only = `+on)
		require.NoError(t, err)
	}
	only("on")
	s = openOn(t, c.DSN, "reader") // the schema is the newest
	for what, call := range map[string]func() error{
		"Enqueue": func() error {
			_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
			return err
		},
		"FetchAndClaim": func() error {
			_, err := s.FetchAndClaim(t.Context(), claimOf(1))
			return err
		},
		"Open": func() error {
			other, err := Open(t.Context(), c.DSN, &Options{Schema: "other"})
			if err == nil {
				err = other.Close()
			}
			return err
		},
	} {
		err := call()
		require.ErrorIs(t, err, store.ErrDenied, what)
		assert.ErrorContains(t, err, "default_transaction_read_only", what)
	}
	only("off")
	assert.Len(t, claimN(t, s, 2), 1, "sessions of before are used no more, and nothing was added")
}
