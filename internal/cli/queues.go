package cli

import (
	"errors"
	"fmt"

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
	row(table, "queue", "paused", "due", "ready", "in_flight", "retrying", "dead", "policy")
	for _, q := range queues {
		paused := "no"
		if q.Paused {
			paused = "yes"
		}
		c := of[q.Name]
		row(table, q.Name, paused, c.Due, c.Jobs[jq.Ready], c.Jobs[jq.InFlight], c.Jobs[jq.Retrying], c.Jobs[jq.Dead], policyInShort(q.Policy))
	}
	return table.Flush()
}

func (a *app) setPaused(verb, short, done string, paused bool) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: verb + " QUEUE...", Short: short, Args: takes(1, -1, "a queue")}
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
