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
	"database/sql"
	"database/sql/driver"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres"
)

// A Store keeps its jobs in one schema of a Postgres database.
//
// Its methods beyond the contract:
//
//	// DB is the database to begin your own transactions on, for InTx, with at most Options.MaxConns connections.
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
//	// MaxConns is how many connections the store may have at once: by default max_conns of the DSN, or else 5, and at least 4. One
//	// listens, and one is always left to heartbeats and Ping. List and Count have at most half of the rest, so that no other call
//	// waits for a slow listing. A connection that nobody uses is closed after three seconds, except the last one. Transactions that
//	// you begin on DB may have as many again.
//	//
//	// If the server has no free connection (SQLSTATE 53300), calls wait for one that the store has, and keep asking the server. A
//	// call that gets none within Timeout fails.
//	MaxConns int
//
//	// ReadTimeout ends a List or a Count if one of its statements takes longer, or if it waits longer for a connection: by default
//	// 10 seconds. The error is a *jq.OverlongError, which is ErrUnavailable. Narrow the filter then.
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
//	// NotifyEvery is the least time between two notifications of new jobs in the same queue: by default 10 milliseconds, since
//	// transactions that notify cannot commit at once. With more, jobs that come one by one cost the server less, and may wait for so
//	// long; those of a program that ends meanwhile wait for the next poll. Wake-ups within this program do not wait.
//	//
//	// Callers' own transactions share notifications too. The store asks which of them have been committed: NotifyEvery later, and then
//	// less and less often, down to every 100 milliseconds. Jobs of those that are committed after Close wait for the next poll.
//	NotifyEvery time.Duration
//
//	// NoMigrate keeps Open from creating and migrating the schema. If the schema is missing or older than this program, Open fails
//	// and says what to do.
//	NoMigrate bool
//
//	// Logger gets what the store does by itself and operators should know: by default slog.Default().
//	Logger *slog.Logger
//
//	// MigrateWait is how long Open waits before a migration that breaks programs of earlier versions, until these have stopped and their
//	// leases have ended. It logs whom it waits for. By default Open does not wait: it migrates nothing and fails if one still runs.
//	// MigrateForce migrates at once, whoever runs.
//	MigrateWait  time.Duration
//	MigrateForce bool
//
//	// Migrating is called before each step of a migration. A step over many jobs can take long.
//	Migrating func(step, of int)
type Options = postgres.Options

// MinConns is the least Options.MaxConns: one connection that listens, one for heartbeats, one for other calls, and one for listings.
const MinConns = postgres.MinConns

// Open opens the store, and creates or migrates its schema if necessary. With Options.NoMigrate it changes nothing, and fails if
// the schema is missing or of another version. Any number of processes may open a store at once. The DSN is a URL or a list of
// key=value, as for lib/pq, and may have max_conns (see Options.MaxConns). Options may be nil.
func Open(ctx context.Context, dsn string, options *Options) (*Store, error) {
	return postgres.Open(ctx, dsn, options)
}

// OpenDB opens a store on the connections of your own *sql.DB, which must be one of lib/pq. For a pool of pgx, use jqpgx.Open.
//
//	db, err := sql.Open("postgres", dsn)
//	...
//	store, err := postgres.OpenDB(ctx, db, nil)
//
// The *sql.DB remains yours. Close of the store does not close it, and you must close the store first.
//
// The store takes a connection only for the time of a transaction, and changes no setting of a session. It has at most
// Options.MaxConns of them at once, as far as the *sql.DB has them free. Heartbeats wait for a connection like everybody, so
// SetMaxOpenConns must leave room for them beside your own transactions: a call that gets none within Options.Timeout returns
// ErrUnavailable. A server that does not respond at all is noticed only as soon as the *sql.DB notices it.
//
// A *sql.DB can not listen: set Options.ListenDSN for wake-ups, or the store polls. If the *sql.DB leads to a transaction-pooling
// proxy, set Options.Pooled, and binary_parameters=yes in its DSN.
func OpenDB(ctx context.Context, db *sql.DB, options *Options) (*Store, error) {
	return postgres.OpenDB(ctx, db, options)
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
