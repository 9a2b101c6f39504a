// Package fromasynq moves an application from Asynq to jq. The page docs/guides/migrate-from-asynq.md explains it.
package fromasynq

import (
	"context"
	"encoding/json"
	"time"

	"github.com/hibiken/asynq"
)

// Welcome is the payload of the mail to a new user.
type Welcome struct{ Name string }

// A Mailer sends mails.
type Mailer func(ctx context.Context, name string) error

// newMux returns the handlers of Asynq.
func newMux(send Mailer) *asynq.ServeMux {
	mux := asynq.NewServeMux()
	mux.HandleFunc("mail:welcome", func(ctx context.Context, task *asynq.Task) error {
		var w Welcome
		if err := json.Unmarshal(task.Payload(), &w); err != nil {
			return err
		}
		return send(ctx, w.Name)
	})
	return mux
}

func startAsynq(redis asynq.RedisConnOpt, mux *asynq.ServeMux) (*asynq.Server, error) {
	server := asynq.NewServer(redis, asynq.Config{
		Concurrency: 50,
		Queues:      map[string]int{"critical": 6, "default": 3},
	})
	return server, server.Start(mux)
}

func signUpWithAsynq(ctx context.Context, client *asynq.Client, name string) error {
	payload, err := json.Marshal(Welcome{Name: name})
	if err != nil {
		return err
	}
	_, err = client.EnqueueContext(ctx, asynq.NewTask("mail:welcome", payload),
		asynq.Queue("critical"), asynq.MaxRetry(5), asynq.ProcessIn(time.Hour), asynq.Timeout(time.Minute))
	return err
}
