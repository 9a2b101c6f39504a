package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/retention"
	"github.com/seed-ed332417/jq/internal/wire"
)

func (a *app) prune() *cobra.Command {
	var succeeded, cancelled, dead time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "remove jobs that finished long ago",
		Long: "Remove finished jobs and their history when the policy of their queue no longer keeps them (see queues set). A flag\n" +
			"replaces the policies of all queues for one state. The command removes jobs in small batches, so other work continues.\n" +
			"To remove jobs that finished less than an hour ago, use jobs rm.",
		Args:    takesNone(),
		Example: "  SELF prune\n  SELF prune --dead 720h",
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.DurationVar(&succeeded, "succeeded", 0, "remove jobs that succeeded this long ago, whatever the policies say; 0 keeps them")
	f.DurationVar(&cancelled, "cancelled", 0, "remove jobs that were cancelled this long ago, whatever the policies say; 0 keeps them")
	f.DurationVar(&dead, "dead", 0, "remove jobs that died this long ago, whatever the policies say; 0 keeps them")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		states := []*pruned{{state: jq.Succeeded, age: succeeded}, {state: jq.Cancelled, age: cancelled}, {state: jq.Dead, age: dead}}
		for _, p := range states {
			p.flagged = f.Changed(string(p.state))
			if err := p.check(); err != nil {
				return err
			}
		}
		return a.using(cmd.Context(), toRead, func(s jq.Store) error {
			if all, err := a.removeOld(cmd.Context(), s, states); err != nil {
				return fmt.Errorf("%w; removed %s before that", err, plural(all))
			}
			if asJSON {
				return wire.Encode(a.out, removedJSON(states))
			}
			_, err := fmt.Fprintln(a.out, removedIn(states))
			return err
		})
	}
	return cmd
}

// A pruned counts the jobs that were removed in one state.
type pruned struct {
	state   jq.State
	flagged bool          // the flag for this state was given
	age     time.Duration // from the flag; 0 keeps jobs forever
	let     bool          // at least one queue does not keep its jobs forever
	removed int64
}

func (p *pruned) check() error {
	if p.age != 0 && p.age < contract.MinRetention {
		return misuse("--%s must be at least %v, or 0 to keep the jobs", p.state, contract.MinRetention)
	}
	if err := (jq.Filter{FinishedFor: p.age}).Check(); err != nil {
		return misuse("--%s: %w", p.state, fieldError(err))
	}
	return nil
}

// removeOld deletes jobs as a server does, except that flags replace the policies.
func (a *app) removeOld(ctx context.Context, s jq.Store, states []*pruned) (all int64, err error) {
	of := map[jq.State]*pruned{}
	for _, p := range states {
		of[p.state] = p
	}
	bar := a.progress()
	defer bar.end()
	err = retention.Run(retention.Calls{
		List: func() ([]jq.Queue, error) { return policies(ctx, s, states) },
		Delete: func(p retention.Pruning, filter jq.Filter, limit int) ([]jq.Outcome, error) {
			removed, err := s.Delete(ctx, filter, limit)
			n := int64(len(removed))
			all += n
			of[p.State].removed += n
			bar.show(0, 0, "%s removed", plural(all))
			return removed, err
		},
	})
	return all, err
}

// policies returns the queues with their policies, with the flags applied.
func policies(ctx context.Context, s jq.Store, states []*pruned) ([]jq.Queue, error) {
	queues, err := jq.NewClient(s, nil).Queues(ctx)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return nil, err
	}
	if len(queues) == 0 {
		queues = []jq.Queue{{}} // means all queues, if the store cannot list them
	}
	for i := range queues {
		p := &queues[i].Policy
		fields := map[jq.State]*time.Duration{
			jq.Succeeded: &p.RetainSucceeded, jq.Cancelled: &p.RetainCancelled, jq.Dead: &p.RetainDead,
		}
		for _, state := range states {
			switch {
			case !state.flagged:
			case state.age == 0:
				*fields[state.state] = jq.KeepForEver
			default:
				*fields[state.state] = state.age
			}
			state.let = state.let || p.Retention(state.state) != jq.KeepForEver
		}
	}
	return queues, nil
}

func removedIn(states []*pruned) string {
	parts := make([]string, len(states))
	for i, p := range states {
		parts[i] = fmt.Sprintf("%d %s", p.removed, p.state)
		if !p.let {
			parts[i] += " (kept forever)"
		}
	}
	return "removed " + strings.Join(parts, ", ")
}

func removedJSON(states []*pruned) map[string]map[jq.State]int64 {
	removed := map[jq.State]int64{}
	for _, p := range states {
		removed[p.state] = p.removed
	}
	return map[string]map[jq.State]int64{"removed": removed}
}
