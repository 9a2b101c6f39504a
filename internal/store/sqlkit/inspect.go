package sqlkit

import (
	"database/sql"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// PageOf returns the page. The query asked for one job more than the page may hold: if it found that job, there is a next page.
// More says that the query left out further jobs because their documents were too large for this page.
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

// Detail returns the job that was found, or ErrNotFound. The query returns its attempts before the one in its row, with token,
// worker, started_at, ended_at, ending and error, in this order.
func Detail(each Query, found []*store.Record, query string, args ...any) (store.JobDetail, error) {
	if len(found) == 0 {
		return store.JobDetail{}, store.ErrNotFound
	}
	var earlier []store.Attempt
	err := each(func(rows *sql.Rows) error {
		var a store.Attempt
		err := rows.Scan(&a.Token, &a.Worker, (*Time)(&a.StartedAt), (*Time)(&a.EndedAt), &a.Ending, &a.Error)
		earlier = append(earlier, a)
		return err
	}, query, args...)
	if err != nil {
		return store.JobDetail{}, err
	}
	return found[0].Detail(earlier), nil
}

// Waits returns waits by the jobs that wait. The query returns them with job_id, on_id, on_group, any_end, met and from_token, in this
// order, and those of a job in the order in which they were enqueued.
func Waits(each Query, query string, args ...any) (map[int64][]store.KeptWait, error) {
	found := map[int64][]store.KeptWait{}
	err := each(func(rows *sql.Rows) error {
		var id int64
		var w store.KeptWait
		err := rows.Scan(&id, &w.On, &w.Group, &w.Any, &w.Met, &w.From)
		found[id] = append(found[id], w)
		return err
	}, query, args...)
	return found, err
}

// Counts runs a query and sums up its rows as of now. The rows have queue, phase, number of jobs, number of due jobs and
// earliest due time, in this order, and are sorted by queue.
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

// counted adds a row to the counts. The rows must come sorted by queue.
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

// Due runs a query whose rows have a queue and the earliest due time of its due jobs.
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
