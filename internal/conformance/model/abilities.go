package model

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Queues is part of the contract.
func (s *Store) Queues(ctx context.Context) ([]store.Queue, error) {
	return call(ctx, s, nil, func(time.Time) ([]store.Queue, error) {
		names := map[string]bool{}
		for _, j := range s.jobs {
			names[j.Queue] = true
		}
		for name, paused := range s.paused {
			if paused && !s.broken(EmptyQueueUnlisted) {
				names[name] = true
			}
		}
		for name, p := range s.policies {
			onlyPerKey := p == store.Policy{MaxPerKey: p.MaxPerKey, Version: p.Version}
			onlyRate := p == store.Policy{Rate: p.Rate, Version: p.Version}
			onlyFair := p == store.Policy{Fair: p.Fair, Version: p.Version}
			onlyOrdered := p == store.Policy{Ordered: p.Ordered, Version: p.Version}
			if p.Sets() && !s.broken(PolicyUnlisted) && !(onlyPerKey && s.broken(KeyLimitUnlisted)) && !(onlyRate && s.broken(RateUnlisted)) &&
				!(onlyFair && s.broken(FairUnlisted)) && !(onlyOrdered && s.broken(OrderUnlisted)) ||
				p.Owner != "" && s.broken(PolicyOwnerListed) {
				names[name] = true
			}
		}
		var queues []store.Queue
		for _, name := range slices.Sorted(maps.Keys(names)) {
			q := store.Queue{Name: name, Paused: s.paused[name], Policy: s.policies[name]}
			if s.broken(ListWithoutPolicies) {
				q.Policy = store.Policy{}
			}
			queues = append(queues, q)
		}
		return queues, nil
	})
}

// Ping is part of the contract.
func (s *Store) Ping(ctx context.Context) error {
	err := change(ctx, s, nil, func(time.Time) error { return nil })
	if s.broken(PingOfClosed) {
		return nil
	}
	return err
}

// OldestDue is part of the contract.
func (s *Store) OldestDue(ctx context.Context) (store.Due, error) {
	return call(ctx, s, nil, func(now time.Time) (store.Due, error) {
		oldest := map[string]job{}
		for _, j := range s.jobs {
			waits := j.State == store.Ready || j.Phase() == store.Retrying
			switch {
			case !waits || !j.Claimable(now) && !s.broken(OldestDueOfWaiting),
				s.broken(OldestDueOfFresh) && j.State != store.Ready,
				s.broken(OldestDueHeedsPause) && s.paused[j.Queue]:
				continue
			}
			first, ok := oldest[j.Queue]
			earlier := j.Next().Before(first.Next())
			if s.broken(OldestDueByPriority) && j.Priority != first.Priority {
				earlier = j.Priority > first.Priority
			}
			if !ok || earlier {
				oldest[j.Queue] = j
			}
		}
		found := store.Due{Now: now}
		for _, name := range slices.Sorted(maps.Keys(oldest)) {
			found.Queues = append(found.Queues, store.QueueDue{Queue: name, OldestDue: oldest[name].Next()})
		}
		return found, nil
	})
}

// SetPaused is part of the contract.
func (s *Store) SetPaused(ctx context.Context, queue string, paused bool) error {
	return change(ctx, s, store.CheckQueue(queue), func(time.Time) error {
		s.paused[queue] = paused || s.paused[queue] && s.broken(PauseIsForEver)
		return nil
	})
}

// Policy is part of the contract.
func (s *Store) Policy(ctx context.Context, queue string) (store.Policy, error) {
	return call(ctx, s, store.CheckQueue(queue), func(time.Time) (store.Policy, error) {
		return s.policies[s.policyOf(queue)], nil
	})
}

// policyOf is under which name the policy of the queue is kept.
func (s *Store) policyOf(queue string) string {
	if s.broken(PolicyForAllQueues) {
		return ""
	}
	return queue
}

// SetPolicy is part of the contract.
func (s *Store) SetPolicy(ctx context.Context, queue string, p store.Policy) (store.Policy, error) {
	checked := p
	if s.broken(LimitUnchecked) {
		checked.MaxInFlight = 0
	}
	if s.broken(KeyLimitUnchecked) {
		checked.MaxPerKey = 0
	}
	if s.broken(RateUnchecked) {
		checked.Rate = store.Rate{}
	}
	refused := cmp.Or(store.CheckQueue(queue), s.unless(PolicyUnchecked, checked.Check()))
	return call(ctx, s, refused, func(now time.Time) (store.Policy, error) {
		queue = s.policyOf(queue)
		current := s.policies[queue]
		if s.broken(PolicyUnlocked) {
			s.letOthersIn()
		}
		next := s.nextPolicy(current, p)
		repeat := current == next && !s.broken(PolicyRepeatRefused)
		if current.Version != p.Version && !repeat && !s.broken(PolicyVersionIgnored) {
			return store.Policy{}, store.ErrConflict
		}
		s.policies[queue] = next
		s.limit(queue, next.MaxInFlight, now)
		s.limitKeys(queue, next.MaxPerKey, now)
		s.setRate(queue, current.Rate, next.Rate, now)
		s.setFair(queue, current, next)
		s.setOrdered(queue, next)
		if !next.Sets() && s.broken(PolicyVersionRestarts) {
			delete(s.policies, queue)
		}
		if s.broken(PolicyDeletesJobs) {
			s.jobs = s.those(func(j job) bool {
				return j.Queue != queue || j.Phase() != store.Dead || next.RetainDead <= 0 || now.Sub(j.FinishedAt) < next.RetainDead
			})
		}
		return next, nil
	})
}

// nextPolicy is what p becomes in the place of the current policy.
func (s *Store) nextPolicy(current, p store.Policy) store.Policy {
	next := p
	fields := map[*time.Duration]time.Duration{
		&next.RetainSucceeded: current.RetainSucceeded, &next.RetainCancelled: current.RetainCancelled, &next.RetainDead: current.RetainDead,
	}
	for field, before := range fields {
		if !s.broken(PolicyTooFine) {
			*field = field.Truncate(store.Resolution)
		}
		if *field == 0 && s.broken(PolicyInParts) {
			*field = before
		}
		if *field == store.KeepForEver && s.broken(ForEverIsUnset) {
			*field = 0
		}
	}
	if next.MaxInFlight == 0 && s.broken(PolicyInParts) {
		next.MaxInFlight = current.MaxInFlight
	}
	if next.MaxPerKey == 0 && s.broken(PolicyInParts) {
		next.MaxPerKey = current.MaxPerKey
	}
	next.Fair = (next.Fair || current.Fair && s.broken(PolicyInParts)) && !s.broken(PolicyFairLost)
	next.Ordered = (next.Ordered || current.Ordered && s.broken(PolicyInParts)) && !s.broken(PolicyOrderLost)
	if next.Rate.N == 0 && s.broken(PolicyInParts) {
		next.Rate = current.Rate
	}
	if !s.broken(PolicyTooFine) {
		next.Rate.Per = next.Rate.Per.Truncate(store.Resolution)
	}
	if s.broken(PolicyOwnerLost) {
		next.Owner = ""
	}
	if next.Declared < current.Declared && s.broken(PolicyDeclaredGrows) {
		next.Declared = current.Declared
	}
	if next.Version++; s.broken(PolicyVersionStays) {
		next.Version = max(current.Version, 1)
	}
	return next
}

// Beat is part of the contract.
func (s *Store) Beat(ctx context.Context, w store.Worker) error {
	return change(ctx, s, w.Check(), func(now time.Time) error {
		w.Queues = slices.Clone(w.Queues)
		w.StaleAfter = w.StaleAfter.Truncate(store.Resolution)
		w.BeatAt, w.Stale = now, false
		if !s.left[w.Name] || !s.broken(LeaveIsForEver) {
			s.workers[w.Name] = w
		}
		return nil
	})
}

// Leave is part of the contract.
func (s *Store) Leave(ctx context.Context, name string) error {
	return change(ctx, s, (store.Worker{Name: name}).Check(), func(time.Time) error {
		_, known := s.workers[name]
		switch {
		case !known && s.broken(LeaveOfNobodyFails):
			return store.ErrNotFound
		case s.broken(LeaveRemovesAll):
			clear(s.workers)
		case !s.broken(LeaveKeepsTheRow):
			delete(s.workers, name)
		}
		s.left[name] = true
		return nil
	})
}

// Workers is part of the contract.
func (s *Store) Workers(ctx context.Context, filter store.WorkerFilter, page store.Page) (store.WorkerPage, error) {
	after, refused := filter.Position(page)
	if page.Cursor != "" {
		refused = s.unless(WorkersCursorUnchecked, refused)
	}
	return call(ctx, s, refused, func(now time.Time) (store.WorkerPage, error) {
		list := s.workersAfter(filter, after, page.Limit, now)
		n := s.workersOnPage(list, page.Limit)
		answer := store.WorkerPage{Workers: list[:n:n]}
		if n < len(list) || n == page.Limit && s.broken(WorkersNextAfterLast) {
			answer.Next = filter.Cursor(list[n-1].Name)
		}
		return answer, nil
	})
}

// workersAfter are all workers that match and come after a name, as they stand at now.
func (s *Store) workersAfter(filter store.WorkerFilter, after string, limit int, now time.Time) []store.Worker {
	var list []store.Worker
	for _, w := range s.workers {
		silent := now.Sub(w.BeatAt)
		forgotten := silent >= store.WorkerLife && !s.broken(WorkersNeverForgotten)
		passed := w.Name <= after && !(s.broken(WorkersPageOverlaps) && w.Name == after && limit > 1) // or a reader would never end
		if forgotten || passed || !s.chosen(filter, w) {
			continue
		}
		w.Queues = slices.Clone(w.Queues)
		w.Stale = silent >= w.StaleAfter && !s.broken(WorkersNeverStale)
		list = append(list, w)
	}
	slices.SortFunc(list, func(a, b store.Worker) int { return cmp.Compare(a.Name, b.Name) })
	if _, stays := s.workers[after]; after != "" && !stays && len(list) > 0 && s.broken(WorkersPageLosesPlace) {
		list = list[1:]
	}
	return list
}

// chosen says whether the worker matches.
func (s *Store) chosen(filter store.WorkerFilter, w store.Worker) bool {
	switch {
	case filter.Name == "" || s.broken(WorkersNameIgnored):
		return true
	case s.broken(WorkersNameBeginsAlike):
		return strings.HasPrefix(w.Name, filter.Name)
	default:
		return w.Name == filter.Name
	}
}

// workersOnPage is how many of the workers have room on a page.
func (s *Store) workersOnPage(list []store.Worker, limit int) int {
	names := 0
	for n, w := range list {
		for _, q := range w.Queues {
			names += len(q)
		}
		overweight := names > store.MaxPageNames && !s.broken(WorkersUnweighed) || names >= store.MaxPageNames && s.broken(WorkersWeighedShort)
		if n == limit && !s.broken(WorkersUnlimited) || overweight {
			return n
		}
	}
	return len(list)
}

// Fence is part of the contract.
func (s *Store) Fence(ctx context.Context, req store.FenceRequest) (int64, error) {
	return call(ctx, s, req.Check(), func(time.Time) (int64, error) {
		asked := req
		if s.broken(FenceIgnoresEpoch) {
			asked.Epoch = 0
		}
		epoch, err := asked.Raised(s.epoch, s.nextID-1)
		switch {
		case err != nil && s.broken(EpochUnbounded):
			epoch = s.epoch
		case err != nil:
			return 0, err
		case req.Epoch > 0 && s.broken(FenceLowersEpoch):
			epoch = req.Epoch
		}
		s.epoch = epoch
		if s.broken(FairFenceForgetsTurns) {
			clear(s.turns)
		}
		if !s.broken(FenceMissesIDs) {
			s.nextID = max(s.nextID, store.Floor(epoch)+1)
		}
		for i := range s.jobs {
			j := &s.jobs[i]
			if s.broken(FenceForgetsEndings) {
				j.endedBy = ""
			}
			if s.fenced(*j, req) {
				j.Token = store.NextToken(j.Token, epoch)
			}
		}
		if s.broken(FenceDropsPolicies) {
			clear(s.policies)
		}
		return epoch, nil
	})
}

// fenced says whether Fence raises the job's token at once.
func (s *Store) fenced(j job, req store.FenceRequest) bool {
	switch {
	case s.broken(FenceRaisesAll):
		return true
	case j.State != store.InFlight:
		return req.EndLeases && s.broken(FenceEndsAll)
	case req.EndLeases:
		return !s.broken(FenceSparesLeases)
	default:
		return s.broken(FenceEndsLeases)
	}
}

// raised is the token of the job after a change that raises it, but for a fault that forgets the epoch.
func (s *Store) raised(j job, forgets Fault) int64 {
	if s.broken(forgets) {
		return j.Token + 1
	}
	return store.NextToken(j.Token, s.epoch)
}
