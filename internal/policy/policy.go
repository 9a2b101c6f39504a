// Package policy lets programs declare the policies of their queues.
package policy

import (
	"context"
	"errors"

	"github.com/seed-ed332417/jq/internal/store"
)

// tries is how often a declaration starts again because somebody else has changed the policy meanwhile.
const tries = 10

// Check returns an [*store.InvalidError] unless the policy can be declared.
func Check(p store.Policy) error {
	switch {
	case p.Owner == "":
		return &store.InvalidError{Item: -1, Field: "owner", Rule: "must name the program that declares the policy"}
	case p.Declared < 1:
		return &store.InvalidError{Item: -1, Field: "declared", Rule: "must be the version of the declaration, 1 or more"}
	}
	return p.Check()
}

// Declare makes p the policy of the queue, unless its Owner has declared the same version or a higher one. So a change by a person stays until
// the program declares a higher version. It ignores p.Version, and returns the policy that the queue has then. It returns ErrConflict for a queue whose
// policy another program has declared, and ErrUnavailable if others change it all the time.
func Declare(ctx context.Context, keeper store.PolicyKeeper, queue string, p store.Policy) (store.Policy, error) {
	p.Version = 0
	if err := Check(p); err != nil {
		return store.Policy{}, err
	}
	for range tries {
		current, err := keeper.Policy(ctx, queue)
		switch {
		case err != nil:
			return store.Policy{}, err
		case current.Owner != "" && current.Owner != p.Owner:
			return current, store.Explained(store.ErrConflict, "the policy of the queue %q belongs to %q: declare it there, or take it away with jobq queues set %s --disown",
				queue, current.Owner, queue)
		case current.Owner == p.Owner && current.Declared >= p.Declared:
			return current, nil
		}
		p.Version = current.Version
		set, err := keeper.SetPolicy(ctx, queue, p)
		if !errors.Is(err, store.ErrConflict) {
			return set, err
		}
	}
	return store.Policy{}, store.Explained(store.ErrUnavailable, "others change the policy of the queue %q all the time", queue)
}
