// Package bubble runs tests in bubbles of testing/synctest, where time is virtual.
package bubble

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/seed-ed332417/jq/internal/race"
)

var (
	mu         sync.Mutex // guards what follows
	bubbles    int        // open now, under the race detector
	processors int        // used before they were opened
)

// Test runs the test in a bubble. Under the race detector, the process uses one processor meanwhile: all timers of a bubble share one
// context of the detector, and Go 1.26 crashes when two of them run at the same time (https://go.dev/issue/78156). Timers that are due
// together can do so, because a goroutine that one of them woke may stop or read another. The detector needs no second processor:
// it finds accesses that nothing has ordered.
func Test(t *testing.T, test func(*testing.T)) {
	t.Helper()
	if race.Enabled {
		enter()
		defer leave()
	}
	synctest.Test(t, test) //nolint:forbidigo // the only call
}

func enter() {
	mu.Lock()
	defer mu.Unlock()
	if bubbles++; bubbles == 1 {
		processors = runtime.GOMAXPROCS(1)
	}
}

func leave() {
	mu.Lock()
	defer mu.Unlock()
	if bubbles--; bubbles == 0 {
		runtime.GOMAXPROCS(processors)
	}
}
