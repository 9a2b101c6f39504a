package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/seed-ed332417/jq/internal/chaos/cmd/internal/child"
	"github.com/seed-ed332417/jq/internal/figures"
)

// longest is how long a run may take on a busy machine.
const longest = 15 * time.Minute

// errFound ends the session, so that somebody looks at the failure.
var errFound = errors.New("a run has failed")

// A session is one run of the command.
type session struct {
	options
	out      io.Writer
	lock     *flock.Flock // on the sums
	scratch  string       // a folder for the tests' binaries
	revision string
	binaries map[string]string // by folder
	until    time.Time
	state    state
}

func newSession(ctx context.Context, o options, out io.Writer) (*session, error) {
	s := &session{options: o, out: out, until: time.Now().Add(o.lasting), binaries: map[string]string{}}
	kept := filepath.Join(o.root, ".cache", "chaos")
	if err := os.MkdirAll(kept, 0o755); err != nil {
		return nil, err
	}
	s.lock = flock.New(filepath.Join(kept, "lock"))
	free, err := s.lock.TryLock()
	if err == nil && !free {
		err = fmt.Errorf("another make chaos adds to %s", kept)
	}
	if err != nil {
		return nil, err
	}
	if s.state, err = readState(filepath.Join(kept, "sums.json")); err != nil {
		return nil, errors.Join(err, s.lock.Close())
	}
	if s.scratch, err = os.MkdirTemp("", "chaos"); err != nil {
		return nil, errors.Join(err, s.lock.Close())
	}
	s.revision = child.Revision(ctx, o.root)
	return s, nil
}

func (s *session) close() {
	_ = os.RemoveAll(s.scratch)
	_ = s.lock.Close()
}

// all runs the layers, always the one that is furthest from its goal, until all have reached it, time is up, or one fails.
func (s *session) all(now, soon context.Context) error {
	for soon.Err() == nil {
		l, ok := s.next()
		if !ok {
			return nil
		}
		if time.Now().After(s.until) {
			fmt.Fprintln(s.out, "time is up: run it again to continue from here")
			return nil
		}
		if err := s.once(now, l); err != nil {
			return err
		}
	}
	fmt.Fprintln(s.out, "stopped: run it again to continue from here")
	return nil
}

func (s *session) next() (least layer, ok bool) {
	far := 1.0
	for _, l := range s.layers {
		if reached := float64(s.state.of(l).Counts[l.goal]) / (s.share * float64(l.want)); reached < far {
			least, far, ok = l, reached, true
		}
	}
	return least, ok
}

// once runs the tests of a layer and adds their counts to the sums.
func (s *session) once(ctx context.Context, l layer) error {
	binary, err := s.build(ctx, l.folder)
	if err != nil {
		return err
	}
	seed := 1 + rand.Uint64N(1<<63)
	tried := filepath.Join(s.scratch, "counts")
	_ = os.Remove(tried) // of the previous run
	began := time.Now()
	output, failed := s.test(ctx, l, binary, seed, tried)
	if ctx.Err() != nil {
		return fmt.Errorf("the current run was interrupted and does not count: %w", ctx.Err())
	}
	counts, err := figures.Counts(tried)
	if err != nil {
		return err
	}
	if failed == nil {
		failed = proved(l, counts, output)
	}
	sum := s.state.of(l)
	sum.add(s.revision, counts, began, time.Now())
	if failed != nil {
		failed = s.keep(l, sum, seed, counts, output, failed)
	}
	fmt.Fprintf(s.out, "%-45s %6.1f s  %d of %.0f %s\n", l.name, time.Since(began).Seconds(), sum.Counts[l.goal], s.share*float64(l.want), l.goal)
	return errors.Join(failed, s.state.write())
}

var skipped = regexp.MustCompile(`(?m)^(.*)\n\s*--- SKIP`)

// proved returns an error if a run has passed without trying anything, because it would be repeated for ever.
func proved(l layer, counts map[string]int, output []byte) error {
	if l.goal == runs && bytes.Contains(output, []byte("--- PASS")) || counts[l.goal] > 0 {
		return nil
	}
	if why := skipped.FindSubmatch(output); why != nil {
		return fmt.Errorf("nothing was tried: %s", bytes.TrimSpace(why[1]))
	}
	return fmt.Errorf("the tests have passed, and counted no %s", l.goal)
}

// keep saves the log of a failed run.
func (s *session) keep(l layer, sum *sum, seed uint64, counts map[string]int, output []byte, failed error) error {
	f := failure{Revision: s.revision, At: time.Now().UTC(), Command: l.command(seed)}
	f.Log = fmt.Sprintf("%s-%s.log", strings.NewReplacer(" ", "-", ",", "").Replace(l.name), f.At.Format("20060102-150405"))
	if lost, ok := counts[figures.Lost]; ok {
		f.Lost = &lost
	}
	sum.Failures = append(sum.Failures, f)
	path := filepath.Join(filepath.Dir(s.state.path), f.Log)
	head := fmt.Sprintf("%s\nrevision %s\n%v\n\n", f.Command, f.Revision, failed)
	if err := os.WriteFile(path, append([]byte(head), output...), 0o644); err != nil {
		return err
	}
	shown, err := filepath.Rel(s.root, path)
	if err != nil {
		shown = path
	}
	return fmt.Errorf("%w: %s: %w\nits log is %s; the same again:\n  %s", errFound, l.name, failed, shown, f.Command)
}

// build builds the binary of a folder's tests once, so that later changes of the sources wait for the next session.
func (s *session) build(ctx context.Context, folder string) (string, error) {
	if s.binaries[folder] != "" {
		return s.binaries[folder], nil
	}
	binary := filepath.Join(s.scratch, strings.ReplaceAll(folder, "/", "_")+".test")
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-o", binary)
	cmd.Dir = filepath.Join(s.root, filepath.FromSlash(folder)) // which may be in a module of its own
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the tests of %s: %w\n%s", folder, err, output)
	}
	s.binaries[folder] = binary
	return binary, nil
}

// test runs the binary in the folder in which go test would.
func (s *session) test(ctx context.Context, l layer, binary string, seed uint64, counts string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, binary, "-test.v", "-test.run="+l.tests, "-test.timeout="+longest.String())
	cmd.Dir = filepath.Join(s.root, filepath.FromSlash(l.folder))
	cmd.Env = append(os.Environ(), figures.CountsInto(counts))
	if l.with != "" {
		cmd.Env = append(cmd.Env, l.with)
	}
	if l.seeded {
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", seedVariable, seed))
	}
	cmd.WaitDelay = 10 * time.Second
	child.Grouped(cmd)
	return cmd.CombinedOutput()
}
