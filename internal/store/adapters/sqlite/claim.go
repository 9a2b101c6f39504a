package sqlite

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// FetchAndClaim is part of the contract.
func (s *Store) FetchAndClaim(ctx context.Context, req store.ClaimRequest) ([]store.Job, error) {
	invalid := store.CheckLease(req.Check(), req.TTL, s.maxLease)
	var room room
	jobs, err := write(ctx, s, invalid, load{items: req.Limit}, func(t *txn) (jobs []store.Job, err error) {
		jobs, room, err = t.claim(req, &s.limits)
		return jobs, err
	})
	if err == nil && room.wait > 0 && len(jobs) == room.limit {
		s.hub.TellLater(s.now.clock, room.wait, req.Queue)
	}
	return jobs, err
}

// claim takes due jobs, as the policy of the queue lets it.
func (t *txn) claim(req store.ClaimRequest, l *limits) ([]store.Job, room, error) {
	room, err := t.room(req, &l.held)
	if err != nil || room.limit == 0 {
		return nil, room, err
	}
	jobs, err := t.take(req, room, l)
	if err == nil && room.policy.Rate.N > 0 {
		err = t.noteClaims(req.Queue, len(jobs), room.at)
	}
	return jobs, room, err
}

// take takes due jobs, retries first.
func (t *txn) take(req store.ClaimRequest, room room, l *limits) ([]store.Job, error) {
	across := l.of(req.Queue, room.policy)
	if room.policy.ByKey() {
		if jobs, done, err := t.claimAcross(req, across); done || err != nil {
			return jobs, err
		}
		return t.claimByKey(req, room, &l.held)
	}
	chosen, err := t.first(req, room.limit)
	if err != nil {
		return nil, err
	}
	return t.lease(chosen, req)
}

// first returns the first due jobs.
func (t *txn) first(req store.ClaimRequest, limit int) ([]*store.Record, error) {
	quota := min(limit, req.RetryQuota)
	retries, err := t.due(retryLane, req.Queue, quota)
	if err != nil {
		return nil, err
	}
	fresh, err := t.due(freshLane, req.Queue, limit-len(retries))
	if err != nil {
		return nil, err
	}
	if room := limit - len(fresh); len(retries) == quota && room > len(retries) {
		if retries, err = t.due(retryLane, req.Queue, room); err != nil {
			return nil, err
		}
	}
	return append(retries, fresh...), nil
}

// A room is what the policy of the queue lets a claim take.
type room struct {
	policy store.Policy  // its limits
	limit  int           // how many jobs, none if the queue is paused
	turns  int64         // the number of the last claim, if the queue is fair
	at     time.Time     // when to note the claim then
	wait   time.Duration // after which there is room again, if a claim of so many jobs takes all that the rate lets it take
}

func (t *txn) room(req store.ClaimRequest, held *sqlkit.Held) (room, error) {
	var paused bool
	r := room{limit: req.Limit}
	p := &r.policy
	err := t.each(func(rows *sql.Rows) error {
		return rows.Scan(&paused, &p.MaxInFlight, &p.MaxPerKey, &p.Fair, &p.Ordered, &p.Rate.N, (*sqlkit.Micros)(&p.Rate.Per), &r.turns)
	}, `
		SELECT coalesce(paused, FALSE), coalesce(max_in_flight, 0), coalesce(max_per_key, 0), coalesce(fair, FALSE), coalesce(ordered, FALSE),
			coalesce(rate_n, 0), rate_per, coalesce(turns, 0)
		FROM (SELECT 1)
		LEFT JOIN queues ON queues.name = ?1
		LEFT JOIN policies ON policies.name = ?1`,
		req.Queue)
	if err != nil || paused {
		return room{}, err
	}
	if p.MaxInFlight > 0 {
		var inFlight int
		err = t.each(func(rows *sql.Rows) error { return rows.Scan(&inFlight) }, `
			SELECT count(*)
			FROM jobs INDEXED BY jobs_leased
			WHERE state = 'in_flight' AND queue = ?`,
			req.Queue)
		if err != nil {
			return room{}, err
		}
		if r.limit = p.Room(req.Limit, inFlight); r.limit < req.Limit {
			held.Note(req.Queue, 0) // the writer makes one call at a time, and so the end of a lease comes later
		}
	}
	if p.Rate.N > 0 {
		r.limit, r.at, r.wait, err = t.admit(req.Queue, r.limit, p.Rate)
	}
	return r, err
}

// A lane is one of the two indexes that claims read. In each, a priority is one range in which the due jobs come first, so a
// claim never walks over jobs that are not due.
type lane struct {
	level string // the highest priority below one that has jobs
	due   string // the due jobs of one priority, in order
	byKey string // the jobs of one key and priority from a place on, in order, due or not

	text func(string) string // fills what the lane is into a text
}

var (
	freshLane = laneOf(`0`, `jobs_ready_by_key`, `state = 'ready'`, `run_at`)
	retryLane = laneOf(`1`, `jobs_retrying_by_key`, `state = 'failed' AND retry_at IS NOT NULL`, `retry_at`)
)

// weight is the size of a job's documents.
const weight = `octet_length(payload) + coalesce(octet_length(checkpoint), 0) + coalesce(octet_length(progress), 0)`

// laneOf returns the lane of two indexes: waits is their condition, and due their time column.
func laneOf(number, byKey, waits, due string) lane {
	text := strings.NewReplacer(`{lane}`, number, `{index}`, byKey, `{waits}`, waits, `{due}`, due)
	return lane{
		text: text.Replace,
		byKey: text.Replace(strings.ReplaceAll(`
			SELECT {due}, id, `+weight+`, ifnull(expires_at <= ?6, FALSE)
			FROM jobs INDEXED BY {index}
			WHERE {inLine} AND (expires_at IS NULL OR expires_at > ?6 OR id = (
				SELECT id
				FROM jobs INDEXED BY {index}
				WHERE {inLine} AND expires_at <= ?6
				ORDER BY {due}, id
				LIMIT 1))
			ORDER BY {due}, id
			LIMIT ?7`, `{inLine}`, `{waits} AND queue = ?1 AND limit_key = ?2 AND priority = ?3 AND ({due}, id) >= (?4, ?5)`)),
		level: text.Replace(`
			SELECT priority
			FROM jobs
			WHERE {waits} AND queue = ? AND priority < ?
			ORDER BY priority DESC
			LIMIT 1`),
		due: text.Replace(`
			SELECT` + claimColumns + `
			FROM jobs
			WHERE {waits} AND queue = ?1 AND priority = ?2 AND {due} <= ?3
				AND (expires_at IS NULL OR expires_at > ?3)
			ORDER BY {due}, id
			LIMIT ?4`),
	}
}

// due returns the first due jobs of the lane, highest priority first, as many as there is room for.
func (t *txn) due(l lane, queue string, limit int) ([]*store.Record, error) {
	var found []*store.Record
	room := sqlkit.NewRoom()
	for below := store.MaxPriority + 1; len(found) < limit && !room.Full; {
		level, ok, err := t.level(l, queue, below)
		if err != nil || !ok {
			return found, err
		}
		some, err := sqlkit.Fitting(t.each, room, l.due, queue, level, t.now.UnixMicro(), limit-len(found))
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
		below = level
	}
	return found, nil
}

func (t *txn) level(l lane, queue string, below int) (level int, ok bool, err error) {
	err = t.each(func(rows *sql.Rows) error {
		ok = true
		return rows.Scan(&level)
	}, l.level, queue, below)
	return level, ok, err
}

// lease gives the worker a lease on each of the jobs.
func (t *txn) lease(chosen []*store.Record, req store.ClaimRequest) ([]store.Job, error) {
	if err := t.moveAttempts(chosen); err != nil {
		return nil, err
	}
	if len(chosen) == 0 {
		return nil, nil
	}
	jobs := make([]store.Job, len(chosen))
	waiting := make([]store.Lease, len(chosen))
	for i, e := range chosen {
		waiting[i] = e.Lease()
		e.Queue = req.Queue
		e.Claim(req, t.now)
		jobs[i] = e.Job
	}
	floor := store.Floor(chosen[0].Epoch)
	_, err := t.updateHeld(waiting, `state <> 'in_flight'`, nil, `
		UPDATE jobs
		SET state = 'in_flight',
			token = max(token, ?) + 1,
			attempts = attempts + 1,
			lease_expires_at = ?,
			lease_for = ?,
			worker = ?,
			retry_at = NULL,
			checkpoint_seq = 0,
			progress_seq = 0,
			finished_by = '',
			claim_token = max(token, ?) + 1,
			claimed_at = ?,
			ended_at = NULL,
			ending = '',
			reason = ''`,
		floor, jobs[0].LeaseExpiresAt.UnixMicro(), chosen[0].LeaseFor.Microseconds(), req.Worker, floor, t.now.UnixMicro())
	return jobs, err
}
