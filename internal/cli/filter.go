package cli

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
)

// filterFlags select jobs.
type filterFlags struct {
	states        []string
	queue         string
	kind          string
	tag           string
	worker        string
	waitsFor      string
	waitsForGroup string
	group         string
	limitKey      string
	olderThan     time.Duration
}

func (f *filterFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.states, "state", nil, "only jobs in `STATE`: blocked, ready, in_flight, retrying, succeeded, dead, cancelled,\nor failed for both retrying and dead; may be repeated")
	flags.StringVar(&f.queue, "queue", "", "only jobs in `QUEUE`")
	flags.StringVar(&f.kind, "kind", "", "only jobs of `KIND`")
	flags.StringVar(&f.tag, "tag", "", "only jobs with `TAG`")
	flags.StringVar(&f.waitsFor, "waits-for", "", "only jobs that wait, or have waited, for the job with `ID`")
	flags.StringVar(&f.waitsForGroup, "waits-for-group", "", "only jobs that wait, or have waited, for the group `NAME`")
	flags.StringVar(&f.group, "group", "", "only jobs in the group `NAME`")
	flags.StringVar(&f.limitKey, "limit-key", "", "only jobs with the limit `KEY`")
	complete := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var states []string
		for _, s := range append(contract.Phases(), jq.Failed) {
			states = append(states, string(s))
		}
		return states, cobra.ShellCompDirectiveNoFileComp
	}
	if err := cmd.RegisterFlagCompletionFunc("state", complete); err != nil {
		panic(err) // the flag was defined above
	}
}

func (f *filterFlags) addOlderThan(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.olderThan, "older-than", 0, "only jobs that finished at least this long ago, such as 24h")
}

// filter returns the filter that the flags describe.
func (f *filterFlags) filter() (jq.Filter, error) {
	filter := jq.Filter{
		Queue: f.queue, Kind: f.kind, Tag: f.tag, Worker: f.worker, Group: f.group, LimitKey: f.limitKey,
		WaitsForGroup: f.waitsForGroup, FinishedFor: f.olderThan,
	}
	if f.waitsFor != "" {
		ids, err := parseIDs([]string{f.waitsFor})
		if err != nil {
			return jq.Filter{}, err
		}
		filter.WaitsFor = ids[0]
	}
	for _, s := range f.states {
		filter.States = append(filter.States, jq.State(s))
	}
	if err := filter.Check(); err != nil {
		if invalid, ok := errors.AsType[*jq.InvalidError](err); ok && invalid.Field == "finished_for" {
			return jq.Filter{}, misuse("--older-than %s", invalid.Rule)
		}
		return jq.Filter{}, usageError{fieldError(err)}
	}
	return filter, nil
}

// parseIDs parses the ids of jobs.
func parseIDs(args []string) ([]int64, error) {
	ids := make([]int64, len(args))
	for i, arg := range args {
		id, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || id < 1 {
			return nil, usageError{fmt.Errorf("%q is not the id of a job: want a number from jobs ls", arg)}
		}
		ids[i] = id
	}
	return ids, nil
}
