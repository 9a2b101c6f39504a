// Package sqlite keeps jobs in one SQLite file, for one process or several.
//
// One goroutine at a time writes. It uses group commit: one transaction holds the calls of all waiting callers, each atomic in
// itself, so that one disk sync makes many calls durable. Readers run beside it and see whole commits only. Processes that
// share the file take turns: whoever writes holds a lock on a second file beside it.
package sqlite

import (
	"cmp"
	"context"
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
	_ store.ActivityKeeper = (*Store)(nil)
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
	steps    []sqlkit.Migration // all that this program knows
	hub      *wake.Hub
	limits   limits
	writer   *writer

	reading  *sqlx.DB
	readers  *readers // for List and Count, which can take long
	briefs   *readers // for other reads
	probe    *readers // for Ping
	searches *readers // for the jobs of calls by filter, which can take long
	callers  *sqlx.DB // for callers' own transactions, and for backups

	pace      *pace      // of Settle
	following sync.Mutex // a call holds it that does what follows after its commit
	closing   sync.Once
	closed    chan struct{}
}

// Options configures Open. Zero fields mean the default.
type Options struct {
	// Clock gives the store its time: by default the clock of the process.
	Clock clock.Clock

	// MaxLease is the longest lease: by default an hour. All stores of one file must have the same MaxLease.
	MaxLease time.Duration

	// Logger gets a warning when the clock goes back: by default slog.Default().
	Logger *slog.Logger

	// Synchronous is how durable a commit is: by default Full.
	Synchronous Synchronous

	// Readers is how many calls of List and Count run at once: by default one for every two processors, and at least two.
	// Beside them run two calls of Get, OldestDue and other quick reads, and Ping, so that these never wait for a slow listing.
	Readers int

	// ReadTimeout ends a List or a Count that takes longer, or waits longer to start: by default 10 seconds. The error is a
	// *jq.OverlongError, which is ErrUnavailable. Narrow the filter then.
	ReadTimeout time.Duration

	// NoMigrate keeps Open from creating and migrating the store. If the store is missing or older than this program, Open
	// fails and says what to do. With NoMigrate, Open does not wait for other processes that write.
	NoMigrate bool

	// BusyTimeout is how long a call waits for another process that writes: by default DefaultBusyTimeout. Then the call fails
	// with ErrUnavailable, and the error names that process. Heartbeats wait as well, so keep this well below a third of the
	// shortest lease.
	BusyTimeout time.Duration

	// Name stands for this process in the errors of other processes that wait for it: by default the name of the program.
	Name string

	// Shared allows a file that already has tables of another program, or another program's application_id. The store adds its
	// tables, and leaves the application_id as it is.
	Shared bool

	// MigrateWait is how long Open waits before a migration that breaks programs of earlier versions, until these have stopped and their
	// leases have ended. It logs whom it waits for. By default Open does not wait: it migrates nothing and fails if one still runs.
	// MigrateForce migrates at once, whoever runs.
	MigrateWait  time.Duration
	MigrateForce bool

	// Migrating is called before each step of a migration. A step over many jobs can take long.
	Migrating func(step, of int)

	restoring bool               // the caller raises the epoch
	steps     []sqlkit.Migration // the program knows these: by default all
}

// Synchronous is how durable a commit is. Both settings lose nothing if only the process dies.
type Synchronous string

const (
	// Full makes every commit wait for the disk: no commit is lost, even if the power fails.
	Full Synchronous = "FULL"

	// Normal waits for the disk only at checkpoints. If the power fails or the machine crashes, commits since the last
	// checkpoint may be lost: up to 16 MiB of changes. A checkpoint follows one second after the latest commit, unless a reader
	// needs the WAL. The file is never damaged. Run Fence after such a crash.
	Normal Synchronous = "NORMAL"
)

// DefaultBusyTimeout is how long a call waits for another process to finish its write.
const DefaultBusyTimeout = 5 * time.Second

// Open opens the store in the file. It creates or migrates the store if needed, unless Options.NoMigrate is set. Any number of
// processes may do so at once. SQLite keeps its own files beside the store's file; this store adds a lock file, the file's name
// + ".lock". If there is nothing to create or migrate, Open does not wait for writers.
//
// Leave all these files in place. If the file, its WAL or the WAL's index is removed or replaced, calls return ErrUnavailable
// until you close the store and open it again, because nobody could find what they wrote. Open fails if the file is missing or
// was replaced while its old WAL still exists, and the error says what to do.
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
		steps: o.steps, hub: &wake.Hub{}, pace: newPace(), closed: make(chan struct{}),
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
	s.searches = newReaders(own, s.reading, 2, 0)
	s.writer = newWriter(own, s, o.BusyTimeout)
	return s, nil
}

func (o *Options) filled() (Options, error) {
	full := *cmp.Or(o, &Options{})
	full.Clock = cmp.Or(full.Clock, clock.New())
	full.Readers = cmp.Or(full.Readers, max(runtime.NumCPU()/2, 2))
	full.ReadTimeout = cmp.Or(full.ReadTimeout, 10*time.Second)
	full.BusyTimeout = cmp.Or(full.BusyTimeout, DefaultBusyTimeout)
	full.Name = cmp.Or(full.Name, programName())
	full.Logger = cmp.Or(full.Logger, slog.Default())
	full.MaxLease = cmp.Or(full.MaxLease, store.DefaultMaxLease)
	if err := store.CheckMaxLease(full.MaxLease); err != nil {
		return full, err
	}
	if full.steps == nil {
		var err error
		if full.steps, err = folder(); err != nil {
			return full, err
		}
	}
	switch full.Synchronous {
	case "":
		full.Synchronous = Full
	case Full, Normal:
	default:
		return full, fmt.Errorf("jq: synchronous is %q: want %q or %q", full.Synchronous, Full, Normal)
	}
	if full.Readers < 0 {
		return full, fmt.Errorf("jq: the number of readers is %d: want at least 1", full.Readers)
	}
	if full.ReadTimeout < time.Millisecond {
		return full, fmt.Errorf("jq: the read timeout is %v: want at least %v", full.ReadTimeout, time.Millisecond)
	}
	if full.BusyTimeout < time.Millisecond {
		return full, fmt.Errorf("jq: the busy timeout is %v: want at least %v", full.BusyTimeout, time.Millisecond)
	}
	return full, nil
}

// checkPath finds the file, and reports problems more clearly than SQLite would.
func checkPath(path string) (place, error) {
	if path == "" || path == ":memory:" {
		return place{}, fmt.Errorf("jq: %q is not a file: name a file for the store", path)
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
		return place{}, fmt.Errorf("%w: %s is not a folder: name a file in a folder for the store", store.ErrUnavailable, folder)
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

// The page cache of a connection in KiB. A writer returns to the same pages again and again. Readers are many, and the system
// caches the pages that they read once.
const (
	keepWriting = 16 << 10
	keepReading = 2 << 10
)

// open sets the options that every connection needs. SQLite checkpoints the WAL at 16 MiB, and truncates it to that size if a
// slow reader has let it grow.
func open(path string, keep int, more string) (*sqlx.DB, error) {
	file := url.URL{Scheme: "file", Opaque: (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath()}
	dsn := file.String() + "?mode=rw&_pragma=foreign_keys(1)&_pragma=temp_store(2)" +
		fmt.Sprintf("&_pragma=cache_size(-%d)", keep) +
		"&_pragma=wal_autocheckpoint(4000)&_pragma=journal_size_limit(16777216)&" + more
	return sqlx.Open("sqlite", dsn)
}

// prepare makes sure that the file is a store with the newest schema.
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
		dropIdle(s.callers) // a restore may put another file in place before this process has the turn
		if err := sqlkit.Await(ctx, o.MigrateWait, o.Logger, func() error { return s.bringUp(ctx, o) }); err != nil {
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

// find makes sure that a store with the newest schema exists, and changes nothing in it. It notes which file it is if nobody
// has the turn: otherwise the next process to open the file would find this store's WAL beside an unknown file.
func (s *Store) find(ctx context.Context) error {
	state, err := s.place.state(s.turn)
	if err != nil {
		return err
	}
	found, err := schemaOf(ctx, s.place.real, s.steps)
	if err == nil {
		err = sqlkit.Current(found)
	}
	if err != nil || s.turn.file() == state.identity && !isRestoring(s.place.real) {
		return err
	}
	if ok, _ := s.turn.try(); !ok {
		return nil // the process that has the turn notes the file
	}
	defer s.turn.release()
	if state, err = s.place.state(s.turn); err == nil && state.size >= 0 {
		_ = os.Remove(s.place.real + restoringSuffix) // as settle does
		_ = s.turn.setFile(state.noteOn(s.turn))      // if this fails, as on a full disk, the next Open tries again
	}
	return err
}

// ready reports whether there is nothing to create or migrate. It does not wait for writers: people must be able to look at a
// store even while a stopped process holds its lock.
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
	found, err := ownerOf(ctx, s.callers)
	if err != nil || !found.isStore() || found.Journal != "wal" || found.unmarked(o) {
		return false, err
	}
	schema, err := foundIn(ctx, s.callers, s.steps)
	if err != nil || sqlkit.Current(schema) != nil {
		return false, err
	}
	after, err := stateOf(actual)
	s.turn.known = known
	return before.identity == after.identity, err
}

// bringUp makes the file a store with the newest schema, while it has the turn. It does not wait for programs of earlier versions: they need the turn.
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
	if file := s.turn.file(); copied && file != "" { // WAL mode removes the sign that this is a backup
		if err := s.turn.setFile(file + anotherMark); err != nil {
			return err
		}
	}
	if _, err := s.callers.ExecContext(ctx, `PRAGMA journal_mode = WAL`); err != nil {
		return err
	}
	if _, err = s.migrator(o).Up(ctx); err != nil {
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
		_ = s.turn.setEpoch(epoch) // if this fails, as on a full disk, the store file still has the epoch
	}
	_, err = s.callers.ExecContext(ctx, takeWriteLock) // fails if the file is read-only
	return err
}

// fenceCopy raises the epoch of a file that replaced the store's, so that no id or token that the previous file gave since the
// copy is given again.
func (s *Store) fenceCopy(ctx context.Context) error {
	tx, err := s.callers.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
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

// DB is the database to begin your own transactions on, for InTx. Close closes it.
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

// afresh closes the idle connections. A connection that was opened while the file was read-only stays read-only, and so does
// every connection that shares its state.
func (s *Store) afresh() {
	dropIdle(s.callers)
	for _, r := range s.allReaders() {
		r.afresh()
	}
}

func (s *Store) allReaders() []*readers { return []*readers{s.readers, s.briefs, s.probe, s.searches} }

func dropIdle(db *sqlx.DB) {
	const asByDefault = 2
	db.SetMaxIdleConns(0)
	db.SetMaxIdleConns(asByDefault)
}
