package pgtest

import "syscall"

// endWithTest lets a process end with the test that started it, also if that is killed.
func endWithTest(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = syscall.SIGKILL }
