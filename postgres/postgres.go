// Package postgres opens stores in a Postgres database.
//
//	s, err := postgres.Open(ctx, "postgres://user:password@host/database", nil)
//
// The server's synchronous_commit says how durable a commit is. Where commits wait for a synchronous standby, a call whose wait was
// broken off returns [jq.ErrInDoubt], never success. In your own transactions the COMMIT is yours: see [ConfirmCommits].
//
// Any number of processes may work on one schema. Behind a
// transaction-pooling proxy such as PgBouncer, say so by Options.Pooled, and give wake-ups a direct way by
// Options.ListenDSN.
//
// After a failover, a point-in-time recovery, or the restore of a dump, the store notices that the database is another one, and raises
// the epoch as Fence does. What it can not notice is an old primary that is started again beside its successor, when the process has
// never met the successor: the tool that promotes must keep the old one down. Nor does it notice that the files of a server were
// replaced by an older copy of themselves: stop the workers then, and call Fence with EndLeases.
package postgres

import (
	"context"
	"database/sql/driver"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres"
)

// A Store keeps its jobs in one schema of a Postgres database.
type Store = postgres.Store

// Options are what can be chosen. The zero value of each field means its default.
type Options = postgres.Options

// Open opens the store, and makes or migrates its schema where that is needed. With Options.NoMigrate it opens what is
// there. Any number of processes may do so at once. The DSN is a URL or a list of key=value as lib/pq takes it. Options may be nil.
func Open(ctx context.Context, dsn string, options *Options) (*Store, error) {
	return postgres.Open(ctx, dsn, options)
}

// SchemaVersion says how far the schema is migrated, and changes nothing.
func SchemaVersion(ctx context.Context, dsn string, options *Options) (jq.Schema, error) {
	return postgres.SchemaVersion(ctx, dsn, options)
}

// ConfirmCommits makes connections whose Commit returns an error that is [jq.ErrInDoubt] where the server has committed without
// waiting for its synchronous standby until the end: the context ended, or somebody cancelled the wait. Without it such a Commit
// returns nil, and a failover loses what was committed, jobs of EnqueueTx and FinishTx included. It is for a *sql.DB of your own:
//
//	connector, err := pq.NewConnector(dsn)
//	db := sql.OpenDB(postgres.ConfirmCommits(connector))
//
// The connector must be one of lib/pq. Transactions of [Store.DB] are confirmed already. With another driver, count warnings whose
// SQLSTATE is 01000 during the COMMIT, as pgx tells them to OnNotice. The server sends them unless client_min_messages is error.
func ConfirmCommits(c driver.Connector) driver.Connector { return postgres.ConfirmCommits(c) }
