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

// Start waits for orphans until stop is called, if this is process 1. Other processes get no orphans unless they ask for them.
func (r *Reaper) Start(log *slog.Logger) (stop func()) {
	if os.Getpid() != 1 {
		return func() {}
	}
	return r.begin(log)
}

// begin is Start for any process.
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

// reap waits for each orphan that has ended. It needs the list of children, because waitid can not skip a child: it keeps
// naming the same ended child until somebody waits for it, so an ended program would hide the orphans behind it. If children
// end while the list is read, the list may lack one. reap finds that one when the next child ends.
func (r *Reaper) reap() error {
	pids, err := children()
	if err != nil {
		return err
	}
	r.starting.Lock() // no program is just starting, so every listed child that is not in programs is an orphan
	defer r.starting.Unlock()
	for _, pid := range pids {
		if _, program := r.programs.Load(pid); !program {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // it is fine if the child still runs, or is gone
		}
	}
	return nil
}

// children returns the children of the first thread. This thread lives as long as the Go program runs, and the system gives all
// orphans to it.
func children() ([]int, error) {
	pid := os.Getpid()
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", pid)) // missing if /proc belongs to another process namespace
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
