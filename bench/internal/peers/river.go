package peers

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	riverqueue "github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/seed-ed332417/jq/bench/internal/peer"
)

// riverPatient is River with a default that costs latency.
const riverVersion, riverPatient = "v0.51.1", "river-100ms"

func river() []peer.Peer {
	return []peer.Peer{
		{
			Name: "river", Store: peer.Postgres, Version: riverVersion, Handlers: 2000, Keeps: true,
			Settings: "pgx, 20 connections; fetch cooldown 2 ms, no timeout of jobs; single calls by Insert, bulk by InsertManyFast (COPY)",
			Open:     openRiver(2 * time.Millisecond),
		},
		{
			Name: riverPatient, Store: peer.Postgres, Version: riverVersion, Handlers: 2000, Keeps: true,
			Like: "river", Plays: "lone",
			Settings: "as river, but with a fetch cooldown of 100 ms, its default, which saves notifications and fetches and costs latency",
			Open:     openRiver(riverqueue.FetchCooldownDefault),
		},
	}
}

// riverQueue is River on pgx. One client enqueues and works; Work replaces it.
type riverQueue struct {
	pool     *pgxpool.Pool
	cooldown time.Duration // between fetches, and between notifications
	workers  *riverqueue.Workers
	client   *riverqueue.Client[pgx.Tx]
	works    bool
}

type riverWorker struct {
	riverqueue.WorkerDefaults[peer.Job]
	handle peer.Handler
}

func (w *riverWorker) Work(ctx context.Context, job *riverqueue.Job[peer.Job]) error {
	return w.handle(ctx, job.Args)
}

func openRiver(cooldown time.Duration) func(context.Context, peer.Place, peer.Handler) (peer.Queue, error) {
	return func(ctx context.Context, p peer.Place, handle peer.Handler) (peer.Queue, error) {
		return newRiver(ctx, p, cooldown, handle)
	}
}

func newRiver(ctx context.Context, p peer.Place, cooldown time.Duration, handle peer.Handler) (peer.Queue, error) {
	config, err := pgxpool.ParseConfig(p.DSN)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 20
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	q := &riverQueue{pool: pool, cooldown: cooldown, workers: riverqueue.NewWorkers()}
	riverqueue.AddWorker(q.workers, &riverWorker{handle: handle})
	if err := q.prepare(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return q, nil
}

func (q *riverQueue) prepare(ctx context.Context) error {
	driver := riverpgxv5.New(q.pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	q.client, err = riverqueue.NewClient(driver, &riverqueue.Config{
		FetchCooldown: q.cooldown, // between notifications too
		Logger:        slog.New(slog.DiscardHandler),
	})
	return err
}

func (q *riverQueue) Enqueue(ctx context.Context, load peer.Load) error {
	return load.Spread(ctx, func(ctx context.Context, first int64, jobs int) error {
		switch {
		case load.Tx:
			return q.insertTx(ctx, load.Shape.Job(first))
		case load.Batch == 1:
			_, err := q.client.Insert(ctx, load.Shape.Job(first), nil)
			return err
		}
		params := make([]riverqueue.InsertManyParams, jobs)
		for i := range params {
			params[i].Args = load.Shape.Job(first + int64(i))
		}
		_, err := q.client.InsertManyFast(ctx, params)
		return err
	})
}

func (q *riverQueue) insertTx(ctx context.Context, job peer.Job) error {
	tx, err := q.pool.Begin(ctx)
	if err != nil {
		return err
	}
	if _, err := q.client.InsertTx(ctx, tx, job, nil); err != nil {
		return errors.Join(err, tx.Rollback(ctx))
	}
	return tx.Commit(ctx)
}

func (q *riverQueue) Work(ctx context.Context, handlers int) error {
	client, err := riverqueue.NewClient(riverpgxv5.New(q.pool), &riverqueue.Config{
		FetchCooldown: q.cooldown,
		JobTimeout:    -1,
		Logger:        slog.New(slog.DiscardHandler),
		Queues:        map[string]riverqueue.QueueConfig{riverqueue.QueueDefault: {MaxWorkers: handlers}},
		Workers:       q.workers,
	})
	if err != nil {
		return err
	}
	q.client, q.works = client, true
	return client.Start(ctx)
}

func (q *riverQueue) Count(ctx context.Context) (peer.Counts, error) {
	var c peer.Counts
	err := q.pool.QueryRow(ctx, `
		SELECT count(*) FILTER (WHERE state <> 'completed'), count(*) FILTER (WHERE state = 'completed')
		FROM river_job`).Scan(&c.Unfinished, &c.Finished)
	return c, err
}

func (q *riverQueue) Close(ctx context.Context) error {
	defer q.pool.Close()
	if !q.works {
		return nil
	}
	return q.client.Stop(ctx)
}
