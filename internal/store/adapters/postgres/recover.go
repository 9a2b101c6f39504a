package postgres

import (
	"context"
	"database/sql"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// RecoverExpiredLeases is part of the contract. If nothing has expired, the look in the opening shows that, and the call is
// done. It restarts leases given by a fast clock in a separate transaction, so that a failure of one does not undo the other.
func (s *Store) RecoverExpiredLeases(ctx context.Context, req store.RecoverRequest) ([]store.Recovered, error) {
	defer s.checkInBackground()
	recovered, err := lookFirst(ctx, s, req.Check(), &recovery{RecoverRequest: req, s: s})
	if err == nil || codeOf(err) != "" {
		s.bringBack(ctx, req.Limit)
	}
	return recovered, err
}

// leases returns the mark of the leases: no visible lease ends before it.
func (s *Store) leases() cursor.Position {
	return s.cursors.Get(cursor.Leases).Lanes[cursor.Fresh].Mark[cursor.LevelOf(store.MaxPriority)]
}

// A recovery is one running recovery.
type recovery struct {
	store.RecoverRequest
	s     *Store
	plan  *cursor.Plan
	first cursor.Position // the first lease from the mark on
	late  bool            // something may have expired, but the transaction was already committed
}

// look is part of looker.
func (r *recovery) look() (first pipelinedCall, expectsNothing bool) {
	*r = recovery{RecoverRequest: r.RecoverRequest, s: r.s, plan: r.s.cursors.Plan(cursor.Leases)}
	return r.firstLease(), true
}

// missed is part of looker.
func (r *recovery) missed() bool { return r.late }

// run moves the mark to the first lease seen from it on, or to the horizon, and recovers from there. A lease never ends before
// the now of the transaction that gave or extended it, so marks of leases are as exact as those of due jobs.
func (r *recovery) run(t *txn) ([]store.Recovered, error) {
	if !r.plan.Open(t.horizon, t.ahead) {
		if r.late = t.over(); r.late {
			return nil, nil
		}
		first := r.firstLease()
		if err := t.each(first.scan, first.query, first.args...); err != nil {
			return nil, err
		}
	}
	r.plan.Looked(t.now)
	expired := t.now.Add(-r.Grace.Truncate(store.Resolution))
	some := r.first != cursor.Position{} && !r.first.At.After(expired)
	if r.late = some && t.over(); r.late || !some {
		return nil, nil
	}
	return t.recover(expired, r.Limit, r.plan.Mark(cursor.Fresh, store.MaxPriority))
}

// firstLease returns the query for the first lease from the mark on.
func (r *recovery) firstLease() pipelinedCall {
	mark := r.plan.Mark(cursor.Fresh, store.MaxPriority)
	r.first = cursor.Position{}
	return pipelinedCall{func(rows *sql.Rows) error {
		err := rows.Scan((*sqlkit.Time)(&r.first.At), &r.first.ID)
		r.plan.Saw(cursor.Fresh, store.MaxPriority, r.first)
		return err
	}, `
		SELECT lease_expires_at, id
		FROM {schema}.jobs
		WHERE state = 'in_flight' AND (lease_expires_at, id) >= ($1::text::timestamptz, $2::bigint)
		ORDER BY lease_expires_at, id
		LIMIT 1`,
		[]any{placeText(mark), mark.ID}}
}

func (t *txn) recover(expired time.Time, limit int, mark cursor.Position) ([]store.Recovered, error) {
	found, err := t.records(`
		SELECT`+columns+`,`+presentEpoch+`
		FROM {schema}.jobs
		WHERE state = 'in_flight' AND (lease_expires_at, id) >= ($3::text::timestamptz, $4) AND lease_expires_at <= $1
		ORDER BY lease_expires_at, id
		LIMIT $2
		FOR UPDATE SKIP LOCKED`,
		expired, limit, placeText(mark), mark.ID)
	if err != nil {
		return nil, err
	}
	recovered := make([]store.Recovered, len(found))
	for i, e := range found {
		recovered[i] = e.Recover(t.now)
		t.woken.AddFor(e.Job, t.now)
	}
	return recovered, t.update(withoutDocuments, found)
}

// The leases that must have been given by a clock ahead of $1, judged by their length. Latest end first.
const leasedAhead = `
	SELECT id
	FROM {schema}.jobs
	WHERE state = 'in_flight' AND lease_expires_at > $1::timestamptz
		AND lease_expires_at - ` + leaseLength + ` > $1::timestamptz
	ORDER BY lease_expires_at DESC, id DESC`

const leaseLength = `least(
			coalesce(nullif(lease_for, 0) * interval '1 microsecond', lease_expires_at - claimed_at),
			$2::bigint * interval '1 microsecond')`

// bringBack restarts leases that a fast clock has given too far into the future: they run from now. The query passes all
// leases, so it runs in a transaction that writes nothing and delays no horizon. Only if it finds a lease, a writing
// transaction follows. If that fails, the next recovery tries again.
func (s *Store) bringBack(ctx context.Context, limit int) {
	looked, must := s.now.present.MustLook()
	if !must {
		return
	}
	longest, some, n := s.options.MaxLease.Microseconds(), false, 0
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
		s.options.Logger.WarnContext(ctx, "jq: looking for leases given by a fast clock failed; the next recovery tries again",
			"schema", s.options.Schema, "error", err)
	case n < limit:
		s.now.present.Looked(looked)
	}
}
