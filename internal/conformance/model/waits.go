package model

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A wait is for another job, and for its ends after so many that there were before, or for a group.
type wait struct {
	on       int64
	group    string
	any, met bool
	since    int
	stuck    bool // the group was spoiled when the job was requeued
	lost     bool // the other job was dead, for DeadIsFinal
}

// An ending is one end of a job, or says that something has changed in a group. Jobs up to an id have heard of it.
type ending struct {
	id     int64
	group  string
	as     store.State
	number int
	upTo   int64
}

// noteEnd notes an end of a job that others wait for.
func (s *Store) noteEnd(j job, as store.State) {
	forIt := func(w wait) bool { return w.on == j.ID }
	if !slices.ContainsFunc(s.jobs, func(other job) bool { return slices.ContainsFunc(other.waits, forIt) }) {
		return
	}
	s.count++
	s.ends = append(s.ends, ending{id: j.ID, as: as, number: s.count})
}

// perCall is how many other jobs a call may change.
func (s *Store) perCall() int {
	if s.broken(CallSettlesAll) {
		return 1 << 30
	}
	return 1000
}

// hear tells those that wait of ends, until it has changed so many jobs.
func (s *Store) hear(limit int, now time.Time) (changed []job) {
	for len(s.ends) > 0 {
		e := s.ends[0]
		for _, j := range s.those(func(j job) bool { return j.ID > e.upTo }) {
			if len(changed) == limit {
				return changed
			}
			s.ends[0].upTo = j.ID
			if after, does := s.hears(j, e, now); does {
				changed = append(changed, after)
			}
		}
		s.ends = s.ends[1:]
	}
	return changed
}

// hears tells one job of an end, and says whether that has changed more than its waits.
func (s *Store) hears(j job, e ending, now time.Time) (after job, changed bool) {
	if e.group != "" {
		return s.hearsOfGroup(j, e.group, now)
	}
	after = j
	after.waits = slices.Clone(s.asBefore(j, WaitsSeenBefore).waits)
	fatal, concerned := false, false
	for i, w := range after.waits {
		if w.on != e.id || w.group != "" || w.met || e.number <= w.since && !s.broken(OldEndsCount) {
			continue
		}
		good := e.as == store.Succeeded && !w.lost || w.any && !s.broken(AnyNeedsSuccess) || e.as == store.Dead && s.broken(DeadMeets)
		fatal = fatal || !good && !w.any && s.fatal(e.as)
		after.waits[i].met = good
		after.waits[i].lost = w.lost || e.as == store.Dead && s.broken(DeadIsFinal)
		concerned = concerned || good
	}
	if fatal && j.State == store.Blocked && !(s.broken(CascadeStops) && s.wasBlocked(e.id)) {
		return s.cancelFor(after, s.why(e.id, e.as), now), true
	}
	if j.State == store.Blocked && concerned && s.allMet(after) {
		return s.unblock(j, after, now), true
	}
	if i := s.index(j.ID); i >= 0 {
		s.jobs[i].waits = after.waits
		s.wrote(j.ID)
	}
	return after, false
}

func (s *Store) unblock(before, after job, now time.Time) job {
	after.State = store.Ready
	after.waits = met(after.waits)
	if now.After(after.RunAt) && !s.broken(UnblockKeepsRunAt) || s.broken(UnblockForgetsDelay) {
		after.RunAt = now
	}
	return s.write(store.OpUnblock, before, after)
}

// met is the waits with all of them met.
func met(waits []wait) []wait {
	waits = slices.Clone(waits)
	for i := range waits {
		waits[i].met = true
	}
	return waits
}

// wasBlocked says of a cancelled job that it was cancelled because it needed another.
func (s *Store) wasBlocked(id int64) bool {
	j, found := s.find(id)
	return found && len(j.waits) > 0
}

func (s *Store) fatal(as store.State) bool {
	switch as {
	case store.Cancelled:
		return !s.broken(CancelledLeavesWaiters)
	case store.Gone:
		return !s.broken(DeletedLeavesWaiters)
	default:
		return as == store.Dead && s.broken(DeadCancelsWaiters)
	}
}

func (s *Store) cancelFor(j job, why string, now time.Time) job {
	s.cancel(j, now) // with its waits as they are now
	i := s.index(j.ID)
	s.jobs[i].Error = why
	return s.jobs[i]
}

func (s *Store) why(id int64, as store.State) string {
	if s.broken(CancelledUnexplained) {
		return ""
	}
	what := "cancelled"
	if as == store.Gone {
		what = "deleted"
	}
	return fmt.Sprintf("job %d, which it needs, was %s", id, what)
}

// allMet says whether no wait of the job keeps it blocked.
func (s *Store) allMet(j job) bool {
	met := func(w wait) bool {
		if w.group != "" {
			return w.met && s.broken(GroupsMetApart) || s.done(w)
		}
		if on, found := s.find(w.on); s.broken(MetWaitForgotten) && found && !w.any && on.State != store.Succeeded {
			return false
		}
		return w.met
	}
	if s.broken(FirstWaitIsEnough) {
		return slices.ContainsFunc(j.waits, met)
	}
	return !slices.ContainsFunc(j.waits, func(w wait) bool { return !met(w) })
}

// unfit is the error for the first job that expires before it is due, waits for one that does not exist, or has a priority in an ordered queue.
func (s *Store) unfit(jobs []store.NewJob, now time.Time) error {
	for i, n := range jobs {
		if err := store.CheckExpiry(jobs[:i+1], now); err != nil && !s.broken(ExpiryUnchecked) {
			return err
		}
		if s.refusesPriority(n) {
			return &store.InvalidError{Item: i, Field: "priority", Rule: "must be 0 for a job with a limit key: its queue is ordered"}
		}
		for k, w := range n.After {
			if _, found := s.find(w.ID); w.ID != 0 && !found && !s.broken(UnknownWaitAccepted) && !(k > 0 && s.broken(FirstWaitChecked)) {
				return &store.InvalidError{Item: i, Field: "after", Rule: fmt.Sprintf("names job %d, which does not exist", w.ID)}
			}
		}
	}
	return nil
}

// waiting is a new job as its waits make it. The answer has the earlier items of its call.
func (s *Store) waiting(j job, n store.NewJob, answer []store.Enqueued, now time.Time) job {
	if s.broken(WaitsIgnored) {
		return j
	}
	for _, w := range n.After {
		if w.Group != "" {
			j.waits = append(j.waits, wait{group: w.Group, any: w.Any})
			continue
		}
		on := w.ID
		if on == 0 {
			on = answer[w.Item].ID
			if s.broken(FirstItemForAll) {
				on = answer[0].ID
			}
			if s.broken(WaitForDuplicateMet) && answer[w.Item].Duplicate {
				continue
			}
		}
		j.waits = append(j.waits, wait{on: on, any: w.Any})
	}
	return s.looked(j, now, true)
}

// looked is a job whose waits are as the other jobs are now.
func (s *Store) looked(j job, now time.Time, isNew bool) job {
	j.waits = slices.Clone(j.waits)
	end := func(why string) {
		if isNew && j.State != store.Cancelled && !s.broken(CancelledParentBlocks) || !isNew && s.broken(RequeueCancelsAgain) {
			j.State, j.FinishedAt, j.Error = store.Cancelled, now, why
		}
	}
	for i := range j.waits {
		w := &j.waits[i]
		if w.group != "" {
			continue
		}
		w.since = s.count
		on, found := s.find(w.on)
		as := store.Gone
		if found {
			as = on.Phase()
			w.met = as == store.Succeeded || w.any && on.Terminal() && !s.broken(AnyNeedsSuccess)
		}
		w.met = w.met || !found && w.any
		if !w.met && !w.any && (as == store.Cancelled || as == store.Gone) || isNew && as == store.Cancelled && s.broken(AnyOfCancelledCancels) {
			end(s.why(w.on, as))
		}
	}
	for i := range j.waits {
		if w := &j.waits[i]; w.group != "" {
			w.met, w.stuck = false, !isNew && s.status(w.group).Spoiled && !s.broken(SpoiledCancelsAgain)
			if !w.any && s.status(w.group).Spoiled {
				end(s.whySpoiled(w.group))
			}
		}
	}
	switch {
	case j.State != store.Ready:
	case s.allMet(j):
		j.waits = met(j.waits)
	default:
		j.State = store.Blocked
	}
	return j
}

// lookAgain blocks jobs that were requeued and wait for others, and corrects their outcomes.
func (s *Store) lookAgain(outcomes []store.Outcome, now time.Time) {
	requeued := func(j job) bool {
		return len(j.waits) > 0 && slices.ContainsFunc(outcomes, func(o store.Outcome) bool { return o.ID == j.ID && o.Status == store.StatusOK })
	}
	if slices.ContainsFunc(s.jobs, requeued) {
		s.hear(1<<30, now)
	}
	for i, before := range s.jobs {
		at := slices.IndexFunc(outcomes, func(o store.Outcome) bool { return o.ID == before.ID && o.Status == store.StatusOK })
		if at < 0 || s.broken(RequeueForgetsWaits) {
			continue
		}
		if s.broken(RequeueKeepsMet) {
			if !s.allMet(before) {
				s.jobs[i].State = store.Blocked
			}
		} else {
			s.jobs[i] = s.looked(before, now, false)
		}
		for k, o := range outcomes {
			if o.ID == before.ID && o.Status == store.StatusOK {
				outcomes[k] = ok(s.jobs[i])
			}
		}
	}
}

// shown is what Get answers of the waits.
func (s *Store) shown(j job) []store.Waiting {
	var shown []store.Waiting
	for _, w := range j.waits {
		one := store.Waiting{ID: w.on, Group: w.group, Any: w.any, Met: w.met}
		if w.group != "" {
			one.Met, one.State = w.met || s.done(w), s.status(w.group).Phase()
		} else if on, found := s.find(w.on); found {
			one.State = on.Phase()
		}
		again := slices.ContainsFunc(shown, func(other store.Waiting) bool { return other.ID == w.on && w.group == "" })
		if !s.broken(WaitsHidden) && !(again && s.broken(WaitsMerged)) {
			shown = append(shown, one)
		}
	}
	if s.broken(WaitsReversed) {
		slices.Reverse(shown)
	}
	return shown
}
