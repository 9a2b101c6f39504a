package sqlkit

import (
	"database/sql"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// CheckPage is where the page begins: before the id, if there is a cursor.
func CheckPage(filter store.Filter, page store.Page) (before int64, err error) {
	if err := filter.Check(); err != nil {
		return 0, err
	}
	if err := page.Check(); err != nil || page.Cursor == "" {
		return 0, err
	}
	return filter.Position(page.Cursor)
}

// PageOf is the page, of which one job more than it holds was asked for: if there is one, so is a next page. More says that there
// are further ones that were too heavy for it.
func PageOf(found []*store.Record, more bool, filter store.Filter, page store.Page) store.JobPage {
	var answer store.JobPage
	for _, e := range found[:min(page.Limit, len(found))] {
		answer.Jobs = append(answer.Jobs, e.Job)
	}
	if n := len(answer.Jobs); n > 0 && (more || n < len(found)) {
		answer.Next = filter.Cursor(found[n-1].ID)
	}
	return answer
}

// Counts are the rows of a query for queue, phase, how many jobs, how many of them due, and the earliest due time, in this
// order and by queue, as they stand at now.
func Counts(each Query, now time.Time, query string, args ...any) (store.Counts, error) {
	counts := store.Counts{Now: now}
	err := each(func(rows *sql.Rows) error {
		var queue string
		var phase store.State
		var jobs, due int64
		var oldest time.Time
		if err := rows.Scan(&queue, &phase, &jobs, &due, (*Time)(&oldest)); err != nil {
			return err
		}
		counts.Queues = counted(counts.Queues, queue, phase, jobs, due, oldest)
		return nil
	}, query, args...)
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

// Due reads rows of a queue and since when the first of its jobs is due.
func Due(each Query, now time.Time, query string, args ...any) (store.Due, error) {
	due := store.Due{Now: now}
	err := each(func(rows *sql.Rows) error {
		var q store.QueueDue
		err := rows.Scan(&q.Queue, (*Time)(&q.OldestDue))
		due.Queues = append(due.Queues, q)
		return err
	}, query, args...)
	if err != nil {
		return store.Due{}, err
	}
	return due, nil
}
