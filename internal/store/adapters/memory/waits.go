package memory

import (
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// An end is one that the waiters up to an id have heard of.
type end struct {
	store.End
	upTo int64
}

// job returns the job with the id, or nil. It is valid until the next call of record.
func (s *Store) job(id int64) *store.Job {
	if _, r := s.find(id); r != nil {
		return &r.Job
	}
	return nil
}

// await keeps the waits of a new job.
func (s *Store) await(id int64, waits []store.KeptWait) {
	s.waits[id] = waits
	for _, w := range waits {
		if others := s.waiters[w.On]; len(others) == 0 || others[len(others)-1] != id { // which may wait twice
			s.waiters[w.On] = append(others, id)
		}
	}
}

// forgetWaits forgets the waits of a job that is removed.
func (s *Store) forgetWaits(id int64) {
	for _, w := range s.waits[id] {
		waiters := s.waiters[w.On]
		if at, found := slices.BinarySearch(waiters, id); found {
			waiters = slices.Delete(waiters, at, at+1)
		}
		if s.waiters[w.On] = waiters; len(waiters) == 0 {
			delete(s.waiters, w.On)
		}
	}
	delete(s.waits, id)
}

// matchesWaits reports whether the job matches what the filter says about waits.
func (s *Store) matchesWaits(f store.Filter, id int64) bool {
	if f.WaitsFor != 0 {
		if _, waits := slices.BinarySearch(s.waiters[f.WaitsFor], id); !waits {
			return false
		}
	}
	return !f.Unneeded || !slices.ContainsFunc(s.waiters[id], func(waiter int64) bool { return !terminal(s.jobs.get(waiter)) })
}

// ended notes that a job has ended, if others wait for it.
func (s *Store) ended(e store.End, is bool) {
	if !is || len(s.waiters[e.ID]) == 0 {
		return
	}
	s.heard = true
	s.ends = append(s.ends, end{End: e})
	if s.tx != nil { // within which no end is heard
		n := len(s.ends) - 1
		s.tx.onRollback(func() { s.ends = s.ends[:n] })
	}
}

// follow does what follows from the ends that a call or a transaction has noted, for a part of the jobs at most: the rest is left to
// Settle.
func (s *Store) follow() {
	if s.heard {
		s.hear(store.SettledByCall, s.last)
		s.heard = false
	}
}

// hear tells waiters of ends, until it has changed so many jobs, and returns these.
func (s *Store) hear(limit int, now time.Time) (changed []*job) {
	for len(s.ends) > 0 && len(changed) < limit {
		waiters := s.waiters[s.ends[0].ID]
		at, _ := slices.BinarySearch(waiters, s.ends[0].upTo+1)
		for ; at < len(waiters) && len(changed) < limit; at++ {
			s.ends[0].upTo = waiters[at]
			j, r := s.find(waiters[at])
			before := r.State
			r.Hear(s.waits[j.ID], s.ends[0].End, now)
			if r.State != before {
				s.change(j, r)
				changed = append(changed, j)
			}
		}
		if at == len(waiters) {
			s.ends = s.ends[1:]
		}
	}
	return changed
}
