//go:build !unix

package child

import "os/exec"

// Grouped ends the command when the context ends.
func Grouped(*exec.Cmd) {}
