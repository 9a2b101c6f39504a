package sqlite

import (
	"context"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Get is part of the contract.
func (s *Store) Get(ctx context.Context, id int64) (store.JobDetail, error) {
	return read(ctx, s, nil, func(t *txn) (store.JobDetail, error) { return t.get(id) })
}

func (t *txn) get(id int64) (store.JobDetail, error) {
	found, err := t.records(`
		SELECT`+columns+`,`+presentLinks+`0 AS epoch
		FROM jobs
		WHERE id = ?`,
		id)
	if err != nil {
		return store.JobDetail{}, err
	}
	detail, err := sqlkit.Detail(t.each, found, `
		SELECT token, worker, started_at, ended_at, ending, error
		FROM attempts
		WHERE job_id = ?
		ORDER BY token`,
		id)
	if err == nil && found[0].Links&store.LinkWaits != 0 {
		detail.Waits, err = t.shown(id)
	}
	return detail, err
}

// List is part of the contract.
func (s *Store) List(ctx context.Context, filter store.Filter, page store.Page) (store.JobPage, error) {
	before, invalid := filter.Position(page)
	return readOn(ctx, s, s.readers, invalid, func(t *txn) (store.JobPage, error) { return t.list(filter, page, before) })
}

func (t *txn) list(filter store.Filter, page store.Page, before int64) (store.JobPage, error) {
	where := chosen(filter, before, t.now)
	room := sqlkit.NewRoom()
	found, err := sqlkit.Fitting(t.each, room, `
		SELECT`+columns+`
		FROM jobs
		WHERE id IN (
			SELECT id
			FROM `+where.text()+`
			ORDER BY `+where.order(`DESC`)+`
			LIMIT ?)
		ORDER BY id DESC`,
		append(where.args, page.Limit+1)...)
	if err != nil {
		return store.JobPage{}, err
	}
	return sqlkit.PageOf(found, room.Full, filter, page), nil
}

// Count is part of the contract.
func (s *Store) Count(ctx context.Context, filter store.Filter) (store.Counts, error) {
	return readOn(ctx, s, s.readers, filter.Check(), func(t *txn) (store.Counts, error) { return t.count(filter) })
}

func (t *txn) count(filter store.Filter) (store.Counts, error) {
	where := chosen(filter, unbounded, t.now)
	return sqlkit.Counts(t.each, t.now, `
		WITH matching AS (
			SELECT queue,
				CASE
					WHEN state <> 'failed' THEN state
					WHEN retry_at IS NULL THEN 'dead'
					ELSE 'retrying'
				END AS phase,
				CASE
					WHEN expires_at <= ? THEN NULL
					WHEN state = 'ready' AND run_at <= ? THEN run_at
					WHEN state = 'failed' AND retry_at <= ? THEN retry_at
				END AS due_at
			FROM `+where.text()+`
		)
		SELECT queue, phase, count(*), count(due_at), min(due_at)
		FROM matching
		GROUP BY queue, phase
		ORDER BY queue, phase`,
		append([]any{t.now.UnixMicro(), t.now.UnixMicro(), t.now.UnixMicro()}, where.args...)...)
}
