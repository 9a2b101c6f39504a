package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"math"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Cancel is part of the contract.
func (s *Store) Cancel(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	defer s.tellHeld()
	return s.operate(ctx, filter, limit, filter.CheckBulk(limit), `finished_at IS NULL`, (*txn).cancel)
}

func (t *txn) cancel(e *store.Record) (store.Outcome, error) {
	if e.State == store.Cancelled {
		return e.Cancel(t.now), nil
	}
	t.woken.AddCancelled(e.Job)
	o := e.Cancel(t.now)
	if o.Status != store.StatusOK {
		return o, nil
	}
	return o, t.updateEnd(e, true)
}

// Requeue is part of the contract.
func (s *Store) Requeue(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	outcomes, err := s.requeue(ctx, filter, limit, store.SettledByCall)
	if !errors.Is(err, errManyEnds) {
		return outcomes, err
	}
	if err := s.tellAll(ctx); err != nil {
		return nil, err
	}
	return s.requeue(ctx, filter, limit, math.MaxInt) // the few ends since then
}

// errManyEnds says that more jobs are to be told of ends than one transaction should tell.
var errManyEnds = errors.New("many jobs have not been told of what has ended")

// requeue makes the jobs ready, unless it has to tell more jobs than so many of ends before.
func (s *Store) requeue(ctx context.Context, filter store.Filter, limit, most int) ([]store.Outcome, error) {
	const ended = `finished_at IS NOT NULL`
	return s.onFound(ctx, filter, limit, filter.CheckBulk(limit), ended, func(t *txn, ids []int64) ([]store.Outcome, error) {
		var waiting []*store.Record
		outcomes, err := t.operate(filter, ids, limit, ended, func(t *txn, e *store.Record) (store.Outcome, error) {
			o, err := t.requeue(e)
			if o.Status == store.StatusOK && e.Links&store.LinkWaits != 0 {
				waiting = append(waiting, e)
			}
			return o, err
		})
		if err != nil {
			return nil, err
		}
		return outcomes, t.blockAgain(waiting, outcomes, most)
	})
}

func (t *txn) requeue(e *store.Record) (store.Outcome, error) {
	if store.ExpiredOf(&e.Job, t.now) { // an item before it may have taken its key, and cancelled it
		now, err := t.byID([]int64{e.ID})
		if err != nil {
			return store.Outcome{}, err
		}
		e = now[e.ID]
	}
	holder, err := t.holderOf(e)
	if err != nil {
		return store.Outcome{}, err
	}
	before := *e
	o := e.Requeue(holder, t.now)
	if o.Status != store.StatusOK {
		return o, nil
	}
	if err := t.moveAttempts([]*store.Record{&before}); err != nil {
		return store.Outcome{}, err
	}
	if !before.ExpiresAt().IsZero() {
		_, err := t.exec(`
			UPDATE jobs
			SET expires_at = NULL
			WHERE id = ?`,
			e.ID)
		if err != nil {
			return store.Outcome{}, err
		}
	}
	t.woken.AddFor(e.Job, t.now)
	if err := t.update(e); err != nil {
		return store.Outcome{}, err
	}
	return o, t.enter(&e.Job)
}

// holderOf returns the id of the job that holds this job's unique key, or 0.
func (t *txn) holderOf(e *store.Record) (int64, error) {
	if e.UniqueKey == "" || !e.Terminal() {
		return 0, nil
	}
	holders, err := t.holdersOf([]string{e.UniqueKey})
	return holders[e.UniqueKey].id, err
}

// Reschedule is part of the contract.
func (s *Store) Reschedule(ctx context.Context, filter store.Filter, at time.Time, limit int) ([]store.Outcome, error) {
	const waits = `finished_at IS NULL AND state NOT IN ('in_flight', 'blocked')`
	do := func(t *txn, e *store.Record) (store.Outcome, error) { return t.reschedule(e, at) }
	return s.operate(ctx, filter, limit, filter.CheckReschedule(at, limit), waits, do)
}

func (t *txn) reschedule(e *store.Record, at time.Time) (store.Outcome, error) {
	before := e.Token
	o := e.Reschedule(at, t.now)
	if e.Token == before {
		return o, nil
	}
	t.woken.AddFor(e.Job, t.now)
	return o, t.update(e)
}

// Delete is part of the contract.
func (s *Store) Delete(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return s.operate(ctx, filter, limit, filter.CheckBulk(limit), `finished_at IS NOT NULL`, (*txn).delete)
}

// delete removes the job. Its attempts are deleted by a foreign key.
func (t *txn) delete(e *store.Record) (store.Outcome, error) {
	o := e.Delete()
	if o.Status != store.StatusOK {
		return o, nil
	}
	if err := t.losing(e); err != nil {
		return store.Outcome{}, err
	}
	n, err := t.exec(`
		DELETE FROM jobs
		WHERE id = ?`,
		e.ID)
	if n == 0 || err != nil {
		return store.Outcome{ID: e.ID, Status: store.StatusNotFound}, err
	}
	if _, gone := store.GoneOf(&e.Job); gone {
		err = t.noteLeft(e, true)
	}
	return o, err
}

// operate applies do to the jobs of a filter: to each named job, or to the first ones that match and can be changed.
func (s *Store) operate(
	ctx context.Context, filter store.Filter, limit int, invalid error, can string,
	do func(*txn, *store.Record) (store.Outcome, error),
) ([]store.Outcome, error) {
	return s.onFound(ctx, filter, limit, invalid, can, func(t *txn, ids []int64) ([]store.Outcome, error) {
		return t.operate(filter, ids, limit, can, do)
	})
}

// onFound runs the call in the writer's next transaction, with the ids of the jobs that a filter without ids chooses. It finds these before: that may
// take long, and others need not wait for it.
func (s *Store) onFound(
	ctx context.Context, filter store.Filter, limit int, invalid error, can string, run func(*txn, []int64) ([]store.Outcome, error),
) ([]store.Outcome, error) {
	if len(filter.IDs) > 0 {
		l := load{items: max(limit, len(filter.IDs))}
		return write(ctx, s, cmp.Or(invalid, s.place.check()), l, func(t *txn) ([]store.Outcome, error) { return run(t, nil) })
	}
	var ids []int64
	for next := filter; ; {
		some, err := readOn(ctx, s, s.searches, invalid, func(t *txn) ([]int64, error) { return t.firstOf(next, limit-len(ids), can) })
		if err != nil {
			return nil, err
		}
		if ids = append(ids, some...); len(ids) == 0 {
			return nil, nil
		}
		outcomes, err := write(ctx, s, nil, load{items: limit}, func(t *txn) ([]store.Outcome, error) { return run(t, ids) })
		changed, ok := errors.AsType[*changedError](err)
		if !ok {
			return outcomes, err
		}
		next.After, ids = ids[len(ids)-1], changed.still
	}
}

// A changedError says that others have changed some of the jobs that were found, and that more may match behind them.
type changedError struct{ still []int64 } // the jobs that match still

func (*changedError) Error() string { return "others have changed some of the jobs" }

// operate applies do to each named job or, if the filter names none, to those with the ids.
func (t *txn) operate(
	filter store.Filter, ids []int64, limit int, can string, do func(*txn, *store.Record) (store.Outcome, error),
) ([]store.Outcome, error) {
	if len(filter.IDs) > 0 {
		return t.operateNamed(filter, do)
	}
	return t.operateFound(filter, ids, limit, can, do)
}

func (t *txn) operateNamed(filter store.Filter, do func(*txn, *store.Record) (store.Outcome, error)) ([]store.Outcome, error) {
	jobs, err := t.named(filter)
	if err != nil {
		return nil, err
	}
	return sqlkit.DoNamed(filter, jobs, t.now, func(e *store.Record) (store.Outcome, error) { return do(t, e) })
}

// operateFound applies do to the jobs that still match and can be changed. If that may be fewer than it could, it returns a [changedError].
func (t *txn) operateFound(
	filter store.Filter, ids []int64, limit int, can string, do func(*txn, *store.Record) (store.Outcome, error),
) ([]store.Outcome, error) {
	found, err := t.matching(filter, ids, can)
	if err != nil {
		return nil, err
	}
	if len(found) < len(ids) && len(ids) == limit {
		changed := &changedError{}
		for _, e := range found {
			changed.still = append(changed.still, e.ID)
		}
		return nil, changed
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

// matching reads those of the jobs that match and can be changed.
func (t *txn) matching(filter store.Filter, ids []int64, can string) ([]*store.Record, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	filter.IDs = ids
	where := chosen(filter, unbounded, t.now)
	where.and(can)
	return t.records(`
		SELECT`+columns+`,`+presentLinks+presentEpoch+`
		FROM `+where.text()+`
		ORDER BY id`,
		where.args...)
}

// firstOf returns the ids of the first jobs that match and can be changed. The index of finished jobs has them in the order of their ends, so SQLite
// visits all that match. If these are many, firstOf looks whether there are enough among the next jobs.
func (t *txn) firstOf(filter store.Filter, limit int, can string) ([]int64, error) {
	where := chosen(filter, unbounded, t.now)
	crowded, err := t.crowded(where, filter)
	if err != nil {
		return nil, err
	}
	if crowded {
		last, _, err := t.lastOf(filter.After)
		if err != nil {
			return nil, err
		}
		near := chosen(filter, last+1, t.now)
		near.index = ``
		if found, err := t.idsOf(near, limit, can); err != nil || len(found) == limit {
			return found, err
		}
	}
	return t.idsOf(where, limit, can)
}

func (t *txn) idsOf(where *where, limit int, can string) ([]int64, error) {
	where.and(can)
	return sqlkit.Values[int64](t.each, `
		SELECT id
		FROM `+where.text()+`
		ORDER BY `+where.order(`ASC`)+`
		LIMIT ?`,
		append(where.args, limit)...)
}

// crowded reports whether SQLite would visit many jobs of the index of finished ones.
func (t *txn) crowded(w *where, filter store.Filter) (bool, error) {
	if w.index != `jobs_finished` || w.runs != "" {
		return false, nil
	}
	finished := &where{}
	if filter.Queue != "" {
		finished.and(`queue = ?`, filter.Queue)
	}
	finished.andFinished(filter, t.now)
	found, err := sqlkit.Values[int](t.each, `
		SELECT count(*)
		FROM (SELECT 1 FROM `+finished.text()+` LIMIT ?)`,
		append(finished.args, nextJobs)...)
	return err == nil && found[0] == nextJobs, err
}

// nextJobs is how many jobs a statement looks at that walks over them in the order of their ids.
const nextJobs = 10_000

// lastOf returns the last of the next ids, and whether there are any.
func (t *txn) lastOf(after int64) (last int64, some bool, err error) {
	err = t.each(func(rows *sql.Rows) error {
		var id sql.NullInt64
		err := rows.Scan(&id)
		last, some = id.Int64, id.Valid
		return err
	}, `
		SELECT max(id)
		FROM (SELECT id FROM jobs WHERE id > ? ORDER BY id LIMIT ?)`,
		after, nextJobs)
	return last, some, err
}
