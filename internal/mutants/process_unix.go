//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// grouped ends the command with all that it has started when the context ends.
func grouped(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
