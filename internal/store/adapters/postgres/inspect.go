package postgres

import (
	"context"
	"database/sql"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Get is part of the contract.
func (s *Store) Get(ctx context.Context, id int64) (store.JobDetail, error) {
	return read(ctx, s, nil, func(t *txn) (store.JobDetail, error) { return t.get(id) })
}

func (t *txn) get(id int64) (store.JobDetail, error) {
	var detail store.JobDetail
	found, err := t.entries(withDocuments, `
		SELECT`+withDocuments+`
		FROM {schema}.jobs
		WHERE id = $1`,
		id)
	if err != nil {
		return detail, err
	}
	if len(found) == 0 {
		return detail, store.ErrNotFound
	}
	detail.Job = found[0].Job
	if detail.History, err = t.earlier(id); err != nil {
		return store.JobDetail{}, err
	}
	if latest, kept := found[0].Latest(); kept {
		detail.History = append(detail.History, latest)
	}
	return detail, nil
}

// earlier are the attempts before the one that stands in the job's row.
func (t *txn) earlier(id int64) ([]store.Attempt, error) {
	var attempts []store.Attempt
	err := t.each(func(rows *sql.Rows) error {
		var a sqlkit.AttemptColumns
		err := rows.Scan(&a.Token, &a.Worker, &a.StartedAt, &a.EndedAt, &a.Ending, &a.Error)
		attempts = append(attempts, a.Attempt())
		return err
	}, `
		SELECT token, worker, started_at, ended_at, ending, error
		FROM {schema}.attempts
		WHERE job_id = $1
		ORDER BY token`,
		id)
	return attempts, err
}

// List is part of the contract.
func (s *Store) List(ctx context.Context, filter store.Filter, page store.Page) (store.JobPage, error) {
	position, invalid := checkPage(filter, page)
	return read(ctx, s, invalid, func(t *txn) (store.JobPage, error) { return t.list(filter, page, position) })
}

// checkPage is where the page begins: before the id, if there is a cursor.
func checkPage(filter store.Filter, page store.Page) (before int64, err error) {
	if err := filter.Check(); err != nil {
		return 0, err
	}
	if err := page.Check(); err != nil || page.Cursor == "" {
		return 0, err
	}
	return filter.Position(page.Cursor)
}

func (t *txn) list(filter store.Filter, page store.Page, before int64) (store.JobPage, error) {
	where := chosen(filter, t.now)
	if page.Cursor != "" {
		where.and(`id < $?`, before)
	}
	found, err := t.entries(withDocuments, `
		SELECT`+withDocuments+`
		FROM {schema}.jobs`+where.text()+`
		ORDER BY id DESC
		LIMIT `+where.arg(page.Limit+1),
		where.args...)
	if err != nil {
		return store.JobPage{}, err
	}
	var answer store.JobPage
	for i, e := range found {
		if i == page.Limit {
			answer.Next = filter.Cursor(found[i-1].ID)
			break
		}
		answer.Jobs = append(answer.Jobs, e.Job)
	}
	return answer, nil
}

// Count is part of the contract.
func (s *Store) Count(ctx context.Context, filter store.Filter) (store.Counts, error) {
	return read(ctx, s, filter.Check(), func(t *txn) (store.Counts, error) { return t.count(filter) })
}

func (t *txn) count(filter store.Filter) (store.Counts, error) {
	where := chosen(filter, t.now)
	now := where.arg(t.now)
	counts := store.Counts{Now: t.now}
	err := t.each(func(rows *sql.Rows) error {
		var queue string
		var phase store.State
		var jobs, due int64
		var oldest sqlkit.Time
		if err := rows.Scan(&queue, &phase, &jobs, &due, &oldest); err != nil {
			return err
		}
		counts.Queues = counted(counts.Queues, queue, phase, jobs, due, time.Time(oldest))
		return nil
	}, `
		WITH matching AS (
			SELECT queue,
				CASE
					WHEN state <> 'failed' THEN state
					WHEN retry_at IS NULL THEN 'dead'
					ELSE 'retrying'
				END AS phase,
				CASE
					WHEN state = 'ready' AND run_at <= `+now+` THEN run_at
					WHEN state = 'failed' AND retry_at <= `+now+` THEN retry_at
				END AS due_at
			FROM {schema}.jobs`+where.text()+`
		)
		SELECT queue, phase, count(*), count(due_at), min(due_at)
		FROM matching
		GROUP BY queue, phase
		ORDER BY queue, phase`,
		where.args...)
	if err != nil {
		return store.Counts{}, err
	}
	return counts, nil
}

// counted adds a row to the counts, which come by queue.
func counted(queues []store.QueueCount, queue string, phase store.State, jobs, due int64, oldest time.Time) []store.QueueCount {
	if n := len(queues); n == 0 || queues[n-1].Queue != queue {
		queues = append(queues, store.QueueCount{Queue: queue, Jobs: map[store.State]int64{}})
	}
	q := &queues[len(queues)-1]
	q.Jobs[phase] = jobs
	q.Due += due
	if !oldest.IsZero() && (q.OldestDue.IsZero() || oldest.Before(q.OldestDue)) {
		q.OldestDue = oldest
	}
	return queues
}
