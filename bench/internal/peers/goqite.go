package peers

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"maragu.dev/goqite"
	"maragu.dev/goqite/jobs"

	"github.com/seed-ed332417/jq/bench/internal/peer"
)

func goqitePeers() []peer.Peer {
	return []peer.Peer{{
		Name: "goqite", Store: peer.SQLite, Version: "v0.4.0", Handlers: 100,
		Settings: "modernc, synchronous=NORMAL, one connection; jobs.Runner with a poll interval of 10 ms; single calls by jobs.Create, " +
			"bulk by jobs.CreateTx in one transaction",
		Skips: map[string]string{"failing": "it retries a job only after its timeout, here ten minutes"},
		Open:  openGoqite,
	}}
}

// goqiteSchema is the schema of v0.4.0. The module does not export it.
const goqiteSchema = `
	create table goqite (
		id text primary key default ('m_' || lower(hex(randomblob(16)))),
		created text not null default (strftime('%Y-%m-%dT%H:%M:%fZ')),
		updated text not null default (strftime('%Y-%m-%dT%H:%M:%fZ')),
		queue text not null,
		body blob not null,
		timeout text not null default (strftime('%Y-%m-%dT%H:%M:%fZ')),
		received integer not null default 0,
		priority integer not null default 0
	) strict;
	create trigger goqite_updated_timestamp after update on goqite begin
		update goqite set updated = strftime('%Y-%m-%dT%H:%M:%fZ') where id = old.id;
	end;
	create index goqite_queue_priority_created_idx on goqite (queue, priority desc, created)`

type goqiteQueue struct {
	db     *sql.DB
	queue  *goqite.Queue
	handle peer.Handler
	stop   context.CancelFunc
	work   sync.WaitGroup
}

func openGoqite(ctx context.Context, p peer.Place, handle peer.Handler) (peer.Queue, error) {
	db, err := openSQLite(p, "NORMAL", 1)
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, goqiteSchema); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	// The queue runs a job again if it is not deleted within the timeout.
	queue := goqite.New(goqite.NewOpts{DB: db, Name: "bench", Timeout: 10 * time.Minute})
	return &goqiteQueue{db: db, queue: queue, handle: handle, stop: func() {}}, nil
}

func (q *goqiteQueue) Enqueue(ctx context.Context, load peer.Load) error {
	return load.Spread(ctx, func(ctx context.Context, first int64, n int) error {
		if load.Batch == 1 {
			body, err := json.Marshal(load.Shape.Job(first))
			if err != nil {
				return err
			}
			_, err = jobs.Create(ctx, q.queue, peer.Job{}.Kind(), goqite.Message{Body: body})
			return err
		}
		tx, err := q.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		for i := range n {
			body, err := json.Marshal(load.Shape.Job(first + int64(i)))
			if err != nil {
				return errors.Join(err, tx.Rollback())
			}
			if _, err := jobs.CreateTx(ctx, tx, q.queue, peer.Job{}.Kind(), goqite.Message{Body: body}); err != nil {
				return errors.Join(err, tx.Rollback())
			}
		}
		return tx.Commit()
	})
}

func (q *goqiteQueue) Work(ctx context.Context, handlers int) error {
	runner := jobs.NewRunner(jobs.NewRunnerOpts{Limit: handlers, PollInterval: 10 * time.Millisecond, Queue: q.queue})
	runner.Register(peer.Job{}.Kind(), func(ctx context.Context, body []byte) error { return handle(ctx, body, q.handle) })
	ctx, q.stop = context.WithCancel(context.WithoutCancel(ctx))
	q.work.Go(func() { runner.Start(ctx) })
	return nil
}

// handle reads the payload as a handler would.
func handle(ctx context.Context, payload []byte, by peer.Handler) error {
	var job peer.Job
	if err := json.Unmarshal(payload, &job); err != nil {
		return err
	}
	return by(ctx, job)
}

func (q *goqiteQueue) Count(ctx context.Context) (c peer.Counts, err error) {
	err = q.db.QueryRowContext(ctx, `SELECT count(*) FROM goqite`).Scan(&c.Unfinished)
	return c, err
}

func (q *goqiteQueue) Close(context.Context) error {
	q.stop()
	q.work.Wait()
	return q.db.Close()
}
