// Command mutants plants faults in the code and checks whether the tests notice.
//
// It draws mutations by a seed, builds the tests with each of them through go's -overlay, so that the work tree stays
// untouched, and runs the tests that reach the changed line, quickest first. You can interrupt it, and it continues where it
// stopped: it keeps the results in .cache/mutants, under a checksum of all sources and the seed. Where it leaves out a lock, the tests run
// under the race detector.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// targets are the packages to mutate, each with the packages whose tests cover it.
var targets = []target{
	{".", []string{"."}},
	{"internal/store", []string{"internal/store", "internal/store/adapters/memory"}},
	{"internal/store/sqlkit", []string{"internal/store/sqlkit", "internal/store/adapters/sqlite"}},
	{"internal/store/adapters/memory", []string{"internal/store/adapters/memory"}},
	{"internal/store/adapters/sqlite", []string{"internal/store/adapters/sqlite"}},
	{"internal/store/adapters/postgres", []string{"internal/store/adapters/postgres"}},
	{"internal/store/adapters/postgres/cursor", []string{"internal/store/adapters/postgres/cursor"}},
	{"internal/store/adapters/remote", []string{"internal/store/adapters/remote"}},
	{"internal/server", []string{"internal/server"}},
	{"internal/httpapi", []string{"internal/httpapi"}},
	{"internal/wire", []string{"internal/wire", "internal/httpapi"}},
	{"internal/cli", []string{"internal/cli"}},
}

// A target is a package to mutate, and the packages whose tests run. Both are folders of the module.
type target struct {
	folder string
	tests  []string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// options is the parsed command line.
type options struct {
	root    string
	targets []target
	each    int
	seed    uint64
	lasting time.Duration
	longest time.Duration
	grace   time.Duration
	json    string
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o := options{targets: targets}
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.StringVar(&o.root, "root", ".", "the folder of the module")
	only := flags.String("packages", "", "mutate only these folders, separated by commas")
	flags.IntVar(&o.each, "n", 10, "mutants for each package")
	flags.Uint64Var(&o.seed, "seed", 1, "the seed for drawing mutants")
	flags.DurationVar(&o.lasting, "for", 40*time.Minute, "stop after this time; the next call continues")
	flags.DurationVar(&o.longest, "longest", 20*time.Second, "leave out tests that take longer")
	flags.DurationVar(&o.grace, "grace", 30*time.Second, "extra time for tests, beyond four times their time without the fault")
	flags.StringVar(&o.json, "json", "", "also write the results to this file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *only != "" {
		o.targets = nil
		for folder := range strings.SplitSeq(*only, ",") {
			o.targets = append(o.targets, named(strings.TrimSuffix(filepath.ToSlash(filepath.Clean(folder)), "/")))
		}
	}
	var err error
	if o.root, err = filepath.Abs(o.root); err != nil {
		return err
	}
	s, err := newSession(ctx, o, out)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.all(ctx); err != nil {
		return err
	}
	return s.report()
}

// named returns the target of a folder: one of the table, or the package with its own tests.
func named(folder string) target {
	for _, t := range targets {
		if t.folder == folder {
			return t
		}
	}
	return target{folder, []string{folder}}
}
