package conformance

import (
	"fmt"
	"path"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
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

// caller is the line of the case that a finding comes from: the first one outside this file, that of [C], and the Go runtime, which a panic goes through.
func caller() string {
	pcs := make([]uintptr, 16)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		frame, more := frames.Next()
		name := filepath.Base(frame.File)
		if passed := name == "record.go" || name == "c.go" || strings.HasPrefix(frame.Function, "runtime."); !passed || !more {
			return placeOf(frame)
		}
	}
}

// place is the line on which the case begins.
func (k Case) place() string {
	frame, _ := runtime.CallersFrames([]uintptr{reflect.ValueOf(k.Run).Pointer() + 1}).Next() // of a return address, it would take the line before
	return placeOf(frame)
}

// placeOf names a line by its file in the module of jq, as in internal/conformance/cases_claim.go:20. Where the module lies is of no use to a reader elsewhere.
func placeOf(frame runtime.Frame) string {
	folder, function := path.Split(frame.Function)
	name, _, _ := strings.Cut(function, ".")
	folder = strings.TrimPrefix(folder, "github.com/seed-ed332417/jq/")
	return fmt.Sprintf("%s:%d", path.Join(folder, strings.TrimSuffix(name, "_test"), filepath.Base(frame.File)), frame.Line)
}
