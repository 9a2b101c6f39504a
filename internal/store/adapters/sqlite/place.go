package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/seed-ed332417/jq/internal/store"
)

// A place is the file that a path named when it was opened. A process can keep writing to a file after it was removed, and all
// of that is lost when the last process closes it. So before the store confirms a write, it checks that the path still names
// the file.
type place struct {
	path string
	real string      // with links followed: SQLite names the files beside it after this
	file os.FileInfo // nil before it is known
}

func placeOf(path string) (place, error) {
	file, err := os.Stat(path)
	return place{path: path, file: file}, err
}

// check returns an error if the path no longer names the file.
func (p place) check() error {
	file, err := os.Stat(p.path)
	switch {
	case err == nil && os.SameFile(file, p.file):
		return nil
	case err == nil || errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s was removed or replaced while the store is open: close the store, and open it again", store.ErrUnavailable, p.path)
	default:
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
}
