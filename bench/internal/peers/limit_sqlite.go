package peers

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/seed-ed332417/jq/bench/internal/peer"
)

// limitSQLite is one goroutine that writes. Each of its transactions does everything that is pending.
type limitSQLite struct {
	db      *sql.DB
	started func(int64)
	spans   chan span
	start   chan struct{} // tells the writer to start working
	working atomic.Bool
	cancel  context.CancelFunc
	work    sync.WaitGroup
	failed  failure
	stmts   map[string]*sql.Stmt // the writer's
}

func openLimitSQLite(ctx context.Context, p peer.Place, handle peer.Handler) (peer.Queue, error) {
	db, err := openSQLite(p, "FULL", 2)
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, `
		CREATE TABLE jobs (
			id INTEGER PRIMARY KEY,
			number INTEGER NOT NULL,
			token INTEGER NOT NULL DEFAULT 0,
			state INTEGER NOT NULL DEFAULT 0,
			payload TEXT NOT NULL
		);
		CREATE INDEX jobs_ready ON jobs (id) WHERE state = 0`)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	q := &limitSQLite{
		db: db, started: handle.Started, spans: make(chan span, 64), start: make(chan struct{}, 1), cancel: cancel,
		stmts: map[string]*sql.Stmt{},
	}
	q.work.Go(func() { q.write(ctx) })
	return q, nil
}

// openSQLite opens a file in WAL mode with that many connections.
func openSQLite(p peer.Place, synchronous string, connections int) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(p.Folder, "jobs.db")+"?_txlock=immediate&_pragma=busy_timeout(10000)"+
		"&_pragma=journal_mode(WAL)&_pragma=synchronous("+synchronous+")")
	if err == nil {
		db.SetMaxOpenConns(connections)
		db.SetMaxIdleConns(connections)
	}
	return db, err
}

func (q *limitSQLite) Enqueue(ctx context.Context, load peer.Load) error {
	return load.Spread(ctx, func(ctx context.Context, first int64, jobs int) error {
		return newSpan(first, jobs).add(ctx, q.spans)
	})
}

func (q *limitSQLite) Work(context.Context, int) error {
	q.working.Store(true)
	q.start <- struct{}{}
	return nil
}

// write repeats rounds while there is something to enqueue, to ack or to claim.
func (q *limitSQLite) write(ctx context.Context) {
	var claims []claim
	for idle := true; ; {
		var spans []span
		if idle && len(claims) == 0 {
			select {
			case <-ctx.Done():
				return
			case s := <-q.spans:
				spans = []span{s}
			case <-q.start:
			}
		}
		spans = gather(spans, q.spans)
		next, err := q.round(spans, claims)
		q.failed.set(err)
		answer(spans, err)
		if err != nil {
			return
		}
		for _, c := range next {
			q.started(c.number)
		}
		claims, idle = next, len(next) == 0
	}
}

// round is one transaction.
func (q *limitSQLite) round(spans []span, acks []claim) (claims []claim, err error) {
	tx, err := q.db.Begin()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	for _, s := range spans {
		if err := q.insert(tx, s); err != nil {
			return nil, err
		}
	}
	if len(acks) > 0 {
		if err := q.ack(tx, acks); err != nil {
			return nil, err
		}
	}
	if q.working.Load() {
		if claims, err = q.claim(tx); err != nil {
			return nil, err
		}
	}
	return claims, tx.Commit()
}

func (q *limitSQLite) insert(tx *sql.Tx, s span) error {
	args := make([]any, 0, 2*s.jobs)
	for i := range s.jobs {
		args = append(args, s.first+int64(i), text)
	}
	stmt, err := q.prepared(`INSERT INTO jobs (number, payload) VALUES ` + rows(s.jobs))
	if err != nil {
		return err
	}
	_, err = tx.Stmt(stmt).Exec(args...)
	return err
}

func (q *limitSQLite) ack(tx *sql.Tx, acks []claim) error {
	args := make([]any, 0, 2*len(acks))
	for _, c := range acks {
		args = append(args, c.id, c.token)
	}
	stmt, err := q.prepared(`
		UPDATE jobs
		SET state = 2
		FROM (VALUES ` + rows(len(acks)) + `) AS done
		WHERE jobs.id = done.column1 AND jobs.token = done.column2 AND state = 1`)
	if err != nil {
		return err
	}
	_, err = tx.Stmt(stmt).Exec(args...)
	return err
}

func (q *limitSQLite) claim(tx *sql.Tx) ([]claim, error) {
	stmt, err := q.prepared(`
		UPDATE jobs
		SET state = 1,
			token = token + 1
		WHERE id IN (
			SELECT id
			FROM jobs
			WHERE state = 0
			ORDER BY id
			LIMIT ?)
		RETURNING id, token, number`)
	if err != nil {
		return nil, err
	}
	return scanClaims(tx.Stmt(stmt).Query(limitBatch))
}

func (q *limitSQLite) prepared(text string) (*sql.Stmt, error) {
	if stmt, ok := q.stmts[text]; ok {
		return stmt, nil
	}
	stmt, err := q.db.Prepare(text)
	if err == nil {
		q.stmts[text] = stmt
	}
	return stmt, err
}

func (q *limitSQLite) Count(ctx context.Context) (peer.Counts, error) {
	if err := q.failed.get(); err != nil {
		return peer.Counts{}, err
	}
	return countStates(q.db.QueryRowContext(ctx, `SELECT count(*) FILTER (WHERE state <> 2), count(*) FILTER (WHERE state = 2) FROM jobs`))
}

func (q *limitSQLite) Close(context.Context) error {
	q.cancel()
	q.work.Wait()
	return errors.Join(q.failed.get(), q.db.Close())
}
