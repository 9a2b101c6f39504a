package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/wire"
)

// leastAge keeps what was finished just now for those who still want to look at it.
const leastAge = time.Hour

func (a *app) prune() *cobra.Command {
	var succeeded, cancelled, dead time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "remove jobs that finished long ago",
		Long: "Remove jobs that finished so long ago, with their history, in small batches that hold up nobody. 0 keeps them for\n" +
			"ever. What is younger than an hour is not for prune but for jobs rm.",
		Args:    takesNone(),
		Example: "  SELF prune --dead 720h",
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.DurationVar(&succeeded, "succeeded", 24*time.Hour, "the age of jobs that have succeeded")
	f.DurationVar(&cancelled, "cancelled", 7*24*time.Hour, "the age of cancelled jobs")
	f.DurationVar(&dead, "dead", 0, "the age of dead jobs; 0 keeps them")
	f.BoolVar(&asJSON, "json", false, "as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		policies := []*policy{
			{state: jq.Succeeded, age: succeeded}, {state: jq.Cancelled, age: cancelled}, {state: jq.Dead, age: dead},
		}
		for _, p := range policies {
			if err := p.check(); err != nil {
				return err
			}
		}
		return a.using(cmd.Context(), toRead, func(s jq.Store) error {
			for _, p := range policies {
				if err := a.removeOld(cmd.Context(), s, p); err != nil {
					return fmt.Errorf("%w; before that, %s", err, removedIn(policies))
				}
			}
			if asJSON {
				return wire.Encode(a.out, removedJSON(policies))
			}
			_, err := fmt.Fprintln(a.out, removedIn(policies))
			return err
		})
	}
	return cmd
}

// A policy is how long finished jobs of one state are kept, and how many were not.
type policy struct {
	state   jq.State
	age     time.Duration
	removed int64
}

func (p *policy) check() error {
	if p.age != 0 && p.age < leastAge {
		return misuse("--%s must be %v at least, or 0 to keep them", p.state, leastAge)
	}
	if err := (jq.Filter{FinishedFor: p.age}).Check(); err != nil {
		return misuse("--%s: %w", p.state, flawOf(err))
	}
	return nil
}

func (a *app) removeOld(ctx context.Context, s jq.Store, p *policy) error {
	if p.age == 0 {
		return nil
	}
	const batch = 500
	filter := jq.Filter{States: []jq.State{p.state}, FinishedFor: p.age}
	_, whole, _, err := matching(ctx, s, removing(), filter)
	if err != nil {
		return err
	}
	bar := a.progress()
	defer bar.end()
	for {
		removed, err := s.Delete(ctx, filter, batch)
		if err != nil {
			return err
		}
		p.removed += int64(len(removed))
		if len(removed) < batch {
			return nil
		}
		filter.After = removed[batch-1].ID // a database may still have to walk over what is removed
		bar.show(p.removed, whole, "%d of %d %s jobs removed", p.removed, whole, p.state)
	}
}

func removedIn(policies []*policy) string {
	parts := make([]string, len(policies))
	for i, p := range policies {
		parts[i] = fmt.Sprintf("%d %s", p.removed, p.state)
		if p.age == 0 {
			parts[i] += " (kept for ever)"
		}
	}
	return "removed " + strings.Join(parts, ", ")
}

func removedJSON(policies []*policy) map[string]map[jq.State]int64 {
	removed := map[jq.State]int64{}
	for _, p := range policies {
		removed[p.state] = p.removed
	}
	return map[string]map[jq.State]int64{"removed": removed}
}
