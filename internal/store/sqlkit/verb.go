package sqlkit

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A Verb is what is done to jobs under leases, by items of the type.
type Verb[T any] struct {
	lease func(T) (store.Lease, FinishedBy) // whose, and in which way the item would end it
	check func(T) error                     // why the item breaks a limit
	apply func(*Entry, T) store.Outcome

	strict bool // a lease that does not hold is an error, as is an item that breaks a limit
}

// Acking finishes jobs at now. A result that is refused is an error where the call is strict; elsewhere the job is dead by it.
func Acking(now time.Time, strict bool) Verb[store.Ack] {
	return Verb[store.Ack]{
		lease: func(a store.Ack) (store.Lease, FinishedBy) { return a.Lease, ByAck },
		check: func(a store.Ack) error {
			if refused := a.Refused(); refused != nil && strict {
				return &store.InvalidError{Field: "result", Rule: "must be a JSON document within the limits"}
			}
			return nil
		},
		apply:  func(e *Entry, a store.Ack) store.Outcome { return e.Ack(a, now) },
		strict: strict,
	}
}

// NAcking ends leases at now without success.
func NAcking(now time.Time, strict bool) Verb[store.NAck] {
	return Verb[store.NAck]{
		lease: func(n store.NAck) (store.Lease, FinishedBy) {
			by, _ := WayOf(n.Form)
			return n.Lease, by
		},
		check:  store.NAck.Check,
		apply:  func(e *Entry, n store.NAck) store.Outcome { return e.NAck(n, now) },
		strict: strict,
	}
}

// Extending lets leases run until now plus ttl.
func Extending(now time.Time, ttl time.Duration) Verb[store.Lease] {
	return Verb[store.Lease]{
		lease: func(l store.Lease) (store.Lease, FinishedBy) { return l, Nobody },
		check: func(store.Lease) error { return nil },
		apply: func(e *Entry, l store.Lease) store.Outcome { return e.Extend(l, ttl, now) },
	}
}

// Saving keeps checkpoints and progress.
func Saving() Verb[store.Save] {
	return Verb[store.Save]{
		lease: func(v store.Save) (store.Lease, FinishedBy) { return v.Lease, Nobody },
		check: store.Save.Check,
		apply: func(e *Entry, v store.Save) store.Outcome { return e.Save(v) },
	}
}

// Leases are those of the items, in their order.
func (v Verb[T]) Leases(items []T) []store.Lease {
	held := make([]store.Lease, len(items))
	for i, item := range items {
		held[i], _ = v.lease(item)
	}
	return held
}

// Do applies the items one after another, each on what the ones before it have left of its job. It returns an outcome for each,
// and the jobs that have changed, each once. It fails only where the call is strict, and then names the item.
func (v Verb[T]) Do(items []T, jobs map[int64]*Entry) (outcomes []store.Outcome, changed []*Entry, err error) {
	outcomes = make([]store.Outcome, len(items))
	seen := make(map[*Entry]struct{}, len(jobs))
	for i, item := range items {
		l, by := v.lease(item)
		e := jobs[l.ID]
		if outcomes[i], err = v.doOne(e, l, by, item); err != nil {
			return nil, nil, ofItem(i, err)
		}
		if outcomes[i].Status != store.StatusOK {
			continue
		}
		if _, twice := seen[e]; !twice {
			seen[e] = struct{}{}
			changed = append(changed, e)
		}
	}
	return outcomes, changed, nil
}

// doOne applies the item to its job, which is nil if there is none.
func (v Verb[T]) doOne(e *Entry, l store.Lease, by FinishedBy, item T) (store.Outcome, error) {
	invalid := v.check(item)
	switch {
	case v.strict:
		if err := refusal(e, l, by, invalid); err != nil {
			return store.Outcome{}, err
		}
	case invalid != nil:
		return store.Outcome{ID: l.ID, Status: store.StatusInvalid, Reason: invalid.Error()}, nil
	case e == nil:
		return store.Outcome{ID: l.ID, Status: store.StatusNotFound}, nil
	}
	return v.apply(e, item), nil
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

// Repeats says that a job stands twice among the leases: then one after another must be looked at.
func Repeats(held []store.Lease) bool {
	seen := make(map[int64]struct{}, len(held))
	for _, l := range held {
		seen[l.ID] = struct{}{}
	}
	return len(seen) < len(held)
}
