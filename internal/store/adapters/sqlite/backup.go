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
	release, err := begin(part)
	if err != nil {
		return fmt.Errorf("jq: backup: %w", err)
	}
	defer release()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) { // another backup was just completed
		return errors.Join(fmt.Errorf("jq: the backup %s exists: name a new file", path), os.Remove(part))
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

// begin makes an empty file which no other backup writes to until it is released. SQLite fills such a file, and would make one that
// everybody can read.
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
		err = os.Truncate(part, 0) // what a backup left that was broken off
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// syncFile waits until the file, or the folder's list of files, is on the disk.
func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
