package memory

import (
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// An end is one that the waiters up to an id have heard of. If it has a group, something has changed in that.
type end struct {
	store.End
	group string
	upTo  int64
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
		if w.Group != "" {
			g := s.groupOf(w.Group)
			g.waiters = withWaiter(g.waiters, id)
		} else {
			s.waiters[w.On] = withWaiter(s.waiters[w.On], id)
		}
	}
}

// forgetWaits forgets the waits of a job that is removed.
func (s *Store) forgetWaits(id int64) {
	for _, w := range s.waits[id] {
		if g := s.groups[w.Group]; w.Group != "" && g != nil {
			g.waiters = withoutWaiter(g.waiters, id)
			s.forgetGroup(w.Group)
		} else if s.waiters[w.On] = withoutWaiter(s.waiters[w.On], id); len(s.waiters[w.On]) == 0 {
			delete(s.waiters, w.On)
		}
	}
	delete(s.waits, id)
}

// matchesWaits reports whether the job matches what the filter says about waits.
func (s *Store) matchesWaits(f store.Filter, id int64) bool {
	waits := func(waiters []int64) bool {
		_, found := slices.BinarySearch(waiters, id)
		return found
	}
	if f.WaitsFor != 0 && !waits(s.waiters[f.WaitsFor]) || f.WaitsForGroup != "" && !waits(s.waitersOf(f.WaitsForGroup)) {
		return false
	}
	if !f.Unneeded {
		return true
	}
	live := func(waiter int64) bool { return !terminal(s.jobs.get(waiter)) }
	if slices.ContainsFunc(s.waiters[id], live) {
		return false
	}
	j := s.jobs.get(id)
	if j == nil {
		return true
	}
	return !slices.ContainsFunc(s.waitersOf(j.group()), live)
}

// ended notes that a job has ended, if others wait for it.
func (s *Store) ended(e store.End, is bool) {
	if !is || len(s.waiters[e.ID]) == 0 {
		return
	}
	s.note(end{End: e})
}

func (s *Store) note(e end) {
	s.heard = true
	s.ends = append(s.ends, e)
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
		if len(s.ends) > 0 {
			s.wake(store.Wakeup{Settle: true})
		}
	}
}

// hear tells waiters of ends, until it has changed so many jobs, and returns these.
func (s *Store) hear(limit int, now time.Time) (changed []*job) {
	on := s.awaits()
	for len(s.ends) > 0 && len(changed) < limit {
		e := s.ends[0]
		waiters := s.told(e)
		at, _ := slices.BinarySearch(waiters, e.upTo+1)
		for ; at < len(waiters) && len(changed) < limit; at++ {
			s.ends[0].upTo = waiters[at]
			j, r := s.find(waiters[at])
			before := r.State
			if e.group != "" {
				r.HearGroup(e.group, s.waits[j.ID], on, now)
			} else {
				r.Hear(s.waits[j.ID], e.End, on, now)
			}
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

// told returns the ids of those who must hear of the end.
func (s *Store) told(e end) []int64 {
	if e.group == "" {
		return s.waiters[e.ID]
	}
	g := s.groups[e.group]
	if is := s.status(e.group); g == nil || !is.Spoiled && (is.Open || is.Live) {
		return nil
	}
	return g.waiters
}
