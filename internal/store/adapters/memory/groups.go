package memory

import (
	"context"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A group counts its jobs, and has those that wait for it.
type group struct {
	openedAt time.Time // zero if it is not open
	spoiled  bool

	jobs, live, dead int     // how many there are, in any state
	coming           bool    // the present Enqueue has jobs for it
	waiters          []int64 // ids of jobs that wait or have waited for it, in rising order
}

// groupOf returns the group with this name, and creates it if necessary.
func (s *Store) groupOf(name string) *group {
	g := s.groups[name]
	if g == nil {
		g = &group{}
		s.groups[name] = g
	}
	return g
}

// waitersOf returns the ids of the jobs that wait or have waited for the group, in rising order.
func (s *Store) waitersOf(name string) []int64 {
	if g := s.groups[name]; g != nil {
		return g.waiters
	}
	return nil
}

// forgetGroup forgets a group that no longer exists.
func (s *Store) forgetGroup(name string) {
	if g := s.groups[name]; g != nil && g.openedAt.IsZero() && g.jobs == 0 && !g.coming && len(g.waiters) == 0 {
		delete(s.groups, name)
	}
}

// status returns the group as it is now.
func (s *Store) status(name string) store.GroupStatus {
	g := s.groups[name]
	if g == nil {
		return store.GroupStatus{}
	}
	return store.GroupStatus{Open: !g.openedAt.IsZero(), Live: g.live > 0 || g.coming, Dead: g.dead > 0, Spoiled: g.spoiled}
}

// awaits has what there is to know of the jobs and groups that others wait for.
func (s *Store) awaits() store.Awaits { return store.Awaits{Job: s.job, Group: s.status} }

// count counts a job for its queue and its group as it is now, or no longer counts it if by is -1.
func (s *Store) count(j *job, by int) {
	if j.phase == inFlight {
		s.countLease(j, by)
	}
	s.countInGroup(j, by)
}

// countLease counts a job in flight.
func (s *Store) countLease(j *job, by int) {
	j.queue.leased += by
	if j.queue.keyed != nil {
		j.queue.keyed.count(j, by)
	}
}

// countInGroup counts a job for its group.
func (s *Store) countInGroup(j *job, by int) {
	name := j.group()
	if name == "" {
		return
	}
	g := s.groupOf(name)
	g.jobs += by
	if !j.phase.terminal() {
		g.live += by
	}
	if j.phase == dead {
		g.dead += by
	}
}

// mark changes whether a group is open or spoiled.
func (s *Store) mark(name string, openedAt time.Time, spoiled bool) {
	g := s.groupOf(name)
	if before := *g; s.tx != nil {
		s.tx.onRollback(func() {
			g := s.groupOf(name)
			g.openedAt, g.spoiled = before.openedAt, before.spoiled
			s.forgetGroup(name)
		})
	}
	g.openedAt, g.spoiled = openedAt, spoiled
	s.forgetGroup(name)
}

// leaves takes into account that a job of a group has ended or is deleted.
func (s *Store) leaves(j *store.Job, deleted bool) {
	name := j.Group()
	if name == "" {
		return
	}
	if store.SpoilsOf(j, deleted) != "" {
		s.mark(name, s.groupOf(name).openedAt, true)
	}
	s.noteGroup(name)
}

// noteGroup notes that something has changed in a group, if a job waits for it.
func (s *Store) noteGroup(name string) {
	if g := s.groups[name]; g != nil && len(g.waiters) > 0 {
		s.note(end{group: name})
	}
}

// open opens the groups of an Enqueue, and expects its jobs in theirs.
func (s *Store) open(req prepared, now time.Time) {
	for _, name := range req.Open {
		if g := s.groupOf(name); g.openedAt.IsZero() {
			s.mark(name, now, g.spoiled)
		}
	}
	for _, n := range req.Jobs {
		if n.Group != "" {
			s.groupOf(n.Group).coming = true
		}
	}
}

// arrived ends what open has begun. What waits for a group of which jobs were expected looks again.
func (s *Store) arrived(req prepared) {
	for _, n := range req.Jobs {
		for _, w := range n.After {
			if g := s.groups[w.Group]; g != nil && g.coming {
				s.noteGroup(w.Group)
			}
		}
	}
	for _, n := range req.Jobs {
		if g := s.groups[n.Group]; g != nil {
			g.coming = false
			s.forgetGroup(n.Group)
		}
	}
}

// SealGroup seals a group that is open.
func (s *Store) SealGroup(ctx context.Context, name string) error {
	if _, err := s.enter(ctx, store.CheckGroup(name)); err != nil {
		return err
	}
	defer s.leave()
	return s.seal(name)
}

func (s *Store) seal(name string) error {
	g := s.groups[name]
	if g == nil || g.openedAt.IsZero() {
		return store.NotOpen(name)
	}
	s.noteGroup(name)
	s.mark(name, time.Time{}, g.spoiled)
	return nil
}

// Groups returns the groups that match, by name.
func (s *Store) Groups(ctx context.Context, filter store.GroupFilter, page store.Page) (store.GroupPage, error) {
	after, refused := filter.Position(page)
	now, err := s.enter(ctx, refused)
	if err != nil {
		return store.GroupPage{}, err
	}
	defer s.leave()
	return s.groupPage(filter, page, after, now), nil
}

func (s *Store) groupPage(filter store.GroupFilter, page store.Page, after string, now time.Time) (found store.GroupPage) {
	for _, name := range names(s.groups) {
		g := store.Group{Name: name, OpenedAt: s.groups[name].openedAt, GroupStatus: s.status(name)}
		if name <= after || !filter.Matches(g, now) {
			continue
		}
		if len(found.Groups) == page.Limit {
			found.Next = filter.Cursor(found.Groups[page.Limit-1].Name)
			break
		}
		found.Groups = append(found.Groups, g)
	}
	return found
}

// withWaiter adds the greatest id of those that wait.
func withWaiter(waiters []int64, id int64) []int64 {
	if n := len(waiters); n > 0 && waiters[n-1] == id { // it waits twice
		return waiters
	}
	return append(waiters, id)
}

func withoutWaiter(waiters []int64, id int64) []int64 {
	if at, found := slices.BinarySearch(waiters, id); found {
		return slices.Delete(waiters, at, at+1)
	}
	return waiters
}
