// Package sqlite opens a job store in one SQLite file. It needs no server and no C compiler, and several processes can work
// on the same file.
//
//	s, err := sqlite.Open(ctx, "jobs.db", nil)
//
// Every commit waits for the disk, unless [Options] say otherwise.
//
// Processes that share a file take turns in writing. If one is stopped in the middle of a write, as by a paused container, calls of
// the others that write are ErrUnavailable after [Options].BusyTimeout, with an error that names the process. Calls that read go on.
package sqlite

import (
	"context"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/store/adapters/sqlite"
)

// A Store keeps jobs in one SQLite file. It is a jq.Store with every ability, and has a method Backup.
type Store = sqlite.Store

// Options are what can be chosen; nil means every default.
type Options = sqlite.Options

// Synchronous is how durable a commit is.
type Synchronous = sqlite.Synchronous

// What Options.Synchronous can be.
const (
	Full   = sqlite.Full   // the default: what was committed survives a loss of power
	Normal = sqlite.Normal // the latest commits may be lost with the power; the file stays sound
)

// DefaultBusyTimeout is how long a call waits for another process that writes.
const DefaultBusyTimeout = sqlite.DefaultBusyTimeout

// Open opens the store in the file, and makes or migrates it where that is needed. With
// Options.NoMigrate it opens what is there.
func Open(ctx context.Context, path string, options *Options) (*Store, error) {
	return sqlite.Open(ctx, path, options)
}

// SchemaVersion says how far the store in the file is migrated, and changes nothing.
func SchemaVersion(ctx context.Context, path string) (jq.Schema, error) {
	return sqlite.SchemaVersion(ctx, path)
}

// Restored says what a restore did.
type Restored = sqlite.Restored

// Restore puts a backup, as [Store].Backup makes it, in the place of the store at the path, of which there need be nothing left. The
// restored store is fenced: workers can start. The file that was there is kept under another name. No process may have the store
// open. A Restore that was ended at any moment left either the store as it was or the restored one, and can be repeated.
func Restore(ctx context.Context, path, backup string) (Restored, error) {
	return sqlite.Restore(ctx, path, backup)
}
