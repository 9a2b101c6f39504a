package fromasynq

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/seed-ed332417/jq"
)

// move moves the tasks of a queue that wait to jq. It pauses the queue, so that Asynq starts none of them meanwhile. You can repeat it
// within a day: a task that jq has already is not added again.
func move(ctx context.Context, inspector *asynq.Inspector, client *jq.Client, queue string) (moved int, err error) {
	info, err := inspector.GetQueueInfo(queue)
	if err == nil && !info.Paused {
		err = inspector.PauseQueue(queue)
	}
	if err != nil {
		return 0, err
	}
	lists := []func(string, ...asynq.ListOption) ([]*asynq.TaskInfo, error){
		inspector.ListPendingTasks, inspector.ListScheduledTasks, inspector.ListRetryTasks,
	}
	for _, list := range lists {
		for { // the first page, until it is empty
			tasks, err := list(queue, asynq.PageSize(100))
			if err != nil {
				return moved, err
			}
			if len(tasks) == 0 {
				break
			}
			for _, task := range tasks {
				if err := moveOne(ctx, inspector, client, task); err != nil {
					return moved, err
				}
				moved++
			}
		}
	}
	return moved, nil
}

func moveOne(ctx context.Context, inspector *asynq.Inspector, client *jq.Client, task *asynq.TaskInfo) error {
	_, err := client.Enqueue(ctx, jq.Raw{Name: task.Type, Document: task.Payload}, &jq.EnqueueOptions{
		Queue: task.Queue, RunAt: task.NextProcessAt, MaxRetries: new(max(0, task.MaxRetry-task.Retried)), Timeout: task.Timeout,
		RequestKey: fmt.Sprintf("asynq/%s/%s", task.Queue, task.ID),
	})
	if err != nil {
		return err
	}
	if err := inspector.DeleteTask(task.Queue, task.ID); !errors.Is(err, asynq.ErrTaskNotFound) {
		return err
	}
	return nil
}
