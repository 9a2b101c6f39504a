package postgres

import (
	"context"
	"database/sql"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// RecoverExpiredLeases is part of the contract. Where nothing has expired, which the look says that goes with the opening, that is
// all. What a clock has given that was ahead is brought back in a transaction of its own, so that neither is lost with the other.
func (s *Store) RecoverExpiredLeases(ctx context.Context, req store.RecoverRequest) ([]store.Recovered, error) {
	defer s.checkInBackground()
	r := recovery{RecoverRequest: req}
	with, hopeful := s.with.write, false
	with.ahead = func() (first pipelinedCall, only bool) {
		r.from, r.age = s.leases.get()
		r.horizon = s.horizon.known()
		return r.first(), !hopeful
	}
	recovered, err := call(ctx, s, req.Check(), with, r.run)
	if hopeful = err == nil && r.missed; hopeful {
		recovered, err = call(ctx, s, nil, with, r.run)
	}
	if err == nil || codeOf(err) != "" {
		s.bringBack(ctx, req.Limit)
	}
	return recovered, err
}

// A recovery is one recovery under way.
type recovery struct {
	store.RecoverRequest
	from    position // where it began
	age     int
	horizon time.Time // what ends before it can be seen
	seen    position  // the first lease from there on
	missed  bool      // something may have expired, but the transaction is over
}

func (r *recovery) run(t *txn) ([]store.Recovered, error) {
	if !t.ahead { // a look that was made before knows nothing of what has ended since
		r.horizon = t.horizon
	}
	from, age := t.s.leases.get()
	forgotten := age != r.age // by this recovery or another
	if forgotten {
		r.from, r.age, r.horizon = from, age, t.s.horizon.known()
	}
	if r.missed = t.whole && forgotten; r.missed {
		return nil, nil
	}
	if !t.ahead || forgotten {
		first := r.first()
		if err := t.each(first.scan, first.query, first.args...); err != nil {
			return nil, err
		}
	}
	mark := t.s.leases.move(r)
	expired := t.now.Add(-r.Grace.Truncate(store.Resolution))
	if r.missed = t.whole && r.mayRecover(expired); t.whole || !r.mayRecover(expired) {
		return nil, nil
	}
	return t.recover(expired, r.Limit, mark)
}

// mayRecover says that some lease had expired by then.
func (r *recovery) mayRecover(then time.Time) bool {
	return r.seen != position{} && !r.seen.at.After(then)
}

// first asks for the first lease from the mark on.
func (r *recovery) first() pipelinedCall {
	r.seen = position{}
	return pipelinedCall{func(rows *sql.Rows) error {
		var at sqlkit.Time
		err := rows.Scan(&at, &r.seen.id)
		r.seen.at = time.Time(at)
		return err
	}, `
		SELECT lease_expires_at, id
		FROM {schema}.jobs
		WHERE state = 'in_flight' AND (lease_expires_at, id) >= ($1::text::timestamptz, $2::bigint)
		ORDER BY lease_expires_at, id
		LIMIT 1`,
		[]any{r.from.text(), r.from.id}}
}

func (t *txn) recover(expired time.Time, limit int, mark position) ([]store.Recovered, error) {
	found, err := t.records(`
		SELECT`+columns+`,`+presentEpoch+`
		FROM {schema}.jobs
		WHERE state = 'in_flight' AND (lease_expires_at, id) >= ($3::text::timestamptz, $4) AND lease_expires_at <= $1
		ORDER BY lease_expires_at, id
		LIMIT $2
		FOR UPDATE SKIP LOCKED`,
		expired, limit, mark.text(), mark.id)
	if err != nil {
		return nil, err
	}
	recovered := make([]store.Recovered, len(found))
	for i, e := range found {
		recovered[i] = e.Recover(t.now)
		t.wakeFor(e.Job)
	}
	return recovered, t.update(columns, found)
}

// The leases that a clock has given which was ahead of $1 minus the time that this takes for granted, the latest end first.
const leasedAhead = `
	SELECT id
	FROM {schema}.jobs
	WHERE state = 'in_flight' AND lease_expires_at > $1::timestamptz
		AND lease_expires_at - ` + leaseLength + ` > $1::timestamptz
	ORDER BY lease_expires_at DESC, id DESC`

const leaseLength = `least(
			coalesce(nullif(lease_for, 0) * interval '1 microsecond', lease_expires_at - claimed_at),
			$2::bigint * interval '1 microsecond')`

// bringBack lets leases that a clock has given which was ahead run from now, where it is time to look for them. The look passes all
// leases, so it writes nothing and keeps nobody's horizon; only where it has found one, a transaction follows that does. What fails
// is done by the next recovery.
func (s *Store) bringBack(ctx context.Context, limit int) {
	looked, must := s.now.present.MustLook()
	if !must {
		return
	}
	longest, some, n := int64(sqlkit.MicrosOf(s.options.MaxLease)), false, 0
	err := s.single(ctx, s.with.get, pipelinedCall{func(*sql.Rows) error { some = true; return nil }, leasedAhead + ` LIMIT 1`,
		[]any{s.now.present.Latest().Add(store.MaxSetBack), longest}})
	if err == nil && some {
		n, err = write(ctx, s, nil, func(t *txn) (int, error) {
			return t.exec(`
				WITH ahead AS MATERIALIZED (`+leasedAhead+`
					LIMIT $4
					FOR UPDATE SKIP LOCKED
				)
				UPDATE {schema}.jobs
				SET lease_expires_at = $3::timestamptz + `+leaseLength+`
				FROM ahead
				WHERE jobs.id = ANY (ARRAY[ahead.id])`,
				t.now.Add(store.MaxSetBack), longest, t.now, limit)
		})
	}
	switch {
	case err != nil:
		s.options.Logger.WarnContext(ctx, "jq: leases of a clock that was ahead were not looked for; the next recovery does",
			"schema", s.options.Schema, "error", err)
	case n < limit:
		s.now.present.Looked(looked)
	}
}

// move moves the mark to the first lease that was seen from it on, or to the horizon, and returns where recovery begins. A
// lease ends no earlier than the now of who gave or extended it, so what holds of due jobs holds of leases.
func (m *leaseMark) move(r *recovery) position {
	next := moved([levels]position{r.from}, [levels]position{r.seen}, r.horizon)[0]
	m.set(next, r.age)
	return next
}

// update writes what operations change of the jobs. Their documents are left alone, unless they were wanted when the jobs
// were read. A job may stand twice.
func (t *txn) update(wanted string, jobs []*store.Record) error {
	var ids, states, runAts, retryAts, tokens, leases, lengths, attempts, retries, finishedAts, finishedBys array
	var claimTokens, claimedAts, endedAts, endings, checkpointSeqs, progressSeqs, failures, checkpoints, progresses, results array
	written := make(map[int64]bool, len(jobs))
	for _, e := range jobs {
		if written[e.ID] {
			continue
		}
		written[e.ID] = true
		ids.int(e.ID)
		states.string(string(e.State))
		runAts.stamp(e.RunAt)
		retryAts.stamp(e.RetryAt)
		tokens.int(e.Token)
		leases.stamp(e.LeaseExpiresAt)
		lengths.int(int64(sqlkit.MicrosOf(e.LeaseFor)))
		attempts.int(int64(e.Attempts))
		retries.int(int64(e.Retries))
		finishedAts.stamp(e.FinishedAt)
		finishedBys.string(string(e.FinishedBy))
		claimTokens.int(e.ClaimToken)
		claimedAts.stamp(e.ClaimedAt)
		endedAts.stamp(e.EndedAt)
		endings.string(string(e.Ending))
		checkpointSeqs.int(e.CheckpointSeq)
		progressSeqs.int(e.ProgressSeq)
		failures.string(e.Error)
		checkpoints.doc(e.Checkpoint)
		progresses.doc(e.Progress)
		results.doc(e.Result)
	}
	if ids.empty() {
		return nil
	}
	_, err := t.exec(`
		UPDATE {schema}.jobs
		SET state = new.state,
			run_at = new.run_at,
			retry_at = new.retry_at,
			token = new.token,
			lease_expires_at = new.lease_expires_at,
			lease_for = new.lease_for,
			attempts = new.attempts,
			retries = new.retries,
			finished_at = new.finished_at,
			finished_by = new.finished_by,
			claim_token = new.claim_token,
			claimed_at = new.claimed_at,
			ended_at = new.ended_at,
			ending = new.ending,
			checkpoint_seq = new.checkpoint_seq,
			progress_seq = new.progress_seq,
			error = new.error,
			checkpoint = CASE WHEN $21::boolean THEN new.checkpoint ELSE jobs.checkpoint END,
			progress = CASE WHEN $21::boolean THEN new.progress ELSE jobs.progress END,
			result = CASE WHEN $21::boolean THEN new.result ELSE jobs.result END
		FROM unnest(
			$1::bigint[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::bigint[], $6::timestamptz[], $7::integer[],
			$8::integer[], $9::timestamptz[], $10::text[], $11::bigint[], $12::timestamptz[], $13::timestamptz[], $14::text[],
			$15::bigint[], $16::bigint[], $17::text[], $18::text[], $19::text[], $20::text[], $22::bigint[]
		) AS new (
			id, state, run_at, retry_at, token, lease_expires_at, attempts,
			retries, finished_at, finished_by, claim_token, claimed_at, ended_at, ending,
			checkpoint_seq, progress_seq, error, checkpoint, progress, result, lease_for)
		WHERE jobs.id = ANY (ARRAY[new.id])`,
		ids.String(), states.String(), runAts.String(), retryAts.String(), tokens.String(), leases.String(), attempts.String(),
		retries.String(), finishedAts.String(), finishedBys.String(), claimTokens.String(), claimedAts.String(), endedAts.String(), endings.String(),
		checkpointSeqs.String(), progressSeqs.String(), failures.String(), checkpoints.String(), progresses.String(), results.String(),
		wanted == withDocuments, lengths.String())
	return err
}
