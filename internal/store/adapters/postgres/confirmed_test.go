package postgres

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// A step to the newest schema whose commit did not wait for the standby until the end is no store to begin with: a failover would
// lose it.
func TestAMigrationThatWasBrokenOffBeforeAStandbyHadItIsInDoubt(t *testing.T) {
	t.Parallel()
	primary, standby := replicated(t)
	admin, err := sql.Open("postgres", primary.DSN+" synchronous_commit=local")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, admin.Close()) })
	require.NoError(t, standby.Detach(t.Context()))
	for schema, o := range map[string]Options{"direct": {}, "pooled": {Pooled: true}} {
		o.Schema = schema
		open := func(ctx context.Context) (*Store, error) { return Open(ctx, primary.DSN, &o) }
		opened := behind(t, open)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var got outcome[*Store]
		for waits := true; waits; { // each commit of the migrations
			_, err = admin.ExecContext(ctx, `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
			require.NoError(t, err)
			select {
			case got = <-opened:
				waits = false
			case <-ctx.Done():
				t.Fatal("the store is not opened, and not refused")
			case <-time.After(time.Millisecond):
			}
		}
		if got.err == nil {
			assert.NoError(t, got.answer.Close())
		}
		require.ErrorIs(t, got.err, store.ErrInDoubt, schema)
		require.NotErrorIs(t, got.err, store.ErrUnavailable)
		wellSaid(t, got.err)
	}
	require.NoError(t, standby.Attach(t.Context()))
	s, err := Open(t.Context(), primary.DSN, &Options{Schema: "direct"})
	require.NoError(t, err)
	assert.NoError(t, s.Close())
}
