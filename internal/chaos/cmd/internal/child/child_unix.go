//go:build unix

package child

import (
	"os/exec"
	"syscall"
)

// Grouped shields the command from the terminal's signals. When the context ends, it ends the command with all that it has
// started.
func Grouped(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
