package pgtest

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// others returns the children of the server's first process, which it stops, so that it starts no further ones. One that is not
// in the list would survive the crash, and could wait for ever for a lock that a killed one holds.
func (c *Cluster) others(ctx context.Context, first int) (pids []int, err error) {
	if err := syscall.Kill(first, syscall.SIGSTOP); err != nil {
		return nil, fmt.Errorf("stopping process %d of the server: %w", first, err)
	}
	defer func() {
		if err != nil {
			_ = syscall.Kill(first, syscall.SIGCONT) // so that it can be told to end
		}
	}()
	if err := stopped(ctx, first); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", first, first)) // complete, as nobody waits for those that have ended
	if err != nil {
		return nil, err
	}
	for field := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// stopped waits until the process has stopped: the signal may reach it on another processor while it starts a child.
func stopped(ctx context.Context, pid int) error {
	var gone error
	err := repeat(ctx, time.Millisecond, func() (bool, error) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			gone = err
			return true, nil
		}
		_, state, _ := strings.Cut(string(text), ") ") // behind the id and the name
		return strings.HasPrefix(state, "T"), nil
	})
	if err != nil {
		return fmt.Errorf("process %d of the server was told to stop, and does not: %w", pid, err)
	}
	return gone
}
