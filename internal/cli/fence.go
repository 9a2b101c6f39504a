package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
)

func (a *app) fence() *cobra.Command {
	var all, force bool
	var epoch int64
	cmd := &cobra.Command{
		Use:   "fence",
		Short: "make a restored store safe to use",
		Long: "Make a store safe that was restored from a backup, or that lost its latest changes in a failover. Tokens and ids go on\n" +
			"above a new floor, 4,294,967,296 times the epoch that is printed, so that none of the lost time is given again. Jobs, their\n" +
			"tokens and the leases in force stay as they are: workers may go on meanwhile.\n\n" +
			"If workers have used a restored copy before it was fenced, leases of the lost time may fit: stop all workers, and add\n" +
			"--all. It ends the leases in force too; their jobs are recovered when these expire. If the same backup is restored a\n" +
			"second time, add --epoch with one more than was printed the first time.",
		Args: takesNone(),
	}
	cmd.Flags().BoolVar(&all, "all", false, "end the leases in force as well")
	cmd.Flags().BoolVar(&force, "force", false, "with --all: also while workers live")
	cmd.Flags().Int64Var(&epoch, "epoch", 0, "go to epoch `N` at least")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if force && !all {
			return misuse("--force goes with --all only")
		}
		p, err := a.place()
		if err != nil {
			return err
		}
		return a.using(cmd.Context(), toRead, func(s jq.Store) error {
			fencer, ok := s.(jq.Fencer)
			if !ok {
				return errors.New("this store can not be fenced")
			}
			if all && !force {
				if err := a.noWorkers(cmd.Context(), s); err != nil {
					return err
				}
			}
			raised, err := fencer.Fence(cmd.Context(), jq.FenceRequest{EndLeases: all, Epoch: epoch})
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

// noWorkers says which workers live. One that claims from no queue holds no lease: a server is such a one, which may be that
// through which this is asked.
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
	return fmt.Errorf("workers live: %s: stop them and wait until `%s workers` shows them as stale or no longer, or add --force to end the leases under them",
		strings.Join(live, ", "), a.self)
}
