// Package sqlkit has the code that the SQL adapters share: it reads rows, admits calls, translates errors and applies
// migrations. It contains no SQL of its own and does not depend on a dialect.
package sqlkit

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-ed332417/jq/internal/store"
)

// Admit returns the reason why a call must not begin: its store was closed, its context has ended, or its request was refused.
// It returns nil if the call may begin.
func Admit(ctx context.Context, closed <-chan struct{}, refused error) error {
	if Closed(closed) {
		return store.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return refused
}

// Closed reports whether the store was closed. Closing the store closes the channel.
func Closed(closed <-chan struct{}) bool {
	select {
	case <-closed:
		return true
	default:
		return false
	}
}

// Unapplied translates the error of a call that committed nothing. It returns an error of the contract unchanged. Any other
// error comes from the driver: it becomes ErrUnavailable with advice on what to do.
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

// Denied wraps a driver's error that means that the caller lacks a right, and adds advice on what to do.
func Denied(err error, advice func(error) string) error {
	return fmt.Errorf("%w: %s%w", store.ErrDenied, advice(err), oneLine{err})
}

// InDoubt wraps a driver's error that means that the answer to a commit was lost, and adds advice on what to do.
func InDoubt(err error, advice func(error) string) error {
	return fmt.Errorf("%w: %s%w", store.ErrInDoubt, advice(err), oneLine{err})
}

// A oneLine prints an error on one line. A driver that tries several servers returns a text with one line for each.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.ReplaceAll(e.error.Error(), "\n", "; ") }
func (e oneLine) Unwrap() error { return e.error }

// Because adds the reason why a call was broken off: its store was closed, or its context has ended. The driver may report
// either only as an interruption. The error given must be one of the contract.
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

// NotOpened returns an error of one line that says why the named store could not be opened, and what to do. It matches means,
// an error of the contract. If means is nil, it matches none, because opening fails again until somebody changes what the text
// names.
func NotOpened(name string, means, err error, advice func(error) string) error {
	if _, busy := errors.AsType[*BusyError](err); busy || errors.Is(err, ErrNewer) || errors.Is(err, ErrOlder) || errors.Is(err, ErrMissing) {
		return fmt.Errorf("jq: %s: %w", name, err)
	}
	if means == nil {
		return fmt.Errorf("jq: opening %s: %s%w", name, advice(err), oneLine{err})
	}
	return fmt.Errorf("%w: opening %s: %s%w", means, name, advice(err), saidBefore{oneLine{err}, means})
}

// A saidBefore is an error that is printed after the text of another error, before. If its own text begins with that text too,
// it leaves that out.
type saidBefore struct{ err, before error }

func (e saidBefore) Error() string { return strings.TrimPrefix(e.err.Error(), e.before.Error()+": ") }
func (e saidBefore) Unwrap() error { return e.err }
