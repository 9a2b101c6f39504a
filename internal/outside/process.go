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

// A process is a program under way, with whatever it has started.
type process struct {
	group  *os.Process // the program itself, whose id is that of the group
	reaper *Reaper
	pipes  []io.Closer // our ends
	ended  chan struct{}
	silent chan struct{}  // closed when nobody is left who holds the output
	feed   sync.WaitGroup // of the input

	// What follows is written before ended is closed.
	state *os.ProcessState // nil if the program is still to be waited for
	err   error
}

// An end is how a program came to its end.
type end struct {
	state   *os.ProcessState
	err     error // why the state is not known
	stopped bool  // it was told to
	escaped bool  // somebody holds its output who is not in its group
}

// lastWords is for how long the output of those who were killed is waited for.
const lastWords = time.Second

// start runs the command. Its process group and pipes are those of the process; attend has to follow.
func start(cmd *exec.Cmd, reaper *Reaper, input []byte, stdout, stderr io.Writer) (*process, error) {
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	errs, errErrs := cmd.StderrPipe()
	cmd.Err = errors.Join(errIn, errOut, errErrs) // with which Start starts nothing, and closes the pipes that there are
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
		_, _ = io.Copy(in, bytes.NewReader(input)) // a program need not read all that it is given
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

// attend waits for the program, tells it to stop when the context ends, and returns when nothing is left of it.
func (p *process) attend(ctx context.Context, clk clock.Clock, grace time.Duration) end {
	var e end
	select {
	case <-p.ended:
	case <-ctx.Done():
		e.stopped = !closed(p.ended)
	}
	within := clk.Timer(grace) // before the signal, so that the grace has begun for who has heard it
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
		_ = pipe.Close() // which ends the goroutines that still use it
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

// gone waits until the program has ended and nobody holds its output, and is false if the time is over before.
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
