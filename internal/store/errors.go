package store

import (
	"errors"
	"fmt"
	"time"
)

// Errors of a request: nothing was applied, and the same request will fail again.
var (
	// ErrInvalid says that a request breaks a limit of the contract. The error is an [*InvalidError] and names the field.
	ErrInvalid = errors.New("jq: invalid")
	// ErrNotFound says that the job does not exist, or no longer exists.
	ErrNotFound = errors.New("jq: no such job")
	// ErrState says that the operation is not possible in the job's state.
	ErrState = errors.New("jq: not possible in the job's state")
	// ErrDuplicate says that another job holds the unique key.
	ErrDuplicate = errors.New("jq: the unique key is held by another job")
	// ErrConflict says that the policy was changed since it was read: read it again.
	ErrConflict = errors.New("jq: the policy was changed by somebody else")
)

// Errors of a lease: the job belongs to somebody else now, and nothing was changed.
var (
	// ErrStaleLease says that the lease was ended by someone else, or by its holder in another way.
	ErrStaleLease = errors.New("jq: stale lease")
	// ErrAlreadyFinished says that the holder has already finished the job. Only calls in a caller's transaction return it.
	ErrAlreadyFinished = errors.New("jq: already finished under this lease")
)

// Errors of the store: the request itself may be valid.
var (
	// ErrUnavailable says that the store could not serve the call, and that nothing was applied.
	ErrUnavailable = errors.New("jq: store unavailable, nothing was applied")
	// ErrDenied says that the caller may not do this or is unknown, and that nothing was applied. Repeating the call does
	// not help until somebody has changed the password, the token or the rights.
	ErrDenied = errors.New("jq: not permitted, nothing was applied")
	// ErrInDoubt says that the store's answer was lost: the call was applied as a whole, may still be shortly, or was not
	// applied at all.
	ErrInDoubt = errors.New("jq: answer lost, the call may have been applied")
	// ErrClosed says that the store was closed; nothing was applied.
	ErrClosed = errors.New("jq: store closed")
)

// An InvalidError says which field of a request breaks which rule.
type InvalidError struct {
	Item  int    // index of the item, or −1 for the call as a whole
	Field string // name of the field in the contract: payload, queue, limit
	Rule  string // what the field must be
}

// Error returns one line: the item, the field and the rule.
func (e *InvalidError) Error() string {
	if e.Item < 0 {
		return fmt.Sprintf("%v: %s %s", ErrInvalid, e.Field, e.Rule)
	}
	return fmt.Sprintf("%v: item %d: %s %s", ErrInvalid, e.Item, e.Field, e.Rule)
}

// Is makes every InvalidError match ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// An OverlongError says that a List or a Count took longer than the store allows. It matches ErrUnavailable.
type OverlongError struct {
	Limit  time.Duration // that was exceeded
	Waited bool          // the call spent the time waiting for other readers
}

// Error returns one line: the limit, and what to do.
func (e *OverlongError) Error() string { return fmt.Sprintf("%v: %s", ErrUnavailable, e.Advice()) }

// Advice says what took too long, and what to do about it.
func (e *OverlongError) Advice() string {
	if e.Waited {
		return fmt.Sprintf("other listings and counts have kept this one waiting for %v: let fewer run at once, or narrow their filters", e.Limit)
	}
	return fmt.Sprintf("the reading took longer than %v: narrow its filter, first by queue and state", e.Limit)
}

// Is makes every OverlongError match ErrUnavailable.
func (e *OverlongError) Is(target error) bool { return target == ErrUnavailable }

// Explained returns an error that matches the kind and has a text of its own, for kinds whose text speaks of something else.
func Explained(kind error, format string, args ...any) error {
	return &explained{kind, "jq: " + fmt.Sprintf(format, args...)}
}

type explained struct {
	kind error
	text string
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.kind }
