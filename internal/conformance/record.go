package conformance

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// A record is the testing.TB of a case that runs outside go test: it keeps what the case reports. It has the methods that the
// suite calls, and no others.
type record struct {
	testing.TB

	mu     sync.Mutex // guards what follows
	failed bool
	log    []string
}

func (*record) Helper() {}

func (r *record) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, fmt.Sprintf(format, args...))
}

func (r *record) Errorf(format string, args ...any) {
	r.Logf("%s: %s", caller(), fmt.Sprintf(format, args...))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *record) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *record) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *record) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.log)
}

// caller is the line of the case that a finding comes from: the first one outside this file and that of [C].
func caller() string {
	pcs := make([]uintptr, 16)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		frame, more := frames.Next()
		if name := filepath.Base(frame.File); name != "record.go" && name != "c.go" || !more {
			return fmt.Sprintf("%s:%d", name, frame.Line)
		}
	}
}
