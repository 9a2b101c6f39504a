// Package sqlite keeps jobs in one SQLite file, for one process or several.
//
// A single goroutine writes. It commits together what all callers wait for, each call atomic in itself, so that full
// durability costs one sync of the disk for many calls. Readers stand beside it and see whole commits. Processes that share
// the file take turns by a lock on a second file beside it.
package sqlite

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gofrs/flock"
	"github.com/jmoiron/sqlx"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
	"github.com/seed-ed332417/jq/internal/store/wake"
)

var (
	_ store.Store          = (*Store)(nil)
	_ store.Transactor     = (*Store)(nil)
	_ store.Notifier       = (*Store)(nil)
	_ store.QueueKeeper    = (*Store)(nil)
	_ store.Registry       = (*Store)(nil)
	_ store.Fencer         = (*Store)(nil)
	_ store.Examiner       = (*Store)(nil)
	_ store.Accountant     = (*Store)(nil)
	_ store.SnapshotHolder = (*Store)(nil)
)

// A Store keeps its jobs in one SQLite file.
type Store struct {
	place  place
	now    *now
	hub    *wake.Hub
	writer *writer

	readers *readers
	callers *sqlx.DB // for callers' own transactions, and for backups

	closing sync.Once
	closed  chan struct{}
}

// Options are what can be chosen. The zero value of each field means its default.
type Options struct {
	// Clock is where the store takes its time from: by default the clock of the process.
	Clock clock.Clock

	// Synchronous is how durable a commit is: by default Full.
	Synchronous Synchronous

	// Readers is how many calls can read at once: by default one for each processor, and at least four.
	Readers int

	// NoMigrate opens what is there: it makes and migrates nothing. Where no store of this program's schema is, Open fails
	// and says what to do. It waits for nobody who writes.
	NoMigrate bool

	// Migrating is told of each step that Open takes to the newest schema, before it takes it. A step over many jobs can last.
	Migrating func(step, of int)
}

// Synchronous is how durable a commit is. Either way a process that dies loses nothing that was committed.
type Synchronous string

const (
	// Full makes every commit wait for the disk: nothing that was committed is lost, also when power fails.
	Full Synchronous = "FULL"

	// Normal waits for the disk only at checkpoints: when power fails or the machine crashes, the commits since the last
	// one may be gone, which are those of up to the latest 16 MiB of changes or, on a quiet store, of any time. The file
	// stays sound. Run Fence after such a crash.
	Normal Synchronous = "NORMAL"
)

//go:embed migrations
var migrations embed.FS

// Open opens the store in the file, and makes or migrates it where that is needed, unless Options.NoMigrate says otherwise. Any
// number of processes may do so at once. Beside the file stand those of SQLite itself and the lock by which processes take turns, at path + ".lock".
//
// They are to stay where they are. Once the file, its log or the log's index was removed or replaced, calls are ErrUnavailable
// until the store is closed and opened anew: nothing is answered for that nobody could find.
func Open(ctx context.Context, path string, options *Options) (*Store, error) {
	o, err := options.filled()
	if err != nil {
		return nil, err
	}
	path, err = checkPath(path)
	if err != nil {
		return nil, err
	}
	s := &Store{place: place{path: path}, now: &now{clock: o.Clock}, hub: &wake.Hub{}, closed: make(chan struct{})}
	if s.callers, err = open(path, "_txlock=immediate&_pragma=synchronous("+string(o.Synchronous)+")"); err != nil {
		return nil, err
	}
	reading, err := open(path, "_pragma=query_only(1)")
	if err != nil {
		return nil, errors.Join(err, s.callers.Close())
	}
	lock := flock.New(path+".lock", flock.SetPermissions(0o644)) // as SQLite makes the file itself
	if err := s.ready(ctx, lock, o); err != nil {
		return nil, errors.Join(openError(path, err), lock.Close(), reading.Close(), s.callers.Close())
	}
	own := context.WithoutCancel(ctx)
	s.readers = newReaders(own, reading, o.Readers)
	s.writer = newWriter(own, s, lock)
	return s, nil
}

func (o *Options) filled() (Options, error) {
	var full Options
	if o != nil {
		full = *o
	}
	if full.Clock == nil {
		full.Clock = clock.New()
	}
	if full.Readers == 0 {
		full.Readers = max(runtime.NumCPU(), 4)
	}
	switch full.Synchronous {
	case "":
		full.Synchronous = Full
	case Full, Normal:
	default:
		return full, fmt.Errorf("jq: synchronous is %q: want %q or %q", full.Synchronous, Full, Normal)
	}
	if full.Readers < 0 {
		return full, fmt.Errorf("jq: %d readers: want at least 1", full.Readers)
	}
	return full, nil
}

// checkPath finds what SQLite would say less clearly.
func checkPath(path string) (string, error) {
	if path == "" || path == ":memory:" {
		return "", fmt.Errorf("jq: %q is no file: name a file for the store", path)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	folder := filepath.Dir(path)
	switch info, err := os.Stat(folder); {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%w: the folder %s does not exist: make it first", store.ErrUnavailable, folder)
	case err != nil:
		return "", fmt.Errorf("%w: the folder %s can not be used: %w", store.ErrUnavailable, folder, err)
	case !info.IsDir():
		return "", fmt.Errorf("%w: %s is no folder: name a file in one for the store", store.ErrUnavailable, folder)
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return "", fmt.Errorf("%w: %s is a folder or a device: name a file for the store", store.ErrUnavailable, path)
	}
	return path, nil
}

// open names the database with what every connection needs. The log of changes is carried into the file at every 16 MiB,
// and cut to that once it has grown beside a slow reader.
func open(path, more string) (*sqlx.DB, error) {
	file := url.URL{Scheme: "file", Opaque: (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath()}
	dsn := file.String() + "?mode=rw&_pragma=busy_timeout(10000)&_pragma=foreign_keys(1)&_pragma=temp_store(2)" +
		"&_pragma=cache_size(-16384)&_pragma=wal_autocheckpoint(4000)&_pragma=journal_size_limit(16777216)&" + more
	return sqlx.Open("sqlite", dsn)
}

// ready finds the store, and makes or migrates it if the options let it.
func (s *Store) ready(ctx context.Context, lock *flock.Flock, o Options) error {
	if o.NoMigrate {
		found, err := schemaOf(ctx, s.place.path)
		if err == nil {
			err = sqlkit.Current(found)
		}
		if err != nil {
			return err
		}
	} else if err := s.prepare(ctx, lock, o.Migrating); err != nil {
		return err
	}
	return s.locate(ctx)
}

// prepare makes the file a store of the newest schema, while no other process does.
func (s *Store) prepare(ctx context.Context, lock *flock.Flock, migrating func(step, of int)) error {
	if _, err := lock.TryLockContext(ctx, 5*time.Millisecond); err != nil {
		return err
	}
	defer func() { _ = lock.Unlock() }()
	if err := create(s.place.path); err != nil {
		return err
	}
	if _, err := s.callers.ExecContext(ctx, `PRAGMA journal_mode = WAL`); err != nil {
		return err
	}
	steps, err := folder()
	if err != nil {
		return err
	}
	migrator := sqlkit.Migrator{
		Steps: steps,
		Begin: s.beginMigration,
		Version: `
			SELECT coalesce(max(version), 0)
			FROM migrations`,
		Record: `
			INSERT INTO migrations (version, name)
			VALUES (?, ?)`,
		Before: migrating,
	}
	if _, err = migrator.Up(ctx); err != nil {
		return err
	}
	_, err = s.callers.ExecContext(ctx, takeWriteLock) // a file that can only be read is none to work on
	return err
}

// locate remembers which file the path names.
func (s *Store) locate(ctx context.Context) (err error) {
	if s.place, err = placeOf(s.place.path); err != nil {
		return err
	}
	return s.callers.GetContext(ctx, &s.place.real, `
		SELECT file
		FROM pragma_database_list
		WHERE name = 'main'`)
}

func folder() ([]sqlkit.Migration, error) { return sqlkit.Migrations(migrations) }

// beginMigration starts a transaction that no other writer shares.
func (s *Store) beginMigration(ctx context.Context) (*sqlx.Tx, error) {
	tx, err := s.callers.BeginTxx(ctx, nil)
	if err != nil {
		return nil, err
	}
	const table = `
		CREATE TABLE IF NOT EXISTS migrations (
			version INTEGER PRIMARY KEY,
			name TEXT NOT NULL
		) STRICT`
	if _, err := tx.ExecContext(ctx, table); err != nil {
		_ = tx.Rollback()
		return nil, err
	}
	return tx, nil
}

// DB opens callers' transactions on the file, for InTx. It is closed with the store.
func (s *Store) DB() *sqlx.DB { return s.callers }

// Close is part of the contract.
func (s *Store) Close() error {
	var err error
	s.closing.Do(func() {
		close(s.closed)
		s.hub.Close()
		err = errors.Join(s.writer.close(), s.readers.close(), s.callers.Close())
	})
	return err
}

// afresh closes the connections that nobody uses. One that was opened while the file could not be written to remains one that
// only reads, and so does whatever joins it.
func (s *Store) afresh() {
	const asByDefault = 2
	s.callers.SetMaxIdleConns(0)
	s.callers.SetMaxIdleConns(asByDefault)
	s.readers.afresh()
}
