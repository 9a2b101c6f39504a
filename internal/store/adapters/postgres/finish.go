package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/lib/pq"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Ack is part of the contract.
func (s *Store) Ack(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
	defer s.tellHeld()
	invalid := store.CheckAcks(acks)
	if invalid == nil && len(acks) > 0 && len(acks) <= few && simple(acks) {
		switch done, err := s.ackFew(ctx, acks); {
		case err != nil:
			return nil, err
		case done:
			_, outcomes := sqlkit.Succeeded(acks)
			return outcomes, nil
		}
	}
	return write(ctx, s, invalid, func(t *txn) ([]store.Outcome, error) { return t.ack(acks) })
}

// simple reports whether no result is refused, and no lease named twice.
func simple(acks []store.Ack) bool {
	held, _ := sqlkit.Succeeded(acks)
	return !sqlkit.Repeats(held) && !slices.ContainsFunc(acks, func(a store.Ack) bool { return a.Refused() != nil })
}

// ackFew finishes jobs by a single statement, if every lease holds and nobody waits for them by their ids. It finishes jobs of groups only if
// there were some lately.
func (s *Store) ackFew(ctx context.Context, acks []store.Ack) (done bool, err error) {
	ids, tokens, results := ended(acks)
	var groups pq.StringArray
	var from sql.NullInt64
	inGroups := s.grouped.Add(-1) >= 0
	_, done, err = s.single(ctx, s.with.write, true, func(rows *sql.Rows, shown []any) error { return rows.Scan(append(shown, &groups, &from)...) },
		ackQuery[ackOf{len(acks) > 1, inGroups}], ids, tokens, results)
	if len(groups) > 0 && err == nil {
		s.grouped.Store(groupedFor)
		s.followGroups(ctx, groups, from.Int64)
	}
	return done, err
}

// groupedFor is for how many Acks, after one of a job of a group, others are expected.
const groupedFor = 100

// An ackOf says which jobs a statement can finish.
type ackOf struct{ several, inGroups bool }

// ackQuery has the statements that finish jobs. Those that finish several lock all jobs first, because they must finish all or none.
var ackQuery = func() map[ackOf]string {
	all := map[ackOf]string{}
	for _, of := range []ackOf{{false, false}, {false, true}, {true, false}, {true, true}} {
		all[of] = ackAll(of)
	}
	return all
}()

func ackAll(of ackOf) string {
	var held, allHeld string
	if of.several {
		held = `,
	held AS MATERIALIZED (
		SELECT jobs.id
		FROM unnest($4::bigint[], $5::bigint[]) AS lease (id, token)
		CROSS JOIN LATERAL (
			SELECT jobs.id
			FROM {schema}.jobs
			WHERE jobs.id = lease.id AND ` + finishable(`lease`, of.inGroups) + `
			FOR UPDATE
		) AS jobs
	)`
		allHeld = ` AND (SELECT count(*) FROM held) = cardinality($4::bigint[])`
	}
	update := `UPDATE {schema}.jobs` + succeeded(`present.now`) + `
	FROM present, unnest($4::bigint[], $5::bigint[], $6::text[]) AS ack (id, token, result)
	WHERE jobs.id = ANY (ARRAY[ack.id]) AND ` + finishable(`ack`, of.inGroups) + allHeld + `
	RETURNING `
	begin := `
	WITH present AS MATERIALIZED (
		SELECT ` + presentNow + ` AS now
		WHERE ` + onKnownServer + `
	)` + held
	if !of.inGroups {
		return begin + `
	` + update + `present.now, ` + shownByWrite + `, NULL::text[], NULL::bigint`
	}
	return begin + `,
	done AS (
	` + update + `jobs.group_name
	),` + endedByGroup(``) + `,` + noteGroups(``) + `
	SELECT present.now, ` + shownByWrite + `, (SELECT array_agg(group_name) FROM noted), (SELECT min(number) FROM noted)
	FROM present
	WHERE EXISTS (SELECT FROM ended)`
}

// finishable is the condition that a lease holds, and that nobody waits for the job or, unless in groups, its group. The statements that lock
// the job check it again.
func finishable(lease string, inGroups bool) string {
	condition := `jobs.token = ` + lease + `.token AND jobs.lease_expires_at IS NOT NULL AND jobs.links & 1 = 0`
	if !inGroups {
		condition += ` AND jobs.group_name IS NULL`
	}
	return condition
}

// succeeded returns what an UPDATE sets to finish jobs.
func succeeded(now string) string {
	return strings.ReplaceAll(`
		SET unleased_state = 'succeeded',
			retry_at = NULL,
			lease_expires_at = NULL,
			result = ack.result,
			error = '',
			finished_at = {now},
			finished_by = 'ack',
			ended_at = {now},
			ending = 'succeeded'`, `{now}`, now)
}

// ended returns the arguments of a statement that finishes jobs, in the order of their ids.
func ended(acks []store.Ack) (ids, tokens, results *array) {
	ordered := slices.Clone(acks)
	slices.SortFunc(ordered, func(a, b store.Ack) int { return cmp.Compare(a.ID, b.ID) })
	held, _ := sqlkit.Succeeded(ordered)
	ids, tokens = leases(held)
	results = newArray(ofTexts, 4*len(acks))
	for _, a := range ordered {
		results.doc(a.Result)
	}
	return ids, tokens, results
}

// ack first tries the common case in one statement: every lease holds, and no result is refused. If jobs of groups are expected, it also notes
// their groups, unless others wait for one of the jobs, whose ends come first.
func (t *txn) ack(acks []store.Ack) ([]store.Outcome, error) {
	if t.strict || !simple(acks) {
		return t.ackEach(acks)
	}
	_, outcomes := sqlkit.Succeeded(acks)
	ids, tokens, results := ended(acks)
	var n int
	var ends, inGroups []noted
	var groups []string
	var from int64 // the first row that the statement has noted
	err := t.each(func(rows *sql.Rows) error {
		var name sql.NullString
		var members int
		var awaited, under pq.Int64Array
		var number sql.NullInt64
		err := rows.Scan(&name, &members, &awaited, &under, &number)
		n += members
		for i, id := range awaited {
			ends = append(ends, noted{End: store.End{ID: id, Token: under[i], As: store.Succeeded}})
		}
		if name.Valid {
			groups = append(groups, name.String)
			inGroups = append(inGroups, noted{group: name.String, live: -members})
		}
		if number.Valid {
			from = first(from, number.Int64)
		}
		return err
	}, ackTxQuery[t.s.grouped.Add(-1) >= 0], ids, tokens, results, t.now)
	if err != nil {
		return nil, err
	}
	if len(groups) > 0 {
		t.s.grouped.Store(groupedFor)
	}
	if from != 0 {
		t.left = append(t.left, groups...)
		t.leftFrom = first(t.leftFrom, from)
	} else {
		slices.SortFunc(ends, func(a, b noted) int { return cmp.Compare(a.ID, b.ID) })
		if err := t.noteEnds(append(ends, inGroups...)); err != nil {
			return nil, err
		}
	}
	if n == len(acks) {
		return outcomes, nil
	}
	return t.ackEach(acks) // ackEach gives the jobs that this statement has finished the same answer
}

// ackTxQuery has the statements that finish jobs in a transaction: the second one notes groups.
var ackTxQuery = map[bool]string{
	false: ackTx(`
		SELECT name, members, awaited, under, NULL::bigint
		FROM ended`),
	true: ackTx(`,` + noteGroups(` AND NOT EXISTS (SELECT FROM ended WHERE awaited IS NOT NULL)`) + `
		SELECT name, members, awaited, under, number
		FROM ended
		LEFT JOIN noted ON group_name = name`),
}

func ackTx(then string) string {
	return `
		WITH done AS (
			UPDATE {schema}.jobs` + succeeded(`$4`) + `
			FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS ack (id, token, result)
			WHERE jobs.id = ANY (ARRAY[ack.id]) AND jobs.token = ack.token AND jobs.lease_expires_at IS NOT NULL
			RETURNING jobs.id, jobs.token, jobs.links, jobs.group_name
		),` + endedByGroup(`,
				array_agg(id) FILTER (WHERE links & 1 = 1) AS awaited,
				array_agg(token) FILTER (WHERE links & 1 = 1) AS under`) + then
}

// endedByGroup counts the jobs that are done, and more, for each group and for jobs in none: in one pass.
func endedByGroup(more string) string {
	return `
		ended AS MATERIALIZED (
			SELECT group_name AS name, count(*) AS members` + more + `
			FROM done
			GROUP BY group_name
		)`
}

// noteGroups adds a row to the table ends for each group in which jobs have ended.
func noteGroups(condition string) string {
	return `
		noted AS (
			INSERT INTO {schema}.ends (job_id, token, ended_as, group_name, live)
			SELECT 0, 0, '', name, -members
			FROM ended
			WHERE name IS NOT NULL` + condition + `
			ORDER BY name
			RETURNING group_name, number
		)`
}

func (t *txn) ackEach(acks []store.Ack) ([]store.Outcome, error) {
	return onLeases(t, withDocuments, acks, sqlkit.Acking(t.now, t.strict))
}

// NAck is part of the contract.
func (s *Store) NAck(ctx context.Context, nacks []store.NAck) ([]store.Outcome, error) {
	defer s.tellHeld()
	return write(ctx, s, store.CheckNAcks(nacks), func(t *txn) ([]store.Outcome, error) { return t.nack(nacks) })
}

func (t *txn) nack(nacks []store.NAck) ([]store.Outcome, error) {
	return onLeases(t, withoutDocuments, nacks, sqlkit.NAcking(t.now, t.strict))
}

// Extend is part of the contract.
func (s *Store) Extend(ctx context.Context, leases []store.Lease, ttl time.Duration) ([]store.Outcome, error) {
	invalid := store.CheckLease(store.CheckExtend(leases, ttl), ttl, s.options.MaxLease)
	return call(ctx, s, invalid, s.with.beat, func(t *txn) ([]store.Outcome, error) { return t.extend(leases, ttl) })
}

// extend first tries the common case in one statement: every lease holds, none becomes shorter, and no job is locked.
func (t *txn) extend(held []store.Lease, ttl time.Duration) ([]store.Outcome, error) {
	if sqlkit.Repeats(held) {
		return t.extendEach(held, ttl)
	}
	length := ttl.Truncate(store.Resolution)
	until := t.now.Add(length)
	ids, tokens := leases(held)
	n, err := t.exec(`
		WITH held AS MATERIALIZED (
			SELECT jobs.id
			FROM unnest($1::bigint[], $2::bigint[]) AS lease (id, token)
			CROSS JOIN LATERAL (
				SELECT jobs.id
				FROM {schema}.jobs
				WHERE jobs.id = lease.id AND jobs.token = lease.token AND jobs.lease_expires_at <= $3
				FOR UPDATE SKIP LOCKED
			) AS jobs
		)
		UPDATE {schema}.jobs
		SET lease_expires_at = $3,
			lease_for = $4
		FROM held
		WHERE jobs.id = ANY (ARRAY[held.id])`,
		ids, tokens, until, length.Microseconds())
	if err != nil {
		return nil, err
	}
	if n < len(held) {
		return t.extendEach(held, ttl) // extendEach extends the jobs of this statement again, to the same time
	}
	return sqlkit.Extended(held, until), nil
}

// extendEach decides job by job. It waits a moment for rows that are locked: the store's own transactions end soon. A caller's
// transaction may take long, so it does not wait for that.
func (t *txn) extendEach(held []store.Lease, ttl time.Duration) ([]store.Outcome, error) {
	for wait := time.Millisecond; ; wait *= 2 {
		outcomes, err := t.extendUnlocked(held, ttl)
		busy := func(o store.Outcome) bool { return o.Status == store.StatusBusy }
		if err != nil || !slices.ContainsFunc(outcomes, busy) || wait > longestBusy || !sqlkit.Rest(t.ctx, wait) {
			return outcomes, err
		}
	}
}

// longestBusy is the last of an Extend's waits, each of which is twice the one before.
const longestBusy = 16 * time.Millisecond

// extendUnlocked extends the jobs that nobody else has locked. It may be repeated.
func (t *txn) extendUnlocked(held []store.Lease, ttl time.Duration) ([]store.Outcome, error) {
	free, others, err := t.lockLeases(withoutDocuments, held, `FOR UPDATE SKIP LOCKED`)
	if err != nil {
		return nil, err
	}
	outcomes := make([]store.Outcome, len(held))
	var changed []*store.Record
	var shortened []leased
	for i, l := range held {
		e, other := free[l.ID], others[l.ID]
		switch {
		case e != nil:
			before := e.LeaseExpiresAt
			outcomes[i] = e.Extend(l, ttl, t.now)
			if e.LeaseExpiresAt.Before(before) {
				shortened = append(shortened, leased{e.ID, e.LeaseExpiresAt})
			}
		case other == nil:
			outcomes[i] = store.Outcome{ID: l.ID, Status: store.StatusNotFound}
		case other.Token == l.Token:
			outcomes[i] = store.Outcome{ID: l.ID, Status: store.StatusBusy}
		default:
			outcomes[i] = other.Extend(l, ttl, t.now)
		}
		if outcomes[i].Status == store.StatusOK {
			changed = append(changed, e)
		}
	}
	if err := t.noteLeases(shortened); err != nil {
		return nil, err
	}
	return outcomes, t.update(withoutDocuments, changed)
}

// Save is part of the contract.
func (s *Store) Save(ctx context.Context, saves []store.Save) ([]store.Outcome, error) {
	return write(ctx, s, store.CheckSaves(saves), func(t *txn) ([]store.Outcome, error) {
		return onLeases(t, withDocuments, saves, sqlkit.Saving())
	})
}

// inOrder sorts the leases by job id, so that a statement that goes through them locks the jobs in that order.
func inOrder(held []store.Lease) {
	slices.SortFunc(held, func(a, b store.Lease) int { return cmp.Compare(a.ID, b.ID) })
}

// leases returns the ids and the tokens, for a statement.
func leases(held []store.Lease) (ids, tokens *array) {
	ids, tokens = newArray(ofNumbers, len(held)*numberBytes), newArray(ofNumbers, len(held)*numberBytes)
	for _, l := range held {
		ids.int(l.ID)
		tokens.int(l.Token)
	}
	return ids, tokens
}

// onLeases locks the jobs of the leases, applies the items, and writes the jobs that have changed.
func onLeases[T any](t *txn, wanted rowText, items []T, v sqlkit.Verb[T]) ([]store.Outcome, error) {
	jobs, err := t.byLease(wanted, v.Leases(items))
	if err != nil {
		return nil, err
	}
	outcomes, changed, err := v.Do(items, jobs)
	if err != nil {
		return nil, err
	}
	for _, e := range changed {
		t.woken.AddFor(e.Job, t.now)
		if e.State != store.InFlight {
			t.freed(e.Job)
		}
	}
	return outcomes, t.update(wanted, changed)
}
