// Command chaos repeats the tests of real faults, each time with a new seed, until each layer of them has reached its goal:
// 1,000 kills on each durable store, ten failovers of each kind.
//
// It continues where it stopped. It keeps the sums in .cache/chaos, with the revisions of the sources. If a run fails, it also
// keeps the log and the seed, and stops. You can end it at any time: only complete runs count.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

func main() {
	// After the first signal, the current run finishes with all that it has started. The second signal ends it.
	now, kill := context.WithCancel(context.Background())
	soon, stop := context.WithCancel(now)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-signals
		fmt.Fprintln(os.Stderr, "chaos: stopping after the current run; interrupt again to end it now")
		stop()
		<-signals
		kill()
	}()
	if err := run(now, soon, layers, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// options is the parsed command line.
type options struct {
	root    string
	layers  []layer
	share   float64
	lasting time.Duration
}

// run starts no more runs after the context soon has ended. The context now ends the current run.
func run(now, soon context.Context, layers []layer, args []string, out io.Writer) error {
	o := options{}
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.StringVar(&o.root, "root", ".", "the folder of the module")
	only := flags.String("layers", "", "run only the layers whose names match this")
	flags.Float64Var(&o.share, "share", 1, "run until this share of the goals is reached")
	flags.DurationVar(&o.lasting, "for", 3*time.Hour, "start no run after this time; the next call continues")
	if err := flags.Parse(args); err != nil {
		return err
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	for _, l := range layers {
		switch {
		case !pattern.MatchString(l.name):
		case l.needs != "" && os.Getenv(l.needs) == "":
			fmt.Fprintf(out, "left out: %s, because %s is not set\n", l.name, l.needs)
		default:
			o.layers = append(o.layers, l)
		}
	}
	if o.root, err = filepath.Abs(o.root); err != nil {
		return err
	}
	s, err := newSession(now, o, out)
	if err != nil {
		return err
	}
	defer s.close()
	err = s.all(now, soon)
	s.report()
	return err
}
