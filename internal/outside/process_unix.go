//go:build unix

package outside

import (
	"os"
	"syscall"
)

// terminate sends SIGTERM to the group. It is no error if the group is empty.
func terminate(group *os.Process) { _ = syscall.Kill(-group.Pid, syscall.SIGTERM) }

// kill sends SIGKILL to the group.
func kill(group *os.Process) { _ = syscall.Kill(-group.Pid, syscall.SIGKILL) }
