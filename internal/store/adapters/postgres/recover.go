package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// RecoverExpiredLeases is part of the contract. It restarts leases given by a fast clock in a separate transaction, so that a
// failure of one does not undo the other.
func (s *Store) RecoverExpiredLeases(ctx context.Context, req store.RecoverRequest) (recovered []store.Recovered, err error) {
	defer s.tellHeld()
	defer s.checkInBackground()
	r := &recovery{RecoverRequest: req, s: s}
	done, err := r.single(ctx)
	if !done && err == nil {
		recovered, err = write(ctx, s, req.Check(), r.run)
	}
	for err == nil && r.left != (cursor.Position{}) && len(recovered) < req.Limit {
		r.Limit = req.Limit - len(recovered)
		some, failed := write(ctx, s, nil, r.run)
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
	left  cursor.Position // where another transaction goes on, or zero if no row that is due is left
}

// single finds by a single statement that no lease has expired, and reports whether that was all.
func (r *recovery) single(ctx context.Context) (done bool, err error) {
	if r.Check() != nil {
		return false, nil
	}
	r.begin()
	t, some, err := r.s.single(ctx, r.s.with.write, false, func(rows *sql.Rows, shown []any) error {
		var id sql.NullInt64
		err := rows.Scan(append(shown, (*sqlkit.Time)(&r.first.At), &id)...)
		r.saw(id.Int64)
		return err
	}, `
	SELECT `+presentNow+`, `+shownByRead+`, first.due_at, first.id
	FROM (SELECT) AS always
	LEFT JOIN (`+firstLease(4)+`) AS first ON TRUE
	WHERE `+onKnownServer, r.mark()...)
	if err != nil || !some || !r.plan.Open(t.horizon, true) {
		return false, err
	}
	r.plan.Looked(t.now)
	return !r.some(t), nil
}

func (r *recovery) begin() { r.plan, r.first = r.s.cursors.Plan(cursor.Leases), cursor.Position{} }

// some reports whether leases may have expired.
func (r *recovery) some(t *txn) bool {
	return r.first != cursor.Position{} && !r.first.At.After(r.expired(t))
}

// expired returns the latest end of a lease to recover.
func (r *recovery) expired(t *txn) time.Time { return t.now.Add(-r.Grace.Truncate(store.Resolution)) }

// run moves the mark to the first row seen from it on, or to the horizon, and recovers from there. A row is never due before the
// now of the transaction that wrote it, so this mark is as exact as those of due jobs.
func (r *recovery) run(t *txn) ([]store.Recovered, error) {
	r.begin()
	r.plan.Open(t.horizon, false)
	err := t.each(func(rows *sql.Rows) error {
		var id int64
		err := rows.Scan((*sqlkit.Time)(&r.first.At), &id)
		r.saw(id)
		return err
	}, firstLease(1), r.mark()...)
	if err != nil {
		return nil, err
	}
	r.plan.Looked(t.now)
	if !r.some(t) {
		r.left = cursor.Position{}
		return nil, nil
	}
	from := cursor.Later(r.plan.Mark(cursor.Fresh, store.MaxPriority), r.left)
	recovered, left, err := t.recover(r.expired(t), r.Limit, from)
	r.left = left
	return recovered, err
}

// saw notes the first row of the table leases. The id is 0 if there is none.
func (r *recovery) saw(id int64) {
	if r.first.ID = id; id != 0 {
		r.plan.Saw(cursor.Fresh, store.MaxPriority, r.first)
	}
}

// mark returns the arguments of [firstLease].
func (r *recovery) mark() []any {
	mark := r.plan.Mark(cursor.Fresh, store.MaxPriority)
	return []any{placeText(mark), mark.ID}
}

// firstLease returns the query for the first row of the table leases from the mark on. Its arguments begin at that number.
func firstLease(n int) string {
	return fmt.Sprintf(`
		SELECT due_at, id
		FROM {schema}.leases
		WHERE (due_at, id) >= ($%d::text::timestamptz, $%d::bigint)
		ORDER BY due_at, id
		LIMIT 1`, n, n+1)
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
	_, err := read(ctx, s, nil, func(t *txn) (struct{}, error) {
		return struct{}{}, t.each(func(*sql.Rows) error { some = true; return nil }, misplaced+` LIMIT 1`,
			latest.Add(store.MaxSetBack), longest, latest)
	})
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
	case ctx.Err() != nil: // the caller has left, and its next recovery tries again
	case err != nil:
		s.options.Logger.WarnContext(ctx, "jq: looking for leases given by a fast clock failed; the next recovery tries again",
			"schema", s.options.Schema, "error", err)
	case n < limit:
		s.now.present.Looked(looked)
	}
}
