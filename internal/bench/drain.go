package bench

import (
	"context"

	"github.com/seed-ed332417/jq"
)

// draining measures workers alone: from the start of the server until the store has accepted the end of the last job.
func draining(ctx context.Context, r *run) (parts []Part, err error) {
	if err := r.fill(ctx, r.o.Jobs, nil); err != nil {
		return nil, err
	}
	t := newTally()
	w, err := r.work(nothing, t)
	if err != nil {
		return nil, err
	}
	defer stopped(ctx, w, &err)
	m, err := r.measure(ctx, t.succeeded.Load, ofJobs("draining", t.succeeded.Load, int64(r.o.Jobs)))
	if err != nil {
		return nil, err
	}
	defer m.halt()
	if err := w.server.Start(ctx); err != nil {
		return nil, err
	}
	figures, err := w.finish(ctx, m, int64(r.o.Jobs))
	if err != nil {
		return nil, err
	}
	return []Part{{Name: "drain", Figures: figures}}, r.verify(ctx, map[jq.State]int64{jq.Succeeded: int64(r.o.Jobs)})
}
