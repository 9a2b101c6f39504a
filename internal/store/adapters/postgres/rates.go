package postgres

import (
	"database/sql"
	"fmt"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// The table claims tells, for each queue with a rate, how many jobs were claimed when. A claim locks the queue first, as one under MaxInFlight does.
// Then it reads the time, and, by a later statement, the claims that count. It deletes those that count no more.

// keepToRate lowers the limit of the claim to what the rate lets it take.
func (c *claim) keepToRate(t *txn) error {
	log, err := t.countClaims(c.Queue, c.policy.Rate)
	c.limit, c.wait = c.policy.Rate.Room(c.limit, log.jobs, log.first, t.now)
	c.log = log
	return err
}

// A claimLog is what the claims on a queue say: see [store.ClaimLog].
type claimLog struct {
	jobs   int       // how many were claimed, by the claims that count
	first  time.Time // when the first of these was made
	latest time.Time // when the latest one of all was made, or now if there is none
	next   time.Time // when to note the next one
}

func (t *txn) countClaims(queue string, r store.Rate) (log claimLog, err error) {
	count := func() error {
		return t.each(func(rows *sql.Rows) error {
			return rows.Scan(&log.jobs, (*sqlkit.Time)(&log.first), (*sqlkit.Time)(&log.latest))
		}, `
			SELECT coalesce(sum(jobs), 0), coalesce(min(claimed_at), $3), coalesce((SELECT max(claimed_at) FROM {schema}.claims WHERE queue = $1), $3)
			FROM {schema}.claims
			WHERE queue = $1 AND claimed_at > $2`,
			queue, t.now.Add(-r.Per), t.now)
	}
	if err = count(); err == nil && store.ClaimAhead(log.latest, t.now) {
		if err = t.moveClaims(queue); err == nil {
			err = count()
		}
	}
	if log.next = log.latest; t.now.After(log.next) {
		log.next = t.now
	}
	return log, err
}

// moveClaims makes claims of a clock that was ahead count as one that is made now.
func (t *txn) moveClaims(queue string) error {
	_, err := t.exec(`
		WITH ahead AS (
			DELETE FROM {schema}.claims
			WHERE queue = $1 AND claimed_at > $3
			RETURNING jobs
		)
		INSERT INTO {schema}.claims (queue, claimed_at, jobs)
		SELECT $1, $2, sum(jobs)
		FROM ahead
		HAVING count(*) > 0
		ON CONFLICT (queue, claimed_at) DO UPDATE
		SET jobs = claims.jobs + excluded.jobs`,
		queue, t.now, t.now.Add(store.MaxSetBack))
	return err
}

// noteClaim returns the part of a statement that notes how many jobs are claimed, and deletes the claims that count no more. The claim before has
// deleted those up to a time: it may be long until they can be removed, so this one must not pass them again. Its arguments begin at that number.
func noteClaim(queue, jobs string, n int) string {
	return fmt.Sprintf(`,
		old_claims AS (
			DELETE FROM {schema}.claims
			WHERE queue = %[1]s AND claimed_at > $%[4]d AND claimed_at <= $%[5]d
		),
		new_claim AS (
			INSERT INTO {schema}.claims (queue, claimed_at, jobs)
			VALUES (%[1]s, $%[3]d, %[2]s)
			ON CONFLICT (queue, claimed_at) DO UPDATE
			SET jobs = claims.jobs + excluded.jobs
		)`, queue, jobs, n, n+1, n+2)
}

// setRate makes claims keep to another rate of the queue. It locks the queue, and reads the time again, so that no claim is later.
func (t *txn) setRate(queue string, before, by store.Rate) error {
	if before.N == 0 && by.N == 0 {
		return t.liftRate(queue)
	}
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
	if before.N == 0 || by.N == 0 {
		return t.forgetClaims(queue, store.MaxTime)
	}
	if _, err := t.countClaims(queue, before); err != nil {
		return err
	}
	return t.forgetClaims(queue, t.now.Add(-min(before.Per, by.Per)))
}

// liftRate mends a queue that has a rate although its policy has none.
func (t *txn) liftRate(queue string) error {
	n, err := t.exec(`
		UPDATE {schema}.queues
		SET rate_n = NULL,
			rate_per = NULL
		WHERE name = $1 AND rate_n IS NOT NULL`,
		queue)
	if err != nil || n == 0 {
		return err
	}
	return t.forgetClaims(queue, store.MaxTime)
}

// forgetClaims deletes the claims up to a time.
func (t *txn) forgetClaims(queue string, until time.Time) error {
	_, err := t.exec(`
		DELETE FROM {schema}.claims
		WHERE queue = $1 AND claimed_at <= $2`,
		queue, until)
	return err
}
