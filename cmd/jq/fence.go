package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
)

func (a *app) fence() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "fence",
		Short: "make a restored store safe to use",
		Long: "Make a store safe that was restored from a backup, or that lost its latest changes in a failover. The token of every\n" +
			"job, and the id of the next one, is raised by 4,294,967,296, so that no lease of the lost time fits anything and no id is\n" +
			"given twice. Jobs keep their states; those in flight are recovered when their leases expire. Stop all workers first, and\n" +
			"start them afterwards.",
		Args: takesNone(),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "all workers are stopped: do it")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p, err := a.place()
		if err != nil {
			return err
		}
		if !yes {
			return misuse("this ends every lease in %s: stop all workers, then say so by --yes", p.shown)
		}
		return a.using(cmd.Context(), toRead, func(s jq.Store) error {
			fencer, ok := s.(jq.Fencer)
			if !ok {
				return errors.New("this store can not be fenced")
			}
			if err := fencer.Fence(cmd.Context()); err != nil {
				return err
			}
			_, err := fmt.Fprintf(a.out, "fenced %s: workers can start\n", printable(p.shown))
			return err
		})
	}
	return cmd
}
