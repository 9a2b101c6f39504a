package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq/internal/conformance"
	"github.com/seed-ed332417/jq/internal/conformance/linear"
)

// A trial is the suite as somebody asked for it.
type trial struct {
	run       string
	parallel  int
	histories int
	verbose   bool
}

// defaultHistories is enough that each thing that can meet has met, several times.
const defaultHistories = 50

func (a *app) conformance() *cobra.Command {
	t := trial{parallel: runtime.GOMAXPROCS(0), histories: defaultHistories}
	cmd := &cobra.Command{
		Use:   "conformance",
		Short: "prove that a kind of store keeps the contract",
		Long: "Run the conformance suite against the kind of store that the URL names: each case on a fresh store of its own, driven by\n" +
			"a fake clock. Then record histories of clients that call at the same time, and judge whether each is one that calls one\n" +
			"after the other could have had. No store of yours is touched: for SQLite each case has a file in a temporary folder,\n" +
			"for Postgres a schema of its own in the database, which is dropped afterwards. A case that fails prints the sentence of\n" +
			"the contract that was broken.",
		Args:    takesNone(),
		Example: "  SELF conformance --store memory:\n  SELF conformance --store postgres://me@localhost/test --run '^Claim/'",
	}
	f := cmd.Flags()
	f.StringVar(&t.run, "run", "", "only cases whose name matches this `REGEXP`")
	f.IntVar(&t.parallel, "parallel", t.parallel, "so many cases at once")
	f.IntVar(&t.histories, "histories", t.histories, "so many histories; with --run none, unless it is said")
	f.BoolVarP(&t.verbose, "verbose", "v", false, "name the cases that pass, too")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p, err := a.place()
		if err != nil {
			return err
		}
		cases, err := t.cases()
		if err != nil {
			return err
		}
		if t.run != "" && !cmd.Flags().Changed("histories") {
			t.histories = 0
		}
		adapter, remove, err := adapterOf(p)
		if err != nil {
			return err
		}
		return errors.Join(a.proveAll(cmd.Context(), adapter, cases, t), remove())
	}
	return cmd
}

func (t trial) cases() ([]conformance.Case, error) {
	switch {
	case t.parallel < 1:
		return nil, misuse("--parallel must be 1 at least")
	case t.histories < 0:
		return nil, misuse("--histories must not be negative")
	}
	wanted, err := regexp.Compile(t.run)
	if err != nil {
		return nil, misuse("--run %s is no regular expression: %s", t.run, strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	cases := slices.DeleteFunc(conformance.Cases(), func(k conformance.Case) bool { return !wanted.MatchString(k.Name) })
	if len(cases) == 0 {
		return nil, misuse("--run %s matches no case", t.run)
	}
	return cases, nil
}

// A verdict is what cases have come to.
type verdict struct {
	passed, failed int
	excluded       map[string]int // by reason
}

// proveAll runs the cases, and then the histories, also of a store that has failed a case: the two find different things.
func (a *app) proveAll(ctx context.Context, adapter conformance.Adapter, cases []conformance.Case, t trial) error {
	err := a.prove(ctx, adapter, cases, t)
	if t.histories == 0 || ctx.Err() != nil {
		return err
	}
	return errors.Join(err, a.proveHistories(ctx, adapter, t.histories))
}

// proveHistories says what the histories have seen. Those in which nothing met prove nothing.
func (a *app) proveHistories(ctx context.Context, adapter conformance.Adapter, histories int) error {
	report, err := linear.Check(ctx, adapter, linear.Options{Histories: histories})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if violation, ok := errors.AsType[*linear.Violation](err); ok {
		fmt.Fprintf(a.out, "FAIL  histories\n%s", indented(violation.Error()))
		return errors.New("the store breaks the contract in a history of calls made at the same time")
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(a.out, report)
	if err := report.Shortfall(); err != nil {
		return fmt.Errorf("too little has met in the histories, ask for more by --histories: %w", err)
	}
	return nil
}

// prove runs the cases, several at once, and prints what they came to in the order of the suite.
func (a *app) prove(ctx context.Context, adapter conformance.Adapter, cases []conformance.Case, t trial) error {
	began := time.Now()
	bar := a.progress()
	v := verdict{excluded: map[string]int{}}
	for i, result := range inOrder(ctx, adapter, cases, t.parallel) {
		if ctx.Err() != nil {
			continue // those that ran have ended, the others are not begun
		}
		bar.show(int64(i), int64(len(cases)), "%d of %d cases", i, len(cases))
		a.judge(&v, cases[i], result, t.verbose, bar)
	}
	bar.end()
	if err := ctx.Err(); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "%d cases passed, %d failed, in %v\n", v.passed, v.failed, time.Since(began).Round(time.Millisecond))
	for reason, n := range v.excluded {
		fmt.Fprintf(a.out, "%d were left out: %s\n", n, reason)
	}
	if v.failed > 0 {
		return fmt.Errorf("the store breaks the contract in %d of %d cases", v.failed, len(cases))
	}
	return nil
}

func (a *app) judge(v *verdict, k conformance.Case, result conformance.Result, verbose bool, bar *progress) {
	switch {
	case result.Excluded != "":
		v.excluded[result.Excluded]++
		return
	case !result.Failed:
		if v.passed++; verbose {
			fmt.Fprintf(a.out, "ok    %s\n", k.Name)
		}
		return
	}
	v.failed++
	bar.end()
	fmt.Fprintf(a.out, "FAIL  %s\n", k.Name)
	for _, line := range result.Log {
		fmt.Fprintf(a.out, "%s", indented(line))
	}
	_ = a.out.Flush() // whoever waits for the rest can read this
}

// inOrder runs the cases, so many at once, and yields each result when those before it are known. It returns when all that was
// begun has ended.
func inOrder(ctx context.Context, adapter conformance.Adapter, cases []conformance.Case, parallel int) func(func(int, conformance.Result) bool) {
	return func(yield func(int, conformance.Result) bool) {
		results := make([]chan conformance.Result, len(cases))
		for i := range results {
			results[i] = make(chan conformance.Result, 1)
		}
		var runners sync.WaitGroup
		defer runners.Wait()
		next := make(chan int, len(cases))
		for i := range cases {
			next <- i
		}
		close(next)
		for range parallel {
			runners.Go(func() {
				for i := range next {
					var result conformance.Result
					if ctx.Err() == nil {
						result = conformance.Run(ctx, adapter, cases[i])
					}
					results[i] <- result
				}
			})
		}
		for i, result := range results {
			if !yield(i, <-result) {
				return
			}
		}
	}
}
