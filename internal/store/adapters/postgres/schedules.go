package postgres

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// SetSchedule is part of the contract.
func (s *Store) SetSchedule(ctx context.Context, by store.Schedule) (store.Schedule, error) {
	return write(ctx, s, by.Check(), func(t *txn) (store.Schedule, error) { return t.schedules().SetSchedule(by) })
}

// DeleteSchedule is part of the contract.
func (s *Store) DeleteSchedule(ctx context.Context, name string) error {
	_, err := write(ctx, s, store.CheckSchedule(name), func(t *txn) (struct{}, error) { return t.deleteSchedule(name) })
	return err
}

func (t *txn) deleteSchedule(name string) (struct{}, error) {
	return struct{}{}, t.remove(`
		DELETE FROM {schema}.schedules
		WHERE name = $1`,
		name)
}

// Schedules is part of the contract.
func (s *Store) Schedules(ctx context.Context, filter store.ScheduleFilter, page store.Page) (store.SchedulePage, error) {
	after, invalid := filter.Position(page)
	if invalid == nil && filter.Due && filter.Name == "" {
		if now, due, err := s.exist(ctx, existDue, filter.Within.Microseconds(), after); due == 0 || err != nil {
			return store.SchedulePage{Now: now}, err
		}
	}
	return read(ctx, s, invalid, func(t *txn) (store.SchedulePage, error) { return t.schedulePage(filter, page, after) })
}

var existDue = existing(`{schema}.schedules WHERE next_at <= ` + statementNow + ` + $4::bigint * interval '1 microsecond' AND name > $5`)

// schedulePage lets the server limit the rows to about one page, because the driver reads everything that the server sends.
func (t *txn) schedulePage(filter store.ScheduleFilter, page store.Page, after string) (store.SchedulePage, error) {
	matching, values := ``, []any(nil)
	if filter.Name != "" {
		values = append(values, filter.Name)
		matching += ` AND name = $` + strconv.Itoa(2+len(values))
	}
	if filter.Due {
		values = append(values, t.now.Add(filter.Within))
		matching += ` AND next_at <= $` + strconv.Itoa(2+len(values))
	}
	return sqlkit.Schedules(t.each, t.now, filter, page, after, `
		SELECT name, revision, `+sqlkit.ScheduleColumns+`, follow
		FROM (
			SELECT *,
				coalesce(sum(octet_length(payload)) OVER (ORDER BY name ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before,
				lead(name) OVER (ORDER BY name) IS NOT NULL AS follow
			FROM (
				SELECT *
				FROM {schema}.schedules
				WHERE name > $1`+matching+`
				ORDER BY name
				LIMIT $2
			) AS schedules
		) AS schedules
		WHERE before <= `+strconv.Itoa(store.MaxPageTemplates)+`
		ORDER BY name`,
		func(after string) []any { return slices.Concat([]any{after, page.Limit + 1}, values) })
}

// Fire is part of the contract.
func (s *Store) Fire(ctx context.Context, firings []store.Firing) ([]store.Fired, error) {
	return write(ctx, s, store.CheckFirings(firings), func(t *txn) ([]store.Fired, error) {
		return t.schedules().Fire(firings, t.now)
	})
}

func (t *txn) schedules() sqlkit.ScheduleTable {
	add := func(jobs []store.NewJob) ([]store.Enqueued, error) { return t.addJobs(jobs, nil) } // they keep their priorities
	return sqlkit.ScheduleTable{Lock: t.lockSchedules, Keep: t.keepSchedule, Lives: t.lives, Add: add}
}

// lockSchedules locks the schedules that exist, in the order of their names, until the transaction ends.
func (t *txn) lockSchedules(names []string) (map[string]*store.Schedule, error) {
	return sqlkit.SchedulesByName(t.each, `
		SELECT name, revision, `+sqlkit.ScheduleColumns+`, FALSE
		FROM {schema}.schedules
		WHERE name = ANY ($1::text[])
		ORDER BY name
		FOR UPDATE`,
		arrayOfTexts(names))
}

// keepSchedule writes the row of a schedule that is locked, or adds it. If another transaction has added it since, keepSchedule
// writes nothing and returns 0.
func (t *txn) keepSchedule(s store.Schedule) (revision int64, err error) {
	values, err := sqlkit.ScheduleValues(s, stampOf)
	if err != nil {
		return 0, err
	}
	query := `
		INSERT INTO {schema}.schedules (name, ` + sqlkit.ScheduleColumns + `)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
		ON CONFLICT (name) DO NOTHING
		RETURNING revision`
	if s.Revision != 0 {
		query = `
		UPDATE {schema}.schedules
		SET revision = DEFAULT,
			(` + sqlkit.ScheduleColumns + `) = ROW ($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
		WHERE name = $1
		RETURNING revision`
	}
	err = t.each(func(rows *sql.Rows) error { return rows.Scan(&revision) }, query, append([]any{s.Name}, values...)...)
	return revision, err
}

// stampOf returns a time, or NULL for the zero time.
func stampOf(at time.Time) any {
	if at.IsZero() {
		return nil
	}
	return at
}

// lives reports whether the job exists and has not ended.
func (t *txn) lives(id int64) (lives bool, err error) {
	err = t.each(func(rows *sql.Rows) error { return rows.Scan(&lives) }, `
		SELECT finished_at IS NULL
		FROM {schema}.jobs
		WHERE id = $1`,
		id)
	return lives, err
}
