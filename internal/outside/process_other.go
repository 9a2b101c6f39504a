//go:build !unix

package outside

import (
	"os"
	"os/exec"
)

// apart does nothing, because this system has no process groups.
func apart(*exec.Cmd) {}

// terminate kills the program, because this system can not ask it to end.
func terminate(program *os.Process) { _ = program.Kill() }

// kill kills the program, but not what it has started.
func kill(program *os.Process) { _ = program.Kill() }

// await waits until the program has ended.
func await(program *os.Process) (*os.ProcessState, error) { return program.Wait() }
