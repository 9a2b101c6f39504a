//go:build unix && !linux

package outside

import (
	"os"
	"os/exec"
	"syscall"
)

// apart lets the command have a process group of its own. There is no way here to let it die with this process.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// await returns when the program has ended. From then on its number can be given to another one, whose group would get the
// signal that is sent next; but numbers are given out in turn, so that it takes all of them to be used up meanwhile.
func await(program *os.Process) (*os.ProcessState, error) { return program.Wait() }
