//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// together has the command run as a group with all that it starts, and interrupts them as one: go test waits for the processes of
// the tests, and those hear of nothing that only it was told.
func together(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
}
