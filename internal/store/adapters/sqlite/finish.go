package sqlite

import (
	"context"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Ack is part of the contract.
func (s *Store) Ack(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
	l := load{items: len(acks)}
	for _, a := range acks {
		l.bytes += len(a.Result)
	}
	return write(ctx, s, store.CheckAcks(acks), l, func(t *txn) ([]store.Outcome, error) { return t.ack(acks) })
}

// ack tries first what is nearly always so: every lease holds and no result is to be kept or refused.
func (t *txn) ack(acks []store.Ack) ([]store.Outcome, error) {
	held := make([]store.Lease, len(acks))
	outcomes := make([]store.Outcome, len(acks))
	for i, a := range acks {
		held[i] = a.Lease
		outcomes[i] = store.Outcome{ID: a.ID, Status: store.StatusOK, State: store.Succeeded, Token: a.Token}
	}
	hasResult := func(a store.Ack) bool { return len(a.Result) > 0 }
	if t.strict || slices.ContainsFunc(acks, hasResult) || repeats(held) {
		return t.ackEach(acks)
	}
	n, err := t.exec(`
		UPDATE jobs
		SET state = 'succeeded',
			lease_expires_at = NULL,
			result = NULL,
			error = '',
			finished_at = ?2,
			finished_by = 'ack',
			ended_at = ?2,
			ending = 'succeeded'
		FROM json_each(?1) AS lease
		WHERE jobs.id = CAST(lease.key AS INTEGER) AND jobs.token = lease.value AND jobs.state = 'in_flight'`,
		leases(held), t.now.UnixMicro())
	if err != nil || n == len(acks) {
		return outcomes, err
	}
	return t.ackEach(acks) // those that were finished just now are finished by the same Ack, and answered so
}

// ackEach decides job by job.
func (t *txn) ackEach(acks []store.Ack) ([]store.Outcome, error) {
	return onLeases(t, acks, sqlkit.Verb[store.Ack]{
		Lease: func(a store.Ack) (store.Lease, sqlkit.FinishedBy) { return a.Lease, sqlkit.ByAck },
		Check: func(a store.Ack) error { return t.refusedResult(a) },
		Apply: func(e *sqlkit.Entry, a store.Ack) store.Outcome { return e.Ack(a, t.now) },
	})
}

// refusedResult is an error in a caller's transaction; elsewhere the job is dead by it.
func (t *txn) refusedResult(a store.Ack) error {
	if refused := a.Refused(); refused != nil && t.strict {
		return &store.InvalidError{Field: "result", Rule: "must be a JSON document within the limits"}
	}
	return nil
}

// NAck is part of the contract.
func (s *Store) NAck(ctx context.Context, nacks []store.NAck) ([]store.Outcome, error) {
	l := load{items: len(nacks)}
	for _, n := range nacks {
		l.bytes += len(n.Error)
	}
	return write(ctx, s, store.CheckNAcks(nacks), l, func(t *txn) ([]store.Outcome, error) { return t.nack(nacks) })
}

func (t *txn) nack(nacks []store.NAck) ([]store.Outcome, error) {
	return onLeases(t, nacks, sqlkit.Verb[store.NAck]{
		Lease: func(n store.NAck) (store.Lease, sqlkit.FinishedBy) {
			by, _ := sqlkit.WayOf(n.Form)
			return n.Lease, by
		},
		Check: store.NAck.Check,
		Apply: func(e *sqlkit.Entry, n store.NAck) store.Outcome { return e.NAck(n, t.now) },
	})
}

// Extend is part of the contract.
func (s *Store) Extend(ctx context.Context, leases []store.Lease, ttl time.Duration) ([]store.Outcome, error) {
	l := load{items: len(leases), urgent: true}
	return write(ctx, s, store.CheckExtend(leases, ttl), l, func(t *txn) ([]store.Outcome, error) { return t.extend(leases, ttl) })
}

// extend tries first what is nearly always so: every lease holds.
func (t *txn) extend(held []store.Lease, ttl time.Duration) ([]store.Outcome, error) {
	if repeats(held) {
		return t.extendEach(held, ttl)
	}
	until := t.now.Add(ttl.Truncate(store.Resolution))
	n, err := t.exec(`
		UPDATE jobs
		SET lease_expires_at = ?2
		FROM json_each(?1) AS lease
		WHERE jobs.id = CAST(lease.key AS INTEGER) AND jobs.token = lease.value AND jobs.state = 'in_flight'`,
		leases(held), until.UnixMicro())
	if err != nil {
		return nil, err
	}
	if n < len(held) {
		return t.extendEach(held, ttl) // those that were extended just now are extended to the same end
	}
	outcomes := make([]store.Outcome, len(held))
	for i, l := range held {
		outcomes[i] = store.Outcome{ID: l.ID, Status: store.StatusOK, State: store.InFlight, Token: l.Token, Next: until}
	}
	return outcomes, nil
}

// extendEach decides job by job.
func (t *txn) extendEach(leases []store.Lease, ttl time.Duration) ([]store.Outcome, error) {
	return onLeases(t, leases, sqlkit.Verb[store.Lease]{
		Lease: func(l store.Lease) (store.Lease, sqlkit.FinishedBy) { return l, sqlkit.Nobody },
		Check: func(store.Lease) error { return nil },
		Apply: func(e *sqlkit.Entry, l store.Lease) store.Outcome { return e.Extend(l, ttl, t.now) },
	})
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
	return onLeases(t, saves, sqlkit.Verb[store.Save]{
		Lease: func(v store.Save) (store.Lease, sqlkit.FinishedBy) { return v.Lease, sqlkit.Nobody },
		Check: store.Save.Check,
		Apply: func(e *sqlkit.Entry, v store.Save) store.Outcome { return e.Save(v) },
	})
}

// repeats says that a job stands twice among the leases: then one after another must be looked at.
func repeats(held []store.Lease) bool {
	seen := make(map[int64]struct{}, len(held))
	for _, l := range held {
		seen[l.ID] = struct{}{}
	}
	return len(seen) < len(held)
}

// onLeases loads the jobs of the leases, applies the items one after another, each on what the ones before it have left,
// and writes the jobs that have changed.
func onLeases[T any](t *txn, items []T, v sqlkit.Verb[T]) ([]store.Outcome, error) {
	ids := make([]int64, len(items))
	for i, item := range items {
		l, _ := v.Lease(item)
		ids[i] = l.ID
	}
	jobs, err := t.byID(ids)
	if err != nil {
		return nil, err
	}
	outcomes := make([]store.Outcome, len(items))
	var changed []*sqlkit.Entry
	for i, item := range items {
		e := jobs[ids[i]]
		if outcomes[i], err = v.Do(i, item, e, t.strict); err != nil {
			return nil, err
		}
		if outcomes[i].Status == store.StatusOK && !slices.Contains(changed, e) {
			changed = append(changed, e)
		}
	}
	for _, e := range changed {
		if err := t.update(e); err != nil {
			return nil, err
		}
		t.wakeFor(e.Job)
	}
	return outcomes, nil
}

// byID loads the jobs that there are.
func (t *txn) byID(ids []int64) (map[int64]*sqlkit.Entry, error) {
	found := make(map[int64]*sqlkit.Entry, len(ids))
	if len(ids) == 0 {
		return found, nil
	}
	entries, err := t.entries(`
		SELECT`+columns+`
		FROM jobs
		WHERE id IN (SELECT value FROM json_each(?))`,
		list(ids))
	for _, e := range entries {
		found[e.ID] = e
	}
	return found, err
}
