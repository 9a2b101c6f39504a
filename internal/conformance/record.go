package conformance

import (
	"fmt"
	"path/filepath"
	"regexp"
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

// callsKept is how many calls of a failed case are shown.
const callsKept = 30

// calls are the latest calls on the store of a case. They are put into words only when the case has failed, so a slice that the
// case has changed since shows as it is then.
type calls struct {
	mu   sync.Mutex // guards what follows
	made int
	last [callsKept]call
}

type call struct {
	method          string
	request, answer any
	err             error
}

func (l *calls) add(method string, request, answer any, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last[l.made%callsKept] = call{method, request, answer, err}
	l.made++
}

// show writes the calls to the log of the case, the latest last.
func (l *calls) show(tb testing.TB) {
	tb.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	first := max(0, l.made-callsKept)
	tb.Logf("the calls on the store, from the %d. of %d:", first+1, l.made)
	for i := first; i < l.made; i++ {
		made := l.last[i%callsKept]
		answer := brief(made.answer)
		if made.err != nil {
			answer = made.err.Error()
		}
		tb.Logf("  %s %s: %s", made.method, brief(made.request), answer)
	}
}

// zeroField is a field that is not set, as %+v writes it.
var zeroField = regexp.MustCompile(`\b[A-Za-z]+:(0001-01-01 00:00:00 \+0000 UTC|0s|0|\[\]|\{\}|false)?( |(\}))`)

// brief is a request or an answer without the fields that are not set.
func brief(v any) string {
	return shorten(zeroField.ReplaceAllString(fmt.Sprintf("%+v", cut(v)), "$3"))
}
