package outside

import (
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Start waits for orphans until stop is called, if this is process 1. No other process is given any, unless it asks for them.
func (r *Reaper) Start(log *slog.Logger) (stop func()) {
	if os.Getpid() != 1 {
		return func() {}
	}
	return r.begin(log)
}

// begin waits for orphans, whichever process this is.
func (r *Reaper) begin(log *slog.Logger) (stop func()) {
	children, over := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(children, unix.SIGCHLD)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			if err := r.reap(); err != nil {
				log.Warn("jq: processes that programs leave behind stay as zombies: mount /proc, or let an init start jq, as docker run --init does",
					"error", err)
				return
			}
			select {
			case <-children:
			case <-over:
				return
			}
		}
	})
	return func() {
		signal.Stop(children)
		close(over)
		running.Wait()
	}
}

// reap waits for each orphan that has ended. waitid can tell of any child that has, but it names the same one until that one is waited
// for, so a program that ended would hide the orphans behind it. Hence the list of children. A list that is read while children leave
// may lack one, which is found when the next child ends.
func (r *Reaper) reap() error {
	pids, err := children()
	if err != nil {
		return err
	}
	r.starting.Lock() // so that each child in the list that is not among the programs is an orphan
	defer r.starting.Unlock()
	for _, pid := range pids {
		if _, program := r.programs.Load(pid); !program {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // that it still runs, or is no child any more, is fine
		}
	}
	return nil
}

// children are those of the first thread: it is there as long as a program in Go runs, and the system gives it all orphans.
func children() ([]int, error) {
	pid := os.Getpid()
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", pid)) // which is not there if /proc is that of other processes
	if err != nil {
		return nil, err
	}
	var pids []int
	for field := range strings.FieldsSeq(string(text)) {
		child, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("the list of children has %q: %w", field, err)
		}
		pids = append(pids, child)
	}
	return pids, nil
}
