package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/wire"
)

func (a *app) workers() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "workers", Short: "list the workers of the last day, and mark those without a heartbeat as stale", Args: takesNone(),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.using(cmd.Context(), toRead, func(s jq.Store) error {
			workers, err := jq.NewClient(s, nil).Workers(cmd.Context())
			switch {
			case err != nil:
				return err
			case asJSON:
				return wire.Encode(a.out, contract.WorkerPage{Workers: workers})
			}
			return a.tableOfWorkers(workers)
		})
	}
	return cmd
}

func (a *app) tableOfWorkers(workers []jq.Worker) error {
	if len(workers) == 0 {
		_, err := fmt.Fprintln(a.out, "no workers are running, and none died in the last day")
		return err
	}
	table := newTable(a.out)
	row(table, "worker", "host", "pid", "running", "queues", "last beat", "alive")
	for _, w := range workers {
		alive := "yes"
		if w.Stale {
			alive = "STALE"
		}
		row(table, w.Name, w.Host, w.PID, fmt.Sprintf("%d of %d", w.Running, w.Slots), strings.Join(w.Queues, ", "),
			moment(w.BeatAt), alive)
	}
	return table.Flush()
}
