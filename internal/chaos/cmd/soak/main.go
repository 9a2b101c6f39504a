// Command soak puts a long, steady load on each store, with the test of that name in package chaos. It writes samples, a plot
// and a verdict of each to .cache/soak.
//
// It skips a store that already has a verdict for the same sources and length, so you can end the command at any time and it
// continues with the next store.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/seed-ed332417/jq/internal/chaos/cmd/internal/child"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	root := flags.String("root", ".", "the folder of the module")
	stores := flags.String("stores", "memory,sqlite,postgres", "soak only these")
	length := flags.Duration("length", time.Hour, "how long to soak each store")
	if err := flags.Parse(args); err != nil {
		return err
	}
	folder, err := filepath.Abs(filepath.Join(*root, ".cache", "soak"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	revision := child.Revision(ctx, *root)
	var failed []error
	for name := range strings.SplitSeq(*stores, ",") {
		s := soaking{*root, folder, name, fmt.Sprintf("%v of %s", *length, revision), *length}
		failed = append(failed, s.soak(ctx, out))
		if ctx.Err() != nil {
			return fmt.Errorf("the soak of %s was interrupted and does not count: %w", name, ctx.Err())
		}
	}
	return errors.Join(failed...)
}

// A soaking is the soak of one store.
type soaking struct {
	root, folder, store string
	what                string // the length and the revision
	length              time.Duration
}

// soak prints the verdict of the store. If there is none yet, it runs the soak first, and keeps a good verdict.
func (s soaking) soak(ctx context.Context, out io.Writer) error {
	verdict := filepath.Join(s.folder, s.store+".verdict")
	if text, err := os.ReadFile(verdict); err == nil && strings.HasPrefix(string(text), s.what+"\n") {
		fmt.Fprintf(out, "known already: %s", text)
		return nil
	}
	fmt.Fprintf(out, "soaking %s until %s\n", s.store, time.Now().Add(s.length).Format("15:04"))
	said := filepath.Join(s.folder, s.store+".txt")
	if err := os.RemoveAll(said); err != nil { // of an earlier soak
		return err
	}
	output, failed := s.test(ctx).CombinedOutput()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	text, err := os.ReadFile(said)
	if failed == nil && err == nil {
		text = append([]byte(s.what+"\n"), text...)
		fmt.Fprintf(out, "%s", text)
		return os.WriteFile(verdict, text, 0o644)
	}
	log := filepath.Join(s.folder, s.store+".log")
	if err := os.WriteFile(log, output, 0o644); err != nil {
		return err
	}
	return fmt.Errorf("the soak of %s has failed, its log is %s: %w\n%s", s.store, log, errors.Join(failed, err), text)
}

func (s soaking) test(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", "test", "./internal/chaos", "-vet=off", "-count=1", "-v", "-run", "^TestSoak$/^"+s.store+"$",
		"-timeout", (s.length + 10*time.Minute).String())
	cmd.Dir = s.root
	cmd.Env = append(os.Environ(), "JQ_SOAK_LENGTH="+s.length.String(), "JQ_SOAK_FOLDER="+s.folder)
	cmd.WaitDelay = 10 * time.Second
	child.Grouped(cmd)
	return cmd
}
