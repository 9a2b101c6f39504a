package postgres

import (
	"cmp"
	"context"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Cancel is part of the contract.
func (s *Store) Cancel(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	defer s.tellHeld()
	return s.operate(ctx, filter, limit, filter.CheckBulk(limit), ifLive, func() operation { return &cancelling{} })
}

type cancelling struct{ changed []*store.Record }

func (c *cancelling) begin(*txn, []*store.Record) error { return nil }

func (c *cancelling) apply(t *txn, e *store.Record) store.Outcome {
	done := e.State == store.Cancelled
	t.woken.AddCancelled(e.Job)
	if e.State == store.InFlight {
		t.freed(e.Job)
	} else {
		t.unheld(e.Job)
	}
	o := e.Cancel(t.now)
	if o.Status == store.StatusOK && !done {
		c.changed = append(c.changed, e)
	}
	return o
}

// dropExpired cancels the job if it has expired. A claim by a clock that is behind may have taken it meanwhile.
func (c *cancelling) dropExpired(t *txn, e *store.Record) bool {
	expired := store.ExpiredOf(&e.Job, t.now)
	if expired {
		c.apply(t, e)
	}
	return expired
}

func (c *cancelling) end(t *txn, _ []store.Outcome) error {
	return t.update(withoutDocuments, c.changed)
}

// Requeue is part of the contract.
func (s *Store) Requeue(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return s.operate(ctx, filter, limit, filter.CheckBulk(limit), ifTerminal, func() operation { return &requeueing{} })
}

type requeueing struct {
	holders         map[string]holder
	expired         map[int64]*store.Record // the holders among them that had expired
	dropped         cancelling
	holding         []store.Job
	before          []*store.Record
	expiring        []int64         // had an ExpiresAt
	cleared, others []*store.Record // the jobs that lose their documents, and those that keep them
	waiting         []*store.Record // that had waits
}

// begin locks the unique keys that jobs may take.
func (r *requeueing) begin(t *txn, jobs []*store.Record) (err error) {
	var keys []string
	for _, e := range jobs {
		if e.Terminal() && e.UniqueKey != "" {
			keys = append(keys, e.UniqueKey)
		}
	}
	if r.holders, err = t.holders(keys); err != nil {
		return err
	}
	expired, err := t.expired(r.holders)
	r.expired = sqlkit.Keyed(expired)
	for _, e := range jobs { // one record for each job: another item may be about it
		if r.expired[e.ID] != nil {
			r.expired[e.ID] = e
		}
	}
	return err
}

// holderOf returns the id of the job that holds the key of e, or 0. It cancels a holder that has expired.
func (r *requeueing) holderOf(t *txn, e *store.Record) int64 {
	h := r.holders[e.UniqueKey] // a job without a key has no holder
	if x := r.expired[h.id]; x != nil && e.Terminal() && x != e {
		if r.dropped.dropExpired(t, x) || x.Terminal() {
			return 0
		}
	}
	return h.id
}

// apply decides job by job: of two jobs with one key, the first takes it.
func (r *requeueing) apply(t *txn, e *store.Record) store.Outcome {
	before := *e
	o := e.Requeue(r.holderOf(t, e), t.now)
	if o.Status != store.StatusOK {
		return o
	}
	r.before = append(r.before, &before)
	if !before.ExpiresAt().IsZero() {
		r.expiring = append(r.expiring, e.ID)
	}
	if before.State == store.Succeeded {
		r.cleared = append(r.cleared, e)
	} else {
		r.others = append(r.others, e)
	}
	if e.Links&store.LinkWaits != 0 {
		r.waiting = append(r.waiting, e)
	}
	t.woken.AddFor(e.Job, t.now)
	if e.UniqueKey != "" && e.UniqueFor == 0 {
		r.holders[e.UniqueKey] = holder{id: e.ID, state: e.State}
		r.holding = append(r.holding, e.Job)
	}
	return o
}

func (r *requeueing) end(t *txn, outcomes []store.Outcome) error {
	if err := r.dropped.end(t, nil); err != nil {
		return err
	}
	if err := t.moveAttempts(r.before); err != nil {
		return err
	}
	if len(r.expiring) > 0 {
		_, err := t.exec(`
			UPDATE {schema}.jobs
			SET expires_at = NULL
			WHERE id = ANY ($1::bigint[])`,
			arrayOf(r.expiring))
		if err != nil {
			return err
		}
	}
	if err := t.hold(r.holding); err != nil {
		return err
	}
	if err := t.update(withDocuments, r.cleared); err != nil {
		return err
	}
	if err := t.update(withoutDocuments, r.others); err != nil {
		return err
	}
	return t.blockAgain(r.waiting, outcomes)
}

// Reschedule is part of the contract. The new due time is never before the transaction's now, so every mark stays exact.
func (s *Store) Reschedule(ctx context.Context, filter store.Filter, at time.Time, limit int) ([]store.Outcome, error) {
	start := func() operation { return &rescheduling{at: at} }
	return s.operate(ctx, filter, limit, filter.CheckReschedule(at, limit), ifWaiting, start)
}

type rescheduling struct {
	at      time.Time
	changed []*store.Record
}

func (r *rescheduling) begin(*txn, []*store.Record) error { return nil }

func (r *rescheduling) apply(t *txn, e *store.Record) store.Outcome {
	before := e.Token
	o := e.Reschedule(r.at, t.now)
	if e.Token != before {
		r.changed = append(r.changed, e)
		t.woken.AddFor(e.Job, t.now)
	}
	return o
}

func (r *rescheduling) end(t *txn, _ []store.Outcome) error {
	return t.update(withoutDocuments, r.changed)
}

// Delete is part of the contract.
func (s *Store) Delete(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return s.operate(ctx, filter, limit, filter.CheckBulk(limit), ifTerminal, func() operation { return &deleting{} })
}

type deleting struct {
	jobs []*store.Record
	ids  []int64
	keys []string
}

func (d *deleting) begin(*txn, []*store.Record) error { return nil }

func (d *deleting) apply(_ *txn, e *store.Record) store.Outcome {
	o := e.Delete()
	if o.Status != store.StatusOK {
		return o
	}
	d.jobs, d.ids = append(d.jobs, e), append(d.ids, e.ID)
	if e.UniqueKey != "" {
		d.keys = append(d.keys, e.UniqueKey)
	}
	return o
}

// end deletes the jobs with their attempts and waits. Unique windows outlive the jobs.
func (d *deleting) end(t *txn, _ []store.Outcome) error {
	if len(d.ids) == 0 {
		return nil
	}
	if err := t.noteGone(d.jobs); err != nil {
		return err
	}
	groups, err := sqlkit.Values[string](t.each, `
		WITH earlier AS (
			DELETE FROM {schema}.attempts
			WHERE job_id = ANY ($1::bigint[])
		),
		waited AS (
			DELETE FROM {schema}.waits
			WHERE job_id = ANY ($1::bigint[])
			RETURNING on_group
		),
		deleted AS (
			DELETE FROM {schema}.jobs
			WHERE id = ANY ($1::bigint[])
		)
		SELECT DISTINCT on_group
		FROM waited
		WHERE on_group IS NOT NULL`,
		arrayOf(d.ids))
	if err != nil {
		return err
	}
	in, ids := newArray(ofTexts, 0), newArray(ofNumbers, 0)
	for _, r := range d.jobs {
		if name := r.Group(); name != "" {
			groups = append(groups, name)
			in.string(name)
			ids.int(r.ID)
		}
	}
	if err := cmp.Or(t.forgetRuns(in, ids), t.noteSpoiled(groups)); err != nil || len(d.keys) == 0 {
		return err
	}
	// Skip locked keys: somebody is taking them.
	_, err = t.exec(`
		DELETE FROM {schema}.unique_keys
		WHERE unique_key = ANY (ARRAY(
			SELECT unique_key
			FROM {schema}.unique_keys
			WHERE unique_key = ANY ($1::text[]) AND job_id = ANY ($2::bigint[]) AND until IS NULL
			FOR UPDATE SKIP LOCKED))`,
		arrayOfTexts(d.keys), arrayOf(d.ids))
	return err
}

// An operation changes locked jobs: apply decides on each, and end writes. The outcome of a deleted job has no state.
type operation interface {
	begin(t *txn, jobs []*store.Record) error
	apply(t *txn, e *store.Record) store.Outcome
	end(t *txn, outcomes []store.Outcome) error
}

// operate applies an operation to the jobs of a filter: to each named job, or to the first ones that match and can be changed.
func (s *Store) operate(
	ctx context.Context, filter store.Filter, limit int, invalid error, can condition, start func() operation,
) ([]store.Outcome, error) {
	return call(ctx, s, invalid, s.with.bulk, func(t *txn) ([]store.Outcome, error) {
		return t.operate(filter, limit, can, start())
	})
}

func (t *txn) operate(filter store.Filter, limit int, can condition, do operation) (outcomes []store.Outcome, err error) {
	var found []*store.Record
	if len(filter.IDs) > 0 {
		found, err = t.named(filter)
	} else {
		found, err = t.lock(t.find(filter, limit, can, t.s.leases()))
	}
	if err == nil && len(found) == 0 && (filter.FinishedFor == 0 || !filter.Unneeded) { // retention looks again anyway
		err = t.foundNothing()
	}
	if err == nil {
		err = do.begin(t, found)
	}
	if err != nil {
		return nil, err
	}
	if len(filter.IDs) > 0 {
		outcomes, err = sqlkit.DoNamed(filter, sqlkit.Keyed(found), t.now, func(e *store.Record) (store.Outcome, error) { return do.apply(t, e), nil })
	} else {
		outcomes = make([]store.Outcome, len(found))
		for i, e := range found {
			outcomes[i] = do.apply(t, e)
		}
	}
	if err != nil {
		return nil, err
	}
	return outcomes, do.end(t, outcomes)
}
