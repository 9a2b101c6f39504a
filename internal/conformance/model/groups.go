package model

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Faults of groups.
var (
	OpenIgnored                = fault("open-ignored", "Groups", "An open group is taken for a sealed one.")
	OpenForEver                = fault("open-for-ever", "Groups", "SealGroup leaves the group open.")
	SealOfSealedAccepted       = fault("seal-of-sealed-accepted", "Groups", "A group that is not open can be sealed.")
	SealTellsNobody            = fault("seal-tells-nobody", "Groups", "What waits for a group that is done is not told of its seal.")
	OpenedAnew                 = fault("opened-anew", "Groups", "To open an open group changes when it was opened.")
	DeadMembersMeet            = fault("dead-members-meet", "Groups", "A group with a dead job counts as a success.")
	GroupsSeenBefore           = fault("groups-seen-before", "Groups", "A call sees the jobs of others in a group as they were when it began.")
	SpoiledMeets               = fault("spoiled-meets", "Groups", "A group with a cancelled job counts as a success.")
	SpoiledLeavesWaiters       = fault("spoiled-leaves-waiters", "Groups", "What needs a group that is spoiled stays blocked.")
	SpoiledUnexplained         = fault("spoiled-unexplained", "Groups", "What needs a group that is spoiled is cancelled without an error.")
	SpoiledByCallUnseen        = fault("spoiled-by-call-unseen", "Groups", "An item is blocked that needs a group which an earlier item of the call spoils.")
	GroupNamedFirst            = fault("group-named-first", "Groups", "The error of a job that needs another and its group names the group.")
	FirstWaitNamed             = fault("first-wait-named", "Groups", "The error of a job that needs two spoiled groups names the one that is first among its waits.")
	SpoiledCancelsAgain        = fault("spoiled-cancels-again", "Groups", "A requeued job is cancelled because a group was spoiled before.")
	SpoiledByDead              = fault("spoiled-by-dead", "Groups", "A dead job spoils its group.")
	DeletedDeadSpareGroups     = fault("deleted-dead-spare-groups", "Groups", "A dead job that is deleted does not spoil its group.")
	AddedCancelledSpares       = fault("added-cancelled-spares", "Groups", "A job that is added as cancelled does not spoil its group.")
	SpoiledForNow              = fault("spoiled-for-now", "Groups", "A group is no longer spoiled when its cancelled job was requeued.")
	SpoiledForEver             = fault("spoiled-for-ever", "Groups", "A group stays spoiled after all its jobs are gone.")
	LaterItemsUnexpected       = fault("later-items-unexpected", "Groups", "A job does not wait for later items of the call that are in its group.")
	DoneKeepsRunAt             = fault("done-keeps-run-at", "Groups", "A job that becomes ready because a group is done is due since it was enqueued.")
	GroupsMetApart             = fault("groups-met-apart", "Groups", "A wait for a group stays met while others of the job are not.")
	BlockedAreNotLive          = fault("blocked-are-not-live", "Groups", "A blocked job in a group does not keep it from being done.")
	RetryingAreNotLive         = fault("retrying-are-not-live", "Groups", "A retrying job in a group does not keep it from being done.")
	CirclesAccepted            = fault("circles-accepted", "Groups", "A job may wait for its own group, and for one that waits for it.")
	DuplicatesJoin             = fault("duplicates-join", "Groups", "The holder of a unique key joins the group of a duplicate.")
	ReplaceOfOtherGroup        = fault("replace-of-other-group", "Groups", "A duplicate with Replace changes a holder in another group.")
	FilterIgnoresWaitsForGroup = fault("filter-ignores-waits-for-group", "Groups", "A filter ignores WaitsForGroup.")
	MetGroupWaitsUnfiltered    = fault("met-group-waits-unfiltered", "Groups", "A filter with WaitsForGroup overlooks jobs that have waited.")
	GroupWaitsNeedNothing      = fault("group-waits-need-nothing", "Groups", "Unneeded overlooks waits for the group of a job.")
	GroupsUnsorted             = fault("groups-unsorted", "Groups", "Groups are listed in no order.")
	GroupsLeftOut              = fault("groups-left-out", "Groups", "A group that is only waited for is not listed.")
	GroupsNameIgnored          = fault("groups-name-ignored", "Groups", "A filter with a name selects every group.")
	GroupsOpenForIgnored       = fault("groups-open-for-ignored", "Groups", "A filter with OpenFor selects every open group.")
	GroupsUnlimited            = fault("groups-unlimited", "Groups", "A page has more groups than its limit.")
	GroupsPageOverlaps         = fault("groups-page-overlaps", "Groups", "A page begins with the last group of the page before.")
)

var _ store.GroupKeeper = (*Store)(nil)

// status is how the group is now.
func (s *Store) status(name string) store.GroupStatus {
	_, open := s.opened[name]
	g := store.GroupStatus{Open: open && !s.broken(OpenIgnored), Spoiled: s.spoiled[name], Live: s.coming[name]}
	for _, j := range s.jobs {
		if j.Group() != name {
			continue
		}
		j = s.asBefore(j, GroupsSeenBefore)
		unseen := j.State == store.Blocked && s.broken(BlockedAreNotLive) || j.Phase() == store.Retrying && s.broken(RetryingAreNotLive)
		g.Live = g.Live || !j.Terminal() && !unseen
		g.Dead = g.Dead || j.Phase() == store.Dead
	}
	return g
}

// done says whether the wait for a group is met.
func (s *Store) done(w wait) bool {
	g := s.status(w.group)
	good := !(g.Dead && !s.broken(DeadMembersMeet)) && !(g.Spoiled && !s.broken(SpoiledMeets))
	return !g.Open && !g.Live && (good || w.any)
}

func (s *Store) whySpoiled(name string) string {
	if s.broken(SpoiledUnexplained) {
		return ""
	}
	return fmt.Sprintf("group %q, which it needs, has a job that was cancelled or deleted", name)
}

// leaves takes into account that a job has ended or is deleted, as far as its group is concerned.
func (s *Store) leaves(j job, as store.State) {
	name := j.Group()
	if name == "" {
		return
	}
	if as == store.Cancelled || as == store.Gone && !s.broken(DeletedDeadSpareGroups) || as == store.Dead && s.broken(SpoiledByDead) {
		s.spoiled[name] = true
	}
	s.noteGroup(name)
}

// noteGroup notes that something has changed in a group, if a job waits for it.
func (s *Store) noteGroup(name string) {
	if s.awaits(name) {
		s.count++
		s.ends = append(s.ends, ending{group: name, number: s.count})
	}
}

func (s *Store) awaits(name string) bool {
	forIt := func(w wait) bool { return w.group == name }
	return slices.ContainsFunc(s.jobs, func(j job) bool { return slices.ContainsFunc(j.waits, forIt) })
}

// exists says whether the group is open, has a job, or a job waits or has waited for it.
func (s *Store) exists(name string) bool {
	_, open := s.opened[name]
	return open || s.awaits(name) || slices.ContainsFunc(s.jobs, func(j job) bool { return j.Group() == name })
}

// forget forgets what was spoiled in groups that no longer exist.
func (s *Store) forget() {
	for name := range s.spoiled {
		if !s.exists(name) && !s.broken(SpoiledForEver) {
			delete(s.spoiled, name)
		}
	}
}

// begin expects the jobs of a call in their groups.
func (s *Store) begin(jobs []store.NewJob) {
	s.coming = map[string]bool{}
	for _, n := range jobs {
		s.coming[n.Group] = n.Group != "" && !s.broken(LaterItemsUnexpected)
	}
}

// begun notes groups of which a call has enqueued jobs and what waits for them.
func (s *Store) begun(jobs []store.NewJob) {
	s.coming = nil
	for _, j := range s.late {
		s.leaves(j, store.Cancelled)
	}
	s.late = nil
	for _, n := range jobs {
		for _, w := range n.After {
			if w.Group != "" && slices.ContainsFunc(jobs, func(other store.NewJob) bool { return other.Group == w.Group }) {
				s.noteGroup(w.Group) // of which it did not know before whether the jobs are duplicates or cancelled
			}
		}
	}
}

// hearsOfGroup tells a job that something has changed in a group, and says whether that has changed the job.
func (s *Store) hearsOfGroup(j job, name string, now time.Time) (after job, changed bool) {
	forIt := func(w wait) bool { return w.group == name }
	if j.State != store.Blocked || !slices.ContainsFunc(j.waits, forIt) {
		return j, false
	}
	for _, w := range j.waits {
		if w.group == name && !w.any && !w.stuck && s.status(name).Spoiled && !s.broken(SpoiledLeavesWaiters) {
			if s.broken(FirstWaitNamed) {
				name = j.waits[slices.IndexFunc(j.waits, func(w wait) bool { return s.spoiled[w.group] })].group
			}
			return s.cancelFor(j, s.whySpoiled(name), now), true
		}
	}
	if s.broken(GroupsMetApart) {
		for i, w := range j.waits {
			if w.group != "" && s.done(w) {
				j.waits[i].met = true
			}
		}
	}
	if !s.allMet(j) {
		return j, false
	}
	if s.broken(DoneKeepsRunAt) {
		now = j.RunAt
	}
	return s.unblock(j, j, now), true
}

// SealGroup is part of the contract.
func (s *Store) SealGroup(ctx context.Context, name string) error {
	return change(ctx, s, store.CheckGroup(name), func(time.Time) error {
		if _, open := s.opened[name]; !open && !s.broken(SealOfSealedAccepted) {
			return &store.InvalidError{Item: -1, Field: "group", Rule: fmt.Sprintf("%q is not open", name)}
		}
		if s.broken(OpenForEver) {
			return nil
		}
		delete(s.opened, name)
		if !s.broken(SealTellsNobody) {
			s.noteGroup(name)
		}
		s.forget()
		return nil
	})
}

// Groups is part of the contract.
func (s *Store) Groups(ctx context.Context, filter store.GroupFilter, page store.Page) (store.GroupPage, error) {
	return call(ctx, s, cmp.Or(filter.Check(), page.Check()), func(now time.Time) (store.GroupPage, error) {
		after, err := filter.Position(page)
		if err != nil {
			return store.GroupPage{}, err
		}
		if s.broken(GroupsNameIgnored) {
			filter.Name = ""
		}
		if s.broken(GroupsOpenForIgnored) && filter.OpenFor > 0 {
			filter.OpenFor = store.Resolution
		}
		var found store.GroupPage
		for _, name := range s.groupNames() {
			g := store.Group{Name: name, OpenedAt: s.opened[name], GroupStatus: s.status(name)}
			if name < after || name == after && !s.broken(GroupsPageOverlaps) || !filter.Matches(g, now) {
				continue
			}
			if len(found.Groups) == page.Limit && !s.broken(GroupsUnlimited) {
				found.Next = filter.Cursor(found.Groups[page.Limit-1].Name)
				break
			}
			found.Groups = append(found.Groups, g)
		}
		return found, nil
	})
}

// groupNames are the names of all groups.
func (s *Store) groupNames() []string {
	names := map[string]bool{}
	for name := range s.opened {
		names[name] = true
	}
	for _, j := range s.jobs {
		names[j.Group()] = true
		for _, w := range j.waits {
			names[w.group] = !s.broken(GroupsLeftOut) || names[w.group]
		}
	}
	delete(names, "")
	maps.DeleteFunc(names, func(_ string, is bool) bool { return !is })
	list := slices.Sorted(maps.Keys(names))
	if s.broken(GroupsUnsorted) {
		slices.Reverse(list)
	}
	return list
}
