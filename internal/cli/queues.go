package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/wire"
)

func (a *app) queues() *cobra.Command {
	return a.group("queues", "list, pause and resume queues, and set their policies",
		a.queuesLs(), a.queuesSet(),
		a.setPaused("pause", "stop new claims from queues; running jobs continue", "paused", true),
		a.setPaused("resume", "allow claims from paused queues again", "resumed", false))
}

func (a *app) queuesLs() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "ls", Short: "list queues that have jobs, are paused or have a policy", Args: takesNone()}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.using(cmd.Context(), toRead, func(s jq.Store) error {
			client := jq.NewClient(s, nil)
			queues, err := client.Queues(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return wire.Encode(a.out, wire.Queues{Queues: wire.Listed(queues)})
			}
			counts, err := client.Count(cmd.Context(), jq.Filter{})
			if err != nil {
				return err
			}
			return a.tableOfQueues(queues, counts)
		})
	}
	return cmd
}

func (a *app) tableOfQueues(queues []jq.Queue, counts jq.Counts) error {
	if len(queues) == 0 {
		_, err := fmt.Fprintln(a.out, "no queue has jobs, is paused or has a policy")
		return err
	}
	of := map[string]jq.QueueCount{}
	for _, c := range counts.Queues {
		of[c.Queue] = c
	}
	table := newTable(a.out)
	row(table, "queue", "paused", "due", "blocked", "ready", "in_flight", "retrying", "dead", "policy")
	for _, q := range queues {
		paused := "no"
		if q.Paused {
			paused = "yes"
		}
		c := of[q.Name]
		row(table, q.Name, paused, c.Due, c.Jobs[jq.Blocked], c.Jobs[jq.Ready], c.Jobs[jq.InFlight], c.Jobs[jq.Retrying],
			c.Jobs[jq.Dead], policyInShort(q.Policy))
	}
	return table.Flush()
}

func (a *app) setPaused(verb, short, done string, paused bool) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: verb + " QUEUE...", Short: short, Args: takes(1, -1, "a queue"),
		Long: strings.ToUpper(short[:1]) + short[1:] + ".\n\nA queue without jobs, settings and workers is " + done + " too, but with a warning, as its name may be mistyped.",
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		for _, name := range names {
			if err := contract.CheckQueue(name); err != nil {
				return usageError{fieldError(err)}
			}
		}
		return a.using(cmd.Context(), toRead, func(s jq.Store) error {
			keeper, ok := s.(contract.QueueKeeper)
			if !ok {
				return errors.New("this store does not support pausing queues")
			}
			a.warnOfUnknown(cmd.Context(), keeper, names)
			var queues []jq.Queue
			for _, name := range names {
				if err := keeper.SetPaused(cmd.Context(), name, paused); err != nil {
					return err
				}
				if queues = append(queues, jq.Queue{Name: name, Paused: paused}); !asJSON {
					fmt.Fprintf(a.out, "queue %s: %s\n", printable(name), done)
				}
			}
			if asJSON {
				return wire.Encode(a.out, wire.Queues{Queues: wire.Listed(queues)})
			}
			return nil
		})
	}
	return cmd
}

// warnOfUnknown warns of each queue that has no jobs, no settings and no worker, because its name may be mistyped. It says nothing
// if it cannot list the queues and the workers.
func (a *app) warnOfUnknown(ctx context.Context, keeper contract.QueueKeeper, names []string) {
	queues, err := keeper.Queues(ctx)
	if err != nil {
		return
	}
	unknown := slices.Clone(names)
	know := func(queue string) {
		unknown = slices.DeleteFunc(unknown, func(name string) bool { return name == queue })
	}
	for _, q := range queues {
		know(q.Name)
	}
	if registry, ok := keeper.(contract.Registry); ok && len(unknown) > 0 {
		err = contract.EachWorker(ctx, registry, func(w jq.Worker) {
			for _, queue := range w.Queues {
				know(queue)
			}
		})
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return
		}
	}
	for _, name := range unknown {
		fmt.Fprintf(a.std.err, "warning: no jobs, settings or workers are known for the queue %s; is its name right?\n", printable(name))
	}
}
