package sqlkit

import (
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// ActivityNumbers are the columns of the table activity that have numbers, in the order of [store.Activity.Numbers].
var ActivityNumbers = activityNumbers()

func activityNumbers() []string {
	names := []string{"succeeded", "retried", "dead", "snoozed", "recovered", "expired", "stale"}
	for _, histogram := range []string{"waited", "ran"} {
		for class := range len(store.Histogram{}) {
			names = append(names, fmt.Sprintf("%s_%d", histogram, class))
		}
	}
	return names
}

// EachActivityNumber repeats the text for each of [ActivityNumbers], joined by commas. It replaces {name} by the column's name, and
// {n} by its number. The numbers start at first.
func EachActivityNumber(text string, first int) string {
	all := make([]string, len(ActivityNumbers))
	for i, name := range ActivityNumbers {
		all[i] = strings.NewReplacer(`{name}`, name, `{n}`, fmt.Sprint(first+i)).Replace(text)
	}
	return strings.Join(all, `, `)
}

// Minutes returns a duration in minutes, as in the columns of the table activity.
func Minutes(d time.Duration) int64 { return int64(d / time.Minute) }

// MinuteOf returns the minutes from 1970 to a full minute.
func MinuteOf(t time.Time) int64 { return t.Unix() / 60 }

// MinuteKept returns the latest minute of which rows of the width can be deleted.
func MinuteKept(width time.Duration, now time.Time) int64 {
	return MinuteOf(store.AtMultiple(store.ActivityKept(width, now), time.Minute))
}

// Activity runs a query for each part of the answer. The query returns the columns minute, queue, kind and [ActivityNumbers], a row
// for each row of the answer.
func Activity(each Query, filter store.ActivityFilter, now time.Time, query func(store.ActivityPart) (text string, args []any)) (store.ActivityPage, error) {
	sum := filter.Sum(now)
	for _, part := range filter.Parts(now) {
		text, args := query(part)
		if err := each(func(rows *sql.Rows) error { return scanActivity(rows, sum) }, text, args...); err != nil {
			return store.ActivityPage{}, err
		}
	}
	return sum.Page(), nil
}

func scanActivity(rows *sql.Rows, sum *store.ActivitySum) error {
	var a store.Activity
	var minute int64
	into := []any{&minute, &a.Queue, &a.Kind}
	for _, n := range a.Numbers() {
		into = append(into, n)
	}
	if err := rows.Scan(into...); err != nil {
		return err
	}
	a.At = time.Unix(minute*60, 0).UTC()
	sum.AddRow(a)
	return nil
}
