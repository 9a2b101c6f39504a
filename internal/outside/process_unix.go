//go:build unix

package outside

import (
	"os"
	"syscall"
)

// terminate asks everybody in the group to end. That there is nobody left is no error.
func terminate(group *os.Process) { _ = syscall.Kill(-group.Pid, syscall.SIGTERM) }

// kill ends everybody in the group.
func kill(group *os.Process) { _ = syscall.Kill(-group.Pid, syscall.SIGKILL) }
