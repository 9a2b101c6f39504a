package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/doctor"
	"github.com/seed-ed332417/jq/internal/wire"
)

func (a *app) doctor() *cobra.Command {
	var asJSON, repair bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "find problems in a store and say how to fix them; fails if it finds any",
		Long: "Find problems in a store and say how to fix them: expired leases that nobody recovers, schedules that no server fires,\n" +
			"queues without a worker, limit keys that are full or that one job holds back, workers without a heartbeat whose work nobody\n" +
			"has taken over, clocks that disagree, and a schema that is not this program's. Depending on the kind of store, also find\n" +
			"missing indexes, damaged files, transactions that hold back vacuum, dead rows, a large log, unsafe settings, too few\n" +
			"connections, and standbys that are missing, have no substitute or lag. Queues with the same problem are one finding, which\n" +
			"names those that have waited longest.\n\n" +
			"It does not report dead jobs, paused schedules, or times that --catch-up skip left out.\n\n" +
			"The command changes nothing, unless you add --repair. It then corrects the times of waiting jobs that were written while a\n" +
			"clock was ahead, so that they are no longer due too late.",
		Args: takesNone(),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&repair, "repair", false, "correct the times of waiting jobs that were written while a clock was ahead")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		found, err := a.examine(cmd, repair)
		if err != nil {
			return err
		}
		return a.printFindings(found, asJSON)
	}
	return cmd
}

// examine looks for problems. It does not open a store whose schema differs from this program's.
func (a *app) examine(cmd *cobra.Command, repair bool) (found []contract.Finding, err error) {
	p, err := a.place()
	if err != nil {
		return nil, err
	}
	if p.migrates() {
		schema, err := schemaAt(cmd.Context(), p)
		if err != nil {
			return nil, err
		}
		if schema.Version == 0 {
			return nil, fmt.Errorf("there is no store at %s: name another with --store, or create it with migrate up", p.shown)
		}
		if found := schemaFinding(p, schema); len(found) > 0 {
			return found, nil
		}
	}
	err = a.using(cmd.Context(), toRead, func(s jq.Store) error {
		if repair {
			if err := a.repaired(cmd.Context(), s); err != nil {
				return err
			}
		}
		found, err = doctor.Examine(cmd.Context(), s, time.Now)
		return err
	})
	return found, err
}

// repaired corrects the times of waiting jobs and prints how many it corrected.
func (a *app) repaired(ctx context.Context, s jq.Store) error {
	repairer, ok := s.(contract.Repairer)
	if !ok {
		return errors.New("this store cannot be repaired from here; if a server has it, name the store itself with --store")
	}
	moved, err := repairer.Repair(ctx)
	if err == nil || moved > 0 {
		fmt.Fprintf(a.std.err, "corrected the times of %s that were written while a clock was ahead\n", plural(int64(moved)))
	}
	return err
}

// schemaFinding returns a finding if the schema of the store differs from this program's.
func schemaFinding(p place, schema contract.Schema) []contract.Finding {
	err := schemaMismatch(schema)
	if err == nil {
		return nil
	}
	return []contract.Finding{{
		Name:   "other_schema",
		Detail: fmt.Sprintf("%s has schema %d, but this program knows schema %d", p.shown, schema.Version, schema.Newest),
		Advice: err.Error(),
	}}
}

func (a *app) printFindings(found []contract.Finding, asJSON bool) error {
	if asJSON {
		if err := wire.Encode(a.out, wire.Findings{Findings: wire.Listed(found)}); err != nil {
			return err
		}
	} else {
		for _, f := range found {
			fmt.Fprintf(a.out, "%s: %s\n    %s\n", f.Name, printable(f.Detail), printable(f.Advice))
		}
	}
	switch {
	case len(found) == 1:
		return errors.New("1 finding")
	case len(found) > 1:
		return fmt.Errorf("%d findings", len(found))
	case !asJSON:
		fmt.Fprintln(a.out, "no problems found")
	}
	return nil
}
