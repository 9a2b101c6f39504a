//go:build unix

package child

import (
	"os/exec"
	"syscall"
)

// Grouped keeps the terminal's signals from the command, and lets the end of the context end it with all that it has started.
func Grouped(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
