package peers

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/mikestefanello/backlite"

	"github.com/seed-ed332417/jq/bench/internal/peer"
)

func backlitePeers() []peer.Peer {
	return []peer.Peer{{
		Name: "backlite", Store: peer.SQLite, Version: "v0.6.0", Handlers: 500,
		Settings: "modernc, synchronous=NORMAL, one connection; bulk by Add of many tasks",
		Open:     openBacklite,
	}}
}

type backliteQueue struct {
	db     *sql.DB
	handle peer.Handler
	client *backlite.Client
	works  bool
}

// backliteTask is the payload with its queue settings.
type backliteTask struct{ peer.Job }

func (backliteTask) Config() backlite.QueueConfig {
	return backlite.QueueConfig{Name: "bench", MaxAttempts: 3, Backoff: time.Second}
}

func openBacklite(_ context.Context, p peer.Place, handle peer.Handler) (peer.Queue, error) {
	db, err := openSQLite(p, "NORMAL", 1)
	if err != nil {
		return nil, err
	}
	q := &backliteQueue{db: db, handle: handle}
	if err := q.renew(1); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if err := q.client.Install(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return q, nil
}

// renew replaces the client: it must know the number of handlers when it is made.
func (q *backliteQueue) renew(handlers int) error {
	client, err := backlite.NewClient(backlite.ClientConfig{DB: q.db, NumWorkers: handlers, ReleaseAfter: 10 * time.Minute})
	if err != nil {
		return err
	}
	client.Register(backlite.NewQueue(func(ctx context.Context, task backliteTask) error { return q.handle(ctx, task.Job) }))
	q.client = client
	return nil
}

func (q *backliteQueue) Enqueue(ctx context.Context, load peer.Load) error {
	return load.Spread(ctx, func(ctx context.Context, first int64, jobs int) error {
		tasks := make([]backlite.Task, jobs)
		for i := range tasks {
			tasks[i] = backliteTask{load.Shape.Job(first + int64(i))}
		}
		_, err := q.client.Add(tasks...).Ctx(ctx).Save()
		return err
	})
}

func (q *backliteQueue) Work(ctx context.Context, handlers int) error {
	if err := q.renew(handlers); err != nil {
		return err
	}
	q.works = true
	q.client.Start(context.WithoutCancel(ctx))
	return nil
}

func (q *backliteQueue) Count(ctx context.Context) (c peer.Counts, err error) {
	err = q.db.QueryRowContext(ctx, `SELECT count(*) FROM backlite_tasks`).Scan(&c.Unfinished)
	return c, err
}

func (q *backliteQueue) Close(ctx context.Context) error {
	if q.works && !q.client.Stop(ctx) {
		return errors.Join(errors.New("backlite did not stop"), q.db.Close())
	}
	return q.db.Close()
}
