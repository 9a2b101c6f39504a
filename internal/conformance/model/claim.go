package model

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// FetchAndClaim is part of the contract.
func (s *Store) FetchAndClaim(ctx context.Context, req store.ClaimRequest) ([]store.Job, error) {
	return call(ctx, s, s.leaseFits(req.Check(), req.TTL), func(now time.Time) ([]store.Job, error) {
		if s.paused[req.Queue] && !s.broken(ClaimFromPaused) {
			return nil, nil
		}
		chosen := s.admitted(req, now)
		if s.broken(ClaimUnlocked) || s.broken(FairUnlocked) && s.fair(req.Queue) || s.broken(OrderUnlocked) && s.ordered(req.Queue) {
			s.letOthersIn()
		}
		claimed := make([]store.Job, len(chosen))
		for i, j := range chosen {
			after := s.claim(j, req, now)
			claimed[i] = s.row(after)
			if s.broken(ClaimAnswersOldRow) {
				claimed[i].LeaseExpiresAt, claimed[i].Worker = j.LeaseExpiresAt, j.Worker
			}
		}
		return claimed, nil
	})
}

// choose picks the jobs that the claim takes, the retries first.
func (s *Store) choose(req store.ClaimRequest, now time.Time) []job {
	switch {
	case s.broken(QuotaIgnored):
		req.RetryQuota = req.Limit
	case s.broken(ClaimOverLimit):
		req.Limit++
	}
	keys := s.keysInFlight(req.Queue, now)
	s.lookAt(req.Queue, now)
	s.lineUp(req.Queue, now)
	if s.broken(KeyLimitUnlocked) && keys.most > 0 {
		s.letOthersIn()
	}
	retries, fresh := s.lane(req, false, now), s.lane(req, true, now)
	s.hideLane(req.Queue, retries, fresh)
	s.take(retries, req.RetryQuota, keys)
	if s.broken(FreshLaneNotFilled) {
		s.take(fresh, req.Limit-req.RetryQuota, keys)
	} else {
		s.take(fresh, req.Limit-len(retries.taken), keys)
	}
	if !s.broken(RetryLaneNotFilled) {
		s.take(retries, req.Limit-len(fresh.taken), keys)
	}
	s.followed = nil
	return slices.Concat(retries.taken, fresh.taken)
}

// A lane is the fresh jobs or the retries of a queue, as a claim goes through them.
type lane struct {
	fair    bool  // limit keys take turns
	waiting []job // those to look at, in the order in which they are claimed, unless keys take turns
	taken   []job
	weight  int // of those that are taken
	passed  int // how many were passed over
}

func (s *Store) lane(req store.ClaimRequest, fresh bool, now time.Time) *lane {
	list := s.those(func(j job) bool {
		inQueue := j.Queue == req.Queue || s.broken(ClaimFromAllQueues)
		return inQueue && s.isFresh(j) == fresh && s.claimable(j, req.Worker, now) && !s.hidden(j) && !s.waitsItsTurn(j, now)
	})
	slices.SortFunc(list, s.order)
	return &lane{fair: s.fair(req.Queue), waiting: list}
}

// take goes on through the lane until so many jobs of it are taken. It passes over those whose key has no room.
func (s *Store) take(l *lane, most int, keys keyCounts) {
	for len(l.waiting) > 0 && len(l.taken)+s.places(l.passed) < most && s.bringForward(l, keys) {
		j := l.waiting[0]
		room := s.hasRoom(j, keys)
		if !room && (s.broken(FullKeyHidesOthers) || s.broken(FairFullKeyBlocks) && l.fair) {
			return
		}
		l.waiting = l.waiting[1:]
		if !room && !s.broken(FullKeyWeighs) {
			l.passed++
			continue
		}
		switch fits := s.broken(ClaimUnweighed) || s.fits(j, &l.weight); {
		case fits && room:
			l.taken = append(l.taken, j)
			s.countTaken(j, keys)
			s.takeTurn(l, j)
		case !fits && !s.broken(HeavyJobSkipped) && !(s.broken(FairHeavySkipped) && l.fair):
			if s.broken(FairHeavyLosesTurn) {
				s.takeTurn(l, j)
			}
			l.waiting = nil
		}
	}
}

// lightEnough are the first jobs, as long as their documents weigh no more than an answer can hold, but for faults.
func (s *Store) lightEnough(list []job, unweighed Fault) []job {
	if s.broken(unweighed) {
		return list
	}
	light, weight := make([]job, 0, len(list)), 0
	for _, j := range list {
		switch {
		case s.fits(j, &weight):
			light = append(light, j)
		case !s.broken(HeavyJobSkipped):
			return light
		}
	}
	return light
}

// fits adds the documents of the job to the weight of an answer, if it can hold them too.
func (s *Store) fits(j job, weight *int) bool {
	own := len(j.Payload) + len(j.Checkpoint) + len(j.Progress) + len(j.Result)
	if s.broken(WeightOfPayloadsOnly) {
		own = len(j.Payload)
	}
	if *weight+own > store.MaxAnswerBytes {
		return false
	}
	*weight += own
	return true
}

// claimable is Job.Claimable, but for faults.
func (s *Store) claimable(j job, worker string, now time.Time) bool {
	switch phase := j.Phase(); {
	case phase == store.Ready && s.broken(ReadyDueLate), phase == store.Retrying && s.broken(RetryDueLate):
		return j.Next().Before(now)
	case phase == store.Ready && s.broken(ReadyDueEarly):
		return j.RunAt.Add(-store.Resolution).Compare(now) <= 0
	case phase == store.Retrying && s.broken(RetryDueEarly):
		return j.RetryAt.Add(-store.Resolution).Compare(now) <= 0
	case phase == store.Dead && s.broken(DeadClaimed):
		return true
	case s.broken(WorkerBlocks) && j.Worker != "" && j.Worker != worker:
		return false
	case s.broken(ExpiredClaimed):
		j.Extras = nil
	case s.broken(RetriesNeverExpire) && phase == store.Retrying:
		j.Extras = nil
	}
	return j.Claimable(now)
}

// order is how jobs of one lane stand in line.
func (s *Store) order(a, b job) int {
	byPriority := cmp.Compare(b.Priority, a.Priority)
	byDue := a.Next().Compare(b.Next())
	byID := cmp.Compare(a.ID, b.ID)
	switch {
	case s.broken(PriorityIgnored):
		byPriority = 0
	case s.broken(DueOrderIgnored):
		byDue = 0
	case s.broken(IDOrderReversed):
		byID = -byID
	}
	return cmp.Or(byPriority, byDue, byID)
}

func (s *Store) claim(before job, req store.ClaimRequest, now time.Time) job {
	s.reach(before)
	j := before
	j.State = store.InFlight
	j.Token = s.raised(j, ClaimForgetsEpoch)
	j.Attempts++
	j.lent = req.TTL.Truncate(store.Resolution)
	j.LeaseExpiresAt = now.Add(j.lent)
	j.ClaimedAt, j.Worker = now, req.Worker
	j.RetryAt = time.Time{}
	j.CheckpointSeq, j.ProgressSeq = 0, 0
	j.endedBy = ""
	j.history = append(slices.Clone(j.history), store.Attempt{Token: j.Token, Worker: req.Worker, StartedAt: now})
	if tooMany := len(j.history) - store.MaxAttemptsKept; tooMany > 0 && !s.broken(HistoryUnbounded) {
		j.history = j.history[tooMany:]
	}
	return s.write(store.OpClaim, before, j)
}
