package bbolt

import (
	"errors"
	"fmt"

	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/seed-ed332417/jq/contract"
)

// errDamaged says that the file contains data that this package did not write.
var errDamaged = errors.New("the file is damaged, restore it from a copy")

// ours translates an error before the commit into the contract's.
func ours(err error) error {
	if errors.Is(err, contract.ErrInvalid) || errors.Is(err, contract.ErrNotFound) || errors.Is(err, contract.ErrConflict) {
		return err
	}
	return unavailable(err)
}

func unavailable(cause error) error { return fmt.Errorf("%w: %w", contract.ErrUnavailable, cause) }

// inDoubt translates an error of the commit itself. Most such errors occur before bbolt writes the page that makes the commit
// count, but the error does not say so.
func inDoubt(cause error) error { return fmt.Errorf("%w: %w", contract.ErrInDoubt, cause) }

// openError says in one line why the file cannot be opened, and what to do.
func openError(path string, err error) error {
	advice := ""
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		advice = "another process has it open, and one at a time can: "
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrVersionMismatch), errors.Is(err, bolterrors.ErrChecksum):
		advice = "it is no file of bbolt, or is damaged, name another: "
	}
	return fmt.Errorf("jq: opening %s: %s%w", path, advice, err)
}
