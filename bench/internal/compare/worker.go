package compare

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/seed-ed332417/jq/bench/internal/peer"
)

// variable tells a process that it is a worker, and of which queue.
const variable = "JQ_BENCH_COMPARE"

// An opening is the variable's value.
type opening struct {
	Subject string
	Place   peer.Place
	Quick   bool
}

// What a worker says, and what it is told.
const (
	started  = "started"  // a handler has begun
	returned = "returned" // a handler has returned as it was told
	succeed  = "succeed"
	fail     = "fail"
)

// Main is the whole program in a process that an experiment has started. In others it returns at once.
func Main() {
	text, is := os.LookupEnv(variable)
	if !is {
		return
	}
	if err := serve(text, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve works until the input ends. Each handler says that it has started, and returns at the next line as that says.
func serve(text string, in io.Reader, out io.Writer) error {
	var o opening
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	all := subjects()
	i := slices.IndexFunc(all, func(s subject) bool { return s.name == o.Subject })
	if i < 0 {
		return fmt.Errorf("there is no %q", o.Subject)
	}
	told := make(chan string, 1)
	err := all[i].work(context.Background(), o.Place, o.Quick, func() error {
		fmt.Fprintln(out, started)
		what := <-told
		defer fmt.Fprintln(out, returned)
		if what == fail {
			return errors.New("told to fail")
		}
		return nil
	})
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		told <- lines.Text()
	}
	return nil
}

// A worker is another process. What it says comes from the channel, which is closed when it ends.
type worker struct {
	process *exec.Cmd
	to      io.WriteCloser
	says    chan string
}

func startWorker(s subject, p peer.Place, quick bool) (*worker, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	o, err := json.Marshal(opening{s.name, p, quick})
	if err != nil {
		return nil, err
	}
	w := &worker{process: exec.Command(program), says: make(chan string, 16)}
	w.process.Env, w.process.Stderr = append(os.Environ(), variable+"="+string(o)), os.Stderr
	if w.to, err = w.process.StdinPipe(); err != nil {
		return nil, err
	}
	from, err := w.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.process.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(w.says)
		for lines := bufio.NewScanner(from); lines.Scan(); {
			w.says <- lines.Text()
		}
	}()
	return w, nil
}

// errSilent means that a worker has not said in time what was expected.
var errSilent = errors.New("it said nothing in time")

// hear waits until the worker says the word.
func (w *worker) hear(ctx context.Context, word string, within time.Duration) error {
	late := time.NewTimer(within)
	defer late.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			return fmt.Errorf("waiting %v for %q: %w", within, word, errSilent)
		case said, runs := <-w.says:
			switch {
			case !runs:
				return fmt.Errorf("the worker has ended before it said %q", word)
			case said == word:
				return nil
			}
		}
	}
}

func (w *worker) tell(word string) error {
	_, err := fmt.Fprintln(w.to, word)
	return err
}

// stop and resume stand for a machine that sleeps, a container that is paused, a network that is cut.
func (w *worker) stop() error   { return w.process.Process.Signal(syscall.SIGSTOP) }
func (w *worker) resume() error { return w.process.Process.Signal(syscall.SIGCONT) }

// kill ends the process at once, if it still runs, and waits for it.
func (w *worker) kill() {
	_ = w.process.Process.Kill()
	for range w.says { // until its output ends
	}
	_ = w.process.Wait()
}
