// Package sqlite opens a job store in one SQLite file. It needs no server and no C compiler, and several processes can work
// on the same file.
//
//	s, err := sqlite.Open(ctx, "jobs.db", nil)
//
// By default every commit waits for the disk: see Options.Synchronous.
//
// Only one process at a time can write to the file. If a process is stopped in the middle of a write, for example because its
// container is paused, writes by other processes fail with ErrUnavailable after Options.BusyTimeout, and the error names the
// stopped process. Reads are not affected.
package sqlite

import (
	"context"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/store/adapters/sqlite"
)

// A Store keeps jobs in one SQLite file. It is a jq.Store with every ability.
//
// Its methods beyond the contract:
//
//	// Backup writes a consistent copy of the store to a new file, while others read and write.
//	func (*Store) Backup(ctx context.Context, path string) error
//	// DB is the database to begin your own transactions on, for InTx.
//	func (*Store) DB() *sqlx.DB
type Store = sqlite.Store

// Options configures Open. Zero fields mean the default.
//
// Its fields:
//
//	// Clock gives the store its time: by default the clock of the process.
//	Clock clock.Clock
//
//	// MaxLease is the longest lease: by default an hour. All stores of one file must have the same MaxLease.
//	MaxLease time.Duration
//
//	// Logger gets a warning when the clock goes back: by default slog.Default().
//	Logger *slog.Logger
//
//	// Synchronous is how durable a commit is: by default Full.
//	Synchronous Synchronous
//
//	// Readers is how many calls of List and Count run at once: by default one for every two processors, and at least two.
//	// Beside them run two calls of Get, OldestDue and other quick reads, and Ping, so that these never wait for a slow listing.
//	Readers int
//
//	// ReadTimeout ends a List or a Count that takes longer, or waits longer to start: by default 10 seconds. The error is a
//	// *jq.OverlongError, which is ErrUnavailable. Narrow the filter then.
//	ReadTimeout time.Duration
//
//	// NoMigrate keeps Open from creating and migrating the store. If the store is missing or older than this program, Open
//	// fails and says what to do. With NoMigrate, Open does not wait for other processes that write.
//	NoMigrate bool
//
//	// BusyTimeout is how long a call waits for another process that writes: by default DefaultBusyTimeout. Then the call fails
//	// with ErrUnavailable, and the error names that process. Heartbeats wait as well, so keep this well below a third of the
//	// shortest lease.
//	BusyTimeout time.Duration
//
//	// Name stands for this process in the errors of other processes that wait for it: by default the name of the program.
//	Name string
//
//	// Shared allows a file that already has tables of another program, or another program's application_id. The store adds its
//	// tables, and leaves the application_id as it is.
//	Shared bool
//
//	// MigrateWait is how long Open waits before a migration that breaks programs of earlier versions, until these have stopped and their
//	// leases have ended. It logs whom it waits for. By default Open does not wait: it migrates nothing and fails if one still runs.
//	// MigrateForce migrates at once, whoever runs.
//	MigrateWait  time.Duration
//	MigrateForce bool
//
//	// Migrating is called before each step of a migration. A step over many jobs can take long.
//	Migrating func(step, of int)
type Options = sqlite.Options

// Synchronous is how durable a commit is.
//
// Its values:
//
//	Full   = "FULL"
//	Normal = "NORMAL"
type Synchronous = sqlite.Synchronous

// The values of Options.Synchronous.
const (
	Full   = sqlite.Full   // the default: commits survive a power failure
	Normal = sqlite.Normal // a power failure may lose the latest commits; the file stays sound
)

// DefaultBusyTimeout is how long a call waits for another process to finish its write.
const DefaultBusyTimeout = sqlite.DefaultBusyTimeout

// Open opens the store in the file, and creates or migrates it if necessary. With Options.NoMigrate it changes nothing, and fails
// if the store is missing or of another version. Options may be nil.
func Open(ctx context.Context, path string, options *Options) (*Store, error) {
	return sqlite.Open(ctx, path, options)
}

// SchemaVersion returns how far the store in the file is migrated. It changes nothing.
func SchemaVersion(ctx context.Context, path string) (contract.Schema, error) {
	return sqlite.SchemaVersion(ctx, path)
}

// Restored says what a restore did.
//
// Its fields:
//
//	Jobs  int64  // how many jobs the restored store has
//	Epoch int64  // the epoch that it was fenced with
//	Kept  string // the path of the replaced file, empty if there was none
type Restored = sqlite.Restored

// Restore replaces the store at the path with a backup that Store.Backup has made. There need not be a store at the path. If there
// is one, no process may have it open, and Restore keeps its file under another name. The restored store is fenced, so workers
// can start at once. If Restore is interrupted, the path has either the old store or the restored one, and you can repeat the
// call.
func Restore(ctx context.Context, path, backup string) (Restored, error) {
	return sqlite.Restore(ctx, path, backup)
}
