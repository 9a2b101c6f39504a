package bubble_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq/internal/bubble"
)

// Goroutines that wake together and look at tickers that are due then crash the race detector on two processors, in most runs.
func TestTimersThatAreDueTogether(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	ticks := 0
	bubble.Test(t, func(*testing.T) {
		var all sync.WaitGroup
		var mu sync.Mutex
		for range 16 {
			all.Go(func() {
				ticker := time.NewTicker(time.Millisecond)
				defer ticker.Stop()
				for range 1000 {
					<-time.NewTimer(time.Millisecond).C
					select {
					case <-ticker.C:
						mu.Lock()
						ticks++
						mu.Unlock()
					default:
					}
				}
			})
		}
		all.Wait()
	})
	assert.Positive(t, ticks)
	assert.Equal(t, before, runtime.GOMAXPROCS(0))
}
