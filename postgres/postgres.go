// Package postgres opens stores in a Postgres database.
//
//	s, err := postgres.Open(ctx, "postgres://user:password@host/database", nil)
//
// The server's synchronous_commit setting decides how durable a commit is. If commits wait for a synchronous standby and such a
// wait is interrupted, the call returns jq.ErrInDoubt, never success. For commits that you make yourself, see [ConfirmCommits].
//
// Any number of processes may use one schema. Behind a transaction-pooling proxy such as PgBouncer, set Options.Pooled, and set
// Options.ListenDSN to give wake-ups a direct connection.
//
// After a failover, a point-in-time recovery, or the restore of a dump, the store detects that it works on another database, and
// raises the epoch as Fence does. Two cases it can not detect:
//
//   - An old primary is started again beside its successor, and this process has never connected to the successor. The tool that
//     promotes must keep the old primary down.
//   - The files of a server are replaced by an older copy. Stop the workers then, and call Fence with EndLeases.
package postgres

import (
	"context"
	"database/sql/driver"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres"
)

// A Store keeps its jobs in one schema of a Postgres database.
//
// Its methods beyond the contract:
//
//	// DB is the database to begin your own transactions on, for InTx.
//	func (*Store) DB() *sqlx.DB
type Store = postgres.Store

// Options configures Open. Zero fields mean the default.
//
// Its fields:
//
//	// Schema is the name of the schema: by default "jq". Open creates it if it is missing.
//	Schema string
//
//	// Clock gives the store its time: by default the database's own clock, which all processes share. All stores of one schema
//	// must use the same clock.
//	Clock clock.Clock
//
//	// MaxConns is how many connections the store may have: by default 16. On top come two connections for heartbeats, those
//	// for reads (see Readers), and the one that listens.
//	MaxConns int
//
//	// Readers is how many connections List and Count have of their own, so that no other call waits for a slow listing: by
//	// default 4. Get, OldestDue and other quick reads have two more, and Ping has one.
//	Readers int
//
//	// ReadTimeout ends a List or a Count if one of its statements takes longer, or if it waits longer for one of those
//	// connections: by default 10 seconds. The error is a *jq.OverlongError, which is ErrUnavailable. Narrow the filter then.
//	ReadTimeout time.Duration
//
//	// Timeout ends any other statement or transaction that takes longer: by default 8 seconds. LockTimeout ends a statement
//	// that waits longer for a lock: by default 5 seconds. Both should be well below a third of the time of leases. If the
//	// server does not respond at all, a call fails about two seconds after Timeout.
//	Timeout     time.Duration
//	LockTimeout time.Duration
//
//	// MaxLease is the longest lease: by default an hour. All stores of one schema must have the same MaxLease.
//	MaxLease time.Duration
//
//	// Pooled says that the DSN leads to a transaction-pooling proxy, through which LISTEN does not work. ListenDSN is then the
//	// DSN of the server itself, for one connection that listens. Without ListenDSN, the store polls for wake-ups.
//	Pooled    bool
//	ListenDSN string
//
//	// NoMigrate keeps Open from creating and migrating the schema. If the schema is missing or of another version, Open fails
//	// and says what to do.
//	NoMigrate bool
//
//	// Logger gets what the store does by itself and operators should know: by default slog.Default().
//	Logger *slog.Logger
//
//	// Migrating is called before each step of a migration. A step over many jobs can take long.
//	Migrating func(step, of int)
type Options = postgres.Options

// Open opens the store, and creates or migrates its schema if necessary. With Options.NoMigrate it changes nothing, and fails if
// the schema is missing or of another version. Any number of processes may open a store at once. The DSN is a URL or a list of
// key=value, as for lib/pq. Options may be nil.
func Open(ctx context.Context, dsn string, options *Options) (*Store, error) {
	return postgres.Open(ctx, dsn, options)
}

// SchemaVersion returns how far the schema is migrated. It changes nothing.
func SchemaVersion(ctx context.Context, dsn string, options *Options) (contract.Schema, error) {
	return postgres.SchemaVersion(ctx, dsn, options)
}

// ConfirmCommits wraps the connector of your own *sql.DB. If the context ends, or somebody cancels the wait for the synchronous
// standby, the server commits without the standby. Then Commit returns an error that is jq.ErrInDoubt. Without ConfirmCommits
// such a Commit returns nil, and a failover can lose the transaction, including the jobs of EnqueueTx and FinishTx.
//
//	connector, err := pq.NewConnector(dsn)
//	db := sql.OpenDB(postgres.ConfirmCommits(connector))
//
// The connector must be one of lib/pq. Transactions of [Store.DB] are confirmed already. With another driver, look for warnings
// with SQLSTATE 01000 during the COMMIT: pgx passes them to OnNotice. The server sends them unless client_min_messages is error.
func ConfirmCommits(c driver.Connector) driver.Connector { return postgres.ConfirmCommits(c) }
