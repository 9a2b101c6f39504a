//go:build !unix

package outside

import (
	"os"
	"os/exec"
)

// apart does nothing: there are no process groups here.
func apart(*exec.Cmd) {}

// terminate kills the program, which can not be asked.
func terminate(program *os.Process) { _ = program.Kill() }

// kill kills the program, but not what it has started.
func kill(program *os.Process) { _ = program.Kill() }

// await returns when the program has ended.
func await(program *os.Process) (*os.ProcessState, error) { return program.Wait() }
