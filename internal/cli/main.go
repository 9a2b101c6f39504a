// Package cli is the command jobq, a file for each of its verbs. The programs are cmd/jobq and, under an older name, cmd/jq.
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

// The exit codes: fine, failed, and used in a way that the command does not know.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// Main runs the command that the arguments of the process name, and ends the process with its exit code.
func Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // whoever asks twice does not want to wait
	os.Exit(run(ctx, os.Args, streams{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.LookupEnv}))
}

// streams are what a command reads from and writes to. Errors are printed by run alone.
type streams struct {
	in  io.Reader
	out io.Writer
	err io.Writer
	env func(name string) (value string, isSet bool)
}

// An app is one call of the program.
type app struct {
	std  streams
	path string        // of the program, as it was called
	self string        // the last part of it: the name that help shows
	out  *bufio.Writer // to std.out; its first error is found when run flushes it
	in   io.Reader     // from std.in, until the context ends

	called  string            // the command with those above it: jobq jobs ls
	busy    time.Duration     // the flag busy-timeout, zero for the default
	longest time.Duration     // the flag max-lease, zero for the default
	serves  bool              // others read through this process
	bar     *progress         // of what opening the store takes, where a command shows it
	store   string            // the flag
	server  string            // the flag
	bearer  string            // the flag token
	ca      string            // the flag
	cert    string            // the flag client-cert
	key     string            // the flag client-key
	config  string            // the flag
	flagged map[string]bool   // which flags are on the command line, by name
	sources map[string]string // where flags that are not on the command line have their values from, by name
	helped  error             // what was wrong with the configuration when help was shown
}

// run does what args ask for and returns the exit code. The first of args is the name that the program was called by.
func run(ctx context.Context, args []string, std streams) int {
	a := &app{
		std: std, path: args[0], self: filepath.Base(args[0]), out: bufio.NewWriter(std.out),
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

// report prints the error in one line and returns the exit code.
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

// A usageError says that the command was called in a way that it does not know.
type usageError struct{ error }

func misuse(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func (e usageError) Unwrap() error { return e.error }

// oneLine is the error's text without what a terminal would take for a command, and without the name of the library, for the
// line begins with that of the program.
func oneLine(err error) string {
	return printable(strings.ReplaceAll(strings.TrimPrefix(err.Error(), "jq: "), ": jq: ", ": "))
}

// isTerminal says whether somebody may be watching: pauses, questions and bars are for people only.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && (isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd()))
}
