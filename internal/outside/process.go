package outside

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
)

// A process is a running program and everything that it has started.
type process struct {
	group  *os.Process // the program; its id is also the id of its group
	reaper *Reaper
	pipes  []io.Closer // this side's ends of the pipes
	ended  chan struct{}
	silent chan struct{}  // closed when no process holds the output any more
	feed   sync.WaitGroup // the goroutine that writes the input

	// The fields below are written before ended is closed.
	state *os.ProcessState // nil if nobody has waited for the program yet
	err   error
}

// An end says how a program ended.
type end struct {
	state   *os.ProcessState
	err     error // why the state is not known
	stopped bool  // the program was told to stop
	escaped bool  // a process outside the group holds the output
}

// lastWords is how long to wait for the rest of the output after the group was killed.
const lastWords = time.Second

// start starts the command in its own process group, with pipes for its input and output. The caller must then call attend.
func start(cmd *exec.Cmd, reaper *Reaper, input []byte, stdout, stderr io.Writer) (*process, error) {
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	errs, errErrs := cmd.StderrPipe()
	cmd.Err = errors.Join(errIn, errOut, errErrs) // with an error in Err, Start starts nothing and closes the pipes
	apart(cmd)
	if err := reaper.start(cmd); err != nil {
		return nil, err
	}
	p := &process{
		group: cmd.Process, reaper: reaper,
		pipes: []io.Closer{in, out, errs},
		ended: make(chan struct{}), silent: make(chan struct{}),
	}
	p.feed.Go(func() {
		_, _ = io.Copy(in, bytes.NewReader(input)) // the program may stop reading early
		_ = in.Close()
	})
	var listen sync.WaitGroup
	listen.Go(func() { _, _ = io.Copy(stdout, out) })
	listen.Go(func() { _, _ = io.Copy(stderr, errs) })
	go func() {
		defer close(p.silent)
		listen.Wait()
	}()
	go func() {
		defer close(p.ended)
		p.state, p.err = await(p.group)
	}()
	return p, nil
}

// attend waits for the program, and tells it to stop when the context ends. It returns when the program and its group are gone.
func (p *process) attend(ctx context.Context, clk clock.Clock, grace time.Duration) end {
	var e end
	select {
	case <-p.ended:
	case <-ctx.Done():
		e.stopped = !closed(p.ended)
	}
	within := clk.Timer(grace) // started before the signal, so that the grace has begun when the program gets the signal
	if !closed(p.ended) || !closed(p.silent) {
		terminate(p.group)
		p.gone(within.C)
	}
	within.Stop()
	kill(p.group)
	<-p.ended

	after := clk.Timer(lastWords)
	e.escaped = !p.gone(after.C)
	after.Stop()
	for _, pipe := range p.pipes {
		_ = pipe.Close() // this ends the goroutines that still use the pipe
	}
	<-p.silent
	p.feed.Wait()
	if p.state == nil && p.err == nil {
		p.state, p.err = p.group.Wait()
	}
	p.reaper.waited(p.group.Pid)
	e.state, e.err = p.state, p.err
	return e
}

// gone waits until the program has ended and no process holds its output. It returns false if the time is over before.
func (p *process) gone(over <-chan time.Time) bool {
	for _, sign := range []chan struct{}{p.ended, p.silent} {
		select {
		case <-sign:
		case <-over:
			return false
		}
	}
	return true
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
