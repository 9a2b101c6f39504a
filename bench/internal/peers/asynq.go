package peers

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-ed332417/jq/bench/internal/peer"
)

func asynqPeers() []peer.Peer {
	return []peer.Peer{{
		Name: "asynq", Store: peer.Redis, Version: "v0.26.0", Handlers: 200,
		Settings: "Redis with appendfsync=everysec, up to a second of which a crash loses; 20 connections; a look for tasks every 10 ms",
		Skips:    map[string]string{"bulk": "it has no bulk call", "failing": "it waits for about half a minute before a retry"},
		Open:     openAsynq,
	}}
}

type asynqQueue struct {
	options   asynq.RedisClientOpt
	client    *asynq.Client
	inspector *asynq.Inspector
	handle    peer.Handler
	server    *asynq.Server
}

func openAsynq(_ context.Context, p peer.Place, handle peer.Handler) (peer.Queue, error) {
	options := asynq.RedisClientOpt{Addr: p.Redis, PoolSize: 20}
	return &asynqQueue{
		options: options, client: asynq.NewClient(options), inspector: asynq.NewInspector(options), handle: handle,
	}, nil
}

func (q *asynqQueue) Enqueue(ctx context.Context, load peer.Load) error {
	return load.Spread(ctx, func(ctx context.Context, first int64, _ int) error {
		payload, err := json.Marshal(load.Shape.Job(first))
		if err != nil {
			return err
		}
		_, err = q.client.EnqueueContext(ctx, asynq.NewTask(peer.Job{}.Kind(), payload), asynq.MaxRetry(3))
		return err
	})
}

func (q *asynqQueue) Work(_ context.Context, handlers int) error {
	q.server = asynq.NewServer(q.options, asynq.Config{
		Concurrency: handlers, TaskCheckInterval: 10 * time.Millisecond, LogLevel: asynq.FatalLevel,
	})
	return q.server.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		return handle(ctx, task.Payload(), q.handle)
	}))
}

func (q *asynqQueue) Count(context.Context) (peer.Counts, error) {
	info, err := q.inspector.GetQueueInfo("default")
	if err != nil {
		return peer.Counts{}, err
	}
	return peer.Counts{Unfinished: int64(info.Size), Finished: int64(info.Processed - info.Failed)}, nil
}

func (q *asynqQueue) Close(context.Context) error {
	if q.server != nil {
		q.server.Shutdown()
	}
	return errors.Join(q.inspector.Close(), q.client.Close())
}
