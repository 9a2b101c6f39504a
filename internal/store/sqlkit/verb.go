package sqlkit

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A Verb is an operation on jobs under leases. T is the type of its items.
type Verb[T any] struct {
	lease func(T) (store.Lease, store.FinishedBy) // the item's lease, and the way in which the item ends it
	apply func(*store.Record, T) store.Outcome

	strict bool          // an invalid item or a lease that does not hold is an error
	check  func(T) error // the limit that an item of a strict call breaks
}

// Acking finishes jobs at now. If a result is refused, a strict call returns an error; any other call makes the job dead.
func Acking(now time.Time, strict bool) Verb[store.Ack] {
	return Verb[store.Ack]{
		lease: func(a store.Ack) (store.Lease, store.FinishedBy) { return a.Lease, store.FinishedByAck },
		check: func(a store.Ack) error {
			if a.Refused() != nil {
				return &store.InvalidError{Field: "result", Rule: "must be a JSON document within the limits"}
			}
			return nil
		},
		apply:  func(e *store.Record, a store.Ack) store.Outcome { return e.Ack(a, a.Refused(), now) },
		strict: strict,
	}
}

// NAcking ends leases at now, without success.
func NAcking(now time.Time, strict bool) Verb[store.NAck] {
	return Verb[store.NAck]{
		lease:  func(n store.NAck) (store.Lease, store.FinishedBy) { return n.Lease, n.FinishedBy() },
		check:  store.NAck.Check,
		apply:  func(e *store.Record, n store.NAck) store.Outcome { return e.NAck(n, n.Failure(), now) },
		strict: strict,
	}
}

// Extending makes leases run until now plus ttl.
func Extending(now time.Time, ttl time.Duration) Verb[store.Lease] {
	return Verb[store.Lease]{
		lease: func(l store.Lease) (store.Lease, store.FinishedBy) { return l, store.NotFinished },
		apply: func(e *store.Record, l store.Lease) store.Outcome { return e.Extend(l, ttl, now) },
	}
}

// Saving saves checkpoints and progress.
func Saving() Verb[store.Save] {
	return Verb[store.Save]{
		lease: func(v store.Save) (store.Lease, store.FinishedBy) { return v.Lease, store.NotFinished },
		apply: func(e *store.Record, v store.Save) store.Outcome { return e.Save(v, v.Check()) },
	}
}

// Leases returns the leases of the items, in order.
func (v Verb[T]) Leases(items []T) []store.Lease {
	held := make([]store.Lease, len(items))
	for i, item := range items {
		held[i], _ = v.lease(item)
	}
	return held
}

// Do applies the items in order. If several items concern one job, each sees the changes of the items before it. Do returns one
// outcome per item, and each changed job once. It fails only if the call is strict, and the error then names the item.
func (v Verb[T]) Do(items []T, jobs map[int64]*store.Record) (outcomes []store.Outcome, changed []*store.Record, err error) {
	outcomes = make([]store.Outcome, len(items))
	seen := make(map[*store.Record]struct{}, len(jobs))
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

// doOne applies the item to its job, which is nil if the job does not exist.
func (v Verb[T]) doOne(e *store.Record, l store.Lease, by store.FinishedBy, item T) (store.Outcome, error) {
	if v.strict {
		if err := cmp.Or(v.check(item), e.MustHold(l, by)); err != nil {
			return store.Outcome{}, err
		}
	}
	return v.apply(e, item), nil
}

// ofItem adds the item's index to an error.
func ofItem(i int, err error) error {
	if invalid, ok := errors.AsType[*store.InvalidError](err); ok {
		return &store.InvalidError{Item: i, Field: invalid.Field, Rule: invalid.Rule}
	}
	return fmt.Errorf("item %d: %w", i, err)
}

// Repeats reports whether a job appears twice among the leases. Then the items must be applied one after another.
func Repeats(held []store.Lease) bool {
	seen := make(map[int64]struct{}, len(held))
	for _, l := range held {
		seen[l.ID] = struct{}{}
	}
	return len(seen) < len(held)
}

// A Run is the leases with one token on jobs whose ids follow one another.
type Run struct {
	First, Last, Token int64
}

// Runs returns the leases as runs, sorted by id. No job may appear twice.
func Runs(held []store.Lease) []Run {
	sorted := slices.SortedFunc(slices.Values(held), func(a, b store.Lease) int { return cmp.Compare(a.ID, b.ID) })
	var runs []Run
	for _, l := range sorted {
		if n := len(runs); n > 0 && runs[n-1].Last+1 == l.ID && runs[n-1].Token == l.Token {
			runs[n-1].Last = l.ID
		} else {
			runs = append(runs, Run{l.ID, l.ID, l.Token})
		}
	}
	return runs
}

// Succeeded returns the leases of the acks, and the outcomes of the acks if every lease holds.
func Succeeded(acks []store.Ack) (held []store.Lease, outcomes []store.Outcome) {
	held, outcomes = make([]store.Lease, len(acks)), make([]store.Outcome, len(acks))
	for i, a := range acks {
		held[i] = a.Lease
		outcomes[i] = store.Outcome{ID: a.ID, Status: store.StatusOK, State: store.Succeeded, Token: a.Token}
	}
	return held, outcomes
}

// Extended returns the outcomes of the leases if every lease holds.
func Extended(held []store.Lease, until time.Time) []store.Outcome {
	outcomes := make([]store.Outcome, len(held))
	for i, l := range held {
		outcomes[i] = store.Outcome{ID: l.ID, Status: store.StatusOK, State: store.InFlight, Token: l.Token, Next: until}
	}
	return outcomes
}
