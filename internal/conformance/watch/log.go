// Package watch keeps the latest calls on the store of a case, to show them if the case fails.
package watch

import (
	"sync"
	"testing"

	"github.com/seed-ed332417/jq/internal/store"
)

// kept is how many calls are shown.
const kept = 30

// A Log has the latest calls on the store of a case. They are put into words only when the case has failed, so a slice that the
// case has changed since shows as it is then.
type Log struct {
	mu   sync.Mutex // guards what follows
	made int
	last [kept]call
}

type call struct {
	method          string
	request, answer any
	err             error
}

// Watch returns the store with its calls kept in the log.
func (l *Log) Watch(s store.Store) store.Store { return &watched{s, l} }

func (l *Log) add(method string, request, answer any, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last[l.made%kept] = call{method, request, answer, err}
	l.made++
}

// Show writes the calls to the log of the case, the latest last.
func (l *Log) Show(tb testing.TB) {
	tb.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.made == 0 {
		tb.Logf("the case made no call on the store")
		return
	}
	first := max(0, l.made-kept)
	tb.Logf("the calls on the store, from the %d. of %d:", first+1, l.made)
	for i := first; i < l.made; i++ {
		made := l.last[i%kept]
		answer := brief(made.answer)
		if made.err != nil {
			answer = made.err.Error()
		}
		tb.Logf("  %s %s: %s", made.method, brief(made.request), answer)
	}
}
