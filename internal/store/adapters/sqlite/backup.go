package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Backup writes a copy of the store, as it is at one moment, to a new file, while others read and write. The copy is a store
// of its own; after it has taken the place of a lost one, run Fence before workers start.
func (s *Store) Backup(ctx context.Context, path string) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("jq: the backup %s exists: name a new file", path)
	}
	part := path + ".part" // so that what has the name is whole
	if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("jq: backup: %w", err)
	}
	if _, err := s.callers.ExecContext(ctx, `VACUUM INTO ?`, part); err != nil {
		return errors.Join(s.closedOr(ours(err)), os.Remove(part))
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
