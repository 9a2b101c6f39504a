package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/bench/internal/alone"
	"github.com/seed-ed332417/jq/bench/internal/peer"
	"github.com/seed-ed332417/jq/bench/internal/peers"
	"github.com/seed-ed332417/jq/bench/internal/rounds"
)

// options is the parsed command line.
type options struct {
	rounds.Options
	json, plot           string // files to write
	from, document, more string
	alone, compare       bool
	goals                []string
}

func parse(args []string, errors io.Writer) (options, error) {
	o := options{Options: rounds.Options{Progress: errors}}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(errors)
	names := flags.String("peers", "", "measure only these, separated by commas: names, stores, or both as in jq-postgres")
	scenarios := flags.String("scenarios", "", "run only these, separated by commas: "+strings.Join(scenarioNames(rounds.Scenarios()), ", ")+", or "+rounds.Lone+" for all of that group")
	flags.IntVar(&o.Rounds, "rounds", 5, "how often to run everything")
	flags.IntVar(&o.Jobs, "jobs", 50_000, "how many jobs to drain")
	flags.DurationVar(&o.Duration, "duration", 5*time.Second, "of the continuous scenarios; a fifth of it for each that enqueues, half of it for latency, four times as long for lone jobs, twelve and twenty-four times as long for the long ones")
	flags.IntVar(&o.Handlers, "handlers", 0, "how many handlers run at once, instead of what is best for each peer")
	flags.StringVar(&o.json, "json", "", "write all rounds to this file")
	flags.StringVar(&o.plot, "plot", "", "draw the figures into this file: .svg or .png")
	flags.StringVar(&o.from, "from", "", "measure nothing; read the rounds from this file that --json has written")
	flags.StringVar(&o.document, "document", "", "write the tables into this file, between its marks")
	flags.BoolVar(&o.alone, "alone", false, "measure the goals about jq alone, and write them to the file of --more: "+
		"claims run beside twenty times --jobs, or two hundred times if finished, a batch has twice --jobs, a key has up to twenty times --jobs, "+
		"and the long run takes a hundred and twenty times --duration")
	flags.BoolVar(&o.compare, "compare", false, "measure nothing; see what jq, River and asynq do when a worker dies, when one comes back late, and when a "+
		"snapshot is held, in about eight minutes. With --document: write the table into that file")
	goals := flags.String("goals", "", "with --alone: measure only these, separated by commas: "+strings.Join(alone.Goals(), ", "))
	flags.StringVar(&o.more, "more", "more.json", "with --alone and --document: the file of goals that are about jq alone")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	switch {
	case flags.NArg() > 0:
		return options{}, fmt.Errorf("bench takes no arguments, only flags: %q", flags.Args())
	case o.Rounds < 1 || o.Jobs < 1 || o.Handlers < 0:
		return options{}, fmt.Errorf("--rounds and --jobs begin at 1, --handlers at 0")
	case o.Duration < 100*time.Millisecond:
		return options{}, fmt.Errorf("--duration %s is too short to measure anything: want 100ms or more", o.Duration)
	case o.alone && *names+*scenarios+o.json+o.plot+o.from+o.document != "" || o.alone && o.Handlers > 0:
		return options{}, fmt.Errorf("--alone goes with --goals, --more, --rounds, --jobs and --duration, and with nothing else")
	case o.compare && (o.alone || *names+*scenarios+o.json+o.plot+o.from != ""):
		return options{}, fmt.Errorf("--compare goes with --document, and with nothing else")
	case !o.alone && *goals != "":
		return options{}, fmt.Errorf("--goals are measured with --alone")
	}
	var err error
	if o.Peers, err = choose(*names, peers.All(), func(p peer.Peer) []string { return []string{p.ID(), p.Name, p.Store, cmp.Or(p.Like, p.Name)} }); err != nil {
		return options{}, fmt.Errorf("--peers: %w", err)
	}
	if o.Scenarios, err = choose(*scenarios, rounds.Scenarios(), rounds.Scenario.Names); err != nil {
		return options{}, fmt.Errorf("--scenarios: %w", err)
	}
	if o.goals, err = choose(*goals, alone.Goals(), func(id string) []string { return []string{id} }); err != nil {
		return options{}, fmt.Errorf("--goals: %w", err)
	}
	return o, nil
}

// choose returns the items that the list names, in the order of all. An empty list means all.
func choose[T any](list string, all []T, names func(T) []string) ([]T, error) {
	if list == "" {
		return all, nil
	}
	wanted := strings.Split(list, ",")
	var known []string
	for _, one := range all {
		known = append(known, names(one)...)
	}
	for _, name := range wanted {
		if !slices.Contains(known, name) {
			slices.Sort(known)
			return nil, fmt.Errorf("there is no %q: want some of %s", name, strings.Join(slices.Compact(known), ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(one T) bool {
		return !slices.ContainsFunc(names(one), func(name string) bool { return slices.Contains(wanted, name) })
	}), nil
}

func scenarioNames(scenarios []rounds.Scenario) []string {
	var names []string
	for _, s := range scenarios {
		names = append(names, s.Name)
	}
	return names
}
