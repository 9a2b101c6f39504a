package sqlite

import (
	"database/sql"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// The table claims tells, for each queue with a rate, how many jobs were claimed when. Claims that count no more are deleted by the next one.

// admit returns how many of limit jobs the rate of the queue lets a claim take. If that is fewer, it also returns after how long there is room
// for more.
func (t *txn) admit(queue string, limit int, r store.Rate) (room int, wait time.Duration, err error) {
	claimed, first, err := t.countClaims(queue, r)
	if room = r.Room(limit, claimed); room < limit {
		wait = r.Wait(first, t.now)
	}
	return room, wait, err
}

// countClaims returns how many jobs of the queue were claimed, by the claims that count, and when the first of them was made. It deletes the others.
func (t *txn) countClaims(queue string, r store.Rate) (jobs int, first time.Time, err error) {
	var ahead bool
	if err := t.forgetClaims(queue, t.now.Add(-r.Per)); err != nil {
		return 0, time.Time{}, err
	}
	err = t.each(func(rows *sql.Rows) error { return rows.Scan(&jobs, (*sqlkit.Time)(&first), &ahead) }, `
		SELECT coalesce(sum(jobs), 0), min(coalesce(min(claimed_at), ?2), ?2), coalesce(max(claimed_at) > ?2, FALSE)
		FROM claims
		WHERE queue = ?1`,
		queue, t.now.UnixMicro())
	if err == nil && ahead {
		err = t.moveClaims(queue)
	}
	return jobs, first, err
}

// moveClaims makes claims that were made later than now, by a clock that was ahead, count as one that is made now.
func (t *txn) moveClaims(queue string) error {
	var jobs int
	err := t.each(func(rows *sql.Rows) error {
		var n int
		err := rows.Scan(&n)
		jobs += n
		return err
	}, `
		DELETE FROM claims
		WHERE queue = ? AND claimed_at > ?
		RETURNING jobs`,
		queue, t.now.UnixMicro())
	if err != nil {
		return err
	}
	return t.noteClaims(queue, jobs)
}

// noteClaims notes that so many jobs are claimed now.
func (t *txn) noteClaims(queue string, jobs int) error {
	if jobs == 0 {
		return nil
	}
	_, err := t.exec(`
		INSERT INTO claims (queue, claimed_at, jobs)
		VALUES (?, ?, ?)
		ON CONFLICT DO UPDATE
		SET jobs = jobs + excluded.jobs`,
		queue, t.now.UnixMicro(), jobs)
	return err
}

// forgetClaims deletes the claims up to a time.
func (t *txn) forgetClaims(queue string, until time.Time) error {
	_, err := t.exec(`
		DELETE FROM claims
		WHERE queue = ? AND claimed_at <= ?`,
		queue, until.UnixMicro())
	return err
}

// setRate makes claims keep to another rate of the queue.
func (t *txn) setRate(queue string, before, by store.Rate) error {
	if before.N > 0 && by.N > 0 {
		_, _, err := t.countClaims(queue, before)
		return err
	}
	return t.forgetClaims(queue, store.MaxTime)
}
