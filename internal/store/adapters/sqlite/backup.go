package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"

	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Backup writes a consistent copy of the store to a new file, while others read and write. Restore makes a store from the copy.
// Backup does not wait for writers.
func (s *Store) Backup(ctx context.Context, path string) error {
	if err := sqlkit.Admit(ctx, s.closed, nil); err != nil {
		return err
	}
	path, err := filepath.Abs(path) // SQLite interprets some relative names as more than a path
	if err != nil {
		return fmt.Errorf("jq: backup: %w", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("jq: the backup %s exists: name a new file", path)
	}
	if left, err := leftBeside(path); err != nil || len(left) > 0 {
		return errors.Join(err, fmt.Errorf("jq: %s was left by another store: delete it or name a new file", strings.Join(left, " and ")))
	}
	part := path + ".part" // a file under the final name is always complete
	release, err := begin(part)
	if err != nil {
		return fmt.Errorf("jq: backup: %w", err)
	}
	defer release()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) { // another backup has just completed
		return errors.Join(fmt.Errorf("jq: the backup %s exists: name a new file", path), os.Remove(part))
	}
	if _, err := s.callers.ExecContext(ctx, `VACUUM INTO ?`, part); err != nil {
		_ = os.Remove(part) // VACUUM may have removed it already
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

// begin creates an empty file and locks it against other backups until it is released. SQLite fills an existing file; one that
// it created itself would be readable by everybody.
func begin(part string) (release func(), err error) {
	lock := flock.New(part, flock.SetPermissions(0o600))
	if ok, err := lock.TryLock(); err != nil || !ok {
		return nil, errors.Join(err, fmt.Errorf("%s is being written by another backup", part))
	}
	release = func() { _ = lock.Unlock() }
	locked, err := lock.Stat()
	if err == nil {
		var there os.FileInfo
		if there, err = os.Lstat(part); err == nil && !os.SameFile(there, locked) {
			err = fmt.Errorf("%s is being written by another backup", part)
		}
	}
	if err == nil {
		err = os.Truncate(part, 0) // an interrupted backup may have left data
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// syncFile syncs a file, or a folder's list of files, to the disk.
func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
