package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Backup writes a copy of the store, as it is at one moment, to a new file, while others read and write. The copy is a store
// of its own, of which Restore makes the store again. The call waits for nobody who writes.
func (s *Store) Backup(ctx context.Context, path string) error {
	if err := sqlkit.Admit(ctx, s.closed, nil); err != nil {
		return err
	}
	path, err := filepath.Abs(path) // SQLite takes some others for more than a path
	if err != nil {
		return fmt.Errorf("jq: backup: %w", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("jq: the backup %s exists: name a new file", path)
	}
	if left, err := leftBeside(path); err != nil || len(left) > 0 {
		return errors.Join(err, fmt.Errorf("jq: %s is left of another store: delete it or name a new file", strings.Join(left, " and ")))
	}
	part := path + ".part" // so that what has the name is whole
	if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("jq: backup: %w", err)
	}
	if err := create(part); err != nil { // SQLite fills an empty file, and would make one that everybody can read
		return fmt.Errorf("jq: backup: %w", err)
	}
	if _, err := s.callers.ExecContext(ctx, `VACUUM INTO ?`, part); err != nil {
		_ = os.Remove(part) // it may not have come to that
		return sqlkit.Because(ctx, s.closed, ours(err))
	}
	if err := syncFile(part); err != nil {
		return fmt.Errorf("jq: backup: %w", err)
	}
	if err := os.Rename(part, path); err != nil {
		return fmt.Errorf("jq: backup: %w", err)
	}
	return syncFile(filepath.Dir(path))
}

// syncFile waits until the file, or the folder's list of files, is on the disk.
func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
