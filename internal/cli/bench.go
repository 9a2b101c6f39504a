package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/bench"
)

// benchFlags are those of bench.
type benchFlags struct {
	bench.Options
	rounds     int
	asJSON     bool
	cpuprofile string
	memprofile string
}

func (a *app) bench() *cobra.Command {
	var b benchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "measure how fast a store is, and jq on it",
		Long: "Measure a store under load. Each round has a queue of its own, leaves the jobs of others alone, and deletes its jobs at the\n" +
			"end. It counts only if the store says afterwards that every job has ended as it should. Workloads:\n\n" +
			listOfWorkloads() + "\n" +
			"Processor and memory are those of this process; what a database tells of its own costs may be for all who use it. The\n" +
			"history of attempts is never switched off: its cost is in every figure. Machines are noisy, so that only ratios between\n" +
			"rounds that were taken side by side say much.",
		Args: takesNone(),
		Example: "  SELF bench --store sqlite:bench.db --workload drain --rounds 5\n" +
			"  SELF bench --store postgres://me@localhost/test --workload held-snapshot --duration 2m",
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&b.Workload, "workload", bench.Continuous, "`NAME` of what to do")
	f.IntVar(&b.Jobs, "jobs", 0, "so many jobs (default 50000; of backlog 1000000, of idle 1000)")
	f.DurationVar(&b.Duration, "duration", 10*time.Second, "for so long, where the jobs are not counted")
	f.IntVar(&b.Concurrency, "concurrency", 0, "so many handlers at once (default 100; of latency 10)")
	f.IntVar(&b.Buffer, "buffer", 0, "so many jobs are claimed ahead of them; -1 for none (default 1000; of latency none)")
	f.IntVar(&b.Producers, "producers", 0, "so many goroutines enqueue (default 4; of enqueue and latency 16)")
	f.IntVar(&b.Batch, "batch", 0, "so many jobs a call of theirs, or a claim of backlog (default 100; of enqueue 1)")
	f.IntVar(&b.Payload, "payload", 100, "so many bytes a payload")
	f.Float64Var(&b.Rate, "rate", 100, "so many jobs a second, for latency")
	f.IntVar(&b.rounds, "rounds", 1, "so many rounds: medians, with the least and the most")
	f.BoolVar(&b.Keep, "keep", false, "leave the jobs in the store")
	f.BoolVar(&b.asJSON, "json", false, "as JSON: an object a round, and one with the medians")
	f.StringVar(&b.cpuprofile, "cpuprofile", "", "`FILE` for a profile of the processor during the last measurement, for go tool pprof")
	f.StringVar(&b.memprofile, "memprofile", "", "`FILE` for a profile of all allocations, likewise")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := b.check(); err != nil {
			return err
		}
		return a.using(cmd.Context(), toFill, func(s jq.Store) error {
			return a.measure(cmd.Context(), s, &b)
		})
	}
	return cmd
}

func listOfWorkloads() string {
	var list strings.Builder
	for _, name := range bench.Workloads() {
		fmt.Fprintf(&list, "  %-14s %s\n", name, bench.About(name))
	}
	return list.String()
}

// check fills in the defaults of the workload.
func (b *benchFlags) check() error {
	if b.rounds < 1 {
		return misuse("--rounds must be 1 at least")
	}
	o, err := b.Filled()
	if option, ok := errors.AsType[*bench.OptionError](err); ok {
		return misuse("--%s %s", option.Option, option.Rule)
	}
	b.Options = o
	return err
}

// measure runs the rounds, and prints what each has measured and what all have come to.
func (a *app) measure(ctx context.Context, s jq.Store, b *benchFlags) error {
	bar := a.progress()
	if b.cpuprofile != "" {
		b.Profile = b.profile
	}
	var rounds []bench.Result
	for i := 1; i <= b.rounds; i++ {
		b.Progress = func(p bench.Progress) {
			const whole = 1000
			doing := fmt.Sprintf("round %d of %d: %s", i, b.rounds, p.Doing)
			bar.show(int64(p.Part*whole), whole, "%s, %s", doing, plural(p.Jobs))
		}
		result, err := bench.Run(ctx, s, b.Options)
		bar.end()
		if err != nil {
			return err
		}
		rounds = append(rounds, result)
		if err := a.tellRound(b, i, result); err != nil {
			return err
		}
	}
	if b.memprofile != "" {
		if err := b.allocations(); err != nil {
			return err
		}
	}
	if b.asJSON {
		return json.NewEncoder(a.out).Encode(map[string]bench.Summary{"summary": bench.Summarize(rounds)})
	}
	return a.tableOfFigures(bench.Summarize(rounds))
}

// profile lets each measurement write its profile over that of the one before, so that the last one is kept.
func (b *benchFlags) profile() (stop func() error, err error) {
	f, err := os.Create(b.cpuprofile)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// allocations writes the profile of all allocations of this process.
func (b *benchFlags) allocations() error {
	f, err := os.Create(b.memprofile)
	if err != nil {
		return err
	}
	runtime.GC() // what is in use is known as of the last one
	return errors.Join(pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
}
