package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/seed-ed332417/jq/internal/store"
)

// Restored says what a restore did.
type Restored struct {
	Jobs  int64  // how many jobs the restored store has
	Epoch int64  // the epoch that it was fenced with
	Kept  string // the path of the replaced file, empty if there was none
}

// Restore replaces the store at the path by a backup. The store need not exist any more. Restore copies the backup, fences the
// copy as Fence does, and moves it to the path in one step, so workers can start as soon as it returns. It keeps the previous
// file under another name beside it. If Restore is interrupted, the path holds either the old store or the restored one, and
// you can repeat it.
//
// While any process has the store open, Restore returns ErrUnavailable and changes nothing.
func Restore(ctx context.Context, path, backup string) (Restored, error) {
	at, err := checkPath(path)
	if err != nil {
		return Restored{}, err
	}
	if backup, err = filepath.Abs(backup); err != nil {
		return Restored{}, err
	}
	r := restorer{path: at.path, real: at.real, backup: backup, turn: newTurn(at.real, programName()), step: func(string) {}}
	return r.run(ctx)
}

// A restorer restores one store once.
type restorer struct {
	path   string
	real   string // with links followed
	backup string
	turn   *turn
	step   func(next string) // called before each step

	foreign bool  // the WAL does not belong to the file beside it
	last    int64 // the epoch of the previous store, so that restoring the same backup twice gives no epoch twice
	done    Restored
}

func (r *restorer) run(ctx context.Context) (done Restored, err error) {
	if err := r.checkBackup(ctx); err != nil {
		return done, err
	}
	if err := r.turn.take(ctx, DefaultBusyTimeout); err != nil {
		return done, errors.Join(openError(r.path, err), r.turn.close())
	}
	defer func() { err = errors.Join(err, r.turn.close()) }()
	release, err := r.alone(ctx) // also before making the copy, which can take long
	if err != nil {
		return done, err
	}
	if err := release(); err != nil {
		return done, err
	}
	if err := r.prepare(ctx); err != nil {
		return done, fmt.Errorf("jq: restore: %w", err)
	}
	r.step("alone")
	if release, err = r.alone(ctx); err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, release()) }()
	if r.done.Kept, err = r.replace(); err != nil {
		return done, fmt.Errorf("jq: restore: %w", err)
	}
	return r.done, nil
}

// checkBackup returns an error if the file is not a usable backup.
func (r *restorer) checkBackup(ctx context.Context) error {
	refuse := func(why string) error { return fmt.Errorf("jq: the backup %s %s", r.backup, why) }
	info, err := os.Stat(r.backup)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return refuse("does not exist")
	case err != nil:
		return fmt.Errorf("jq: the backup can not be read: %w", err)
	case !info.Mode().IsRegular() || info.Size() == 0:
		return refuse("is empty or not a file")
	}
	if own, err := os.Stat(r.real); err == nil && os.SameFile(own, info) {
		return refuse("is the store itself")
	}
	actual, err := realPath(r.backup)
	if err != nil {
		return err
	}
	if left, err := leftBeside(actual); err != nil || len(left) > 0 {
		return errors.Join(err, refuse("is a store in use, or was not closed, as "+strings.Join(left, " and ")+" shows: make a backup of it and restore that"))
	}
	db, err := open(r.backup, keepReading, "immutable=1&_pragma=query_only(1)") // its folder may be read-only
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	found, err := ownerOf(ctx, db)
	if err != nil {
		return refuse("can not be read: " + oneLineOf(err))
	}
	if !found.isStore() {
		return refuse("does not contain a store of jobs")
	}
	var verdict string
	if err := db.GetContext(ctx, &verdict, `PRAGMA integrity_check(1)`); err != nil || verdict != "ok" {
		return refuse("is damaged: " + verdict + oneLineOf(err))
	}
	return nil
}

func oneLineOf(err error) string {
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// alone makes sure that nobody has the store open and checkpoints its WAL. Nobody can open the store until release. A file that
// SQLite cannot read is not in use.
func (r *restorer) alone(ctx context.Context) (release func() error, err error) {
	nothing := func() error { return nil }
	state, err := stateOf(r.real)
	if err != nil && state.size < 0 {
		return nothing, openError(r.path, err)
	}
	state.copied = state.copiedOver(r.real)
	r.foreign = state.refuse(r.real, r.turn.file()) != nil
	if state.size < 0 || r.foreign { // keep the WAL: SQLite would spoil it
		return nothing, r.unused()
	}
	db, err := open(r.path, keepWriting, "_pragma=busy_timeout(100)")
	if err != nil {
		return nothing, err
	}
	conn, err := r.exclusive(ctx, db)
	switch codeOf(err) {
	case codeNotADB, codeCorrupt, codeCantOpen, codeIO:
		return nothing, errors.Join(db.Close(), r.unused())
	case codeBusy:
		return nothing, errors.Join(r.inUse(), db.Close())
	}
	if errors.Is(err, errShared) {
		return nothing, errors.Join(r.inUse(), db.Close())
	}
	if err != nil {
		return nothing, errors.Join(openError(r.path, err), db.Close())
	}
	if conn.GetContext(ctx, &r.last, `SELECT epoch FROM fence`) != nil {
		r.last = 0 // a damaged store, or one from before epochs
	}
	return func() error {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // closes the connection and so ends its transaction
		_ = conn.Close()
		return db.Close()
	}, nil
}

// errShared says that SQLite stayed in WAL mode. While others have the file open, it does so without an error.
var errShared = errors.New("the file is open elsewhere")

// exclusive begins a transaction while nobody else has the file open. It first leaves WAL mode: SQLite does that only if it is
// alone, and checkpoints the WAL.
func (r *restorer) exclusive(ctx context.Context, db *sqlx.DB) (*sqlx.Conn, error) {
	conn, err := db.Connx(ctx)
	if err != nil {
		return nil, err
	}
	var mode string
	err = conn.GetContext(ctx, &mode, `PRAGMA journal_mode = DELETE`)
	if err == nil && mode != "delete" {
		err = errShared
	}
	if err == nil {
		_, err = conn.ExecContext(ctx, `BEGIN EXCLUSIVE`)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// unused returns an error if any process has a lock on the file or its WAL.
func (r *restorer) unused() error {
	for _, file := range append([]string{""}, besides...) {
		if len(lockedBy(r.real+file, "POSIX", wholeFile, false)) > 0 {
			return r.inUse()
		}
	}
	return nil
}

// inUse names the processes that have the store open.
func (r *restorer) inUse() error {
	var who []string
	seen := map[int]bool{os.Getpid(): true} // the restore's own
	for _, file := range append([]string{""}, besides...) {
		for _, pid := range lockedBy(r.real+file, "POSIX", wholeFile, false) {
			if !seen[pid] {
				seen[pid] = true
				who = append(who, fmt.Sprintf("process %d (%s)", pid, programOf(pid)))
			}
		}
	}
	if len(who) == 0 {
		who = []string{"this process, or one that the system does not name,"}
	}
	verb := " has"
	if len(who) > 1 {
		verb = " have"
	}
	return fmt.Errorf("%w: %s%s the store %s open: stop every process that uses it, then restore", store.ErrUnavailable,
		strings.Join(who, " and "), verb, r.path)
}

// prepare makes the new file: a complete, synced copy of the backup, with the newest schema, and fenced.
func (r *restorer) prepare(ctx context.Context) error {
	part := r.real + restoringPart
	if err := removeParts(r.real); err != nil {
		return err
	}
	r.step("copy")
	if err := copyTo(part, r.backup, r.real); err != nil {
		return err
	}
	r.step("fence")
	s, err := Open(ctx, part, &Options{Shared: true, restoring: true, MigrateForce: true}) // the workers in the backup do not use this file
	if err != nil {
		return err
	}
	r.done.Epoch, err = s.Fence(ctx, store.FenceRequest{Epoch: max(r.last, r.turn.epoch()) + 1})
	if err == nil {
		r.done.Jobs, err = s.total(ctx)
	}
	if err := errors.Join(err, s.Close()); err != nil {
		return err
	}
	if left, err := leftBeside(part); err != nil || len(left) > 0 {
		return errors.Join(err, fmt.Errorf("%s was left beside the copy", strings.Join(left, " and ")))
	}
	if err := os.Remove(part + ".lock"); err != nil {
		return err
	}
	if err := syncFile(part); err != nil {
		return err
	}
	r.step("complete")
	return os.Rename(part, r.real+restoringSuffix)
}

// removeParts removes the files of a restore that was killed. The caller has the turn, so no restore is running. It removes the
// copy last, because sweep looks for it.
func removeParts(actual string) error {
	for _, suffix := range append(slices.Clone(besides), ".lock", "") {
		if err := os.Remove(actual + restoringPart + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// sweep removes the files of a restore that was killed, unless somebody has the turn: then a restore may be running. Files that
// it cannot remove stay until the next Open.
func (s *Store) sweep() {
	if left, err := exists(s.place.real + restoringPart); err != nil || !left {
		return
	}
	if ok, _ := s.turn.try(); ok {
		_ = removeParts(s.place.real)
		s.turn.release()
	}
}

// total counts the store's jobs, however long that takes: a Count of them may end at ReadTimeout.
func (s *Store) total(ctx context.Context) (n int64, err error) {
	err = s.callers.GetContext(ctx, &n, `
		SELECT count(*)
		FROM jobs`)
	return n, err
}

// copyTo copies the backup to a new file, with the owner and mode of the store's file if that exists.
func copyTo(part, backup, actual string) error {
	from, err := os.Open(backup)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	to, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err == nil {
		err = likeThat(to, actual)
	}
	return errors.Join(err, to.Close())
}

// replace renames the old file and the files beside it, and gives the new file the store's name. If it is interrupted while no
// file has the name, the next Open either completes the restore or says to repeat it.
func (r *restorer) replace() (kept string, err error) {
	there, err := exists(r.real)
	if err != nil {
		return "", err
	}
	foreign := there && r.foreign // decide before the file is moved
	left, err := leftBeside(r.real)
	if err != nil {
		return "", err
	}
	if there || len(left) > 0 {
		if kept, err = r.keepAs(); err != nil {
			return "", err
		}
	}
	if there {
		r.step("put aside")
		if err := os.Rename(r.real, kept); err != nil {
			return "", err
		}
	}
	for _, file := range left {
		suffix := strings.TrimPrefix(file, r.real)
		r.step("put aside " + suffix)
		to := kept + suffix
		if foreign { // SQLite must not take it for the WAL of the file that is kept
			to = kept + ".other" + suffix
		}
		if err := os.Rename(file, to); err != nil {
			return "", err
		}
	}
	r.step("name")
	if err := os.Rename(r.real+restoringSuffix, r.real); err != nil {
		return "", err
	}
	r.step("note")
	if err := syncFile(filepath.Dir(r.real)); err != nil {
		return "", err
	}
	identity, _, err := identify(r.real)
	if err != nil {
		return "", err
	}
	return kept, errors.Join(r.turn.setEpoch(r.done.Epoch), r.turn.setFile(identity))
}

// keepAs returns an unused name, with no SQLite files beside it.
func (r *restorer) keepAs() (string, error) {
	base := r.real + ".before-restore-" + time.Now().UTC().Format("20060102T150405Z")
	for n := 1; ; n++ {
		name := base
		if n > 1 {
			name = fmt.Sprintf("%s-%d", base, n)
		}
		taken, err := exists(name)
		if err != nil {
			return "", err
		}
		left, err := leftBeside(name)
		if err != nil {
			return "", err
		}
		if !taken && len(left) == 0 {
			return name, nil
		}
	}
}
