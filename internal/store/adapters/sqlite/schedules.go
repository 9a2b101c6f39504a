package sqlite

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// SetSchedule is part of the contract.
func (s *Store) SetSchedule(ctx context.Context, by store.Schedule) (store.Schedule, error) {
	return write(ctx, s, by.Check(), load{}, func(t *txn) (store.Schedule, error) { return t.schedules().SetSchedule(by) })
}

// DeleteSchedule is part of the contract.
func (s *Store) DeleteSchedule(ctx context.Context, name string) error {
	_, err := write(ctx, s, store.CheckSchedule(name), load{}, func(t *txn) (struct{}, error) { return t.deleteSchedule(name) })
	return err
}

func (t *txn) deleteSchedule(name string) (struct{}, error) {
	_, err := t.exec(`
		DELETE FROM schedules
		WHERE name = ?`,
		name)
	return struct{}{}, err
}

// Schedules is part of the contract.
func (s *Store) Schedules(ctx context.Context, filter store.ScheduleFilter, page store.Page) (store.SchedulePage, error) {
	after, invalid := filter.Position(page)
	return read(ctx, s, invalid, func(t *txn) (store.SchedulePage, error) { return t.schedulePage(filter, page, after) })
}

// schedulePage reads row by row and stops when the page is full.
func (t *txn) schedulePage(filter store.ScheduleFilter, page store.Page, after string) (store.SchedulePage, error) {
	matching, values := ``, []any(nil)
	if filter.Name != "" {
		matching, values = ` AND name = ?`, []any{filter.Name}
	}
	if filter.Due {
		matching, values = matching+` AND next_at <= ?`, append(values, t.now.Add(filter.Within).UnixMicro())
	}
	return sqlkit.Schedules(t.each, t.now, filter, page, after, `
		SELECT name, revision, `+sqlkit.ScheduleColumns+`, FALSE
		FROM schedules
		WHERE name > ?`+matching+`
		ORDER BY name`,
		func(after string) []any { return slices.Concat([]any{after}, values) })
}

// Fire is part of the contract.
func (s *Store) Fire(ctx context.Context, firings []store.Firing) ([]store.Fired, error) {
	return write(ctx, s, store.CheckFirings(firings), load{items: len(firings)}, func(t *txn) ([]store.Fired, error) {
		return t.schedules().Fire(firings, t.now)
	})
}

func (t *txn) schedules() sqlkit.ScheduleTable {
	return sqlkit.ScheduleTable{Lock: t.schedulesByName, Keep: t.keepSchedule, Lives: t.lives, Add: t.addJobs}
}

func (t *txn) schedulesByName(names []string) (map[string]*store.Schedule, error) {
	return sqlkit.SchedulesByName(t.each, `
		SELECT name, revision, `+sqlkit.ScheduleColumns+`, FALSE
		FROM schedules
		WHERE name IN (SELECT value FROM json_each(?))`,
		list(names))
}

func (t *txn) keepSchedule(s store.Schedule) (revision int64, err error) {
	values, err := sqlkit.ScheduleValues(s, micros)
	if err != nil {
		return 0, err
	}
	err = t.each(func(rows *sql.Rows) error { return rows.Scan(&revision) }, `
		UPDATE schedule_revisions
		SET latest = latest + 1
		RETURNING latest`)
	if err != nil {
		return 0, err
	}
	_, err = t.exec(`
		INSERT OR REPLACE INTO schedules (name, revision, `+sqlkit.ScheduleColumns+`)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		append([]any{s.Name, revision}, values...)...)
	return revision, err
}

// micros returns a time as microseconds since 1970, or NULL for the zero time.
func micros(at time.Time) any {
	if at.IsZero() {
		return nil
	}
	return at.UnixMicro()
}

// lives reports whether the job exists and has not ended.
func (t *txn) lives(id int64) (lives bool, err error) {
	err = t.each(func(rows *sql.Rows) error { return rows.Scan(&lives) }, `
		SELECT finished_at IS NULL
		FROM jobs
		WHERE id = ?`,
		id)
	return lives, err
}
