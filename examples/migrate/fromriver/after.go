package fromriver

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/jqpgx"
)

func startJQ(ctx context.Context, store jq.Store, send func(ctx context.Context, name string) error) (*jq.Server, error) {
	var handlers jq.Handlers
	jq.Handle(&handlers, func(ctx context.Context, _ *jq.Run, w Welcome) error {
		return send(ctx, w.Name)
	})
	server, err := jq.NewServer(store, &handlers, &jq.ServerOptions{Slots: 100})
	if err != nil {
		return nil, err
	}
	return server, server.Start(ctx)
}

func signUp(ctx context.Context, tx pgx.Tx, client *jq.Client, name string) error {
	_, err := client.EnqueueTx(ctx, jqpgx.Tx(tx), Welcome{Name: name}, nil)
	return err
}

// work registers a worker of River as the handler of its kind.
func work[T river.JobArgs](handlers *jq.Handlers, worker river.Worker[T]) {
	jq.Handle(handlers, func(ctx context.Context, run *jq.Run, args T) error {
		job := &river.Job[T]{Args: args, JobRow: &rivertype.JobRow{
			ID: run.ID, Kind: run.Kind, Queue: run.Queue, EncodedArgs: run.Payload, Tags: run.Tags,
			Attempt: run.Retries + 1, MaxAttempts: run.MaxRetries + 1, CreatedAt: run.EnqueuedAt, ScheduledAt: run.RunAt,
			State: rivertype.JobStateRunning, Priority: 1 - run.Priority,
		}}
		if timeout := worker.Timeout(job); timeout > 0 {
			var stop context.CancelFunc
			ctx, stop = context.WithTimeout(ctx, timeout)
			defer stop()
		}
		err := worker.Work(ctx, job)
		if snooze, ok := errors.AsType[*river.JobSnoozeError](err); ok {
			return jq.Snooze(snooze.Duration)
		}
		if _, ok := errors.AsType[*river.JobCancelError](err); ok {
			return jq.Never(err)
		}
		if at := worker.NextRetry(job); err != nil && !at.IsZero() {
			return jq.RetryAfter(time.Until(at), err)
		}
		return err
	})
}
