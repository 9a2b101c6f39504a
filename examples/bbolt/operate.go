package bbolt

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
)

// Cancel ends jobs that are not terminal.
func (s *Store) Cancel(ctx context.Context, filter jq.Filter, limit int) ([]jq.Outcome, error) {
	return s.operate(ctx, filter, limit, func(j *job) bool { return !j.Terminal() }, (*txn).cancel)
}

// Requeue makes terminal jobs ready again.
func (s *Store) Requeue(ctx context.Context, filter jq.Filter, limit int) ([]jq.Outcome, error) {
	return s.operate(ctx, filter, limit, func(j *job) bool { return j.Terminal() }, (*txn).requeue)
}

// Delete removes terminal jobs with their history.
func (s *Store) Delete(ctx context.Context, filter jq.Filter, limit int) ([]jq.Outcome, error) {
	return s.operate(ctx, filter, limit, func(j *job) bool { return j.Terminal() }, (*txn).delete)
}

// operate applies an operation to the ids of the filter, or else to the first jobs that match it and can be changed.
func (s *Store) operate(
	ctx context.Context, f jq.Filter, limit int, can func(*job) bool, apply func(*txn, *job) jq.Outcome,
) ([]jq.Outcome, error) {
	return write(ctx, s, f.CheckBulk(limit), func(t *txn) []jq.Outcome {
		if len(f.IDs) > 0 {
			return t.operateOnIDs(f, apply)
		}
		var chosen []*job // before any is changed, so that none is met again as what it becomes
		for j := range t.rising(f) {
			if can(j) && f.Matches(j.Job, t.now) {
				chosen = append(chosen, j)
			}
			if len(chosen) == limit {
				break
			}
		}
		return each(chosen, func(j *job) jq.Outcome { return apply(t, j) })
	})
}

func (t *txn) operateOnIDs(f jq.Filter, apply func(*txn, *job) jq.Outcome) []jq.Outcome {
	rest := f
	rest.IDs = nil
	return each(f.IDs, func(id int64) jq.Outcome {
		j := t.job(id)
		if j == nil || !rest.Matches(j.Job, t.now) {
			return jq.Outcome{ID: id, Status: contract.StatusNotFound}
		}
		return apply(t, j)
	})
}

func (t *txn) cancel(j *job) jq.Outcome {
	switch j.Phase() {
	case jq.Cancelled:
		return contract.OutcomeOf(j.Job, contract.StatusOK)
	case jq.Succeeded, jq.Dead:
		return contract.OutcomeOf(j.Job, contract.StatusWrongState)
	case jq.InFlight:
		t.end(j, contract.EndCancelled, "")
	}
	j.State, j.FinishedAt = jq.Cancelled, t.now
	j.LeaseExpiresAt, j.RetryAt = time.Time{}, time.Time{}
	t.raise(j)
	j.Ended = none
	t.settle(j)
	return contract.OutcomeOf(j.Job, contract.StatusOK)
}

func (t *txn) requeue(j *job) jq.Outcome {
	if !j.Terminal() {
		return contract.OutcomeOf(j.Job, contract.StatusWrongState)
	}
	if h, taken := t.holder(j.UniqueKey); taken && h.ID != j.ID {
		duplicate := contract.OutcomeOf(j.Job, contract.StatusDuplicate)
		duplicate.Reason = fmt.Sprintf("job %d holds the unique key", h.ID)
		return duplicate
	}
	if j.UniqueKey != "" && j.UniqueFor == 0 {
		t.hold(j.Job)
	}
	if j.State == jq.Succeeded {
		j.Checkpoint, j.CheckpointSeq = nil, 0
		j.Progress, j.ProgressSeq = nil, 0
	}
	j.wait(t.now)
	t.raise(j)
	j.Retries = 0
	j.Error, j.Result, j.FinishedAt = "", nil, time.Time{}
	j.Ended = none
	t.save(j)
	return contract.OutcomeOf(j.Job, contract.StatusOK)
}

func (t *txn) delete(j *job) jq.Outcome {
	if !j.Terminal() {
		return contract.OutcomeOf(j.Job, contract.StatusWrongState)
	}
	t.drop(j)
	return jq.Outcome{ID: j.ID, Status: contract.StatusOK}
}
