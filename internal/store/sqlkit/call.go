// Package sqlkit is what the SQL adapters share: rows and what is read from them, why calls are not begun or broken off, and
// migrations. It writes no SQL, and knows no dialect.
package sqlkit

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-ed332417/jq/internal/store"
)

// Admit says why a call may not begin: its store was closed, its context has ended, or it was refused for what it asks.
func Admit(ctx context.Context, closed <-chan struct{}, refused error) error {
	if Closed(closed) {
		return store.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return refused
}

// Closed says whether the store was closed, which closes the channel.
func Closed(closed <-chan struct{}) bool {
	select {
	case <-closed:
		return true
	default:
		return false
	}
}

// Unapplied says in the words of the contract what an error means for a call of which nothing was committed. What is not in
// those words yet is one of the driver, and gets advice on what to do.
func Unapplied(err error, advice func(error) string) error {
	if err == nil {
		return nil
	}
	for _, ours := range []error{
		store.ErrInvalid, store.ErrNotFound, store.ErrConflict, store.ErrStaleLease, store.ErrAlreadyFinished,
		store.ErrUnavailable, store.ErrDenied, store.ErrInDoubt, store.ErrClosed,
	} {
		if errors.Is(err, ours) {
			return err
		}
	}
	return fmt.Errorf("%w: %s%w", store.ErrUnavailable, advice(err), oneLine{err})
}

// Denied says of a driver's error that the caller lacks a right, with advice on what to do.
func Denied(err error, advice func(error) string) error {
	return fmt.Errorf("%w: %s%w", store.ErrDenied, advice(err), oneLine{err})
}

// InDoubt says of a driver's error that the answer to a commit was lost, with advice on what to do.
func InDoubt(err error, advice func(error) string) error {
	return fmt.Errorf("%w: %s%w", store.ErrInDoubt, advice(err), oneLine{err})
}

// A oneLine is an error whose text may have several lines: a driver that tries several servers has one for each.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.ReplaceAll(e.error.Error(), "\n", "; ") }
func (e oneLine) Unwrap() error { return e.error }

// Because is the error of a call with the reason why it was broken off: its store was closed, or its context has ended, of
// which a driver may say only that something was interrupted. The error is in the words of the contract.
func Because(ctx context.Context, closed <-chan struct{}, err error) error {
	unavailable := errors.Is(err, store.ErrUnavailable)
	if unavailable && Closed(closed) {
		return store.ErrClosed
	}
	ended := ctx.Err()
	if ended != nil && (unavailable || errors.Is(err, store.ErrInDoubt)) && !errors.Is(err, ended) {
		return fmt.Errorf("%w: %w", err, ended)
	}
	return err
}

// NotOpened says in one line why the store that goes by the name can not be opened, and what to do. It is the error of the
// contract that is given, or none where the opening fails again until somebody has changed what it names.
func NotOpened(name string, means, err error, advice func(error) string) error {
	if errors.Is(err, ErrNewer) || errors.Is(err, ErrOlder) || errors.Is(err, ErrMissing) {
		return fmt.Errorf("jq: %s: %w", name, err)
	}
	if means == nil {
		return fmt.Errorf("jq: opening %s: %s%w", name, advice(err), oneLine{err})
	}
	return fmt.Errorf("%w: opening %s: %s%w", means, name, advice(err), saidBefore{oneLine{err}, means})
}

// A saidBefore is an error that may begin with the words of another, which stand before it already.
type saidBefore struct{ err, before error }

func (e saidBefore) Error() string { return strings.TrimPrefix(e.err.Error(), e.before.Error()+": ") }
func (e saidBefore) Unwrap() error { return e.err }
