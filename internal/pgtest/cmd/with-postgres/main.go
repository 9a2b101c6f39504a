// Command with-postgres runs another command with a temporary Postgres server, whose DSN is in JQ_TEST_POSTGRES. If that
// variable is already set, it only runs the command. The command cannot read from the terminal.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/seed-ed332417/jq/internal/pgtest"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(args []string) (code int, err error) {
	if len(args) == 0 {
		return 2, errors.New("usage: with-postgres command [argument ...]")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if os.Getenv(pgtest.Variable) == "" {
		c, failed := pgtest.Start(ctx, pgtest.Options{})
		if failed != nil {
			return 1, failed
		}
		defer func() { err = errors.Join(err, c.Stop()) }()
		if err := os.Setenv(pgtest.Variable, c.DSN); err != nil {
			return 1, err
		}
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	together(cmd)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return max(exit.ExitCode(), 1), nil
	}
	return 0, err
}
