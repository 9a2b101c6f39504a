//go:build unix

package chaos

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A fleet is the processes of one test. Where one ends before the storm is over, another takes its place.
type fleet struct {
	*testing.T
	ledger *ledger
	role   role // without a name
	logs   string
	all    sync.WaitGroup
	berths []*berth // of the workers

	producer *berth
}

// A berth has one process at a time, and is the way of all of them to the database.
type berth struct {
	*fleet
	name  string
	proxy *proxy // nil where there is no network in between

	mu      sync.Mutex // guards what follows
	child   *child     // nil between two of them
	lives   int
	busy    bool // something is being done to the process, or its network
	closing bool // no other process follows

	gone chan struct{} // closed when no process follows any more
}

// A child is one process.
type child struct {
	*exec.Cmd
	name     string
	in       io.Closer // the end of which ends it too
	sentence os.Signal // what the test has told it to end by, or nil
	log      *os.File
}

func (f *fleet) berth(name string, p *proxy) *berth {
	b := &berth{fleet: f, name: name, proxy: p, gone: make(chan struct{})}
	f.all.Go(b.occupy)
	return b
}

// occupy starts one process after the other.
func (b *berth) occupy() {
	defer close(b.gone)
	for {
		c, err := b.launch()
		if err != nil {
			b.ledger.blame("%s can not be started: %v", b.name, err)
		}
		if c == nil {
			return
		}
		err = c.Wait()
		b.mu.Lock()
		b.child = nil
		b.mu.Unlock()
		b.ledger.bury(c.name)
		b.inquest(c, err)
		_ = c.log.Close()
		if b.name == producerName && c.ProcessState.Success() && c.sentence == nil {
			return
		}
	}
}

// launch starts the next process, unless none is to follow.
func (b *berth) launch() (*child, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closing {
		return nil, nil
	}
	b.lives++
	c, err := b.start(fmt.Sprintf("%s.%d", b.name, b.lives))
	if err != nil {
		return nil, err
	}
	b.child = c
	return c, nil
}

func (b *berth) start(name string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{Cmd: exec.Command(self), name: name}
	if c.log, err = os.Create(filepath.Join(b.logs, name)); err != nil {
		return nil, err
	}
	r := b.role
	r.name = name
	if b.proxy != nil {
		r.dsn = fmt.Sprintf("host=127.0.0.1 port=%d %s", b.proxy.port(), r.dsn)
	}
	c.Env = append(os.Environ(), r.environment()...)
	c.Stdout, c.Stderr = c.log, c.log
	if c.in, err = c.StdinPipe(); err != nil {
		return nil, err
	}
	return c, c.Start()
}

// inquest finds out whether a process has ended as it should.
func (b *berth) inquest(c *child, err error) {
	status := c.ProcessState.Sys().(syscall.WaitStatus)
	var exit *exec.ExitError
	switch {
	case err == nil && (c.sentence == syscall.SIGTERM || b.name == producerName):
	case !errors.As(err, &exit) && err != nil:
		b.suspect(c, err)
	case status.Signaled() && status.Signal() == c.sentence:
	case status.Signaled() && status.Signal() == syscall.SIGKILL && b.said(c, suicide):
	case status.ExitStatus() == exitUnwritten && c.sentence == syscall.SIGTERM && b.proxy != nil:
	default:
		b.suspect(c, err)
	}
}

func (b *berth) said(c *child, words string) bool {
	text, err := os.ReadFile(c.log.Name())
	return err == nil && strings.Contains(string(text), words)
}

func (b *berth) suspect(c *child, err error) {
	text, _ := os.ReadFile(c.log.Name())
	b.ledger.blame("%s ended by itself: %v; the end of what it said:\n%s", c.name, err, text[max(0, len(text)-4000):])
}

// take waits for a worker that is as it should be, reserves the first one from the pick on, and does something to it while
// nobody gets an answer from the ledger.
func (f *fleet) take(pick int, fits func(worker string) bool, do func(b *berth, worker string)) *berth {
	f.Helper()
	var taken *berth
	found := f.ledger.until(patience, func() bool {
		for i := range f.berths {
			b := f.berths[(pick+i)%len(f.berths)]
			if worker, ok := b.reserve(fits); ok {
				taken = b
				do(b, worker)
				return true
			}
		}
		return false
	})
	require.True(f, found, "no worker came into a state in which it could be disturbed")
	return taken
}

func (b *berth) reserve(fits func(worker string) bool) (worker string, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.busy || b.child == nil || b.child.sentence != nil || !fits(b.child.name) {
		return "", false
	}
	b.busy = true
	return b.child.name, true
}

func (b *berth) free() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy = false
}

// end tells the process to end, and says whether there was one that was not told before.
func (b *berth) end(s syscall.Signal) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.child == nil || b.child.sentence != nil {
		return false
	}
	b.child.sentence = s
	return b.child.Process.Signal(s) == nil
}

// close lets no process follow, and ends the last one.
func (b *berth) close(s syscall.Signal) {
	b.mu.Lock()
	b.closing = true
	b.mu.Unlock()
	b.end(s)
}

// patience is how long anything may take, on a machine that has other things to do.
const patience = time.Minute
