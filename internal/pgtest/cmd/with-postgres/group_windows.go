package main

import "os/exec"

// together is for systems with groups of processes: here the command alone is ended.
func together(*exec.Cmd) {}
