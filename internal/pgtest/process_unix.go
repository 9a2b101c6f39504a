//go:build unix && !linux

package pgtest

import "syscall"

// endWithTest does nothing on systems that do not tell a process of its parent's death.
func endWithTest(*syscall.SysProcAttr) {}
