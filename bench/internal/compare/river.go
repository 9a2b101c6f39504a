package compare

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	riverqueue "github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	"github.com/seed-ed332417/jq/bench/internal/peer"
)

func riverSubject() subject {
	return subject{
		name: "River", store: peer.Postgres,
		own: "JobTimeout and RescueStuckJobsAfter of 2 s", within: 2 * time.Minute,
		enqueue: func(ctx context.Context, p peer.Place) (string, error) {
			return withRiver(ctx, p, func(pool *pgxpool.Pool, client *riverqueue.Client[pgx.Tx]) (string, error) {
				migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					return "", err
				}
				if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
					return "", err
				}
				added, err := client.Insert(ctx, peer.Job{}, nil)
				if err != nil {
					return "", err
				}
				return strconv.FormatInt(added.Job.ID, 10), nil
			})
		},
		work: workRiver,
		state: func(ctx context.Context, p peer.Place, id string) (state, error) {
			number, err := strconv.ParseInt(id, 10, 64)
			if err != nil {
				return "", err
			}
			return withRiver(ctx, p, func(_ *pgxpool.Pool, client *riverqueue.Client[pgx.Tx]) (state, error) {
				job, err := client.JobGet(ctx, number)
				if err != nil {
					return "", err
				}
				switch job.State {
				case rivertype.JobStateRunning:
					return running, nil
				case rivertype.JobStateCompleted:
					return finished, nil
				case rivertype.JobStateDiscarded, rivertype.JobStateCancelled:
					return failed, nil
				default:
					return waiting, nil
				}
			})
		},
	}
}

func withRiver[T any](ctx context.Context, p peer.Place, do func(*pgxpool.Pool, *riverqueue.Client[pgx.Tx]) (T, error)) (answer T, err error) {
	pool, err := pgxpool.New(ctx, p.DSN)
	if err != nil {
		return answer, err
	}
	defer pool.Close()
	client, err := riverqueue.NewClient(riverpgxv5.New(pool), &riverqueue.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return answer, err
	}
	return do(pool, client)
}

type riverWorker struct {
	riverqueue.WorkerDefaults[peer.Job]
	handle func() error
}

func (w *riverWorker) Work(context.Context, *riverqueue.Job[peer.Job]) error { return w.handle() }

func workRiver(ctx context.Context, p peer.Place, quick bool, handle func() error) error {
	pool, err := pgxpool.New(ctx, p.DSN)
	if err != nil {
		return err
	}
	workers := riverqueue.NewWorkers()
	riverqueue.AddWorker(workers, &riverWorker{handle: handle})
	config := &riverqueue.Config{
		Logger:  slog.New(slog.DiscardHandler),
		Queues:  map[string]riverqueue.QueueConfig{riverqueue.QueueDefault: {MaxWorkers: 1}},
		Workers: workers,
	}
	if quick {
		config.JobTimeout, config.RescueStuckJobsAfter = 2*time.Second, 2*time.Second
	}
	client, err := riverqueue.NewClient(riverpgxv5.New(pool), config)
	if err != nil {
		return err
	}
	return client.Start(ctx)
}
