package peers

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/bench/internal/peer"
	"github.com/seed-ed332417/jq/postgres"
	"github.com/seed-ed332417/jq/sqlite"
)

const jqSettings = "slots as handlers, a buffer of 4,000 jobs, all else as by default; single calls by Client.Enqueue, bulk by EnqueueMany"

func jqPeers() []peer.Peer {
	return []peer.Peer{
		{
			Name: "jq", Store: peer.Postgres, Handlers: jqHandlers, Keeps: true,
			Settings: "sqlx and lib/pq; callers' transactions on 20 connections of the store's DB(); " + jqSettings,
			Open:     openPostgres(0, 0),
		},
		{
			Name: jqPatient, Store: peer.Postgres, Handlers: jqHandlers, Keeps: true, Like: "jq", Plays: "lone",
			Settings: "as jq, but with notifications and claims at most every 100 ms, and results written at most every 250 ms, as in " + riverPatient,
			Open:     openPostgres(100*time.Millisecond, 250*time.Millisecond),
		},
		{
			Name: "jq", Store: peer.SQLite, Handlers: jqHandlers, Keeps: true, Settings: "modernc, synchronous=FULL; " + jqSettings,
			Open: func(ctx context.Context, p peer.Place, handle peer.Handler) (peer.Queue, error) {
				s, err := sqlite.Open(ctx, filepath.Join(p.Folder, "jobs.db"), nil)
				if err != nil {
					return nil, err
				}
				return newJQ(s, handle, jq.ServerOptions{}), nil
			},
		},
		{
			Name: "jq", Store: peer.Memory, Handlers: jqHandlers, Keeps: true, Settings: jqSettings,
			Open: func(_ context.Context, _ peer.Place, handle peer.Handler) (peer.Queue, error) {
				return newJQ(jq.NewMemory(nil), handle, jq.ServerOptions{}), nil
			},
		},
	}
}

const jqHandlers, jqBuffer = 100, 4000

// callers is how many connections callers' transactions have.
const callers = 20

// jqPatient is jq with settings that cost latency.
const jqPatient = "jq-100ms"

// openPostgres opens jq with the least time between notifications and between claims, and that between writes of results.
func openPostgres(between, results time.Duration) func(context.Context, peer.Place, peer.Handler) (peer.Queue, error) {
	return func(ctx context.Context, p peer.Place, handle peer.Handler) (peer.Queue, error) {
		s, err := postgres.Open(ctx, p.DSN, &postgres.Options{NotifyEvery: between})
		if err != nil {
			return nil, err
		}
		s.DB().SetMaxOpenConns(callers)
		s.DB().SetMaxIdleConns(callers)
		q := newJQ(s, handle, jq.ServerOptions{
			Claim: jq.ClaimOptions{Interval: between}, Commit: jq.CommitOptions{Interval: results},
		})
		q.own = s.DB().DB
		return q, nil
	}
}

// jqQueue uses jq like an application: a client and a server in one process.
type jqQueue struct {
	store    jq.Store
	client   *jq.Client
	handlers jq.Handlers
	options  jq.ServerOptions
	server   *jq.Server
	own      *sql.DB // where callers begin their transactions, for Load.Tx
}

func newJQ(s jq.Store, handle peer.Handler, o jq.ServerOptions) *jqQueue {
	q := &jqQueue{store: s, client: jq.NewClient(s, nil), options: o}
	jq.Handle(&q.handlers, func(ctx context.Context, _ *jq.Run, job peer.Job) error { return handle(ctx, job) })
	return q
}

func (q *jqQueue) Enqueue(ctx context.Context, load peer.Load) error {
	return load.Spread(ctx, func(ctx context.Context, first int64, jobs int) error {
		switch {
		case load.Tx:
			return q.enqueueTx(ctx, load.Shape.Job(first))
		case load.Batch == 1:
			_, err := q.client.Enqueue(ctx, load.Shape.Job(first), nil)
			return err
		}
		items := make([]jq.Item, jobs)
		for i := range items {
			items[i].Payload = load.Shape.Job(first + int64(i))
		}
		_, err := q.client.EnqueueMany(ctx, items, nil)
		return err
	})
}

func (q *jqQueue) enqueueTx(ctx context.Context, job peer.Job) error {
	tx, err := q.own.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := q.client.EnqueueTx(ctx, tx, job, nil); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (q *jqQueue) Work(ctx context.Context, handlers int) error {
	q.options.Slots, q.options.Claim.Buffer, q.options.Logger = handlers, jqBuffer, slog.New(slog.DiscardHandler)
	server, err := jq.NewServer(q.store, &q.handlers, &q.options)
	if err != nil {
		return err
	}
	q.server = server
	return server.Start(ctx)
}

func (q *jqQueue) Count(ctx context.Context) (peer.Counts, error) {
	counts, err := q.store.Count(ctx, jq.Filter{})
	if err != nil {
		return peer.Counts{}, err
	}
	var c peer.Counts
	for _, queue := range counts.Queues {
		for phase, jobs := range queue.Jobs {
			if phase == jq.Succeeded {
				c.Finished += jobs
			} else {
				c.Unfinished += jobs
			}
		}
	}
	return c, nil
}

func (q *jqQueue) Close(ctx context.Context) error {
	var err error
	if q.server != nil {
		err = q.server.Stop(ctx)
	}
	return errors.Join(err, q.store.Close())
}
