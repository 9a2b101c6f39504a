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
	// ErrNotFound says that there is no such job, or no longer.
	ErrNotFound = errors.New("jq: no such job")
	// ErrState says that the job is in a state that the operation does not leave.
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
	// ErrAlreadyFinished says, inside a caller's transaction only, that the holder finished the job before.
	ErrAlreadyFinished = errors.New("jq: already finished under this lease")
)

// Errors of the store: the request may be fine.
var (
	// ErrUnavailable says that the store could not serve the call, and that nothing was applied.
	ErrUnavailable = errors.New("jq: store unavailable, nothing was applied")
	// ErrDenied says that the caller may not do this, or is not known, and that nothing was applied. It lasts until somebody
	// has changed the password, the token or the rights.
	ErrDenied = errors.New("jq: not permitted, nothing was applied")
	// ErrInDoubt says that the store's answer was lost: the call was applied as a whole, or not at all.
	ErrInDoubt = errors.New("jq: answer lost, the call may have been applied")
	// ErrClosed says that the store was closed; nothing was applied.
	ErrClosed = errors.New("jq: store closed")
)

// An InvalidError names what a request got wrong.
type InvalidError struct {
	Item  int    // the index of the item, or −1 if it is the call as a whole
	Field string // in the words of the contract: payload, queue, limit
	Rule  string // what the field must be
}

// Error is one line: the item, the field and the rule.
func (e *InvalidError) Error() string {
	if e.Item < 0 {
		return fmt.Sprintf("%v: %s %s", ErrInvalid, e.Field, e.Rule)
	}
	return fmt.Sprintf("%v: item %d: %s %s", ErrInvalid, e.Item, e.Field, e.Rule)
}

// Is makes every InvalidError an ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// An OverlongError is the ErrUnavailable of a List or a Count that has lasted for as long as the store lets it.
type OverlongError struct {
	Limit  time.Duration
	Waited bool // for its turn: others that read have taken the time
}

// Error is one line: the limit, and what to do.
func (e *OverlongError) Error() string { return fmt.Sprintf("%v: %s", ErrUnavailable, e.Advice()) }

// Advice says what was too long, and what to do.
func (e *OverlongError) Advice() string {
	if e.Waited {
		return fmt.Sprintf("other listings and counts have kept this one waiting for %v: let fewer run at once, or narrow their filters", e.Limit)
	}
	return fmt.Sprintf("the reading took longer than %v: narrow its filter, first by queue and state", e.Limit)
}

// Is makes every OverlongError an ErrUnavailable.
func (e *OverlongError) Is(target error) bool { return target == ErrUnavailable }
