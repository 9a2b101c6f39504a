package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// SchemaVersion returns the version of the store's schema. It changes nothing.
func SchemaVersion(ctx context.Context, path string) (store.Schema, error) {
	steps, err := folder()
	if err != nil {
		return store.Schema{}, err
	}
	at, err := checkPath(path)
	if err != nil {
		return store.Schema{}, err
	}
	var found store.Schema
	if _, err = at.state(newTurn(at.real, "")); err == nil {
		found, err = schemaOf(ctx, at.real, steps)
	}
	if err != nil {
		return store.Schema{}, openError(at.path, err)
	}
	return found, nil
}

// schemaOf leaves the file unchanged, whoever owns it. Other programs have tables of migrations too; a store's are recognized
// by the names of its steps.
func schemaOf(ctx context.Context, path string, steps []sqlkit.Migration) (store.Schema, error) {
	found := store.Schema{Newest: len(steps)}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return found, nil
	}
	// A process that is creating the file locks out readers meanwhile.
	busy := fmt.Sprintf("_pragma=busy_timeout(%d)", DefaultBusyTimeout.Milliseconds())
	db, err := open(path, keepReading, busy+"&_pragma=query_only(1)"+unlessWhole(path))
	if err != nil {
		return store.Schema{}, err
	}
	defer func() { _ = db.Close() }()
	var columns, version int
	err = db.GetContext(ctx, &columns, `
		SELECT count(*)
		FROM pragma_table_info('migrations')
		WHERE name IN ('version', 'name')`)
	if err != nil || columns < 2 {
		return found, err
	}
	err = db.GetContext(ctx, &version, `
		SELECT coalesce(max(version), 0)
		FROM migrations
		WHERE EXISTS (SELECT 1 FROM migrations WHERE version = 1 AND name = ?)`,
		steps[0].Name)
	if err != nil || version == 0 {
		return found, err
	}
	return foundIn(ctx, db, steps)
}

// unlessWhole returns the option to open a file read-only if there is a WAL or a journal beside it. When a program was killed
// and left one, a writable connection would checkpoint it into the file on close.
func unlessWhole(path string) string {
	for _, suffix := range []string{"-wal", "-journal"} {
		if beside, err := os.Stat(path + suffix); err == nil && beside.Size() > 0 {
			return "&mode=ro"
		}
	}
	return ""
}

// alarming holds the thresholds for findings.
type alarming struct {
	log    int64 // size of the WAL in bytes
	unused int64 // unused bytes of the file, if they are more than half of it
}

const damagedFile = "damaged_file"

// Examine looks for what slows claims down or endangers jobs: damage, missing indexes, a large WAL, unused space, jobs written
// by a fast clock. It reads the whole file.
func (s *Store) Examine(ctx context.Context) ([]store.Finding, error) {
	return s.examine(ctx, alarming{log: 256 << 20, unused: 256 << 20})
}

func (s *Store) examine(ctx context.Context, a alarming) ([]store.Finding, error) {
	if err := sqlkit.Admit(ctx, s.closed, s.place.check()); err != nil {
		return nil, err
	}
	var all []store.Finding
	for _, look := range []func(context.Context, alarming) ([]store.Finding, error){
		s.lookAtFile, s.lookAtIndexes, s.lookAtLog, s.lookAtRoom, s.lookAtClock,
	} {
		found, err := look(ctx, a)
		if err != nil {
			return nil, sqlkit.Because(ctx, s.closed, ours(err))
		}
		all = append(all, found...)
		if slices.ContainsFunc(found, func(f store.Finding) bool { return f.Name == damagedFile }) {
			break // the other checks may fail on a damaged file
		}
	}
	return all, nil
}

func (s *Store) lookAtFile(ctx context.Context, _ alarming) ([]store.Finding, error) {
	var said []string
	if err := s.callers.SelectContext(ctx, &said, `PRAGMA quick_check(1)`); err != nil || len(said) == 1 && said[0] == "ok" {
		return nil, err
	}
	return []store.Finding{{
		Name:   damagedFile,
		Detail: fmt.Sprintf("the file %s is damaged: %s", s.place.path, said[0]),
		Advice: "stop all processes, restore a backup, and run fence before workers start",
	}}, nil
}

func (s *Store) lookAtIndexes(ctx context.Context, _ alarming) ([]store.Finding, error) {
	var there []string
	if err := s.callers.SelectContext(ctx, &there, `SELECT name FROM sqlite_schema WHERE type = 'index'`); err != nil {
		return nil, err
	}
	return sqlkit.MissingIndexes(s.steps, there, s.place.path+" is missing", "create it again as the migrations do"), nil
}

func (s *Store) lookAtLog(_ context.Context, a alarming) ([]store.Finding, error) {
	log, err := os.Stat(s.place.real + "-wal")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil || log.Size() <= a.log:
		return nil, err
	}
	return []store.Finding{{
		Name:   "large_log",
		Detail: fmt.Sprintf("the log of changes %s-wal has %d MiB: a long read keeps SQLite from checkpointing it", s.place.real, log.Size()>>20),
		Advice: "find the process with the long transaction and end that transaction",
	}}, nil
}

func (s *Store) lookAtRoom(ctx context.Context, a alarming) ([]store.Finding, error) {
	var pages struct{ Count, Free, Size int64 }
	if err := s.callers.GetContext(ctx, &pages, `
		SELECT count.page_count AS count, free.freelist_count AS free, size.page_size AS size
		FROM pragma_page_count AS count, pragma_freelist_count AS free, pragma_page_size AS size`); err != nil {
		return nil, err
	}
	if unused := pages.Free * pages.Size; unused <= a.unused || 2*pages.Free <= pages.Count {
		return nil, nil
	}
	return []store.Finding{{
		Name:   "unused_room",
		Detail: fmt.Sprintf("%d of the file's %d MiB are unused", pages.Free*pages.Size>>20, pages.Count*pages.Size>>20),
		Advice: "SQLite reuses this space; to shrink the file, stop all processes and run VACUUM on it",
	}}, nil
}
