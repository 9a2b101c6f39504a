package jqpgx_test

import (
	"context"
	"errors"
	"testing"

	"github.com/benbjohnson/clock"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/jqpgx"
	"github.com/seed-ed332417/jq/jqtest"
	"github.com/seed-ed332417/jq/postgres"
)

// TestConformanceOnAPool runs the whole suite, with the exclusions of a store opened by a DSN, which are none.
func TestConformanceOnAPool(t *testing.T) {
	dsn := pgtest.DSN(t)
	pool := sized(t, dsn, 40)
	schemas := pgtest.NewSchemas(t, dsn)
	jqtest.Run(t, jqtest.Adapter{New: func(ctx context.Context, clk clock.Clock) (*jqtest.Instance, error) {
		o := &postgres.Options{Clock: clk, Schema: schemas.Take()}
		s, err := jqpgx.Open(ctx, pool, o)
		if err != nil {
			return nil, err
		}
		instance := &jqtest.Instance{Store: s, DB: s.DB().DB}
		instance.Reopen = func(ctx context.Context) (contract.Store, error) {
			if err := s.Close(); err != nil {
				return nil, err
			}
			s, err = jqpgx.Open(ctx, pool, o)
			if err == nil {
				instance.DB = s.DB().DB
			}
			return s, err
		}
		instance.Remove = func() error { return errors.Join(s.Close(), schemas.Return(o.Schema)) }
		return instance, nil
	}})
}

// sized returns a pool of that many connections.
func sized(t *testing.T, dsn string, most int32) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	config.MaxConns = most
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}
