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
	w, err := r.work(func(_ context.Context, run *jq.Run) error { j.arrive(run.Job); return nil }, t)
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
	if err := r.send(ctx, ctx, j); err != nil {
		return nil, err
	}
	figures, err := w.finish(ctx, m, int64(len(j.left)))
	if err != nil {
		return nil, err
	}
	figures = append(j.figures(len(j.left)/10), figures...)
	return []Part{{Name: "latency", Figures: figures}}, r.verify(ctx, map[jq.State]int64{jq.Succeeded: int64(len(j.left))})
}

// journeys records when each job left its producer and when it arrived. The payload has the job's number.
type journeys struct {
	began         time.Time
	left, arrived []atomic.Int64 // as now; zero means not yet, or never
	late          []atomic.Bool  // it was enqueued late, because all producers were busy
	taken         atomic.Int64   // how many numbers producers have taken
	sent          atomic.Int64   // how many were enqueued

	options func(job int) *jq.EnqueueOptions // or nil
	stored  func(job int)                    // or nil; is called after each call
}

func newJourneys(jobs int) *journeys {
	return &journeys{began: time.Now(), left: make([]atomic.Int64, jobs), arrived: make([]atomic.Int64, jobs), late: make([]atomic.Bool, jobs)}
}

// now is in nanoseconds and begins at 1.
func (j *journeys) now() int64 { return 1 + int64(time.Since(j.began)) }

// next returns the number of the next job.
func (j *journeys) next() int { return int(j.taken.Load()) }

// arrive notes that the job is there. It ignores the second run of a job, and jobs of others.
func (j *journeys) arrive(job jq.Job) {
	now := j.now()
	var payload struct{ Number int }
	if err := json.Unmarshal(job.Payload, &payload); err == nil && payload.Number < len(j.arrived) {
		j.arrived[payload.Number].CompareAndSwap(0, now)
	}
}

// tolerated is how late a call may begin and still count as on time: timers on a busy machine are no more exact.
const tolerated = 10 * time.Millisecond

// send enqueues every job at its time, until all are or the context until ends.
func (r *run) send(ctx, until context.Context, j *journeys) error {
	client, began, first := r.client(), j.now(), j.next()
	take := func() int { return int(j.taken.Add(1)) - 1 }
	group, ctx := errgroup.WithContext(ctx)
	for range r.o.Producers {
		group.Go(func() error {
			for i := take(); i < len(j.left); i = take() {
				due := began + int64(float64(i-first)/r.o.Rate*float64(time.Second))
				if err := sleep(until, time.Duration(due-j.now())); err != nil {
					return ctx.Err()
				}
				payload := jq.Raw{Name: kind, Document: document(i, r.o.Payload)}
				now := j.now()
				j.left[i].Store(now)
				j.late[i].Store(now-due > int64(tolerated))
				if _, err := client.Enqueue(ctx, payload, j.optionsOf(i)); err != nil {
					return err
				}
				j.sent.Add(1)
				if j.stored != nil {
					j.stored(i)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func (j *journeys) optionsOf(job int) *jq.EnqueueOptions {
	if j.options == nil {
		return nil
	}
	return j.options(job)
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

// figures are about the jobs from the first on.
func (j *journeys) figures(first int) []Figure {
	var t times
	late := 0
	for i := first; i < len(j.left); i++ {
		left := j.left[i].Load()
		if left == 0 {
			continue
		}
		t.add(time.Duration(j.arrived[i].Load() - left))
		if j.late[i].Load() {
			late++
		}
	}
	return append(t.figures(""), Figure{"late calls", "%", 100 * float64(late) / float64(max(1, len(t.all)))})
}
