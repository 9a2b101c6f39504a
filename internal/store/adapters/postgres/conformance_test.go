package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres"
	"github.com/seed-ed332417/jq/jqtest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	jqtest.Run(t, adapter(pgtest.DSN(t), postgres.Options{}))
}

// Through a pooling proxy every transaction may meet another server, and the servers many clients. What random sequences would
// compare, one call at a time, is the same as without the proxy.
func TestConformanceThroughAPooler(t *testing.T) {
	if race.Enabled {
		t.Skip("not under the race detector: the same code as without the proxy, and slow")
	}
	t.Parallel()
	dsn := pgtest.DSN(t)
	a := adapter(pgtest.Bouncer(t, dsn), postgres.Options{Pooled: true, ListenDSN: dsn})
	t.Run("Cases", func(t *testing.T) { jqtest.Cases(t, a) })
	t.Run("Linear", func(t *testing.T) { jqtest.Linear(t, a, 100) })
}

// adapter makes stores that have a schema each.
func adapter(dsn string, o postgres.Options) jqtest.Adapter {
	return jqtest.Adapter{New: func(ctx context.Context, clk clock.Clock) (*jqtest.Instance, error) {
		o := o
		o.Clock, o.Schema = clk, pgtest.NewSchema()
		s, err := postgres.Open(ctx, dsn, &o)
		if err != nil {
			return nil, err
		}
		instance := &jqtest.Instance{Store: s, DB: s.DB().DB}
		instance.Reopen = func(ctx context.Context) (store.Store, error) {
			if err := s.Close(); err != nil {
				return nil, err
			}
			s, err = postgres.Open(ctx, dsn, &o)
			if err == nil {
				instance.DB = s.DB().DB
			}
			return s, err
		}
		instance.Remove = func() error { return errors.Join(s.Close(), pgtest.Drop(dsn, o.Schema)) }
		return instance, nil
	}}
}
