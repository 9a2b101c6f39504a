package peers

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/acaloiaro/neoq"
	"github.com/acaloiaro/neoq/backends/memory"
	"github.com/acaloiaro/neoq/handler"
	"github.com/acaloiaro/neoq/jobs"
	"github.com/acaloiaro/neoq/logging"

	"github.com/seed-ed332417/jq/bench/internal/peer"
)

func neoqPeers() []peer.Peer {
	return []peer.Peer{{
		Name: "neoq", Store: peer.Memory, Version: "v0.71.3", Handlers: 100,
		Settings: "room for a million jobs, a fingerprint that is given and not computed; it can not be asked what it has, so that the " +
			"handlers' ends stand for those of the jobs",
		Skips: map[string]string{"bulk": "it has no bulk call", "failing": "it can not be asked whether a job has failed"},
		Open:  openNeoq,
	}}
}

// neoqQueue starts with its handlers, because it accepts no jobs without them. They wait behind a gate until Work opens it.
type neoqQueue struct {
	queue          neoq.Neoq
	handler        peer.Handler
	enqueued, done atomic.Int64
	gate           chan struct{}
	open           sync.Once
}

func openNeoq(ctx context.Context, _ peer.Place, handle peer.Handler) (peer.Queue, error) {
	ctx = context.WithoutCancel(ctx)
	queue, err := neoq.New(ctx, neoq.WithBackend(memory.Backend), neoq.WithLogLevel(logging.LogLevelError))
	if err != nil {
		return nil, err
	}
	q := &neoqQueue{queue: queue, handler: handle, gate: make(chan struct{})}
	return q, queue.Start(ctx, handler.New("bench", q.handle, handler.Concurrency(100), handler.MaxQueueCapacity(1<<20),
		handler.JobTimeout(10*time.Minute)))
}

func (q *neoqQueue) handle(ctx context.Context) error {
	<-q.gate
	job, err := jobs.FromContext(ctx)
	if err != nil {
		return err
	}
	number, ok := job.Payload["number"].(int64)
	if !ok {
		return fmt.Errorf("the payload has no number: %v", job.Payload)
	}
	err = q.handler(ctx, peer.Job{Number: number})
	q.done.Add(1)
	return err
}

func (q *neoqQueue) Enqueue(ctx context.Context, load peer.Load) error {
	return load.Spread(ctx, func(ctx context.Context, first int64, _ int) error {
		job := load.Shape.Job(first)
		_, err := q.queue.Enqueue(ctx, &jobs.Job{
			Queue: "bench", Fingerprint: strconv.FormatInt(first, 10),
			Payload: map[string]any{"number": job.Number, "user": job.User, "text": job.Text},
		})
		if err == nil {
			q.enqueued.Add(1)
		}
		return err
	})
}

// Work opens the gate for the waiting handlers, whose number was set when they were made.
func (q *neoqQueue) Work(context.Context, int) error {
	q.open.Do(func() { close(q.gate) })
	return nil
}

func (q *neoqQueue) Count(context.Context) (peer.Counts, error) {
	done := q.done.Load()
	return peer.Counts{Unfinished: q.enqueued.Load() - done, Finished: done}, nil
}

func (q *neoqQueue) Close(ctx context.Context) error {
	q.queue.Shutdown(ctx)
	q.open.Do(func() { close(q.gate) })
	return nil
}
