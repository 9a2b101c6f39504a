package postgres

import (
	"database/sql"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// The table claims tells, for each queue with a rate, how many jobs were claimed when. A claim locks the queue first, as one under MaxInFlight does.
// Then it reads the time, and, by a later statement, the claims that count. It deletes those that count no more.

// keepToRate lowers the limit of the claim to what the rate lets it take.
func (c *claim) keepToRate(t *txn) error {
	claimed, first, err := t.countClaims(c.Queue, c.rate)
	if room := c.rate.Room(c.limit, claimed); room < c.limit {
		c.limit, c.wait = room, c.rate.Wait(first, t.now)
	}
	return err
}

// countClaims returns how many jobs of the queue were claimed, by the claims that count, and when the first of them was made.
func (t *txn) countClaims(queue string, r store.Rate) (jobs int, first time.Time, err error) {
	var ahead bool
	err = t.each(func(rows *sql.Rows) error { return rows.Scan(&jobs, (*sqlkit.Time)(&first), &ahead) }, `
		SELECT coalesce(sum(jobs), 0), least(min(claimed_at), $3), coalesce(max(claimed_at) > $3, FALSE)
		FROM {schema}.claims
		WHERE queue = $1 AND claimed_at > $2`,
		queue, t.now.Add(-r.Per), t.now)
	if err == nil && ahead {
		err = t.moveClaims(queue)
	}
	return jobs, first, err
}

// moveClaims makes claims that were made later than now, by a clock that was ahead, count as one that is made now.
func (t *txn) moveClaims(queue string) error {
	_, err := t.exec(`
		WITH ahead AS (
			DELETE FROM {schema}.claims
			WHERE queue = $1 AND claimed_at > $2
			RETURNING jobs
		)
		INSERT INTO {schema}.claims (queue, claimed_at, jobs)
		SELECT $1, $2, sum(jobs)
		FROM ahead
		HAVING count(*) > 0
		ON CONFLICT (queue, claimed_at) DO UPDATE
		SET jobs = claims.jobs + excluded.jobs`,
		queue, t.now)
	return err
}

// noteClaims notes that so many jobs are claimed now, and deletes the claims that count no more.
func (t *txn) noteClaims(queue string, jobs int, r store.Rate) error {
	_, err := t.exec(`
		WITH old AS (
			DELETE FROM {schema}.claims
			WHERE queue = $1 AND claimed_at <= $4
		)
		INSERT INTO {schema}.claims (queue, claimed_at, jobs)
		VALUES ($1, $2, $3)
		ON CONFLICT (queue, claimed_at) DO UPDATE
		SET jobs = claims.jobs + excluded.jobs`,
		queue, t.now, jobs, t.now.Add(-r.Per))
	return err
}

// setRate makes claims keep to another rate of the queue. It locks the queue, and reads the time again, so that no claim is later.
func (t *txn) setRate(queue string, before, by store.Rate) error {
	var locked time.Time
	asked := time.Now()
	err := t.each(func(rows *sql.Rows) error { return rows.Scan(&locked) }, `
		INSERT INTO {schema}.queues (name, paused, rate_n, rate_per)
		VALUES ($1, FALSE, $2, $3)
		ON CONFLICT (name) DO UPDATE
		SET rate_n = excluded.rate_n,
			rate_per = excluded.rate_per
		RETURNING clock_timestamp()`,
		queue, sqlkit.Limit(by.N), sqlkit.Setting(by.Per))
	if err != nil {
		return err
	}
	t.now = t.s.now.get(locked, asked)
	until := store.MaxTime
	if before.N > 0 && by.N > 0 {
		if _, _, err := t.countClaims(queue, before); err != nil {
			return err
		}
		until = t.now.Add(-before.Per)
	}
	_, err = t.exec(`
		DELETE FROM {schema}.claims
		WHERE queue = $1 AND claimed_at <= $2`,
		queue, until)
	return err
}
