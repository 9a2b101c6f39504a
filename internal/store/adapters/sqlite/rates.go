package sqlite

import (
	"database/sql"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// The table claims tells, for each queue with a rate, how many jobs were claimed when. Claims that count no more are deleted by the next one.

// admit returns how many of limit jobs the rate of the queue lets a claim take, and when to note the claim. If it takes fewer than limit, it
// also returns after how long there is room for more.
func (t *txn) admit(queue string, limit int, r store.Rate) (room int, at time.Time, wait time.Duration, err error) {
	claimed, first, at, err := t.countClaims(queue, r)
	room, wait = r.Room(limit, claimed, first, t.now)
	return room, at, wait, err
}

// countClaims returns how many jobs of the queue were claimed, by the claims that count, when the first of them was made, and when to note the next
// one: see [store.ClaimLog]. It deletes those that count no more.
func (t *txn) countClaims(queue string, r store.Rate) (jobs int, first, next time.Time, err error) {
	if err := t.forgetClaims(queue, t.now.Add(-r.Per)); err != nil {
		return 0, time.Time{}, time.Time{}, err
	}
	var latest time.Time
	count := func() error {
		return t.each(func(rows *sql.Rows) error {
			return rows.Scan(&jobs, (*sqlkit.Time)(&first), (*sqlkit.Time)(&latest))
		}, `
			SELECT coalesce(sum(jobs), 0), coalesce(min(claimed_at), ?2), max(coalesce(max(claimed_at), ?2), ?2)
			FROM claims
			WHERE queue = ?1`,
			queue, t.now.UnixMicro())
	}
	if err = count(); err == nil && store.ClaimAhead(latest, t.now) {
		if err = t.moveClaims(queue); err == nil {
			err = count()
		}
	}
	return jobs, first, latest, err
}

// moveClaims makes claims of a clock that was ahead count as one that is made now.
func (t *txn) moveClaims(queue string) error {
	jobs, err := sqlkit.Values[int](t.each, `
		DELETE FROM claims
		WHERE queue = ? AND claimed_at > ?
		RETURNING jobs`,
		queue, t.now.Add(store.MaxSetBack).UnixMicro())
	sum := 0
	for _, n := range jobs {
		sum += n
	}
	if err != nil {
		return err
	}
	return t.noteClaims(queue, sum, t.now)
}

// noteClaims notes that so many jobs are claimed.
func (t *txn) noteClaims(queue string, jobs int, at time.Time) error {
	if jobs == 0 {
		return nil
	}
	_, err := t.exec(`
		INSERT INTO claims (queue, claimed_at, jobs)
		VALUES (?, ?, ?)
		ON CONFLICT DO UPDATE
		SET jobs = jobs + excluded.jobs`,
		queue, at.UnixMicro(), jobs)
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
		_, _, _, err := t.countClaims(queue, before)
		return err
	}
	return t.forgetClaims(queue, store.MaxTime)
}
