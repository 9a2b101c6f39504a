package kv

import (
	"errors"
	"fmt"

	"github.com/seed-ed332417/jq/contract"
)

// errDamaged says that the engine has something that this package did not write.
var errDamaged = errors.New("the store is damaged, restore it from a copy")

// errTooLarge says that a call changes more than the engine takes at once.
var errTooLarge = errors.New("too large a change")

// errBusy says that a call was started again too often.
var errBusy = errors.New("other calls changed the same jobs again and again")

// ours translates an error before the commit into the contract's. One that starts the call again stays as it is.
func ours(err error) error {
	for _, known := range []error{ErrConflict, contract.ErrInvalid, contract.ErrNotFound, contract.ErrConflict} {
		if errors.Is(err, known) {
			return err
		}
	}
	return unavailable(err)
}

func unavailable(cause error) error { return fmt.Errorf("%w: %w", contract.ErrUnavailable, cause) }

// ofCommit translates an error of a commit.
func ofCommit(err error) error {
	switch {
	case err == nil, errors.Is(err, ErrConflict):
		return err
	case errors.Is(err, ErrNothing):
		return unavailable(err)
	default:
		return fmt.Errorf("%w: %w", contract.ErrInDoubt, err)
	}
}
