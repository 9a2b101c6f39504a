package outside

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// apart lets the command have a process group of its own, and die with the thread that starts it.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// await returns when the program has ended, and leaves it to be waited for: as long as that was not done nobody else can get its
// number, so that a signal to its group reaches no stranger.
func await(program *os.Process) (*os.ProcessState, error) {
	for {
		err := unix.Waitid(unix.P_PID, program.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return nil, os.NewSyscallError("waitid", err)
		}
	}
}
