package postgres

import (
	"context"
	"database/sql/driver"
	"testing"

	"github.com/jmoiron/sqlx"
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
	config.BinaryParameters, config.Options = true, s.options.startup()
	inner, err := pq.NewConnectorConfig(config)
	require.NoError(t, err)
	for _, pool := range []**sqlx.DB{&s.db, &s.readers, &s.briefs, &s.probe} {
		most := (*pool).Stats().MaxOpenConnections
		require.NoError(t, (*pool).Close())
		*pool = open(wrapping{inner, wrap}, most)
	}
	s.with = s.openings(s.options)
}

// Connect is part of driver.Connector.
func (w wrapping) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := w.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return newSession(w.wrap(newPQConn(c, nil))), nil
}
