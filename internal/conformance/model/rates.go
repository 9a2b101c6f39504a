package model

import (
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Faults of rates.
var (
	RateIgnored        = fault("rate-ignored", "Limits", "Rate is ignored.")
	RateUnlocked       = fault("rate-unlocked", "Limits", "A claim counts the latest claims and takes jobs under two locks.")
	RateExceededByOne  = fault("rate-exceeded-by-one", "Limits", "One job more is claimed than Rate allows.")
	RateOfEachClaim    = fault("rate-of-each-claim", "Limits", "Each claim takes as many jobs as Rate.N.")
	RateOfAllQueues    = fault("rate-of-all-queues", "Limits", "Claims from other queues count.")
	RateOfFixedSpans   = fault("rate-of-fixed-spans", "Limits", "Claims count until the next multiple of Rate.Per.")
	RateEndsLate       = fault("rate-ends-late", "Limits", "A claim that was made exactly Rate.Per ago counts.")
	RateEndsEarly      = fault("rate-ends-early", "Limits", "A claim ceases to count one tick before Rate.Per has passed.")
	RateOfFreshOnly    = fault("rate-of-fresh-only", "Limits", "Retries are claimed beyond Rate.")
	RateOrNothing      = fault("rate-or-nothing", "Limits", "A claim takes nothing if Rate does not allow all that it asks for.")
	RateCountsAsked    = fault("rate-counts-asked", "Limits", "A claim counts with as many jobs as it asked for.")
	RateCountsEmpty    = fault("rate-counts-empty", "Limits", "A claim that takes nothing counts as one job.")
	RateOfInFlight     = fault("rate-of-in-flight", "Limits", "A claim counts as long as its job is in flight.")
	RateForgetsRelease = fault("rate-forgets-release", "Limits", "A claim does not count if its job was released.")
	RateForgetsDeleted = fault("rate-forgets-deleted", "Limits", "A claim does not count if its job was deleted.")
	RateCountsJobsOnce = fault("rate-counts-jobs-once", "Limits", "A job that was claimed twice counts once.")
	RateCountsOlder    = fault("rate-counts-older", "Limits", "Claims count that were made before the policy set a rate.")
	RateBeginsAnew     = fault("rate-begins-anew", "Limits", "Claims do not count any more once another rate has replaced theirs.")
	RateLooksBack      = fault("rate-looks-back", "Limits", "Claims that do not count any more count again if a rate with a longer span replaces theirs.")
	RateForgetsAhead   = fault("rate-forgets-ahead", "Limits", "A claim of a clock that was ahead does not count.")
	RateKeepsAhead     = fault("rate-keeps-ahead", "Limits", "A claim of a clock that was ahead counts until its own time plus Rate.Per.")
	RateUnchecked      = fault("rate-unchecked", "Limits", "Rate has no bounds.")
	RateUnlisted       = fault("rate-unlisted", "Limits", "Queues leaves out a queue whose policy sets Rate only.")
)

// A claimed is a job that was claimed from a queue.
type claimed struct {
	store.Lease
	at time.Time
}

// rateRoom is how many jobs the queue's rate lets the claim take.
func (s *Store) rateRoom(req store.ClaimRequest, now time.Time) int {
	rate := s.policies[s.policyOf(req.Queue)].Rate
	switch {
	case rate.N == 0 || s.broken(RateIgnored):
		return req.Limit
	case s.broken(RateExceededByOne):
		rate.N++
	case s.broken(RateOfEachClaim):
		return min(req.Limit, rate.N)
	}
	s.forgetClaims(req.Queue, rate, now)
	room := min(req.Limit, rate.N-s.countClaims(req.Queue))
	if room < 0 || s.broken(RateOrNothing) && room < req.Limit {
		return 0
	}
	return room
}

// countClaims is how many claims of the queue count, but for faults.
func (s *Store) countClaims(queue string) int {
	n, seen := 0, map[int64]bool{}
	for name, all := range s.claims {
		for _, c := range all {
			i := slices.IndexFunc(s.jobs, func(j job) bool { return j.ID == c.ID })
			switch {
			case name != queue && !s.broken(RateOfAllQueues),
				s.broken(RateOfInFlight) && (i < 0 || s.jobs[i].State != store.InFlight),
				s.broken(RateForgetsDeleted) && i < 0,
				s.broken(RateForgetsRelease) && i >= 0 && released(s.jobs[i], c.Token),
				s.broken(RateCountsJobsOnce) && seen[c.ID]:
				continue
			}
			n++
			seen[c.ID] = true
		}
	}
	return n
}

func released(j job, token int64) bool {
	return slices.ContainsFunc(j.history, func(a store.Attempt) bool { return a.Token == token && a.Ending == store.EndReleased })
}

// forgetClaims forgets the claims that do not count any more.
func (s *Store) forgetClaims(queue string, rate store.Rate, now time.Time) {
	since := now.Add(-rate.Per)
	switch {
	case s.broken(RateEndsLate):
		since = since.Add(-store.Resolution)
	case s.broken(RateEndsEarly):
		since = since.Add(store.Resolution)
	case s.broken(RateOfFixedSpans):
		since = now.Truncate(rate.Per).Add(-store.Resolution)
	}
	var kept []claimed
	for _, c := range s.claims[queue] {
		if c.at.After(now.Add(store.MaxSetBack)) && !s.broken(RateKeepsAhead) {
			c.at = now
			if s.broken(RateForgetsAhead) {
				continue
			}
		}
		if c.at.After(since) {
			kept = append(kept, c)
		}
	}
	s.claims[queue] = kept
}

// noteClaims notes what a claim has chosen.
func (s *Store) noteClaims(req store.ClaimRequest, chosen []job, now time.Time) {
	if s.policies[s.policyOf(req.Queue)].Rate.N == 0 && !s.broken(RateCountsOlder) {
		return
	}
	all := s.claims[req.Queue]
	for _, j := range chosen {
		all = append(all, claimed{store.Lease{ID: j.ID, Token: store.NextToken(j.Token, s.epoch)}, now})
	}
	switch {
	case s.broken(RateCountsAsked) && len(chosen) > 0:
		all = append(all, make([]claimed, req.Limit-len(chosen))...)
	case s.broken(RateCountsEmpty) && len(chosen) == 0:
		all = append(all, claimed{})
	}
	for i, c := range all {
		if c.at.IsZero() {
			all[i].at = now
		}
	}
	s.claims[req.Queue] = all
}

// setRate notes that the queue has another policy.
func (s *Store) setRate(queue string, before, by store.Rate, now time.Time) {
	switch {
	case before.N == 0 && s.broken(RateCountsOlder):
	case before.N == 0, before != by && s.broken(RateBeginsAnew):
		delete(s.claims, queue)
	case !s.broken(RateLooksBack):
		s.forgetClaims(queue, before, now)
	}
}
