package compare

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-ed332417/jq/bench/internal/peer"
)

const asynqQueue = "default"

func asynqSubject() subject {
	return subject{
		name: "asynq", store: peer.Redis, within: 3 * time.Minute,
		enqueue: func(ctx context.Context, p peer.Place) (id string, err error) {
			client := asynq.NewClient(asynq.RedisClientOpt{Addr: p.Redis})
			defer func() { err = errors.Join(err, client.Close()) }()
			info, err := client.EnqueueContext(ctx, asynq.NewTask(peer.Job{}.Kind(), nil), asynq.Retention(time.Hour))
			if err != nil {
				return "", err
			}
			return info.ID, nil
		},
		work: func(_ context.Context, p peer.Place, _ bool, handle func() error) error {
			server := asynq.NewServer(asynq.RedisClientOpt{Addr: p.Redis}, asynq.Config{Concurrency: 1, LogLevel: asynq.FatalLevel})
			return server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return handle() }))
		},
		state: func(_ context.Context, p peer.Place, id string) (now state, err error) {
			inspector := asynq.NewInspector(asynq.RedisClientOpt{Addr: p.Redis})
			defer func() { err = errors.Join(err, inspector.Close()) }()
			info, err := inspector.GetTaskInfo(asynqQueue, id)
			if err != nil {
				return "", err
			}
			switch info.State {
			case asynq.TaskStateActive:
				return running, nil
			case asynq.TaskStateCompleted:
				return finished, nil
			case asynq.TaskStateArchived:
				return failed, nil
			default:
				return waiting, nil
			}
		},
	}
}
