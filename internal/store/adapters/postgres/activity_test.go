package postgres

import (
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store/activitytest"
)

func BenchmarkActivity(b *testing.B) {
	clk := clock.NewMock()
	clk.Set(time.Date(2026, 3, 1, 12, 7, 0, 0, time.UTC))
	dsn := pgtest.DSN(b)
	s, err := Open(b.Context(), dsn, &Options{Schema: pgtest.Schema(b, dsn), Clock: clk})
	require.NoError(b, err)
	defer func() { require.NoError(b, s.Close()) }()
	activitytest.Bench(b, clk, s)
}

func TestOldActivityIsDeleted(t *testing.T) {
	t.Parallel()
	clk := clock.NewMock()
	s := openStore(t, Options{Clock: clk})
	activitytest.OldIsDeleted(t, clk, s, func(width int) (n int) {
		require.NoError(t, s.DB().QueryRowContext(t.Context(), s.sql(`SELECT count(*) FROM {schema}.activity WHERE width = $1`), width).Scan(&n))
		return n
	})
}
