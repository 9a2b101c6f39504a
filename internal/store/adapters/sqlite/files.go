package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The files that SQLite keeps beside an open database. A clean close removes them, so a file that is left holds committed
// changes that are not in the database yet. The exception is the last one, the index of the WAL: it holds no changes.
var besides = []string{"-wal", "-journal", indexSuffix}

const indexSuffix = "-shm"

// A restore prepares the new file under restoringPart and renames it to restoringSuffix when it is complete.
const (
	restoringSuffix = ".restoring"
	restoringPart   = ".restoring.part"
)

// realPath follows symbolic links, even if the target does not exist yet: SQLite names the WAL after the link's target.
func realPath(path string) (string, error) {
	const mostLinks = 40 // the limit on Linux
	for range mostLinks {
		folder, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return "", err
		}
		path = filepath.Join(folder, filepath.Base(path))
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode()&fs.ModeSymlink == 0 {
			return path, nil
		}
		if err != nil {
			return "", err
		}
		target, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(folder, target)
		}
		path = target
	}
	return "", fmt.Errorf("%s: too many symbolic links", path)
}

// leftBeside returns the SQLite files that exist beside the database, of any size.
func leftBeside(actual string) ([]string, error) {
	var left []string
	for _, suffix := range besides {
		switch _, err := os.Lstat(actual + suffix); {
		case err == nil:
			left = append(left, actual+suffix)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return left, nil
}

func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// isRestoring reports whether a restore is about to put its file in place, or was interrupted at that point.
func isRestoring(actual string) bool {
	there, err := exists(actual + restoringSuffix)
	return there || err != nil
}

// A fileState is what is known about a store's file without opening it.
type fileState struct {
	size     int64    // -1 if there is no file
	identity string   // empty if there is no file, or if the system cannot tell files apart
	left     []string // the files beside it
	copied   bool     // a backup was written over the file, so the WAL beside it belongs to the old content
}

// stateOf examines the file without opening it: closing any descriptor of a database releases all locks that the process has on
// it.
func stateOf(actual string) (fileState, error) {
	state := fileState{size: -1}
	var err error
	if state.left, err = leftBeside(actual); err != nil {
		return state, err
	}
	info, err := os.Stat(actual)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return state, nil
	case err != nil:
		return state, err
	}
	state.size = info.Size()
	var names uint64
	if state.identity, names, err = identify(actual); err != nil {
		return state, err
	}
	if names > 1 {
		return state, fmt.Errorf("it is one of %d names of one file (hard links), and SQLite looks for the file's log under each name: "+
			"remove the other names, or copy the store by a backup", names)
	}
	return state, nil
}

// state examines the file and returns an error if the WAL beside it belongs to another file.
func (p place) state(t *turn) (fileState, error) {
	state, err := stateOf(p.real)
	if err == nil {
		state.copied = state.copiedOver(p.real)
		err = state.refuse(p.real, t.file())
	}
	return state, err
}

// copiedOver reports whether cp has written a backup over a file that has a WAL. cp keeps the inode; but a store's file is in
// WAL mode and a backup is not.
func (f fileState) copiedOver(actual string) bool {
	if !slices.Contains(f.left, actual+"-wal") || !isBackup(actual) {
		return false
	}
	there, err := exists(actual + "-wal") // a restore may have just checkpointed it into the file
	return err == nil && there
}

// isBackup reports whether the file is a backup that no store has opened to create or migrate it since: such a file is not in
// WAL mode. SQLite reads the file without the WAL and without a lock.
func isBackup(actual string) bool {
	db, err := open(actual, keepReading, "immutable=1&_pragma=query_only(1)")
	if err != nil {
		return false
	}
	defer func() { _ = db.Close() }()
	var versions string // of the file format, for writing and for reading
	err = db.Get(&versions, `
		SELECT hex(substr(data, 19, 2))
		FROM sqlite_dbpage
		WHERE pgno = 1`)
	return err == nil && versions == "0101"
}

// refuse returns why the store cannot be opened: SQLite would take the files beside it for those of another database and delete
// or misread their changes. known is the identity of the file that the store had last.
func (f fileState) refuse(actual, known string) error {
	if len(f.left) == 0 {
		return nil
	}
	remove := "rm " + shellWords(f.left)
	switch {
	case f.size < 0:
		if restoring, err := exists(actual + restoringSuffix); err == nil && restoring {
			return fmt.Errorf("a restore was broken off while %s was put aside: repeat it", f.left[0])
		}
		if f.onlyIndex() {
			return fmt.Errorf("there is no such file, only %s, which SQLite kept beside it and which holds no changes. If you moved the file, "+
				"name it where it is; to make a new store here, delete this first (%s)", f.left[0], remove)
		}
		return fmt.Errorf("there is no such file, but %s holds changes of it. If you moved the file, move this along with it (mv %s NEW_NAME%s). "+
			"If you deleted the file on purpose, delete what it left too (%s)",
			f.left[0], shellWords(f.left[:1]), strings.TrimPrefix(f.left[0], actual), remove)
	case f.copied:
		return fmt.Errorf("a backup was written over the file, and %s still holds changes of the previous file, which are useless without it: "+
			"delete them (%s), or run restore, which does that for you", f.left[0], remove)
	case f.size == 0 && !f.beingMade(known) || another(known, f.identity):
		if f.onlyIndex() {
			return fmt.Errorf("the file was replaced, and %s, which SQLite kept beside the previous file, holds no changes: delete it (%s)",
				f.left[0], remove)
		}
		return fmt.Errorf("the file was replaced, and %s holds changes of the previous file. Put that file back; or, to give up these changes, "+
			"delete them (%s). Use restore to put a backup in place. If you copied or moved the file and its log here together, delete the "+
			"note about the previous file (rm %s)",
			f.left[0], remove, shellWords([]string{actual + ".lock"}))
	}
	return nil
}

// onlyIndex reports whether only the WAL's index is left, and no WAL.
func (f fileState) onlyIndex() bool {
	return len(f.left) == 1 && strings.HasSuffix(f.left[0], indexSuffix)
}

// another reports whether the identities are of two files. A process in a sandbox may not learn the time of birth, so it counts
// only if both have it.
func another(known, identity string) bool {
	if known == "" || identity == "" || known == identity {
		return false
	}
	number, _, born := strings.Cut(known, ",")
	number2, _, born2 := strings.Cut(identity, ",")
	return number != number2 || born && born2
}

// beingMade reports whether another process is writing the first pages of the file: it has noted the file in the lock and still
// has a journal.
func (f fileState) beingMade(known string) bool {
	return f.identity == known && len(f.left) == 1 && strings.HasSuffix(f.left[0], "-journal")
}

// shellWords quotes the paths for a shell.
func shellWords(paths []string) string {
	words := make([]string, len(paths))
	for i, p := range paths {
		words[i] = p
		if strings.Trim(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-") != "" {
			words[i] = "'" + strings.ReplaceAll(p, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// create creates the file if it does not exist, readable by its owner only, because jobs can be confidential. Connections never
// create it: if they find no file, the store has lost it and they must fail. If a restore was interrupted after it had moved
// the old file away, create completes it.
func create(actual string) error {
	complete, err := exists(actual + restoringSuffix)
	if err != nil {
		return err
	}
	if complete {
		if err := os.Rename(actual+restoringSuffix, actual); err != nil {
			return err
		}
		return syncFile(filepath.Dir(actual))
	}
	f, err := os.OpenFile(actual, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// settle makes sure that the path names the store's file and that the files beside it belong to it. The caller has the turn.
func (s *Store) settle() error {
	actual := s.place.real
	state, err := s.place.state(s.turn)
	if err != nil {
		return err
	}
	if state.size >= 0 { // a restore that was interrupted before it moved the file away has not happened
		if err := os.Remove(actual + restoringSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	} else {
		if err := create(actual); err != nil {
			return err
		}
		if state, err = stateOf(actual); err != nil {
			return err
		}
		return s.turn.setFile(state.identity)
	}
	return s.turn.setFile(state.noteOn(s.turn))
}

// noteOn returns the note about the file. If it replaced another file, it is an older copy of the store, and the note says so
// until the epoch is raised.
func (f fileState) noteOn(t *turn) string {
	marked := strings.HasSuffix(t.note(), anotherMark)
	if f.size > 0 && f.identity != "" && (marked || another(t.file(), f.identity)) {
		return f.identity + anotherMark
	}
	return f.identity
}
