package sqlkit

import (
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Keyed are the records by the ids of their jobs.
func Keyed(records []*store.Record) map[int64]*store.Record {
	found := make(map[int64]*store.Record, len(records))
	for _, e := range records {
		found[e.ID] = e
	}
	return found
}

// DoNamed does something to the jobs that the filter names by id, as far as they are there and match the rest of it. What was
// deleted has no state in its outcome, and is not found again.
func DoNamed(
	filter store.Filter, jobs map[int64]*store.Record, now time.Time, do func(*store.Record) (store.Outcome, error),
) ([]store.Outcome, error) {
	rest := filter
	rest.IDs = nil // to find an id among a thousand for each of a thousand jobs would take long
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

// Crowding are the jobs that need room for another attempt: those whose latest one is to move to the table of attempts, and
// those that may have too many there.
func Crowding(records []*store.Record) (moving, crowded []int64) {
	for _, e := range records {
		if _, kept := e.Latest(); !kept {
			continue // none is added, and there were not too many before
		}
		moving = append(moving, e.ID)
		if e.Token >= store.MaxAttemptsKept { // a claim has raised the token before it wrote an attempt
			crowded = append(crowded, e.ID)
		}
	}
	return moving, crowded
}
