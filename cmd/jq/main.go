// Command jq is the durable job queue on the command line. Run it without arguments for its commands.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// The exit codes: fine, failed, and used in a way that the command does not know.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// A command is one verb. It adds its flags to the set and returns what to do once they are parsed.
type command struct {
	name  string
	does  string
	setup func(flags *flag.FlagSet, std streams) action
}

// An action is what a command does with its flags parsed. Its error is one line that says what to do.
type action func(ctx context.Context) error

// streams are where a command writes to. Errors are printed by run alone.
type streams struct {
	out io.Writer
	err io.Writer
}

var commands = []command{
	{"demo", "watch a worker crash, its job recovered, and its late answer refused", demo},
	{"version", "print the version of this program and of Go", version},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args, streams{out: os.Stdout, err: os.Stderr}))
}

// run does what args ask for and returns the exit code. The first of args is the name that the program was called by:
// help shows it, since many install jq under another name, and nothing else looks at it.
func run(ctx context.Context, args []string, std streams) int {
	self := filepath.Base(args[0])
	if len(args) < 2 {
		usage(std.err, self)
		return exitUsage
	}
	switch verb := args[1]; verb {
	case "help", "-h", "-help", "--help":
		usage(std.out, self)
		return exitOK
	default:
		for _, c := range commands {
			if c.name == verb {
				return c.run(ctx, self, args[2:], std)
			}
		}
		fmt.Fprintf(std.err, "%s: there is no command %q\n\n", self, verb)
		usage(std.err, self)
		return exitUsage
	}
}

func (c command) run(ctx context.Context, self string, args []string, std streams) int {
	flags := flag.NewFlagSet(c.name, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // its messages come back as errors
	act := c.setup(flags, std)
	err := flags.Parse(args)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		c.usage(std.out, self, flags)
		return exitOK
	case err != nil:
		fmt.Fprintf(std.err, "%s %s: %v; see %s %s --help\n", self, c.name, err, self, c.name)
		return exitUsage
	}
	if err := act(ctx); err != nil {
		fmt.Fprintf(std.err, "%s %s: %v\n", self, c.name, err)
		return exitFailed
	}
	return exitOK
}

func usage(w io.Writer, self string) {
	fmt.Fprintf(w, "A durable job queue. Usage: %s COMMAND [FLAGS]\n\n", self)
	for _, c := range commands {
		fmt.Fprintf(w, "  %-8s  %s\n", c.name, c.does)
	}
	fmt.Fprintf(w, "\n%s COMMAND --help shows the flags of a command.\n", self)
}

func (c command) usage(w io.Writer, self string, flags *flag.FlagSet) {
	fmt.Fprintf(w, "Usage: %s %s [FLAGS]: %s\n", self, c.name, c.does)
	flags.VisitAll(func(f *flag.Flag) {
		fmt.Fprintf(w, "\n  --%-6s  %s\n", f.Name, f.Usage)
	})
}
