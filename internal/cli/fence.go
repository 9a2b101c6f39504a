package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
)

func (a *app) fence() *cobra.Command {
	var all, force bool
	var epoch int64
	cmd := &cobra.Command{
		Use:   "fence",
		Short: "make a restored store safe to use",
		Long: "Fence a store after you restored it from a backup, or after a failover that lost its latest changes. New tokens and ids\n" +
			"start above 4,294,967,296 times the epoch that the command prints, so the store never issues one of the lost period again.\n" +
			"Jobs, their tokens and current leases stay as they are, and workers can keep running.\n\n" +
			"If workers used the restored copy before you fenced it, leases of the lost period may match its own. Then stop all workers\n" +
			"and add --all, which also ends the current leases; their jobs are recovered when the leases would have expired. If you\n" +
			"restore the same backup a second time, add --epoch with one more than the epoch printed the first time.",
		Args: takesNone(),
	}
	cmd.Flags().BoolVar(&all, "all", false, "also end the current leases")
	cmd.Flags().BoolVar(&force, "force", false, "with --all: do so even while workers are alive")
	cmd.Flags().Int64Var(&epoch, "epoch", 0, "raise the epoch to at least `N`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if force && !all {
			return misuse("--force requires --all")
		}
		p, err := a.place()
		if err != nil {
			return err
		}
		return a.using(cmd.Context(), toRead, func(s jq.Store) error {
			fencer, ok := s.(contract.Fencer)
			if !ok {
				return errors.New("this store does not support fencing")
			}
			if all && !force {
				if err := a.noWorkers(cmd.Context(), s); err != nil {
					return err
				}
			}
			raised, err := fencer.Fence(cmd.Context(), contract.FenceRequest{EndLeases: all, Epoch: epoch})
			if err != nil {
				return err
			}
			ended := ""
			if all {
				ended = ", and every lease has ended: workers can start"
			}
			_, err = fmt.Fprintf(a.out, "fenced %s: this is epoch %d%s\n", printable(p.shown), raised, ended)
			return err
		})
	}
	return cmd
}

// noWorkers returns an error that names the workers that are alive. It ignores workers without queues, because they hold no
// leases. A server is such a worker, possibly the one that this command uses.
func (a *app) noWorkers(ctx context.Context, s jq.Store) error {
	workers, err := jq.NewClient(s, nil).Workers(ctx)
	if err != nil {
		return err
	}
	var live []string
	for _, w := range workers {
		if !w.Stale && len(w.Queues) > 0 {
			live = append(live, printable(w.Name))
		}
	}
	if len(live) == 0 {
		return nil
	}
	return fmt.Errorf("workers are alive: %s: stop them and wait until `%s workers` shows them as stale or not at all, or add --force to end their leases",
		strings.Join(live, ", "), a.self)
}
