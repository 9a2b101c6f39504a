// Command chaos runs the tests of real faults again and again, each time with a new seed, until each layer of them has reached its
// goal: 1,000 kills on each durable store, ten failovers of each kind.
//
// It goes on where it was: the sums are kept in .cache/chaos, with the revisions of the sources that they are of, and so are the log
// and the seed of a run that fails, which ends the command. It can be ended at any time: only whole runs count.
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
	// The first signal lets the run under way come to its end, with all that it has started. The second one does not wait for it.
	now, kill := context.WithCancel(context.Background())
	soon, stop := context.WithCancel(now)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-signals
		fmt.Fprintln(os.Stderr, "chaos: the run under way is the last one; once more ends it too")
		stop()
		<-signals
		kill()
	}()
	if err := run(now, soon, layers, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// options are what the command line says.
type options struct {
	root    string
	layers  []layer
	share   float64
	lasting time.Duration
}

// run begins no other run once the context soon has ended, and ends the one under way with the context now.
func run(now, soon context.Context, layers []layer, args []string, out io.Writer) error {
	o := options{}
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.StringVar(&o.root, "root", ".", "the folder of the module")
	only := flags.String("layers", "", "run only the layers whose names match this")
	flags.Float64Var(&o.share, "share", 1, "reach this share of the goals")
	flags.DurationVar(&o.lasting, "for", 3*time.Hour, "begin no run after this time, and go on there next time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	for _, l := range layers {
		if pattern.MatchString(l.name) {
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
