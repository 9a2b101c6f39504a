// Package cli implements the command jobq, with one file per verb. cmd/jobq runs it, and so does cmd/jq, its older name.
package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2 // invalid arguments or flags
)

// Main runs the command in os.Args and exits with its exit code. More are kinds of stores that it has beside its own.
func Main(more ...Kind) {
	ctx, end := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		signal.Stop(signals) // before the context ends, so that a second signal kills the process whatever the command does
		end()
	}()
	os.Exit(run(ctx, os.Args, streams{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.LookupEnv}, more...))
}

// announceEnd says at the first signal what a second one does. Commands that may take long to stop call it, and call done last.
func (a *app) announceEnd(ctx context.Context) (done func()) {
	said := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(said)
		fmt.Fprintln(a.std.err, "stopping; press Ctrl-C again to stop at once")
	})
	return func() {
		if !cancel() {
			<-said
		}
	}
}

// streams are the inputs and outputs of a command. Only run prints errors.
type streams struct {
	in  io.Reader
	out io.Writer
	err io.Writer
	env func(name string) (value string, isSet bool)
}

// An app is one run of the program.
type app struct {
	std   streams
	kinds kinds         // of stores that a main has added
	path  string        // os.Args[0]
	self  string        // the base name of path, for help
	out   *bufio.Writer // writes to std.out; run flushes it and reports its first error
	in    io.Reader     // reads from std.in until the context ends

	called  string        // the full name of the command, such as jobq jobs ls
	busy    time.Duration // the flag busy-timeout, zero for the default
	longest time.Duration // the flag max-lease, zero for the default
	conns   int           // the flag max-conns, zero for the default
	gather  time.Duration // the flag, zero for the default
	serves  bool          // the process serves the store to other processes
	bar     *progress     // shows migrations while the store opens; may be nil
	store   string        // the flag
	server  string        // the flag
	bearer  string        // the flag token
	ca      string        // the flag
	cert    string        // the flag client-cert
	key     string        // the flag client-key
	config  string        // the flag
	log     logFlags
	flagged map[string]bool   // the names of the flags on the command line
	sources map[string]string // flag name to the variable or file that set the flag
	helped  error             // an error in the configuration, found while showing help

	existing bool          // the flag no-migrate
	waits    time.Duration // the flag wait of migrate up; zero for other commands
	forces   bool          // the flag force of migrate up
}

// run runs the command in args and returns the exit code. args[0] is the name of the program.
func run(ctx context.Context, args []string, std streams, more ...Kind) int {
	a := &app{
		std: std, kinds: more, path: args[0], self: filepath.Base(args[0]), out: bufio.NewWriter(std.out),
		in: &input{ctx: ctx, from: std.in}, sources: map[string]string{}, flagged: map[string]bool{},
	}
	root := a.root()
	root.SetArgs(args[1:])
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = a.helped
	}
	if flushed := a.out.Flush(); err == nil && flushed != nil {
		err = fmt.Errorf("writing the output: %w", flushed)
	}
	return a.report(ctx, cmd, err)
}

// report prints the error on one line and returns the exit code.
func (a *app) report(ctx context.Context, cmd *cobra.Command, err error) int {
	if err == nil {
		return exitOK
	}
	path := cmd.CommandPath()
	if misuse, ok := errors.AsType[usageError](err); ok {
		fmt.Fprintf(a.std.err, "%s: %s; see %s --help\n", path, oneLine(misuse), path)
		return exitUsage
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	fmt.Fprintf(a.std.err, "%s: %s\n", path, oneLine(err))
	return exitFailed
}

// A usageError reports invalid arguments or flags.
type usageError struct{ error }

func misuse(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func (e usageError) Unwrap() error { return e.error }

// oneLine returns the text of the error on one line, with control characters escaped. It drops the library's prefix "jq: ",
// because the line already begins with the name of the program.
func oneLine(err error) string {
	return printable(strings.ReplaceAll(strings.TrimPrefix(err.Error(), "jq: "), ": jq: ", ": "))
}

// isTerminal reports whether the stream is a terminal. Pauses, questions and progress bars are only for terminals.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && (isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd()))
}
