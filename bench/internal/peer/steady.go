package peer

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// Steadily enqueues the jobs of a load at so many a second, one a call, and returns when each call began. A slow call does not
// delay the next one.
func Steadily(ctx context.Context, q Queue, load Load, pace int) ([]time.Time, error) {
	calls, ctx := errgroup.WithContext(ctx)
	tick := time.NewTicker(time.Second / time.Duration(pace))
	defer tick.Stop()
	called := make([]time.Time, load.Jobs)
	for i := 0; i < load.Jobs && ctx.Err() == nil; i++ {
		<-tick.C
		one := load
		one.First, one.Jobs, one.Callers, one.Batch = load.First+int64(i), 1, 1, 1
		calls.Go(func() error {
			called[i] = time.Now().Round(0) // wall clock, as in the ledger
			return q.Enqueue(ctx, one)
		})
	}
	return called, calls.Wait()
}
