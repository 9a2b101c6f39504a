package report

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
)

// A Machine describes what figures depend on.
type Machine struct {
	System string `json:"system"`
	Cores  int    `json:"cores"`
	CPU    string `json:"cpu,omitempty"`
	Memory string `json:"memory,omitempty"`
	Go     string `json:"go"`
}

func (m Machine) String() string {
	text := fmt.Sprintf("%d cores", m.Cores)
	if m.CPU != "" {
		text += " of " + m.CPU
	}
	if m.Memory != "" {
		text += ", " + m.Memory
	}
	return text + ", " + m.System + ", " + m.Go
}

// ThisMachine describes the machine that this program runs on.
func ThisMachine() Machine {
	m := Machine{System: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU(), Go: runtime.Version()}
	m.CPU = found("/proc/cpuinfo", `(?m)^model name\s*: (.*)$`)
	if kilobytes, err := strconv.Atoi(found("/proc/meminfo", `(?m)^MemTotal:\s*(\d+) kB$`)); err == nil {
		m.Memory = fmt.Sprintf("%d GiB", (kilobytes+(1<<19))>>20)
	}
	return m
}

// found returns the first match in a file, or nothing if the file does not exist.
func found(path, pattern string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	if match := regexp.MustCompile(pattern).FindSubmatch(data); match != nil {
		return string(match[1])
	}
	return ""
}
