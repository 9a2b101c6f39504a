package sqlkit

import (
	"errors"
	"fmt"

	"github.com/seed-ed332417/jq/internal/store"
)

// A Verb is what is done to jobs under leases, by items of the type.
type Verb[T any] struct {
	Lease func(T) (store.Lease, FinishedBy) // whose, and in which way the item would end it
	Check func(T) error                     // why the item breaks a limit
	Apply func(*Entry, T) store.Outcome
}

// Do applies the item at the index to its job, which is nil if there is none. It fails only where the call is strict, and
// then names the item.
func (v Verb[T]) Do(i int, item T, e *Entry, strict bool) (store.Outcome, error) {
	l, by := v.Lease(item)
	invalid := v.Check(item)
	switch {
	case strict:
		if err := refusal(e, l, by, invalid); err != nil {
			return store.Outcome{}, ofItem(i, err)
		}
	case invalid != nil:
		return store.Outcome{ID: l.ID, Status: store.StatusInvalid, Reason: invalid.Error()}, nil
	case e == nil:
		return store.Outcome{ID: l.ID, Status: store.StatusNotFound}, nil
	}
	return v.Apply(e, item), nil
}

// refusal is why a strict call does not go on.
func refusal(e *Entry, l store.Lease, by FinishedBy, invalid error) error {
	switch {
	case invalid != nil:
		return invalid
	case e == nil:
		return store.ErrNotFound
	default:
		return e.Refuse(l, by)
	}
}

// ofItem names the item in an error that does not know it.
func ofItem(i int, err error) error {
	if invalid, ok := errors.AsType[*store.InvalidError](err); ok {
		return &store.InvalidError{Item: i, Field: invalid.Field, Rule: invalid.Rule}
	}
	return fmt.Errorf("item %d: %w", i, err)
}
