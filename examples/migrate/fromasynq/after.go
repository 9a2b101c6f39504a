package fromasynq

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-ed332417/jq"
)

// Kind is what Asynq calls the type of a task.
func (Welcome) Kind() string { return "mail:welcome" }

func startJQ(ctx context.Context, store jq.Store, send Mailer) (*jq.Server, error) {
	var handlers jq.Handlers
	jq.Handle(&handlers, func(ctx context.Context, _ *jq.Run, w Welcome) error {
		return send(ctx, w.Name)
	})
	server, err := jq.NewServer(store, &handlers, &jq.ServerOptions{
		Slots:  50,
		Queues: map[string]jq.QueueOptions{"critical": {Weight: 6}, "default": {Weight: 3}},
	})
	if err != nil {
		return nil, err
	}
	return server, server.Start(ctx)
}

func signUp(ctx context.Context, client *jq.Client, name string) error {
	_, err := client.Enqueue(ctx, Welcome{Name: name}, &jq.EnqueueOptions{
		Queue: "critical", MaxRetries: new(5), Delay: time.Hour, Timeout: time.Minute,
	})
	return err
}

// handle makes a mux of Asynq the handler of all kinds.
func handle(handlers *jq.Handlers, mux *asynq.ServeMux) {
	handlers.Otherwise(func(ctx context.Context, run *jq.Run) error {
		err := mux.ProcessTask(ctx, asynq.NewTask(run.Kind, run.Payload))
		switch {
		case errors.Is(err, asynq.RevokeTask):
			return nil // neither retried nor kept as dead
		case errors.Is(err, asynq.SkipRetry):
			return jq.Never(err)
		}
		return err
	})
}
