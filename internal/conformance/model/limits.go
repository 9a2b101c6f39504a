package model

import (
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Faults of limits.
var (
	LimitIgnored        = fault("limit-ignored", "Limits", "MaxInFlight is ignored.")
	LimitUnlocked       = fault("limit-unlocked", "Limits", "A claim counts the jobs in flight and takes others under two locks.")
	LimitExceededByOne  = fault("limit-exceeded-by-one", "Limits", "One job more is in flight than MaxInFlight.")
	LimitOfEachClaim    = fault("limit-of-each-claim", "Limits", "Each claim takes as many jobs as MaxInFlight.")
	LimitOfAllQueues    = fault("limit-of-all-queues", "Limits", "The jobs in flight of other queues count.")
	LimitForgetsExpired = fault("limit-forgets-expired", "Limits", "A job in flight does not count once its lease has expired.")
	LimitForgetsOlder   = fault("limit-forgets-older", "Limits", "Jobs that were in flight before the policy was set do not count.")
	LimitCountsRetrying = fault("limit-counts-retrying", "Limits", "A job counts until it is terminal.")
	LimitOfFreshOnly    = fault("limit-of-fresh-only", "Limits", "Retries are claimed beyond MaxInFlight.")
	LimitOrNothing      = fault("limit-or-nothing", "Limits", "A claim takes nothing if there is no room for all that it asks for.")
	LimitEndsLeases     = fault("limit-ends-leases", "Limits", "A lower MaxInFlight ends the leases that are too many.")
	LimitUnchecked      = fault("limit-unchecked", "Limits", "MaxInFlight has no bounds.")
)

// admitted picks the jobs that the claim takes, as the queue's policy allows.
func (s *Store) admitted(req store.ClaimRequest, now time.Time) []job {
	all, fresh := req.Limit, req.Limit // how many jobs, and how many fresh ones
	narrow := func(room int, ofFreshOnly Fault) {
		if fresh = min(fresh, room); !s.broken(ofFreshOnly) {
			all = min(all, room)
		}
	}
	narrow(s.room(req, now), LimitOfFreshOnly)
	if s.broken(LimitUnlocked) {
		s.letOthersIn()
	}
	narrow(s.rateRoom(req, now), RateOfFreshOnly)
	if s.broken(RateUnlocked) && s.policies[s.policyOf(req.Queue)].Rate.N > 0 {
		s.letOthersIn()
	}
	within := req
	within.Limit, within.RetryQuota = all, min(all, req.RetryQuota)
	chosen := slices.DeleteFunc(s.choose(within, now), func(j job) bool {
		if j.State == store.Ready {
			fresh--
		}
		return j.State == store.Ready && fresh < 0
	})
	s.noteClaims(req, chosen, now)
	return chosen
}

// room is how many jobs the claim may take.
func (s *Store) room(req store.ClaimRequest, now time.Time) int {
	most := s.policies[s.policyOf(req.Queue)].MaxInFlight
	switch {
	case most == 0, s.broken(LimitIgnored), s.broken(FairLiftsLimits) && s.fair(req.Queue), s.broken(OrderLiftsLimits) && s.ordered(req.Queue):
		return req.Limit
	case s.broken(LimitExceededByOne):
		most++
	case s.broken(LimitOfEachClaim):
		return min(req.Limit, most)
	}
	room := min(req.Limit, most-len(s.those(func(j job) bool { return s.counts(j, req.Queue, now) })))
	if room < 0 || s.broken(LimitOrNothing) && room < req.Limit {
		return 0
	}
	return room
}

// counts says whether the job is one of those in flight of the queue, but for faults.
func (s *Store) counts(j job, queue string, now time.Time) bool {
	switch {
	case j.Queue != queue && !s.broken(LimitOfAllQueues),
		s.broken(LimitForgetsExpired) && j.State == store.InFlight && !j.LeaseExpiresAt.After(now),
		s.broken(LimitForgetsOlder) && j.ClaimedAt.Before(s.limitedAt):
		return false
	case s.broken(LimitCountsRetrying) && j.Phase() == store.Retrying:
		return true
	default:
		return j.State == store.InFlight
	}
}

// limit notes that the queue has another policy.
func (s *Store) limit(queue string, most int, now time.Time) {
	s.limitedAt = now
	if !s.broken(LimitEndsLeases) || most == 0 {
		return
	}
	inFlight := s.those(func(j job) bool { return j.Queue == queue && j.State == store.InFlight })
	for _, j := range inFlight[min(most, len(inFlight)):] {
		s.recover(j, now)
	}
}
