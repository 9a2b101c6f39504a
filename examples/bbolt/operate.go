package bbolt

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq/contract"
)

// Cancel cancels jobs that are not terminal.
func (s *Store) Cancel(ctx context.Context, filter contract.Filter, limit int) ([]contract.Outcome, error) {
	return s.operate(ctx, filter, limit, filter.CheckBulk(limit), func(j *job) bool { return !j.Terminal() }, (*txn).cancel)
}

// Requeue makes terminal jobs ready again.
func (s *Store) Requeue(ctx context.Context, filter contract.Filter, limit int) ([]contract.Outcome, error) {
	return s.operate(ctx, filter, limit, filter.CheckBulk(limit), func(j *job) bool { return j.Terminal() }, (*txn).requeue)
}

// Reschedule gives jobs that wait another due time.
func (s *Store) Reschedule(ctx context.Context, filter contract.Filter, at time.Time, limit int) ([]contract.Outcome, error) {
	waits := func(j *job) bool { return !j.Terminal() && j.State != contract.InFlight }
	return s.operate(ctx, filter, limit, filter.CheckReschedule(at, limit), waits, func(t *txn, j *job) contract.Outcome {
		before := j.Token
		o := j.Reschedule(at, t.now)
		if j.Token != before {
			t.save(j)
		}
		return o
	})
}

// Delete removes terminal jobs and their history.
func (s *Store) Delete(ctx context.Context, filter contract.Filter, limit int) ([]contract.Outcome, error) {
	return s.operate(ctx, filter, limit, filter.CheckBulk(limit), func(j *job) bool { return j.Terminal() }, (*txn).delete)
}

// operate applies an operation to the ids of the filter, or without ids to the first jobs that match it and can change.
func (s *Store) operate(
	ctx context.Context, f contract.Filter, limit int, invalid error, can func(*job) bool, apply func(*txn, *job) contract.Outcome,
) ([]contract.Outcome, error) {
	return write(ctx, s, invalid, func(t *txn) []contract.Outcome {
		if len(f.IDs) > 0 {
			return t.operateOnIDs(f, apply)
		}
		var chosen []*job // collected before any is changed, so that the loop does not meet a changed job again
		for j := range t.rising(f) {
			if can(j) && f.Matches(j.Job, t.now) {
				chosen = append(chosen, j)
			}
			if len(chosen) == limit {
				break
			}
		}
		return each(chosen, func(j *job) contract.Outcome { return apply(t, j) })
	})
}

func (t *txn) operateOnIDs(f contract.Filter, apply func(*txn, *job) contract.Outcome) []contract.Outcome {
	rest := f
	rest.IDs = nil
	return each(f.IDs, func(id int64) contract.Outcome {
		j := t.job(id)
		if j == nil || !rest.Matches(j.Job, t.now) {
			return contract.Outcome{ID: id, Status: contract.StatusNotFound}
		}
		return apply(t, j)
	})
}

func (t *txn) cancel(j *job) contract.Outcome {
	live := !j.Terminal()
	if j.State == contract.InFlight {
		t.woken[contract.Wakeup{Queue: j.Queue, Cancelled: true}] = true
	}
	o := j.Cancel(t.now)
	if live {
		t.saveEnded(j)
	}
	return o
}

func (t *txn) requeue(j *job) contract.Outcome {
	var holder int64
	if j.Terminal() {
		if h, held := t.holder(j.UniqueKey); held {
			holder = h.ID
		}
	}
	before := j.Record
	o := j.Requeue(holder, t.now)
	if o.Status != contract.StatusOK {
		return o
	}
	if j.UniqueKey != "" && j.UniqueFor == 0 {
		t.hold(j.Job)
	}
	t.moveAttempt(before)
	t.save(j)
	return o
}

func (t *txn) delete(j *job) contract.Outcome {
	o := j.Delete()
	if o.Status == contract.StatusOK {
		t.drop(j)
	}
	return o
}
