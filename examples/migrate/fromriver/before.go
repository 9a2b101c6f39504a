// Package fromriver moves an application from River to jq. The page docs/guides/migrate-from-river.md explains it.
package fromriver

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// Welcome is the type of the arguments. It stays as it is: what River calls JobArgs is a jq.Payload too.
type Welcome struct {
	Name string `json:"name"`
}

// Kind is part of both.
func (Welcome) Kind() string { return "welcome" }

// A WelcomeWorker sends the mail to a new user.
type WelcomeWorker struct {
	river.WorkerDefaults[Welcome]
	send func(ctx context.Context, name string) error
}

// Work sends the mail.
func (w *WelcomeWorker) Work(ctx context.Context, job *river.Job[Welcome]) error {
	return w.send(ctx, job.Args.Name)
}

func startRiver(ctx context.Context, pool *pgxpool.Pool, worker *WelcomeWorker) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, worker)
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}},
		Workers: workers,
	})
	if err != nil {
		return nil, err
	}
	return client, client.Start(ctx)
}

func signUpWithRiver(ctx context.Context, tx pgx.Tx, client *river.Client[pgx.Tx], name string) error {
	_, err := client.InsertTx(ctx, tx, Welcome{Name: name}, nil)
	return err
}
