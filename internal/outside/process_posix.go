//go:build unix && !linux

package outside

import (
	"os"
	"os/exec"
	"syscall"
)

// apart gives the command its own process group. This system can not make it die with this process.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// await waits until the program has ended. From then on, another process may get its id, and that process's group would get the
// next signal. This is unlikely: the system assigns ids in turn, so it would have to use up all of them in between.
func await(program *os.Process) (*os.ProcessState, error) { return program.Wait() }
