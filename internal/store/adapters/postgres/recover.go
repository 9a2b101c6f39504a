package postgres

import (
	"context"
	"database/sql"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// RecoverExpiredLeases is part of the contract. If nothing has expired, the look in the opening shows that, and the call is
// done. It restarts leases given by a fast clock in a separate transaction, so that a failure of one does not undo the other.
func (s *Store) RecoverExpiredLeases(ctx context.Context, req store.RecoverRequest) (recovered []store.Recovered, err error) {
	defer s.checkInBackground()
	r := &recovery{RecoverRequest: req, s: s}
	recovered, err = lookFirst(ctx, s, req.Check(), r)
	for err == nil && r.left != (cursor.Position{}) && len(recovered) < req.Limit {
		r.Limit = req.Limit - len(recovered)
		some, failed := lookFirst(ctx, s, nil, r)
		recovered = append(recovered, some...)
		if failed != nil && len(recovered) > 0 { // the first ones are committed
			break
		}
		err = failed
	}
	if err == nil || codeOf(err) != "" {
		s.bringBack(ctx, req.Limit)
	}
	return recovered, err
}

// leases returns the mark of the table leases: no visible row is due before it.
func (s *Store) leases() cursor.Position {
	return s.cursors.Get(cursor.Leases).Lanes[cursor.Fresh].Mark[cursor.LevelOf(store.MaxPriority)]
}

// A recovery is one running recovery.
type recovery struct {
	store.RecoverRequest
	s     *Store
	plan  *cursor.Plan
	first cursor.Position // the first row of the table leases from the mark on
	late  bool            // something may have expired, but the transaction was already committed
	left  cursor.Position // where another transaction goes on, or zero if no row that is due is left
}

// look is part of looker.
func (r *recovery) look() (first pipelinedCall, expectsNothing bool) {
	*r = recovery{RecoverRequest: r.RecoverRequest, s: r.s, plan: r.s.cursors.Plan(cursor.Leases), left: r.left}
	return r.firstLease(), true
}

// missed is part of looker.
func (r *recovery) missed() bool { return r.late }

// run moves the mark to the first row seen from it on, or to the horizon, and recovers from there. A row is never due before the
// now of the transaction that wrote it, so this mark is as exact as those of due jobs.
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
	if r.late = some && t.over(); r.late {
		return nil, nil
	}
	if !some {
		r.left = cursor.Position{}
		return nil, nil
	}
	from := cursor.Later(r.plan.Mark(cursor.Fresh, store.MaxPriority), r.left)
	recovered, left, err := t.recover(expired, r.Limit, from)
	r.left = left
	return recovered, err
}

// firstLease returns the query for the first row of the table leases from the mark on.
func (r *recovery) firstLease() pipelinedCall {
	mark := r.plan.Mark(cursor.Fresh, store.MaxPriority)
	r.first = cursor.Position{}
	return pipelinedCall{func(rows *sql.Rows) error {
		err := rows.Scan((*sqlkit.Time)(&r.first.At), &r.first.ID)
		r.plan.Saw(cursor.Fresh, store.MaxPriority, r.first)
		return err
	}, `
		SELECT due_at, id
		FROM {schema}.leases
		WHERE (due_at, id) >= ($1::text::timestamptz, $2::bigint)
		ORDER BY due_at, id
		LIMIT 1`,
		[]any{placeText(mark), mark.ID}}
}

// The leases that no row will show in time, out of those whose rows are not due at $3: they must have been given by a clock ahead
// of $1, judged by their length, or somebody has changed their ends by hand. Latest end first.
const misplaced = `
	SELECT id
	FROM {schema}.jobs
	WHERE id = ANY (ARRAY(
			SELECT unnest(ids) FROM {schema}.leases WHERE due_at > $3::timestamptz
			EXCEPT
			SELECT unnest(ids) FROM {schema}.leases WHERE due_at <= $3::timestamptz))
		AND (lease_expires_at - ` + leaseLength + ` > $1::timestamptz OR lease_expires_at <= $3::timestamptz)
	ORDER BY lease_expires_at DESC, id DESC`

const leaseLength = `least(
			coalesce(nullif(lease_for, 0) * interval '1 microsecond', lease_expires_at - claimed_at),
			$2::bigint * interval '1 microsecond')`

// bringBack restarts leases that a fast clock has given too far into the future: they run from now. The query reads all jobs in
// flight, so it runs in a transaction that writes nothing and delays no horizon. Only if it finds a lease, a writing
// transaction follows. If that fails, the next recovery tries again.
func (s *Store) bringBack(ctx context.Context, limit int) {
	looked, must := s.now.present.MustLook()
	if !must {
		return
	}
	longest, some, n := s.options.MaxLease.Microseconds(), false, 0
	latest := s.now.present.Latest()
	err := s.single(ctx, s.with.get, pipelinedCall{func(*sql.Rows) error { some = true; return nil }, misplaced + ` LIMIT 1`,
		[]any{latest.Add(store.MaxSetBack), longest, latest}})
	if err == nil && some {
		n, err = write(ctx, s, nil, func(t *txn) (int, error) {
			return t.exec(`
				WITH misplaced AS MATERIALIZED (`+misplaced+`
					LIMIT $4
					FOR UPDATE SKIP LOCKED
				),
				replaced AS (
					UPDATE {schema}.jobs
					SET lease_expires_at = least(lease_expires_at, $3::timestamptz + `+leaseLength+`)
					FROM misplaced
					WHERE jobs.id = ANY (ARRAY[misplaced.id])
					RETURNING jobs.id, lease_expires_at
				)
				INSERT INTO {schema}.leases (due_at, ids)
				SELECT greatest(lease_expires_at, $3::timestamptz), ARRAY[id]
				FROM replaced`,
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
