package postgres

import (
	"context"
	"database/sql"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// RecoverExpiredLeases is part of the contract.
func (s *Store) RecoverExpiredLeases(ctx context.Context, req store.RecoverRequest) ([]store.Recovered, error) {
	defer s.lookBehind()
	var noted func()
	recovered, err := write(ctx, s, req.Check(), func(t *txn) (recovered []store.Recovered, err error) {
		if noted, err = t.bringBack(req.Limit); err != nil {
			return nil, err
		}
		return t.recover(req)
	})
	if err == nil {
		noted()
	}
	return recovered, err
}

func (t *txn) recover(req store.RecoverRequest) ([]store.Recovered, error) {
	mark, err := t.s.leases.look(t)
	if err != nil {
		return nil, err
	}
	expired, err := t.entries(`
		SELECT`+columns+`,`+presentEpoch+`
		FROM {schema}.jobs
		WHERE state = 'in_flight' AND (lease_expires_at, id) >= ($3::text::timestamptz, $4) AND lease_expires_at <= $1
		ORDER BY lease_expires_at, id
		LIMIT $2
		FOR UPDATE SKIP LOCKED`,
		t.now.Add(-req.Grace.Truncate(store.Resolution)), req.Limit, mark.text(), mark.id)
	if err != nil {
		return nil, err
	}
	recovered := make([]store.Recovered, len(expired))
	for i, e := range expired {
		recovered[i] = e.Recover(t.now)
		t.wakeFor(e.Job)
	}
	return recovered, t.update(columns, expired)
}

// bringBack lets leases that a clock has given which was ahead run from now. Noted is to be called once that is
// committed. They lie at the far end of the index.
func (t *txn) bringBack(limit int) (noted func(), err error) {
	looked, must := t.s.now.present.MustLook()
	if !must {
		return func() {}, nil
	}
	n, err := t.exec(`
		WITH ahead AS MATERIALIZED (
			SELECT id
			FROM {schema}.jobs
			WHERE state = 'in_flight' AND lease_expires_at > $1
				AND lease_expires_at - least(
					coalesce(nullif(lease_for, 0) * interval '1 microsecond', lease_expires_at - claimed_at),
					$3::bigint * interval '1 microsecond') > $1
			ORDER BY lease_expires_at DESC, id DESC
			LIMIT $4
			FOR UPDATE SKIP LOCKED
		)
		UPDATE {schema}.jobs
		SET lease_expires_at = $2::timestamptz + least(
				coalesce(nullif(lease_for, 0) * interval '1 microsecond', lease_expires_at - claimed_at),
				$3::bigint * interval '1 microsecond')
		FROM ahead
		WHERE jobs.id = ANY (ARRAY[ahead.id])`,
		t.now.Add(store.MaxSetBack), t.now, int64(sqlkit.MicrosOf(t.s.options.MaxLease)), limit)
	return func() {
		if n < limit {
			t.s.now.present.Looked(looked)
		}
	}, err
}

// look moves the mark to the first lease that is seen from it on, or to the horizon, and returns where recovery begins. A
// lease ends no earlier than the now of who gave or extended it, so what holds of due jobs holds of leases.
func (m *leaseMark) look(t *txn) (position, error) {
	from, age := m.get()
	horizon, _, setBack := t.s.horizon.note(t.asOf, t.xmin, t.number, t.sent)
	if setBack {
		t.s.forget()
		from, age = m.get()
	}
	var first position
	err := t.each(func(rows *sql.Rows) error {
		var at sqlkit.Time
		err := rows.Scan(&at, &first.id)
		first.at = time.Time(at)
		return err
	}, `
		SELECT lease_expires_at, id
		FROM {schema}.jobs
		WHERE state = 'in_flight' AND (lease_expires_at, id) >= ($1::text::timestamptz, $2)
		ORDER BY lease_expires_at, id
		LIMIT 1`,
		from.text(), from.id)
	if err != nil {
		return position{}, err
	}
	next := moved([levels]position{from}, [levels]position{first}, horizon)[0]
	m.set(next, age)
	return next, nil
}

// update writes what operations change of the jobs. Their documents are left alone, unless they were wanted when the jobs
// were read. A job may stand twice.
func (t *txn) update(wanted string, jobs []*sqlkit.Entry) error {
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
