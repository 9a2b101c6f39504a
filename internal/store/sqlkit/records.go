package sqlkit

import (
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Keyed returns the records by the ids of their jobs.
func Keyed(records []*store.Record) map[int64]*store.Record {
	found := make(map[int64]*store.Record, len(records))
	for _, e := range records {
		found[e.ID] = e
	}
	return found
}

// DoNamed applies do to each job that the filter names by id, if the job exists and matches the rest of the filter. If do
// deletes a job, its outcome has no state, and DoNamed does not find the job again. What the filter says about waits is up to whoever read
// the jobs.
func DoNamed(
	filter store.Filter, jobs map[int64]*store.Record, now time.Time, do func(*store.Record) (store.Outcome, error),
) ([]store.Outcome, error) {
	rest := filter.WithoutWaits()
	rest.IDs = nil // matching a thousand ids against each of a thousand jobs would be slow
	outcomes := make([]store.Outcome, len(filter.IDs))
	for i, id := range filter.IDs {
		e, found := jobs[id]
		if !found || !rest.Matches(e.Job, now) {
			outcomes[i] = store.Outcome{ID: id, Status: store.StatusNotFound}
			continue
		}
		var err error
		if outcomes[i], err = do(e); err != nil {
			return nil, err
		}
		if outcomes[i].State == "" {
			delete(jobs, id)
		}
	}
	return outcomes, nil
}

// Crowding returns the jobs that need room for another attempt: those whose latest attempt must move to the table of attempts,
// and those that may then have too many attempts there.
func Crowding(records []*store.Record) (moving, crowded []int64) {
	for _, e := range records {
		if _, kept := e.Latest(); !kept {
			continue // no attempt is added, and there were not too many before
		}
		moving = append(moving, e.ID)
		if e.Token >= store.MaxAttemptsKept { // each attempt began with a claim, which raised the token
			crowded = append(crowded, e.ID)
		}
	}
	return moving, crowded
}
