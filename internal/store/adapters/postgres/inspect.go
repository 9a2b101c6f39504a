package postgres

import (
	"context"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Get is part of the contract.
func (s *Store) Get(ctx context.Context, id int64) (store.JobDetail, error) {
	return read(ctx, s, nil, func(t *txn) (store.JobDetail, error) { return t.get(id) })
}

func (t *txn) get(id int64) (store.JobDetail, error) {
	found, err := t.records(`
		SELECT`+withDocuments.columns+`
		FROM {schema}.jobs
		WHERE id = $1`,
		id)
	if err != nil {
		return store.JobDetail{}, err
	}
	detail, err := sqlkit.Detail(t.each, found, `
		SELECT token, worker, started_at, ended_at, ending, error
		FROM {schema}.attempts
		WHERE job_id = $1
		ORDER BY token`,
		id)
	if err == nil && found[0].Links&store.LinkWaits != 0 {
		detail.Waits, err = t.waitsShown(id)
	}
	return detail, err
}

// List is part of the contract.
func (s *Store) List(ctx context.Context, filter store.Filter, page store.Page) (store.JobPage, error) {
	before, invalid := filter.Position(page)
	leases := s.leases() // must be read before the snapshot is taken
	return call(ctx, s, invalid, s.with.page, func(t *txn) (store.JobPage, error) { return t.list(filter, page, before, leases) })
}

// list first looks at the ids where the page begins, which is nearly always enough.
func (t *txn) list(filter store.Filter, page store.Page, before int64, leases cursor.Position) (store.JobPage, error) {
	q := t.find(filter, page.Limit+1, ifAny, leases)
	q.falling, q.before = true, before
	room := sqlkit.NewRoom()
	var found []*store.Record
	var err error
	if !q.named() {
		found, err = t.firstJobs(q, q.near, room)
	}
	if err == nil && len(found) < q.limit && !room.Full && !q.everywhere() {
		room = sqlkit.NewRoom()
		found, err = t.firstJobs(q, q.ids, room)
	}
	if err != nil {
		return store.JobPage{}, err
	}
	return sqlkit.PageOf(found, room.Full, filter, page), nil
}

// jobsOf returns the table of the jobs in the runs of ids of a group. OFFSET 0 keeps the planner from reading all jobs for that.
func jobsOf(name string) string {
	return `(
				SELECT jobs.*
				FROM {schema}.group_runs
				CROSS JOIN LATERAL (
					SELECT *
					FROM {schema}.jobs
					WHERE id >= group_runs.first_id AND id <= group_runs.last_id
					OFFSET 0
				) AS jobs
				WHERE group_runs.name = ` + name + `
			) AS jobs`
}

// Count is part of the contract.
func (s *Store) Count(ctx context.Context, filter store.Filter) (store.Counts, error) {
	return call(ctx, s, filter.Check(), s.with.count, func(t *txn) (store.Counts, error) { return t.count(filter) })
}

func (t *txn) count(filter store.Filter) (store.Counts, error) {
	where := chosen(filter, t.now)
	jobs := `{schema}.jobs`
	if filter.Group != "" {
		jobs = jobsOf(where.arg(filter.Group))
	}
	now := where.arg(t.now)
	return sqlkit.Counts(t.each, t.now, `
		WITH matching AS (
			SELECT queue,
				CASE
					WHEN lease_expires_at IS NOT NULL THEN 'in_flight'
					WHEN unleased_state <> 'failed' THEN unleased_state
					WHEN retry_at IS NULL THEN 'dead'
					ELSE 'retrying'
				END AS phase,
				CASE
					WHEN lease_expires_at IS NOT NULL OR expires_at <= `+now+` THEN NULL
					WHEN unleased_state = 'ready' AND run_at <= `+now+` THEN run_at
					WHEN unleased_state = 'failed' AND retry_at <= `+now+` THEN retry_at
				END AS due_at
			FROM `+jobs+where.text()+`
		)
		SELECT queue, phase, count(*), count(due_at), min(due_at)
		FROM matching
		GROUP BY queue, phase
		ORDER BY queue, phase`,
		where.args...)
}
