package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/wire"
)

func (a *app) stats() *cobra.Command {
	var asJSON bool
	var last time.Duration
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "count jobs by queue and state, and show how long the oldest due job has waited",
		Long: `Count jobs by queue and state, and show how long the oldest due job has waited.

With --last, show what servers did within this time, by queue and kind: how many runs ended how, and how long half of the jobs, and 95 percent
of them, waited at most and ran at most.`,
		Args: takesNone(),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().DurationVar(&last, "last", 0, "show what servers did within this time, such as 1h; at most 168h")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.using(cmd.Context(), toRead, func(s jq.Store) error {
			if cmd.Flags().Changed("last") {
				return a.activity(cmd.Context(), s, last, asJSON)
			}
			counts, err := s.Count(cmd.Context(), jq.Filter{})
			switch {
			case err != nil:
				return err
			case asJSON:
				return wire.Encode(a.out, counts)
			}
			return a.tableOfCounts(counts)
		})
	}
	return cmd
}

func (a *app) tableOfCounts(counts jq.Counts) error {
	if len(counts.Queues) == 0 {
		_, err := fmt.Fprintln(a.out, "there are no jobs")
		return err
	}
	table := newTable(a.out)
	heads := []any{"queue"}
	for _, phase := range contract.Phases() {
		heads = append(heads, phase)
	}
	row(table, append(heads, "due", "oldest due")...)
	for _, q := range append(counts.Queues, sum(counts)) {
		cells := []any{q.Queue}
		for _, phase := range contract.Phases() {
			cells = append(cells, q.Jobs[phase])
		}
		row(table, append(cells, q.Due, waited(q.OldestDue, counts.Now))...)
	}
	return table.Flush()
}

// sum adds up the counts of all queues.
func sum(counts jq.Counts) jq.QueueCount {
	all := jq.QueueCount{Queue: "all", Jobs: map[jq.State]int64{}}
	for _, q := range counts.Queues {
		for phase, n := range q.Jobs {
			all.Jobs[phase] += n
		}
		all.Due += q.Due
		if all.OldestDue.IsZero() || !q.OldestDue.IsZero() && q.OldestDue.Before(all.OldestDue) {
			all.OldestDue = q.OldestDue
		}
	}
	return all
}

// waited formats the time when the oldest job became due, and how long ago that was.
func waited(since, now time.Time) string {
	if since.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s (%s ago)", moment(since), now.Sub(since).Truncate(time.Second))
}
