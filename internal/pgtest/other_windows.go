package pgtest

import "os/exec"

func asOther(*exec.Cmd) {}

func handOver(string) error { return nil }
