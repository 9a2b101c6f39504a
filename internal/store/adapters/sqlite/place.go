package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/seed-ed332417/jq/internal/store"
)

// A place is what a path named when it was opened. A file that was removed can still be written to by those who have it open,
// and with the last of them it is gone: who answers for what is kept must see that the path names it still.
type place struct {
	path string
	real string      // where links lead to: SQLite names the files beside it by that
	file os.FileInfo // nil before it is known
}

func placeOf(path string) (place, error) {
	file, err := os.Stat(path)
	return place{path: path, file: file}, err
}

// check says that the file is where it was.
func (p place) check() error {
	file, err := os.Stat(p.path)
	switch {
	case err == nil && os.SameFile(file, p.file):
		return nil
	case err == nil || errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s was removed or replaced while the store is open: close the store, and open it anew", store.ErrUnavailable, p.path)
	default:
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
}
