package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// AddActivity is part of the contract.
func (s *Store) AddActivity(ctx context.Context, items []store.Activity) error {
	_, err := write(ctx, s, store.CheckActivity(items), func(t *txn) (struct{}, error) {
		return struct{}{}, t.addActivity(store.ActivityRows(items))
	})
	return err
}

// addActivity adds to rows of each width, and deletes rows that no answer needs any more. All calls lock rows in the same order,
// and leave alone old rows that another call is deleting, so that no two of them wait for each other.
func (t *txn) addActivity(rows []store.ActivityRow) error {
	if len(rows) == 0 {
		return nil
	}
	overall, queues, kinds := newArray(ofTexts, 0), newArray(ofTexts, 0), newArray(ofTexts, 0)
	sums := make([]*array, len(sqlkit.ActivityNumbers))
	for n := range sums {
		sums[n] = newArray(ofNumbers, len(rows)*numberBytes)
	}
	for i := range rows {
		overall.string(strconv.FormatBool(rows[i].Overall))
		queues.string(rows[i].Queue)
		kinds.string(rows[i].Kind)
		for n, number := range rows[i].Numbers() {
			sums[n].int(*number)
		}
	}
	var args []any
	for _, width := range store.ActivityWidths {
		args = append(args, sqlkit.Minutes(width), sqlkit.MinuteOf(store.AtMultiple(t.now, width)), sqlkit.MinuteKept(width, t.now))
	}
	args = append(args, overall, queues, kinds)
	for _, sum := range sums {
		args = append(args, sum)
	}
	_, err := t.exec(addActivity, args...)
	return err
}

var addActivity = func() string {
	var widths []string
	for i := range store.ActivityWidths {
		widths = append(widths, fmt.Sprintf(`($%d::bigint, $%d::bigint, $%d::bigint)`, 3*i+1, 3*i+2, 3*i+3))
	}
	first := 3*len(widths) + 1 // of the arguments of the rows
	return fmt.Sprintf(`
		WITH widths (width, minute, old) AS (
			VALUES %s
		),
		forgotten AS (
			DELETE FROM {schema}.activity
			WHERE ctid = ANY (ARRAY(
				SELECT activity.ctid
				FROM widths
				CROSS JOIN (VALUES (FALSE), (TRUE)) AS sorts (overall)
				CROSS JOIN LATERAL (
					SELECT ctid
					FROM {schema}.activity
					WHERE activity.overall = sorts.overall AND activity.width = widths.width AND activity.minute <= widths.old
					ORDER BY minute
					LIMIT %d
					FOR UPDATE SKIP LOCKED
				) AS activity))
		)
		INSERT INTO {schema}.activity (overall, width, minute, queue, kind, %s)
		SELECT items.overall::boolean, width, minute, queue, kind, %s
		FROM unnest($%d::text[], $%d::text[], $%d::text[], %s) AS items (overall, queue, kind, %s)
		CROSS JOIN widths
		ORDER BY overall, width, minute, queue COLLATE "C", kind COLLATE "C"
		ON CONFLICT (overall, width, minute, queue, kind) DO UPDATE
		SET %s`,
		strings.Join(widths, `, `), store.MaxItems, sqlkit.EachActivityNumber(`{name}`, 0), sqlkit.EachActivityNumber(`{name}`, 0),
		first, first+1, first+2, sqlkit.EachActivityNumber(`${n}::bigint[]`, first+3), sqlkit.EachActivityNumber(`{name}`, 0),
		sqlkit.EachActivityNumber(`{name} = activity.{name} + excluded.{name}`, 0))
}()

// Activity is part of the contract.
func (s *Store) Activity(ctx context.Context, filter store.ActivityFilter) (store.ActivityPage, error) {
	return read(ctx, s, filter.Check(), func(t *txn) (store.ActivityPage, error) {
		from := sqlkit.MinuteOf(filter.From(t.now))
		return sqlkit.Activity(t.each, filter, t.now, func(part store.ActivityPart) (string, []any) { return activitySums(filter, from, part) })
	})
}

// activitySums returns the query for a part of an answer that begins with the minute.
func activitySums(f store.ActivityFilter, from int64, part store.ActivityPart) (query string, args []any) {
	w := &where{}
	queue, kind := `''::text`, `''::text`
	var minute string
	if f.Step > 0 {
		minute = `minute - minute % ` + w.arg(sqlkit.Minutes(f.Step)) + `::bigint`
	} else {
		minute = w.arg(from) + `::bigint`
	}
	if f.By != store.ByNothing {
		queue = `queue`
	}
	if f.By == store.ByKind {
		kind = `kind`
	}
	w.and(`overall = $?`, part.Overall)
	w.and(`width = $?`, sqlkit.Minutes(part.Width))
	w.and(`minute >= $?`, sqlkit.MinuteOf(part.From))
	if !part.To.IsZero() {
		w.and(`minute < $?`, sqlkit.MinuteOf(part.To))
	}
	if ranges := sqlkit.Ranges(f.Queues); len(ranges) > 0 {
		w.terms = append(w.terms, w.inQueues(`queue`, ranges))
	}
	if f.Kind != "" {
		w.and(`kind = $?`, f.Kind)
	}
	return `
		SELECT ` + minute + `, ` + queue + `, ` + kind + `, ` + sqlkit.EachActivityNumber(`sum({name})::bigint`, 0) + `
		FROM {schema}.activity` + w.text() + `
		GROUP BY 1, 2, 3`, w.args
}
