package model

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Get is part of the contract.
func (s *Store) Get(ctx context.Context, id int64) (store.JobDetail, error) {
	return call(ctx, s, nil, func(time.Time) (store.JobDetail, error) {
		j, found := s.find(id)
		if !found {
			return store.JobDetail{}, store.ErrNotFound
		}
		return store.JobDetail{Job: s.row(j), History: slices.Clone(j.history), Waits: s.shown(j)}, nil
	})
}

// List is part of the contract.
func (s *Store) List(ctx context.Context, filter store.Filter, page store.Page) (store.JobPage, error) {
	return call(ctx, s, cmp.Or(filter.Check(), page.Check()), func(now time.Time) (store.JobPage, error) {
		matching, err := s.page(filter, page, now)
		if err != nil {
			return store.JobPage{}, err
		}
		var answer store.JobPage
		light := s.lightEnough(matching, PageUnweighed)
		light = light[:min(page.Limit, len(light))]
		answer.Jobs = slices.Grow(answer.Jobs, len(light))
		for _, j := range light {
			answer.Jobs = append(answer.Jobs, s.row(j))
		}
		if n := len(answer.Jobs); n < len(matching) {
			answer.Next = filter.Cursor(answer.Jobs[n-1].ID)
		}
		return answer, nil
	})
}

// page returns all jobs that match and lie beyond the cursor, the newest first.
func (s *Store) page(filter store.Filter, page store.Page, now time.Time) ([]job, error) {
	matching := s.those(func(j job) bool { return s.matches(filter, j, now) })
	if !s.broken(ListIsRising) {
		slices.Reverse(matching)
	}
	if page.Cursor == "" {
		return matching, nil
	}
	position, err := filter.Position(page)
	if err != nil {
		return matching, s.unless(CursorUnchecked, err)
	}
	if s.broken(PageOverlaps) && page.Limit > 1 { // with pages of one job a reader would never end
		position++
	}
	return slices.DeleteFunc(matching, func(j job) bool {
		if s.broken(ListIsRising) {
			return j.ID <= position
		}
		return j.ID >= position
	}), nil
}

// Count is part of the contract.
func (s *Store) Count(ctx context.Context, filter store.Filter) (store.Counts, error) {
	return call(ctx, s, filter.Check(), func(now time.Time) (store.Counts, error) {
		queues := map[string]store.QueueCount{}
		for _, j := range s.those(func(j job) bool { return s.matches(filter, j, now) }) {
			queues[j.Queue] = s.counted(queues[j.Queue], j, now)
		}
		counts := store.Counts{Now: now}
		for _, q := range queues {
			counts.Queues = append(counts.Queues, q)
		}
		slices.SortFunc(counts.Queues, func(a, b store.QueueCount) int { return cmp.Compare(a.Queue, b.Queue) })
		return counts, nil
	})
}

// counted is the count of a queue with one more job.
func (s *Store) counted(q store.QueueCount, j job, now time.Time) store.QueueCount {
	if q.Jobs == nil {
		q = store.QueueCount{Queue: j.Queue, Jobs: map[store.State]int64{}}
	}
	phase := j.Phase()
	if s.broken(DeadCountedAsRetrying) && phase == store.Dead {
		phase = store.Retrying
	}
	q.Jobs[phase]++
	due := j.Claimable(now)
	if s.broken(DueCountsWaiting) {
		due = phase == store.Ready || phase == store.Retrying
	}
	if due {
		q.Due++
		if q.OldestDue.IsZero() || j.Next().Before(q.OldestDue) || s.broken(OldestDueIsNewest) {
			q.OldestDue = j.Next()
		}
	}
	return q
}

// like says whether a queue matches a pattern in which an underscore stands for any character.
func like(patterns []string, queue string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		text := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSuffix(p, "*")), "_", ".")
		if !strings.HasSuffix(p, "*") {
			text += "$"
		}
		return regexp.MustCompile("^" + text).MatchString(queue)
	})
}

// matches is Filter.Matches, but for faults.
func (s *Store) matches(f store.Filter, j job, now time.Time) bool {
	switch {
	case s.broken(DeadIncludesRetrying) && slices.Contains(f.States, store.Dead):
		f.States = append(slices.Clone(f.States), store.Retrying)
	case s.broken(FilterIgnoresTag):
		f.Tag = ""
	case s.broken(FilterIgnoresLimitKey):
		f.LimitKey = ""
	case s.broken(LimitKeyIsPrefix) && strings.HasPrefix(j.LimitKey(), f.LimitKey):
		f.LimitKey = ""
	case s.broken(FilterIgnoresQueues):
		f.Queues = nil
	case s.broken(PatternsAreNames) && len(f.Queues) > 0 && !slices.Contains(f.Queues, j.Queue):
		return false
	case s.broken(PatternsAreLike) && like(f.Queues, j.Queue):
		f.Queues = nil
	case s.broken(FilterIgnoresAfter):
		f.After = 0
	case s.broken(AgeTooYoung) && f.FinishedFor > 0:
		f.FinishedFor -= store.Resolution
	case s.broken(AgeTooOld) && f.FinishedFor > 0:
		f.FinishedFor += store.Resolution
	}
	if len(f.Queues) > 0 && !slices.ContainsFunc(f.Queues, func(p string) bool { return fits(p, j.Queue) }) {
		return false
	}
	f.Queues = nil
	return s.matchesWaits(f, j) && f.WithoutWaits().Matches(j.Job, now)
}

// matchesWaits says whether the job matches what the filter says about waits.
func (s *Store) matchesWaits(f store.Filter, j job) bool {
	waitsFor := func(w wait) bool { return w.on == f.WaitsFor }
	if f.WaitsFor != 0 && !s.broken(FilterIgnoresWaitsFor) && !slices.ContainsFunc(j.waits, waitsFor) {
		return false
	}
	waitsForGroup := func(w wait) bool { return w.group == f.WaitsForGroup && !(w.met && s.broken(MetGroupWaitsUnfiltered)) }
	if f.WaitsForGroup != "" && !s.broken(FilterIgnoresWaitsForGroup) && !slices.ContainsFunc(j.waits, waitsForGroup) {
		return false
	}
	if !f.Unneeded || s.broken(FilterIgnoresUnneeded) {
		return true
	}
	needs := func(w wait) bool {
		if w.group != "" {
			return w.group == j.Group() && !s.broken(GroupWaitsNeedNothing)
		}
		return w.on == j.ID && !(w.met && s.broken(MetWaitsNeedNothing))
	}
	return !slices.ContainsFunc(s.jobs, func(other job) bool {
		return (!other.Terminal() || s.broken(EndedJobsNeed)) && slices.ContainsFunc(other.waits, needs)
	})
}

// fits is the rule of store.QueueMatches for one pattern, written once more.
func fits(pattern, queue string) bool {
	for i := range len(pattern) {
		switch {
		case pattern[i] == '*' && i == len(pattern)-1:
			return true
		case i == len(queue) || pattern[i] != queue[i]:
			return false
		}
	}
	return len(queue) == len(pattern)
}
