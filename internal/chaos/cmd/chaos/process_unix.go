//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// grouped keeps the terminal's signals from the command, and lets the end of the context end it with all that it has started.
func grouped(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
