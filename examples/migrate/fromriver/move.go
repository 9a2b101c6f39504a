package fromriver

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/jqpgx"
)

// A waiting job is what the move reads of a row of River.
type waiting struct {
	Kind        string
	Args        json.RawMessage
	Queue       string
	Priority    int
	Tags        []string
	ScheduledAt time.Time
	Retries     int // that are left
}

// move moves up to 1,000 jobs that wait from River to jq, in one transaction. A job that runs stays with River.
func move(ctx context.Context, pool *pgxpool.Pool, client *jq.Client) (moved int, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			DELETE FROM river_job WHERE id IN (
				SELECT id FROM river_job WHERE state IN ('available', 'scheduled', 'retryable')
				ORDER BY id LIMIT 1000 FOR UPDATE SKIP LOCKED)
			RETURNING kind, args, queue, priority::int, tags, scheduled_at, greatest(max_attempts - attempt - 1, 0)::int`)
		if err != nil {
			return err
		}
		jobs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[waiting])
		if err != nil || len(jobs) == 0 {
			return err
		}
		items := make([]jq.Item, len(jobs))
		for i, job := range jobs {
			items[i] = jq.Item{Payload: jq.Raw{Name: job.Kind, Document: job.Args}, Options: &jq.EnqueueOptions{
				Queue: job.Queue, Priority: new(1 - job.Priority), Tags: job.Tags, RunAt: job.ScheduledAt, MaxRetries: new(job.Retries),
			}}
		}
		_, err = client.EnqueueManyTx(ctx, jqpgx.Tx(tx), items, nil)
		moved = len(items)
		return err
	})
	return moved, err
}
