package bench

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq"
)

// enqueueing measures producers alone.
func enqueueing(ctx context.Context, r *run) ([]Part, error) {
	var done atomic.Int64
	var calls times
	m, err := r.measure(ctx, done.Load, ofJobs("enqueueing", done.Load, int64(r.o.Jobs)))
	if err != nil {
		return nil, err
	}
	defer m.halt()
	err = r.produce(ctx, r.o.Producers, upTo(r.o.Jobs, r.o.Batch), func(jobs int, took time.Duration) {
		done.Add(int64(jobs))
		calls.add(took)
	})
	if err != nil {
		return nil, err
	}
	figures, err := m.stop(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.verify(ctx, map[jq.State]int64{jq.Ready: int64(r.o.Jobs)}); err != nil {
		return nil, err
	}
	return []Part{{Name: "enqueue", Figures: append(figures, calls.figures("call ")...)}}, nil
}
