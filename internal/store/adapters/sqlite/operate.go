package sqlite

import (
	"context"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Cancel is part of the contract.
func (s *Store) Cancel(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return s.operate(ctx, filter, limit, `finished_at IS NULL`, (*txn).cancel)
}

func (t *txn) cancel(e *sqlkit.Entry) (store.Outcome, error) {
	if e.State == store.Cancelled {
		return e.Cancel(t.now), nil
	}
	o := e.Cancel(t.now)
	if o.Status != store.StatusOK {
		return o, nil
	}
	return o, t.update(e)
}

// Requeue is part of the contract.
func (s *Store) Requeue(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return s.operate(ctx, filter, limit, `finished_at IS NOT NULL`, (*txn).requeue)
}

func (t *txn) requeue(e *sqlkit.Entry) (store.Outcome, error) {
	if !e.Terminal() {
		return store.OutcomeOf(e.Job, store.StatusWrongState), nil
	}
	if e.UniqueKey != "" {
		holders, err := t.holdersOf([]string{e.UniqueKey})
		if err != nil {
			return store.Outcome{}, err
		}
		if h, held := holders[e.UniqueKey]; held && h.id != e.ID {
			return store.OutcomeOf(e.Job, store.StatusDuplicate), nil
		}
	}
	if err := t.moveAttempts([]*sqlkit.Entry{e}); err != nil {
		return store.Outcome{}, err
	}
	o := e.Requeue(t.now)
	t.wakeFor(e.Job)
	return o, t.update(e)
}

// Delete is part of the contract.
func (s *Store) Delete(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return s.operate(ctx, filter, limit, `finished_at IS NOT NULL`, (*txn).delete)
}

// delete removes the job; its attempts go with it.
func (t *txn) delete(e *sqlkit.Entry) (store.Outcome, error) {
	if !e.Terminal() {
		return store.OutcomeOf(e.Job, store.StatusWrongState), nil
	}
	n, err := t.exec(`
		DELETE FROM jobs
		WHERE id = ?`,
		e.ID)
	if n == 0 {
		return store.Outcome{ID: e.ID, Status: store.StatusNotFound}, err
	}
	return store.Outcome{ID: e.ID, Status: store.StatusOK}, err
}

// operate does something to the jobs of a filter: to each one named, or to the first ones that match and can be changed.
func (s *Store) operate(
	ctx context.Context, filter store.Filter, limit int, can string, do func(*txn, *sqlkit.Entry) (store.Outcome, error),
) ([]store.Outcome, error) {
	l := load{items: max(limit, len(filter.IDs))}
	return write(ctx, s, filter.CheckBulk(limit), l, func(t *txn) ([]store.Outcome, error) {
		if len(filter.IDs) > 0 {
			return t.operateNamed(filter, do)
		}
		return t.operateMatching(filter, limit, can, do)
	})
}

func (t *txn) operateNamed(filter store.Filter, do func(*txn, *sqlkit.Entry) (store.Outcome, error)) ([]store.Outcome, error) {
	jobs, err := t.byID(filter.IDs)
	if err != nil {
		return nil, err
	}
	return sqlkit.DoNamed(filter, jobs, t.now, func(e *sqlkit.Entry) (store.Outcome, error) { return do(t, e) })
}

func (t *txn) operateMatching(
	filter store.Filter, limit int, can string, do func(*txn, *sqlkit.Entry) (store.Outcome, error),
) ([]store.Outcome, error) {
	where := chosen(filter, t.now)
	where.and(can)
	found, err := t.entries(`
		SELECT`+columns+`,`+presentEpoch+`
		FROM jobs
		WHERE id IN (
			SELECT id
			FROM `+where.text()+`
			ORDER BY id
			LIMIT ?)
		ORDER BY id`,
		append(where.args, limit)...)
	if err != nil {
		return nil, err
	}
	var outcomes []store.Outcome
	for _, e := range found {
		o, err := do(t, e)
		if err != nil {
			return nil, err
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, nil
}

// byID loads the jobs that there are.
func (t *txn) byID(ids []int64) (map[int64]*sqlkit.Entry, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	entries, err := t.entries(`
		SELECT`+columns+`,`+presentEpoch+`
		FROM jobs
		WHERE id IN (SELECT value FROM json_each(?))`,
		list(ids))
	return sqlkit.Keyed(entries), err
}
