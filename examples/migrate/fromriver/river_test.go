package fromriver

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/jqpgx"
	"github.com/seed-ed332417/jq/jqtest"
	"github.com/seed-ed332417/jq/postgres"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// opened returns a pool on a schema with the tables of River, and a store on the same pool.
func opened(t *testing.T) (*pgxpool.Pool, *postgres.Store) {
	t.Helper()
	dsn := pgtest.DSN(t)
	schema := pgx.Identifier{pgtest.Schema(t, dsn)}.Sanitize()
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	config.ConnConfig.RuntimeParams["search_path"] = schema
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(t.Context(), `CREATE SCHEMA `+schema)
	require.NoError(t, err)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	require.NoError(t, err)
	_, err = migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil)
	require.NoError(t, err)
	store, err := jqpgx.Open(t.Context(), pool, &postgres.Options{Schema: pgtest.Schema(t, dsn)})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, store.Close()) })
	return pool, store
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(stop)
	return ctx
}

// sent receives what a handler sends, within the context.
func sent(ctx context.Context, t *testing.T, mails <-chan string) string {
	t.Helper()
	select {
	case name := <-mails:
		return name
	case <-ctx.Done():
		t.Fatal("no mail was sent")
		return ""
	}
}

// Both libraries work in one process, on one pool, until River has no jobs left.
func TestBothAtOnce(t *testing.T) {
	ctx := within(t)
	pool, store := opened(t)
	mails := make(chan string, 10)
	send := func(_ context.Context, name string) error { mails <- name; return nil }
	old, err := startRiver(ctx, pool, &WelcomeWorker{send: send})
	require.NoError(t, err)
	server, err := startJQ(ctx, store, send)
	require.NoError(t, err)

	require.NoError(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return signUpWithRiver(ctx, tx, old, "Ada") }))
	assert.Equal(t, "Ada", sent(ctx, t, mails))
	require.NoError(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return signUp(ctx, tx, jq.NewClient(store, nil), "Grace") }))
	assert.Equal(t, "Grace", sent(ctx, t, mails))

	require.NoError(t, server.Stop(ctx))
	require.NoError(t, old.Stop(ctx))
}

func TestMoveTakesWhatWaits(t *testing.T) {
	ctx := within(t)
	pool, store := opened(t)
	workers := river.NewWorkers()
	river.AddWorker(workers, &WelcomeWorker{})
	old, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Workers: workers})
	require.NoError(t, err)
	at := time.Now().Add(time.Hour).Truncate(time.Second)
	_, err = old.InsertMany(ctx, []river.InsertManyParams{
		{Args: Welcome{"Ada"}, InsertOpts: &river.InsertOpts{Priority: 3, Queue: "mail", Tags: []string{"vip"}, MaxAttempts: 5}},
		{Args: Welcome{"Grace"}, InsertOpts: &river.InsertOpts{ScheduledAt: at}},
		{Args: Welcome{"Edsger"}, InsertOpts: nil},
	})
	require.NoError(t, err)
	_, err = pool.Exec(ctx, `UPDATE river_job SET state = 'running', attempt = 1, attempted_at = now() WHERE args->>'name' = 'Edsger'`)
	require.NoError(t, err)
	_, err = pool.Exec(ctx, `UPDATE river_job SET state = 'retryable', attempt = 2 WHERE args->>'name' = 'Ada'`)
	require.NoError(t, err)
	client := jq.NewClient(store, nil)

	moved, err := move(ctx, pool, client)
	require.NoError(t, err)
	assert.Equal(t, 2, moved)

	ada := jqtest.RequireEnqueued(t, store, jqtest.Want{Payload: Welcome{"Ada"}, Queue: "mail", Priority: new(-2), Tags: []string{"vip"}})[0]
	assert.Equal(t, 2, ada.MaxRetries, "five attempts, of which two are over: one more run, and two retries")
	grace := jqtest.RequireEnqueued(t, store, jqtest.Want{Payload: Welcome{"Grace"}, Queue: "default", Priority: new(0)})[0]
	assert.Equal(t, at.UTC(), grace.RunAt)
	jqtest.RequireEnqueued(t, store, jqtest.Want{Times: 2})
	var left int
	require.NoError(t, pool.QueryRow(ctx, `SELECT count(*) FROM river_job WHERE state = 'running'`).Scan(&left))
	assert.Equal(t, 1, left)

	moved, err = move(ctx, pool, client)
	require.NoError(t, err)
	assert.Zero(t, moved)
}

// A worker that answers as it is told to.
type answering struct {
	river.WorkerDefaults[Welcome]
	err  error
	next time.Time
	saw  *river.Job[Welcome]
}

func (a *answering) Work(_ context.Context, job *river.Job[Welcome]) error {
	if a.saw = job; job.Attempt > 1 {
		return nil
	}
	err := a.err
	a.err = nil
	return err
}

func (a *answering) NextRetry(*river.Job[Welcome]) time.Time { return a.next }

func TestWorkersOfRiverRunUnchanged(t *testing.T) {
	for name, c := range map[string]struct {
		worker *answering
		want   []jq.State
	}{
		"succeeds":  {&answering{}, []jq.State{jq.Succeeded}},
		"fails":     {&answering{err: errors.New("no")}, []jq.State{jq.Retrying, jq.Succeeded}},
		"snoozes":   {&answering{err: river.JobSnooze(time.Hour)}, []jq.State{jq.Ready, jq.Succeeded}},
		"cancels":   {&answering{err: river.JobCancel(errors.New("no"))}, []jq.State{jq.Dead}},
		"says when": {&answering{err: errors.New("no"), next: time.Now().Add(time.Hour)}, []jq.State{jq.Retrying, jq.Succeeded}},
	} {
		t.Run(name, func(t *testing.T) {
			store := jqtest.NewStore(t)
			_, err := jq.NewClient(store, nil).Enqueue(t.Context(), Welcome{"Ada"}, nil)
			require.NoError(t, err)
			var handlers jq.Handlers
			work(&handlers, c.worker)
			var states []jq.State
			ran := jqtest.Drain(t, store, &handlers, nil)
			for _, r := range ran {
				states = append(states, r.After.Phase())
			}
			assert.Equal(t, c.want, states)
			assert.Equal(t, "Ada", c.worker.saw.Args.Name)
			if !c.worker.next.IsZero() {
				assert.InDelta(t, time.Hour, ran[1].At.Sub(ran[0].At), float64(time.Minute))
			}
		})
	}
}
