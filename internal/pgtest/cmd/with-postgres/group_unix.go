//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// together runs the command as a process group and interrupts the whole group: go test waits for the processes of the tests,
// but does not pass on the signal.
func together(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
}
