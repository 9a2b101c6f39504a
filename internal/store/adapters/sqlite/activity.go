package sqlite

import (
	"context"
	"strings"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// AddActivity is part of the contract.
func (s *Store) AddActivity(ctx context.Context, items []store.Activity) error {
	_, err := write(ctx, s, store.CheckActivity(items), load{items: len(items)}, func(t *txn) (struct{}, error) {
		return struct{}{}, t.addActivity(store.ActivityRows(items))
	})
	return err
}

var addActivity = `
	INSERT INTO activity (overall, width, minute, queue, kind, ` + sqlkit.EachActivityNumber(`{name}`, 0) + `)
	VALUES (?1, ?2, ?3, ?4, ?5, ` + sqlkit.EachActivityNumber(`?{n}`, 6) + `)
	ON CONFLICT (overall, width, minute, queue, kind) DO UPDATE
	SET ` + sqlkit.EachActivityNumber(`{name} = {name} + excluded.{name}`, 0)

// addActivity adds to rows of each width, and deletes some of the rows that no answer needs any more.
func (t *txn) addActivity(rows []store.ActivityRow) error {
	for _, width := range store.ActivityWidths {
		minutes, minute := sqlkit.Minutes(width), sqlkit.MinuteOf(store.AtMultiple(t.now, width))
		for i := range rows {
			args := []any{rows[i].Overall, minutes, minute, rows[i].Queue, rows[i].Kind}
			for _, n := range rows[i].Numbers() {
				args = append(args, *n)
			}
			if _, err := t.exec(addActivity, args...); err != nil {
				return err
			}
		}
		for _, overall := range []bool{false, true} {
			if _, err := t.exec(forgetActivity, overall, minutes, sqlkit.MinuteKept(width, t.now), store.MaxItems); err != nil {
				return err
			}
		}
	}
	return nil
}

// forgetActivity has a limit, because no job can be claimed meanwhile: after a day without a server, a day of rows is old at once. It is
// what a call can add, so that the rows do not grow without end.
const forgetActivity = `
	DELETE FROM activity
	WHERE (overall, width, minute, queue, kind) IN (
		SELECT overall, width, minute, queue, kind
		FROM activity
		WHERE overall = ? AND width = ? AND minute <= ?
		ORDER BY minute
		LIMIT ?)`

// Activity is part of the contract.
func (s *Store) Activity(ctx context.Context, filter store.ActivityFilter) (store.ActivityPage, error) {
	return read(ctx, s, filter.Check(), func(t *txn) (store.ActivityPage, error) {
		from := sqlkit.MinuteOf(filter.From(t.now))
		return sqlkit.Activity(t.each, filter, t.now, func(part store.ActivityPart) (string, []any) { return activitySums(filter, from, part) })
	})
}

// activitySums returns the query for a part of an answer that begins with the minute.
func activitySums(f store.ActivityFilter, from int64, part store.ActivityPart) (query string, args []any) {
	minute, queue, kind := `?`, `''`, `''`
	if args = []any{from}; f.Step > 0 {
		minute, args = `minute - minute % ?`, []any{sqlkit.Minutes(f.Step)}
	}
	if f.By != store.ByNothing {
		queue = `queue`
	}
	if f.By == store.ByKind {
		kind = `kind`
	}
	matching := ``
	args = append(args, part.Overall, sqlkit.Minutes(part.Width), sqlkit.MinuteOf(part.From))
	if !part.To.IsZero() {
		matching, args = matching+` AND minute < ?`, append(args, sqlkit.MinuteOf(part.To))
	}
	if f.Kind != "" {
		matching, args = matching+` AND kind = ?`, append(args, f.Kind)
	}
	var ranges []string
	for _, r := range sqlkit.Ranges(f.Queues) {
		ranges, args = append(ranges, `queue BETWEEN ? AND ?`), append(args, r.Low, r.High)
	}
	if len(ranges) > 0 {
		matching += ` AND (` + strings.Join(ranges, ` OR `) + `)`
	}
	return `
		SELECT ` + minute + `, ` + queue + `, ` + kind + `, ` + sqlkit.EachActivityNumber(`sum({name})`, 0) + `
		FROM activity
		WHERE overall = ? AND width = ? AND minute >= ?` + matching + `
		GROUP BY 1, 2, 3`, args
}
