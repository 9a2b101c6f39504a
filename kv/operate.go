package kv

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq/contract"
)

// Cancel cancels jobs that are not terminal.
func (s *Store) Cancel(ctx context.Context, filter contract.Filter, limit int) ([]contract.Outcome, error) {
	return s.operate(ctx, filter, limit, filter.CheckBulk(limit), operation{
		can: func(j *job) bool { return !j.Terminal() }, apply: (*txn).cancel,
	})
}

// Requeue makes terminal jobs ready again.
func (s *Store) Requeue(ctx context.Context, filter contract.Filter, limit int) ([]contract.Outcome, error) {
	var waiting []int64
	return s.operate(ctx, filter, limit, filter.CheckBulk(limit), operation{
		begin: func() { waiting = nil },
		can:   func(j *job) bool { return j.Terminal() },
		apply: func(t *txn, j *job) contract.Outcome {
			o := t.requeue(j)
			if o.Status == contract.StatusOK && j.Links&contract.LinkWaits != 0 {
				waiting = append(waiting, j.ID)
			}
			return o
		},
		end: func(t *txn, outcomes []contract.Outcome) { t.blockAgain(waiting, outcomes) },
	})
}

// Reschedule gives jobs that wait another due time.
func (s *Store) Reschedule(ctx context.Context, filter contract.Filter, at time.Time, limit int) ([]contract.Outcome, error) {
	return s.operate(ctx, filter, limit, filter.CheckReschedule(at, limit), operation{
		can: func(j *job) bool { _, waits := lineOfJob(j); return waits },
		apply: func(t *txn, j *job) contract.Outcome {
			before := j.Token
			o := j.Reschedule(at, t.now)
			if j.Token != before {
				t.save(j)
			}
			return o
		},
	})
}

// Delete removes terminal jobs and their history.
func (s *Store) Delete(ctx context.Context, filter contract.Filter, limit int) ([]contract.Outcome, error) {
	var gone []*job
	return s.operate(ctx, filter, limit, filter.CheckBulk(limit), operation{
		begin: func() { gone = nil },
		can:   func(j *job) bool { return j.Terminal() },
		apply: func(t *txn, j *job) contract.Outcome {
			o := j.Delete()
			if o.Status == contract.StatusOK {
				gone = append(gone, j)
				if end, is := contract.GoneOf(&j.Job); is {
					t.ended(j, end)
				}
				t.spoils(j, true)
				t.remove(key(rows, number(j.ID))) // so that the call does not find it a second time
			}
			return o
		},
		end: func(t *txn, _ []contract.Outcome) { t.drop(gone) },
	})
}

// An operation is what a bulk call does to each job.
type operation struct {
	begin func()          // of a try
	can   func(*job) bool // whether it can change the job
	apply func(*txn, *job) contract.Outcome
	end   func(*txn, []contract.Outcome)
}

// operate applies an operation to the ids of the filter, or without ids to the first jobs that match it and can change.
func (s *Store) operate(ctx context.Context, f contract.Filter, limit int, invalid error, op operation) ([]contract.Outcome, error) {
	first, found := ask{}, search{behind: f.After}
	for _, id := range f.IDs {
		first.keys = append(first.keys, key(rows, number(id)))
	}
	return call(ctx, s, invalid, first, func(t *txn) (outcomes []contract.Outcome) {
		if op.begin != nil {
			op.begin()
		}
		if len(f.IDs) > 0 {
			outcomes = t.operateOnIDs(f, op)
		} else {
			outcomes = each(t.chosen(f, limit, op, &found), func(j *job) contract.Outcome { return op.apply(t, j) })
		}
		if op.end != nil {
			op.end(t, outcomes)
		}
		return outcomes
	})
}

// A search is how far the tries of a call have looked for jobs. If each try began anew, a long search would never end where others change what it finds.
type search struct {
	found  []int64 // the jobs that matched and could change
	behind int64   // the id up to which it has looked
}

// chosen returns the first jobs that match and can change, and guards them. It looks at those that earlier tries have found, and then goes on behind them. They are
// collected before any is changed, so that the loop does not meet a changed job again.
func (t *txn) chosen(f contract.Filter, limit int, op operation, s *search) (chosen []*job) {
	for j := range t.matching(f, t.byID(s.found)) {
		if op.can(j) && len(chosen) < limit {
			chosen = append(chosen, j)
		}
	}
	if len(chosen) < limit {
		chosen = append(chosen, t.found(f, limit-len(chosen), op, s)...)
	}
	for _, j := range chosen {
		t.note(j.read.Key, []Item{j.read})
		t.guard(j.read.Key)
	}
	return chosen
}

// found goes on with the search until it has found so many jobs.
func (t *txn) found(f contract.Filter, limit int, op operation, s *search) (found []*job) {
	f.After = s.behind
	last := s.behind
	all := func(yield func(*job) bool) {
		for j := range t.rising(f) {
			if last = j.ID; !yield(j) {
				return
			}
		}
	}
	for j := range t.matching(f, all) {
		s.behind = j.ID
		if !op.can(j) {
			continue
		}
		s.found = append(s.found, j.ID)
		if found = append(found, j); len(found) == limit {
			return found
		}
	}
	if t.err == nil {
		s.behind = last
	}
	return found
}

func (t *txn) operateOnIDs(f contract.Filter, op operation) []contract.Outcome {
	matching := t.matchesWaits(f) // before any is changed
	rest := f.WithoutWaits()
	rest.IDs = nil
	return each(f.IDs, func(id int64) contract.Outcome {
		j := t.job(id)
		if j == nil || !matching[id] || !rest.Matches(j.Job, t.now) {
			return contract.Outcome{ID: id, Status: contract.StatusNotFound}
		}
		return op.apply(t, j)
	})
}

func (t *txn) cancel(j *job) contract.Outcome {
	live := !j.Terminal()
	if j.State == contract.InFlight {
		t.tellCancelled(j.Queue)
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
	t.moveAttempt(j, before)
	t.dropDocument(j, result)
	if before.State == contract.Succeeded {
		t.dropDocument(j, checkpoint)
		t.dropDocument(j, progress)
	}
	t.save(j)
	return o
}
