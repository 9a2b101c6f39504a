package outside

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// apart gives the command its own process group, and makes it die with the thread that starts it.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// await waits until the program has ended, but does not release its id. So no other process can get the id, and a signal to the
// group can not hit another group.
func await(program *os.Process) (*os.ProcessState, error) {
	for {
		err := unix.Waitid(unix.P_PID, program.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return nil, os.NewSyscallError("waitid", err)
		}
	}
}
