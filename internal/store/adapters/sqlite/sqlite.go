// Package sqlite keeps jobs in one SQLite file, for one process or several.
//
// A single goroutine writes. It commits together what all callers wait for, each call atomic in itself, so that full
// durability costs one sync of the disk for many calls. Readers stand beside it and see whole commits. Processes that share
// the file take turns by a lock on a second file beside it.
package sqlite

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
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
	_ store.PolicyKeeper   = (*Store)(nil)
	_ store.Registry       = (*Store)(nil)
	_ store.Fencer         = (*Store)(nil)
	_ store.Monitor        = (*Store)(nil)
	_ store.Examiner       = (*Store)(nil)
	_ store.Repairer       = (*Store)(nil)
	_ store.Accountant     = (*Store)(nil)
	_ store.SnapshotHolder = (*Store)(nil)
)

// A Store keeps its jobs in one SQLite file.
type Store struct {
	place    place
	turn     *turn
	now      *now
	maxLease time.Duration
	hub      *wake.Hub
	writer   *writer

	reading *sqlx.DB
	readers *readers // for listings and counts, which can last
	briefs  *readers // for the other readings
	probe   *readers // for Ping
	callers *sqlx.DB // for callers' own transactions, and for backups

	closing sync.Once
	closed  chan struct{}
}

// Options configures Open. Zero fields mean the default.
type Options struct {
	// Clock is where the store takes its time from: by default the clock of the process.
	Clock clock.Clock

	// MaxLease is how long a lease can be: by default an hour. All stores of one file must have the same.
	MaxLease time.Duration

	// Logger is told of a clock that goes back: by default slog.Default().
	Logger *slog.Logger

	// Synchronous is how durable a commit is: by default Full.
	Synchronous Synchronous

	// Readers is how many calls of List and Count run at once, so that however many people look, no other call waits for them: by
	// default one for every two processors, and at least two. Two of Get, OldestDue and the like can run beside them, and Ping.
	Readers int

	// ReadTimeout ends a List or a Count that takes longer, and one that waits longer for its turn: by default 10 seconds. The
	// error is a *jq.OverlongError, which is ErrUnavailable. Narrow the filter then.
	ReadTimeout time.Duration

	// NoMigrate opens what is there: it makes and migrates nothing. Where no store of this program's schema is, Open fails
	// and says what to do. It waits for nobody who writes.
	NoMigrate bool

	// BusyTimeout is how long a call waits for another process that writes: by default DefaultBusyTimeout. Then it is
	// ErrUnavailable, and the error names that process. A heartbeat waits as long as any call, so keep this well below a third
	// of the shortest lease.
	BusyTimeout time.Duration

	// Name is what this process is called in the errors of others that wait for it: by default the name of its program.
	Name string

	// Shared lets the store's tables stand in a file that has another program's tables already, or is marked as another
	// program's by its application_id, which then stays as it is.
	Shared bool

	// Migrating is told of each step that Open takes to the newest schema, before it takes it. A step over many jobs can last.
	Migrating func(step, of int)

	restoring bool // the caller raises the epoch
}

// Synchronous is how durable a commit is. Either way a process that dies loses nothing that was committed.
type Synchronous string

const (
	// Full makes every commit wait for the disk: nothing that was committed is lost, also when power fails.
	Full Synchronous = "FULL"

	// Normal waits for the disk only at checkpoints: when power fails or the machine crashes, the commits since the last
	// one may be gone, which are those of up to the latest 16 MiB of changes. A checkpoint follows a second after the latest
	// commit, unless a reader needs the log. The file stays sound. Run Fence after such a crash.
	Normal Synchronous = "NORMAL"
)

// DefaultBusyTimeout is how long a call waits for another process that writes.
const DefaultBusyTimeout = 5 * time.Second

//go:embed migrations
var migrations embed.FS

// Open opens the store in the file, and makes or migrates it where that is needed, unless Options.NoMigrate says otherwise. Any
// number of processes may do so at once. Beside the file stand those of SQLite itself and the lock by which processes take turns,
// at the file's name + ".lock". A store that needs neither is opened without waiting for those who write.
//
// They are to stay where they are. Once the file, its log or the log's index was removed or replaced, calls are ErrUnavailable
// until the store is closed and opened anew: nothing is answered for that nobody could find. A file that is missing or was
// replaced while its log still stands there is not opened: the error says what to do.
func Open(ctx context.Context, path string, options *Options) (*Store, error) {
	o, err := options.filled()
	if err != nil {
		return nil, err
	}
	at, err := checkPath(path)
	if err != nil {
		return nil, err
	}
	s := &Store{
		place: at, turn: newTurn(at.real, o.Name), now: &now{clock: o.Clock, present: store.Present{Logger: o.Logger}}, maxLease: o.MaxLease,
		hub: &wake.Hub{}, closed: make(chan struct{}),
	}
	busy := fmt.Sprintf("_pragma=busy_timeout(%d)", o.BusyTimeout.Milliseconds())
	if s.callers, err = open(at.path, keepWriting, busy+"&_txlock=immediate&_pragma=synchronous("+string(o.Synchronous)+")"); err != nil {
		return nil, err
	}
	s.reading, err = open(at.path, keepReading, busy+"&_pragma=query_only(1)")
	if err != nil {
		return nil, errors.Join(err, s.callers.Close())
	}
	if err := s.prepare(ctx, o); err != nil {
		return nil, errors.Join(openError(at.path, err), s.turn.close(), s.reading.Close(), s.callers.Close())
	}
	own := context.WithoutCancel(ctx)
	s.readers, s.briefs, s.probe = newReaders(own, s.reading, o.Readers, o.ReadTimeout), newReaders(own, s.reading, 2, 0), newReaders(own, s.reading, 1, 0)
	s.writer = newWriter(own, s, o.BusyTimeout)
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
	full.Readers = cmp.Or(full.Readers, max(runtime.NumCPU()/2, 2))
	full.ReadTimeout = cmp.Or(full.ReadTimeout, 10*time.Second)
	full.BusyTimeout = cmp.Or(full.BusyTimeout, DefaultBusyTimeout)
	full.Name = cmp.Or(full.Name, programName())
	full.MaxLease = cmp.Or(full.MaxLease, store.DefaultMaxLease)
	if err := store.CheckMaxLease(full.MaxLease); err != nil {
		return full, err
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
	if full.ReadTimeout < time.Millisecond {
		return full, fmt.Errorf("jq: a time-out of readings of %v: want at least %v", full.ReadTimeout, time.Millisecond)
	}
	if full.BusyTimeout < time.Millisecond {
		return full, fmt.Errorf("jq: the busy timeout is %v: want at least %v", full.BusyTimeout, time.Millisecond)
	}
	return full, nil
}

// checkPath finds what SQLite would say less clearly, and where the file is.
func checkPath(path string) (place, error) {
	if path == "" || path == ":memory:" {
		return place{}, fmt.Errorf("jq: %q is no file: name a file for the store", path)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return place{}, err
	}
	folder := filepath.Dir(path)
	switch info, err := os.Stat(folder); {
	case errors.Is(err, fs.ErrNotExist):
		return place{}, fmt.Errorf("%w: the folder %s does not exist: make it first", store.ErrUnavailable, folder)
	case err != nil:
		return place{}, fmt.Errorf("%w: the folder %s can not be used: %w", store.ErrUnavailable, folder, err)
	case !info.IsDir():
		return place{}, fmt.Errorf("%w: %s is no folder: name a file in one for the store", store.ErrUnavailable, folder)
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return place{}, fmt.Errorf("%w: %s is a folder or a device: name a file for the store", store.ErrUnavailable, path)
	}
	actual, err := realPath(path)
	if err != nil {
		return place{}, fmt.Errorf("%w: %s can not be followed: %w", store.ErrUnavailable, path, err)
	}
	return place{path: path, real: actual}, nil
}

// How much a connection keeps of the file, in KiB: one that writes goes back to the same pages again and again. Those that read are many,
// and what they read once is in the system's cache.
const (
	keepWriting = 16 << 10
	keepReading = 2 << 10
)

// open names the database with what every connection needs. The log of changes is carried into the file at every 16 MiB,
// and cut to that once it has grown beside a slow reader.
func open(path string, keep int, more string) (*sqlx.DB, error) {
	file := url.URL{Scheme: "file", Opaque: (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath()}
	dsn := file.String() + "?mode=rw&_pragma=foreign_keys(1)&_pragma=temp_store(2)" +
		fmt.Sprintf("&_pragma=cache_size(-%d)", keep) +
		"&_pragma=wal_autocheckpoint(4000)&_pragma=journal_size_limit(16777216)&" + more
	return sqlx.Open("sqlite", dsn)
}

// prepare makes sure that the file is a store of the newest schema.
func (s *Store) prepare(ctx context.Context, o Options) error {
	ready, err := o.NoMigrate, error(nil)
	if o.NoMigrate {
		err = s.find(ctx)
	} else {
		ready, err = s.ready(ctx, o)
	}
	if err != nil {
		return err
	}
	if !ready {
		dropIdle(s.callers) // a restore may put another file in place before this process has its turn
		if err := s.bringUp(ctx, o); err != nil {
			return err
		}
	}
	before := s.place.real
	if s.place, err = placeOf(s.place.path); err != nil {
		return err
	}
	s.place.real = before
	s.sweep()
	return nil
}

// find makes sure that a store of the newest schema is there, and changes nothing. Which file it is, is noted if nobody has the
// turn: otherwise the next to open the file would find the log of this store beside a file that it does not know.
func (s *Store) find(ctx context.Context) error {
	state, err := s.place.state(s.turn)
	if err != nil {
		return err
	}
	found, err := schemaOf(ctx, s.place.real)
	if err == nil {
		err = sqlkit.Current(found)
	}
	if err != nil || s.turn.file() == state.identity && !isRestoring(s.place.real) {
		return err
	}
	if ok, _ := s.turn.try(); !ok {
		return nil // whoever has it notes the file
	}
	defer s.turn.release()
	if state, err = s.place.state(s.turn); err == nil && state.size >= 0 {
		_ = os.Remove(s.place.real + restoringSuffix) // as settle does
		_ = s.turn.setFile(state.noteOn(s.turn))      // as on a full disk: the next to open the file tries again
	}
	return err
}

// ready says that there is nothing to make or migrate, without waiting for anybody who writes: those who only look at a store
// must see it also while a process that was stopped holds it.
func (s *Store) ready(ctx context.Context, o Options) (bool, error) {
	actual := s.place.real
	before, err := stateOf(actual)
	if err != nil {
		return false, err
	}
	known := s.turn.note()
	if before.size <= 0 || known != before.identity || !writable(actual) || !writable(filepath.Dir(actual)) || isRestoring(actual) || isBackup(actual) {
		return false, nil
	}
	steps, err := folder()
	if err != nil {
		return false, err
	}
	found, err := ownerOf(ctx, s.callers)
	if err != nil || !found.isStore() || found.Journal != "wal" || found.unmarked(o) {
		return false, err
	}
	version, err := versionOf(ctx, s.callers)
	if err != nil || version != len(steps) {
		return false, err
	}
	after, err := stateOf(actual)
	s.turn.known = known
	return before.identity == after.identity, err
}

// bringUp makes the file a store of the newest schema, while no other process does.
func (s *Store) bringUp(ctx context.Context, o Options) error {
	if err := s.turn.take(ctx, o.BusyTimeout); err != nil {
		return err
	}
	defer s.turn.release()
	err := s.make(ctx, o)
	if codeOf(err) == codeBusy {
		return fmt.Errorf("%w: %s", store.ErrUnavailable, s.turn.stranger())
	}
	return err
}

func (s *Store) make(ctx context.Context, o Options) error {
	if err := s.settle(); err != nil {
		return err
	}
	found, err := ownerOf(ctx, s.callers)
	if err != nil {
		return err
	}
	if err := found.refuse(o); err != nil {
		return err
	}
	copied := found.isStore() && !o.restoring && isBackup(s.place.real)
	if file := s.turn.file(); copied && file != "" { // the mode with a log takes the sign away
		if err := s.turn.setFile(file + anotherMark); err != nil {
			return err
		}
	}
	if _, err := s.callers.ExecContext(ctx, `PRAGMA journal_mode = WAL`); err != nil {
		return err
	}
	steps, err := folder()
	if err != nil {
		return err
	}
	migrator := sqlkit.Migrator{
		Steps:   steps,
		Begin:   s.beginMigration,
		Version: schemaVersion,
		Record: `
			INSERT INTO migrations (version, name)
			VALUES (?, ?)`,
		Before: o.Migrating,
	}
	if _, err = migrator.Up(ctx); err != nil {
		return err
	}
	if found.unmarked(o) {
		if _, err = s.callers.ExecContext(ctx, fmt.Sprintf(`PRAGMA application_id = %d`, applicationID)); err != nil {
			return err
		}
	}
	if note := s.turn.note(); copied || strings.HasSuffix(note, anotherMark) {
		if err := s.fenceCopy(ctx); err != nil {
			return err
		}
		if err := s.turn.setFile(strings.TrimSuffix(note, anotherMark)); err != nil {
			return err
		}
	}
	var epoch int64
	if err := s.callers.GetContext(ctx, &epoch, `SELECT epoch FROM fence`); err != nil {
		return err
	}
	if epoch > 0 {
		_ = s.turn.setEpoch(epoch) // as on a full disk: the file has it
	}
	_, err = s.callers.ExecContext(ctx, takeWriteLock) // a file that can only be read is none to work on
	return err
}

// fenceCopy raises the epoch of a file that was put in the store's place: what the one before gave since it was copied is not to
// be given again.
func (s *Store) fenceCopy(ctx context.Context) error {
	tx, err := s.callers.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	t := &txn{ctx: ctx, tx: tx, now: s.now.get()}
	epoch, err := t.fence(store.FenceRequest{Epoch: s.turn.epoch() + 1})
	if err != nil {
		return err
	}
	if err := s.turn.setEpoch(epoch); err != nil {
		return err
	}
	return tx.Commit()
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
		err = s.writer.close()
		for _, r := range s.allReaders() {
			r.close()
		}
		err = errors.Join(err, s.reading.Close(), s.callers.Close())
	})
	return err
}

// afresh closes the connections that nobody uses. One that was opened while the file could not be written to remains one that
// only reads, and so does whatever joins it.
func (s *Store) afresh() {
	dropIdle(s.callers)
	for _, r := range s.allReaders() {
		r.afresh()
	}
}

func (s *Store) allReaders() []*readers { return []*readers{s.readers, s.briefs, s.probe} }

func dropIdle(db *sqlx.DB) {
	const asByDefault = 2
	db.SetMaxIdleConns(0)
	db.SetMaxIdleConns(asByDefault)
}
