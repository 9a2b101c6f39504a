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

// benchFlags are the flags of bench.
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
		Short: "measure the throughput and latency of a store",
		Long: "Measure a store under load. Each round uses its own queue, does not touch other jobs, and deletes its jobs at the end. A\n" +
			"round counts only if the store then shows that every job ended as expected. Workloads:\n\n" +
			listOfWorkloads() + "\n" +
			"The figures for CPU and memory are for this process. Figures that a database reports about itself may include its other\n" +
			"clients. The store always records attempts, so every figure includes that cost. Machines are noisy: compare only rounds\n" +
			"that you ran side by side, and only by their ratio.",
		Args: takesNone(),
		Example: "  SELF bench --store sqlite:bench.db --workload drain --rounds 5\n" +
			"  SELF bench --store postgres://me@localhost/test --workload held-snapshot --duration 2m",
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&b.Workload, "workload", bench.Continuous, "`NAME` of the workload")
	f.IntVar(&b.Jobs, "jobs", 0, "number of jobs (default 50000; backlog and keys: 1000000, idle: 1000, flows and limits: 100000)")
	f.DurationVar(&b.Duration, "duration", 10*time.Second, "how long to run a workload that has no number of jobs, and to probe at rest in flows")
	f.IntVar(&b.Concurrency, "concurrency", 0, "number of concurrent handlers (default 100; latency and fairness: 10)")
	f.IntVar(&b.Buffer, "buffer", 0, "number of jobs to claim ahead of the handlers; -1 for none (default 1000; latency and fairness: none)")
	f.IntVar(&b.Producers, "producers", 0, "number of goroutines that enqueue (default 4; enqueue, flows, latency and fairness: 16)")
	f.IntVar(&b.Batch, "batch", 0, "number of jobs per enqueue call, or per claim of backlog, keys and limits (default 100; enqueue: 1, keys and limits: 10)")
	f.IntVar(&b.Payload, "payload", 100, "payload size in bytes")
	f.Float64Var(&b.Rate, "rate", 100, "jobs per second to enqueue, for latency and the probe of flows")
	f.IntVar(&b.rounds, "rounds", 1, "number of rounds; several print the median, minimum and maximum")
	f.BoolVar(&b.Keep, "keep", false, "keep the jobs in the store")
	f.BoolVar(&b.asJSON, "json", false, "print JSON: one object for each round, and one with the medians")
	f.StringVar(&b.cpuprofile, "cpuprofile", "", "`FILE` to write a CPU profile of the last measurement to, for go tool pprof")
	f.StringVar(&b.memprofile, "memprofile", "", "`FILE` to write a profile of all allocations to, for go tool pprof")
	a.noMigrate(f)
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

// check checks the options and fills in the defaults of the workload.
func (b *benchFlags) check() error {
	if b.rounds < 1 {
		return misuse("--rounds must be at least 1")
	}
	o, err := b.Filled()
	if option, ok := errors.AsType[*bench.OptionError](err); ok {
		return misuse("--%s %s", option.Option, option.Rule)
	}
	b.Options = o
	return err
}

// measure runs the rounds, and prints the figures of each round and a summary.
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
		if err := a.printRound(b, i, result); err != nil {
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

// profile starts a CPU profile. Each measurement overwrites the profile of the previous one.
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
	runtime.GC() // the profile is as of the latest collection
	return errors.Join(pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
}
