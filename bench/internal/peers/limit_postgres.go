package peers

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/lib/pq"

	"github.com/seed-ed332417/jq/bench/internal/peer"
)

// limitPostgres is a pipeline of three goroutines, each with a connection. Finished rows stay in the table.
type limitPostgres struct {
	db      *sql.DB
	started func(int64)
	spans   chan span
	wake    chan struct{} // signals a commit
	cancel  context.CancelFunc
	work    sync.WaitGroup
	failed  failure
}

const limitTable = `
	CREATE TABLE jobs (
		id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
		number bigint NOT NULL,
		token bigint NOT NULL DEFAULT 0,
		state smallint NOT NULL DEFAULT 0,
		payload text NOT NULL
	) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 1);
	CREATE INDEX jobs_ready ON jobs (id) WHERE state = 0`

func openLimitPostgres(ctx context.Context, p peer.Place, handle peer.Handler) (peer.Queue, error) {
	db, err := sql.Open("postgres", p.DSN)
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, limitTable); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	q := &limitPostgres{db: db, started: handle.Started, spans: make(chan span), wake: make(chan struct{}, 1), cancel: cancel}
	q.work.Go(func() { q.insert(ctx) })
	return q, nil
}

func (q *limitPostgres) Enqueue(ctx context.Context, load peer.Load) error {
	return load.Spread(ctx, func(ctx context.Context, first int64, jobs int) error {
		return newSpan(first, jobs).add(ctx, q.spans)
	})
}

// insert commits the jobs that callers wait for. It is the only goroutine that inserts, so rows are committed in the order of
// their ids, and a cursor misses none.
func (q *limitPostgres) insert(ctx context.Context) {
	stmt, err := q.db.PrepareContext(ctx, `INSERT INTO jobs (number, payload) SELECT unnest($1::bigint[]), $2`)
	q.failed.set(err)
	for {
		var spans []span
		select {
		case <-ctx.Done():
			return
		case s := <-q.spans:
			spans = gather([]span{s}, q.spans)
		}
		err := q.failed.get()
		if err == nil {
			_, err = stmt.ExecContext(ctx, pq.Array(numbers(spans)), text)
		}
		answer(spans, err)
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
}

func (q *limitPostgres) Work(ctx context.Context, _ int) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	before := q.cancel
	q.cancel = func() { cancel(); before() }
	claimed := make(chan []claim, 4)
	q.work.Go(func() {
		defer close(claimed)
		q.failed.set(q.fetch(ctx, claimed))
	})
	q.work.Go(func() { q.failed.set(q.ack(claimed)) })
	return nil
}

// fetch claims from where the last claim ended.
func (q *limitPostgres) fetch(ctx context.Context, claimed chan<- []claim) error {
	stmt, err := q.db.PrepareContext(ctx, `
		UPDATE jobs
		SET state = 1,
			token = token + 1
		WHERE id = ANY(ARRAY(
			SELECT id
			FROM jobs
			WHERE state = 0 AND id > $1
			ORDER BY id
			LIMIT $2
			FOR UPDATE SKIP LOCKED))
		RETURNING id, token, number`)
	if err != nil {
		return err
	}
	net := time.NewTicker(10 * time.Millisecond)
	defer net.Stop()
	for cursor := int64(0); ctx.Err() == nil; {
		claims, err := scanClaims(stmt.QueryContext(ctx, cursor, limitBatch))
		if err != nil {
			return unlessOver(ctx, err)
		}
		for _, c := range claims {
			cursor = max(cursor, c.id)
		}
		if len(claims) > 0 {
			claimed <- claims
			continue
		}
		select {
		case <-q.wake:
		case <-net.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// unlessOver returns the error, unless the work has ended.
func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func scanClaims(rows *sql.Rows, err error) ([]claim, error) {
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var claims []claim
	for rows.Next() {
		var c claim
		if err := rows.Scan(&c.id, &c.token, &c.number); err != nil {
			return nil, err
		}
		claims = append(claims, c)
	}
	return claims, rows.Err()
}

// ack finishes the claimed jobs, and returns only after all of them.
func (q *limitPostgres) ack(claimed <-chan []claim) error {
	stmt, err := q.db.Prepare(`
		UPDATE jobs
		SET state = 2
		FROM unnest($1::bigint[], $2::bigint[]) AS done (id, token)
		WHERE jobs.id = done.id AND jobs.token = done.token AND state = 1`)
	for claims := range claimed {
		if err != nil {
			continue // do not block the fetcher
		}
		ids, tokens := make([]int64, len(claims)), make([]int64, len(claims))
		for i, c := range claims {
			ids[i], tokens[i] = c.id, c.token
			q.started(c.number)
		}
		_, err = stmt.Exec(pq.Array(ids), pq.Array(tokens))
	}
	return err
}

func (q *limitPostgres) Count(ctx context.Context) (peer.Counts, error) {
	if err := q.failed.get(); err != nil {
		return peer.Counts{}, err
	}
	return countStates(q.db.QueryRowContext(ctx, `SELECT count(*) FILTER (WHERE state <> 2), count(*) FILTER (WHERE state = 2) FROM jobs`))
}

func (q *limitPostgres) Close(context.Context) error {
	q.cancel()
	q.work.Wait()
	return errors.Join(q.failed.get(), q.db.Close())
}
