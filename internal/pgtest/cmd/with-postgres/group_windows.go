package main

import "os/exec"

// together does nothing on systems without process groups: only the command itself is ended.
func together(*exec.Cmd) {}
