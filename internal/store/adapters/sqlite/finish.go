package sqlite

import (
	"context"
	"database/sql"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Ack is part of the contract.
func (s *Store) Ack(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
	defer s.tellHeld()
	l := load{items: len(acks)}
	for _, a := range acks {
		l.bytes += len(a.Result)
	}
	return write(ctx, s, store.CheckAcks(acks), l, func(t *txn) ([]store.Outcome, error) { return t.ack(acks) })
}

// ack first tries the common case in one statement: every lease holds, nobody waits for the jobs, they are all in the group of the call
// before, or in none, and no result must be stored or refused. A second one finishes those in other groups.
func (t *txn) ack(acks []store.Ack) ([]store.Outcome, error) {
	held, outcomes := sqlkit.Succeeded(acks)
	hasResult := func(a store.Ack) bool { return len(a.Result) > 0 }
	if t.strict || slices.ContainsFunc(acks, hasResult) || sqlkit.Repeats(held) {
		return t.ackEach(acks)
	}
	const unwatched = `links & 1 = 0 AND result IS NULL AND ` + inFlight // see triggers
	now := t.now.UnixMicro()
	succeed := `
		UPDATE jobs
		SET state = 'succeeded',
			lease_expires_at = NULL,
			error = '',
			finished_at = ?,
			finished_by = 'ack',
			ended_at = ?,
			ending = 'succeeded'`
	n, err := t.updateHeld(held, unwatched+` AND group_name IS nullif(?, '')`, []any{*t.latest}, succeed, now, now)
	if err != nil {
		return nil, err
	}
	ended := map[string]int{*t.latest: n}
	if n < len(acks) {
		if err := t.groupsOfHeld(ended, held, unwatched, succeed, now, now); err != nil {
			return nil, err
		}
	}
	switch n, err := t.leaveEach(ended); {
	case err != nil || n == len(acks):
		return outcomes, err
	default:
		return t.ackEach(acks) // ackEach gives the jobs that these statements have finished the same answer
	}
}

func (t *txn) ackEach(acks []store.Ack) ([]store.Outcome, error) {
	return onLeases(t, acks, sqlkit.Acking(t.now, t.strict))
}

// NAck is part of the contract.
func (s *Store) NAck(ctx context.Context, nacks []store.NAck) ([]store.Outcome, error) {
	defer s.tellHeld()
	l := load{items: len(nacks)}
	for _, n := range nacks {
		l.bytes += len(n.Error)
	}
	return write(ctx, s, store.CheckNAcks(nacks), l, func(t *txn) ([]store.Outcome, error) { return t.nack(nacks) })
}

func (t *txn) nack(nacks []store.NAck) ([]store.Outcome, error) {
	return onLeases(t, nacks, sqlkit.NAcking(t.now, t.strict))
}

// Extend is part of the contract.
func (s *Store) Extend(ctx context.Context, leases []store.Lease, ttl time.Duration) ([]store.Outcome, error) {
	l := load{items: len(leases), urgent: true}
	invalid := store.CheckLease(store.CheckExtend(leases, ttl), ttl, s.maxLease)
	return write(ctx, s, invalid, l, func(t *txn) ([]store.Outcome, error) { return t.extend(leases, ttl) })
}

// extend first tries the common case in one statement: every lease holds.
func (t *txn) extend(held []store.Lease, ttl time.Duration) ([]store.Outcome, error) {
	if sqlkit.Repeats(held) {
		return t.extendEach(held, ttl)
	}
	length := ttl.Truncate(store.Resolution)
	until := t.now.Add(length)
	n, err := t.updateHeld(held, inFlight, nil, `
		UPDATE jobs
		SET lease_expires_at = ?,
			lease_for = ?`,
		until.UnixMicro(), length.Microseconds())
	if err != nil {
		return nil, err
	}
	if n < len(held) {
		return t.extendEach(held, ttl) // extendEach extends the jobs of this statement again, to the same time
	}
	return sqlkit.Extended(held, until), nil
}

func (t *txn) extendEach(held []store.Lease, ttl time.Duration) ([]store.Outcome, error) {
	return onLeases(t, held, sqlkit.Extending(t.now, ttl))
}

// Save is part of the contract.
func (s *Store) Save(ctx context.Context, saves []store.Save) ([]store.Outcome, error) {
	l := load{items: len(saves)}
	for _, v := range saves {
		l.bytes += len(v.Checkpoint) + len(v.Progress)
	}
	return write(ctx, s, store.CheckSaves(saves), l, func(t *txn) ([]store.Outcome, error) { return t.save(saves) })
}

func (t *txn) save(saves []store.Save) ([]store.Outcome, error) {
	return onLeases(t, saves, sqlkit.Saving())
}

const inFlight = `state = 'in_flight'`

// updateHeld runs the update, whose arguments are args, on the jobs that have the tokens of the leases and for which the
// condition is true, whose arguments are with. It returns how many there are.
func (t *txn) updateHeld(held []store.Lease, condition string, with []any, update string, args ...any) (n int, err error) {
	for query, args := range onHeld(held, condition, with, update, args) {
		some, err := t.exec(query, args...)
		if err != nil {
			return 0, err
		}
		n += some
	}
	return n, nil
}

// groupsOfHeld runs the update like updateHeld. It adds how many of the jobs are in each group, and in none.
func (t *txn) groupsOfHeld(members map[string]int, held []store.Lease, condition, update string, args ...any) error {
	for query, args := range onHeld(held, condition, nil, update, args) {
		err := t.each(func(rows *sql.Rows) error {
			var name string
			err := rows.Scan(&name)
			members[name]++
			*t.latest = name
			return err
		}, query+`
		RETURNING coalesce(group_name, '')`,
			args...)
		if err != nil {
			return err
		}
	}
	return nil
}

// onHeld returns the statements that run the update on held jobs. Usually the ids follow one another, so it takes one statement for each run
// of ids. If most runs are short, one statement finds the jobs one by one.
func onHeld(held []store.Lease, condition string, with []any, update string, args []any) iter.Seq2[string, []any] {
	return func(yield func(string, []any) bool) {
		runs := sqlkit.Runs(held)
		if len(runs) > 1 && len(runs) > len(held)/3 {
			yield(update+`
		FROM json_each(?) AS lease
		WHERE jobs.id = CAST(lease.key AS INTEGER) AND jobs.token = lease.value AND jobs.`+condition,
				append(append(slices.Clip(args), leases(held)), with...))
			return
		}
		for _, r := range runs {
			if !yield(update+`
		WHERE id BETWEEN ? AND ? AND token = ? AND `+condition,
				append(append(slices.Clip(args), r.First, r.Last, r.Token), with...)) {
				return
			}
		}
	}
}

// leases returns the leases as a JSON object from id to token, for json_each.
func leases(held []store.Lease) string {
	text := make([]byte, 0, 24*len(held)+2)
	text = append(text, '{')
	for i, l := range held {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, '"')
		text = strconv.AppendInt(text, l.ID, 10)
		text = append(text, `":`...)
		text = strconv.AppendInt(text, l.Token, 10)
	}
	return string(append(text, '}'))
}

// onLeases loads the jobs of the leases, applies the items, and writes the jobs that have changed.
func onLeases[T any](t *txn, items []T, v sqlkit.Verb[T]) ([]store.Outcome, error) {
	held := v.Leases(items)
	ids := make([]int64, len(held))
	for i, l := range held {
		ids[i] = l.ID
	}
	jobs, err := t.byID(ids)
	if err != nil {
		return nil, err
	}
	var ending []*store.Record // whose end others may wait for
	for _, e := range jobs {
		if (e.Links&store.LinkAwaited != 0 || e.Group() != "") && !e.Terminal() {
			ending = append(ending, e)
		}
	}
	outcomes, changed, err := v.Do(items, jobs)
	if err != nil {
		return nil, err
	}
	for _, e := range changed {
		if err := t.updateEnd(e, slices.Contains(ending, e)); err != nil {
			return nil, err
		}
		t.woken.AddFor(e.Job, t.now)
	}
	return outcomes, nil
}
