package postgres

import (
	"context"
	"database/sql/driver"
	"testing"

	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
)

// A wrapping connector stands between a store and the driver.
type wrapping struct {
	driver.Connector
	wrap func(Conn) Conn
}

// wrapped lets the store's calls go by connections of the driver's that are wrapped.
func wrapped(t testing.TB, s *Store, wrap func(Conn) Conn) {
	t.Helper()
	config, err := pq.NewConfig(pgtest.DSN(t))
	require.NoError(t, err)
	config.BinaryParameters, config.Options, config.ApplicationName = true, s.options.startup(), s.options.Schema
	inner, err := pq.NewConnectorConfig(config)
	require.NoError(t, err)
	s.pool.close()
	s.use(newPool(wrapping{inner, wrap}, s.options, s.pool.most, true))
	s.with = s.openings(s.options)
}

// narrow leaves the store one connection besides that for heartbeats.
func narrow(s *Store) *Store {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	s.pool.most = 2
	return s
}

// busy is how many connections the store's calls have, and how many calls wait for one.
func busy(s *Store) (used, waiting int) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	return s.pool.open - len(s.pool.idle), len(s.pool.waiting)
}

// Connect is part of driver.Connector.
func (w wrapping) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := w.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return newSession(w.wrap(newPQConn(c, nil))), nil
}
