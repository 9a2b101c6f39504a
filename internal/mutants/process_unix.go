//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// grouped lets the end of the context end the command with all that it has started.
func grouped(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
