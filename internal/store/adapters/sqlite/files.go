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

// The files that SQLite keeps beside a database while it is open. A clean close removes them, so one that is left holds
// changes that were committed and are not in the database yet. Only the index of the log, the last of them, holds none.
var besides = []string{"-wal", "-journal", indexSuffix}

const indexSuffix = "-shm"

// A restore prepares the new file under restoringPart, and gives it the name restoringSuffix when it is complete.
const (
	restoringSuffix = ".restoring"
	restoringPart   = ".restoring.part"
)

// realPath follows symbolic links, also to a file that is not there yet: SQLite keeps its log beside the file itself, under
// that file's name.
func realPath(path string) (string, error) {
	const mostLinks = 40 // as Linux has it
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

// leftBeside are the files of SQLite's that stand beside the database, of whatever size.
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

// exists says whether there is a file.
func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// isRestoring says that a restore is about to put its file in place, or was broken off there.
func isRestoring(actual string) bool {
	there, err := exists(actual + restoringSuffix)
	return there || err != nil
}

// A fileState is what can be told of a store's file without opening it.
type fileState struct {
	size     int64    // -1 if there is no file
	identity string   // empty if there is no file, or if the system can not tell one file from another
	left     []string // the files beside it
	copied   bool     // a backup was written over the file, and the log beside it is not its own
}

// stateOf looks at the file. It opens nothing: to close any descriptor of a database gives up the locks that the process has
// on it.
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

// state looks at the file, and refuses it beside the log of another.
func (p place) state(t *turn) (fileState, error) {
	state, err := stateOf(p.real)
	if err == nil {
		state.copied = state.copiedOver(p.real)
		err = state.refuse(p.real, t.file())
	}
	return state, err
}

// copiedOver says that the file, which cp leaves the same one, is a backup beside a log: a file of which a log was ever kept says so.
func (f fileState) copiedOver(actual string) bool {
	if !slices.Contains(f.left, actual+"-wal") || !isBackup(actual) {
		return false
	}
	there, err := exists(actual + "-wal") // or a restore has just carried it into the file
	return err == nil && there
}

// isBackup says that no store was opened in the file, to make or migrate it, since a backup has made it: it has the mode without a
// log. The file is read by SQLite, past the log and without a lock.
func isBackup(actual string) bool {
	db, err := open(actual, keepReading, "immutable=1&_pragma=query_only(1)")
	if err != nil {
		return false
	}
	defer func() { _ = db.Close() }()
	var versions string // of the format, for writers and readers
	err = db.Get(&versions, `
		SELECT hex(substr(data, 19, 2))
		FROM sqlite_dbpage
		WHERE pgno = 1`)
	return err == nil && versions == "0101"
}

// refuse says why the store can not be opened: SQLite would take the files beside it for those of another database, and delete
// or misread the changes that they hold. known is the identity of the file that the store had last.
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
		return fmt.Errorf("a backup was written over the file, and %s holds changes of the one before it, which are of no use without it: "+
			"delete them (%s), or use restore, which does what else is to be done", f.left[0], remove)
	case f.size == 0 && !f.beingMade(known) || another(known, f.identity):
		if f.onlyIndex() {
			return fmt.Errorf("the file was replaced, and %s, which SQLite kept beside the one before it, holds no changes: delete it (%s)",
				f.left[0], remove)
		}
		return fmt.Errorf("the file was replaced, and %s holds changes of the one before it. Put that one back; or, to give up these changes, "+
			"delete them (%s). Use restore to put a backup in place. If you copied or moved the file and its log here together, delete the "+
			"note of the file before (rm %s)",
			f.left[0], remove, shellWords([]string{actual + ".lock"}))
	}
	return nil
}

// onlyIndex says that no log is left, only the index of one.
func (f fileState) onlyIndex() bool {
	return len(f.left) == 1 && strings.HasSuffix(f.left[0], indexSuffix)
}

// another says that these are two files. Processes in different sandboxes may not all be told when a file was born.
func another(known, identity string) bool {
	if known == "" || identity == "" || known == identity {
		return false
	}
	number, _, born := strings.Cut(known, ",")
	number2, _, born2 := strings.Cut(identity, ",")
	return number != number2 || born && born2
}

// beingMade says that another process is writing the first pages of the file: it noted the file before, and holds what it writes in a
// journal.
func (f fileState) beingMade(known string) bool {
	return f.identity == known && len(f.left) == 1 && strings.HasSuffix(f.left[0], "-journal")
}

// shellWords are the paths as a shell takes them.
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

// create makes the file where there is none, for its owner alone: jobs hold what is nobody else's business. Connections make
// none: one that finds no file is to fail, since the store had one. A restore that was ended after it had put the old file aside
// is completed.
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

// settle makes sure that the path names the store's file and that the files beside it are its own. The caller has the turn.
func (s *Store) settle() error {
	actual := s.place.real
	state, err := s.place.state(s.turn)
	if err != nil {
		return err
	}
	if state.size >= 0 { // a restore that was broken off before it put the file aside has not taken place
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

// noteOn is the note of the file. Where another file had its place, it is a copy of some time of the store, and the note says so
// until the epoch is raised.
func (f fileState) noteOn(t *turn) string {
	marked := strings.HasSuffix(t.note(), anotherMark)
	if f.size > 0 && f.identity != "" && (marked || another(t.file(), f.identity)) {
		return f.identity + anotherMark
	}
	return f.identity
}
