package etcdtest

import "syscall"

// attributes lets members end with the test, also if it is killed.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
