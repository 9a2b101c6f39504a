package bench

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-ed332417/jq"
)

// waiting measures how long a job waits for a free worker: from the start of the call that enqueues it to the first line of its
// handler. Jobs are enqueued at fixed times, however long other calls take. The first tenth opens connections and is left out.
func waiting(ctx context.Context, r *run) (parts []Part, err error) {
	j := newJourneys(int(r.o.Rate * r.o.Duration.Seconds()))
	t := newTally()
	w, err := r.work(j.arrive, t)
	if err != nil {
		return nil, err
	}
	defer stopped(ctx, w, &err)
	if err := w.server.Start(ctx); err != nil {
		return nil, err
	}
	m, err := r.measure(ctx, t.succeeded.Load, ofJobs("enqueueing at a fixed rate", t.succeeded.Load, int64(len(j.left))))
	if err != nil {
		return nil, err
	}
	defer m.halt()
	if err := r.send(ctx, j); err != nil {
		return nil, err
	}
	figures, err := w.finish(ctx, m, int64(len(j.left)))
	if err != nil {
		return nil, err
	}
	figures = append(j.figures(), figures...)
	return []Part{{Name: "latency", Figures: figures}}, r.verify(ctx, map[jq.State]int64{jq.Succeeded: int64(len(j.left))})
}

// journeys records when each job left its producer and arrived at its handler. The payload has the job's number.
type journeys struct {
	began         time.Time
	left, arrived []atomic.Int64 // nanoseconds since began
	late          atomic.Int64   // how many were enqueued late, because all producers were busy
}

func newJourneys(jobs int) *journeys {
	return &journeys{began: time.Now(), left: make([]atomic.Int64, jobs), arrived: make([]atomic.Int64, jobs)}
}

func (j *journeys) now() int64 { return int64(time.Since(j.began)) }

// arrive is the handler. It ignores the second run of a job.
func (j *journeys) arrive(_ context.Context, run *jq.Run) error {
	now := j.now()
	var payload struct{ Number int }
	if err := json.Unmarshal(run.Payload, &payload); err != nil {
		return err
	}
	j.arrived[payload.Number].CompareAndSwap(0, now)
	return nil
}

// tolerated is how late a call may begin and still count as on time: timers on a busy machine are no more exact.
const tolerated = 10 * time.Millisecond

// send enqueues every job at its time.
func (r *run) send(ctx context.Context, j *journeys) error {
	client, began := r.client(), j.now()
	var taken atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range r.o.Producers {
		group.Go(func() error {
			for i := int(taken.Add(1)) - 1; i < len(j.left); i = int(taken.Add(1)) - 1 {
				due := began + int64(float64(i)/r.o.Rate*float64(time.Second))
				if err := sleep(ctx, time.Duration(due-j.now())); err != nil {
					return err
				}
				payload := jq.Raw{Name: kind, Document: document(i, r.o.Payload)}
				now := j.now()
				j.left[i].Store(now)
				if now-due > int64(tolerated) {
					j.late.Add(1)
				}
				if _, err := client.Enqueue(ctx, payload, nil); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// sleep waits, unless the context ends first.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (j *journeys) figures() []Figure {
	var t times
	for i := len(j.left) / 10; i < len(j.left); i++ {
		t.add(time.Duration(j.arrived[i].Load() - j.left[i].Load()))
	}
	return append(t.figures(""), Figure{"late calls", "%", 100 * float64(j.late.Load()) / float64(len(j.left))})
}
