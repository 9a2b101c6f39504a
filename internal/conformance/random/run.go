package random

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/conformance/model"
	"github.com/seed-ed332417/jq/internal/store"
)

// A run is a store and the model beside it, and what a script can refer to.
type run struct {
	ctx     context.Context
	clk     *clock.Mock
	store   store.Store
	model   *model.Store
	tried   *tally
	noWaits bool     // the store keeps no waits
	journal []string // what was done, with the answers

	noKeyLimits bool // the store limits nothing by limit keys

	ids      []int64                // of all jobs that were ever enqueued
	leases   []store.Lease          // all that were ever given
	requests []store.EnqueueRequest // those that had a request key
	ends     []time.Time            // of windows and request keys
	listed   []store.Job            // the jobs as they stand
	rows     map[int64]store.Job    // the same by id
	floor    int64                  // new ids must be greater
	touched  []int64                // the jobs that the present operation had to do with
	changed  bool                   // by what was done since counts were compared: a row, the time, or whether a queue is paused
}

// step plays one operation and compares what the store and the model then keep: all rows, and of the jobs that the
// operation touched the history. It compares counts if something that they depend on has changed.
func (r *run) step(o op) error {
	r.touched = nil
	if err := o.play(r); err != nil {
		return err
	}
	if err := r.compareRows(); err != nil {
		return err
	}
	if err := r.compareDetails(r.touched); err != nil {
		return err
	}
	if !r.changed {
		return nil
	}
	r.changed = false
	_, err := both(r, "Count", func(s store.Store) (store.Counts, error) { return s.Count(r.ctx, store.Filter{}) })
	_, err2 := able(r, "OldestDue", func(s store.Monitor) (store.Due, error) { return s.OldestDue(r.ctx) })
	return errors.Join(err, err2)
}

// compareRows compares all jobs, and remembers them.
func (r *run) compareRows() error {
	jobs, err := both(r, "List", func(s store.Store) ([]store.Job, error) { return r.list(s, store.Filter{}, 100) })
	if err != nil || reflect.DeepEqual(jobs, r.listed) {
		return err
	}
	before := r.rows
	r.changed, r.listed, r.rows = true, jobs, make(map[int64]store.Job, len(jobs))
	for _, j := range jobs {
		r.rows[j.ID] = j
		if before[j.ID].State == store.Blocked && j.State == store.Ready {
			r.tried.cells[cell{store.OpUnblock, store.Blocked, taken}]++
			r.touched = append(r.touched, j.ID)
		}
	}
	return nil
}

// compareDetails compares jobs with their histories, or that they are no more.
func (r *run) compareDetails(ids []int64) error {
	for _, id := range ids {
		_, err := both(r, fmt.Sprintf("Get %d", id), func(s store.Store) (store.JobDetail, error) {
			d, err := s.Get(r.ctx, id)
			d.Job = tidy(d.Job)
			return d, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// list reads all pages.
func (r *run) list(s store.Store, filter store.Filter, size int) ([]store.Job, error) {
	var jobs []store.Job
	for page := (store.Page{Limit: size}); ; {
		part, err := s.List(r.ctx, filter, page)
		if err != nil {
			return nil, err
		}
		for _, j := range part.Jobs {
			if n := len(jobs); n > 0 && j.ID >= jobs[n-1].ID { // or a faulty store could lead round for ever
				return nil, fmt.Errorf("job %d is listed after job %d", j.ID, jobs[n-1].ID)
			}
			jobs = append(jobs, tidy(j))
		}
		if part.Next == "" {
			return jobs, nil
		}
		if len(part.Jobs) != size {
			return nil, fmt.Errorf("a page of %d jobs has %d and is not the last", size, len(part.Jobs))
		}
		page.Cursor = part.Next
	}
}

// phase is the job's phase, or Gone.
func (r *run) phase(id int64) store.State {
	if j, ok := r.rows[id]; ok {
		return j.Phase()
	}
	return store.Gone
}

// job is the id of the picked job.
func (r *run) job(p pick) int64 {
	return picked(r, r.ids, p, func(id int64) int64 { return id }, 1)
}

// lease is the picked lease.
func (r *run) lease(p pick) store.Lease {
	return picked(r, r.leases, p, func(l store.Lease) int64 { return l.ID }, store.Lease{ID: 1, Token: 1})
}

// picked is the item at the picked place among those in the picked phase, or of any phase if there are none in it.
func picked[T any](r *run, items []T, p pick, id func(T) int64, none T) T {
	var inPhase []T
	for _, item := range items {
		if r.phase(id(item)) == p.phase {
			inPhase = append(inPhase, item)
		}
	}
	if len(inPhase) == 0 {
		inPhase = items
	}
	if len(inPhase) == 0 {
		return none
	}
	return inPhase[len(inPhase)-1-p.place%len(inPhase)]
}

// note adds what an operation was and came to, with ids, to its line in the journal.
func (r *run) note(format string, args ...any) {
	r.journal[len(r.journal)-1] += "  ⇒  " + fmt.Sprintf(format, args...)
}
