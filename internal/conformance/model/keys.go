package model

import (
	"cmp"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Faults of limit keys.
var (
	KeyLimitIgnored        = fault("key-limit-ignored", "Limits", "MaxPerKey is ignored.")
	KeyLimitUnlocked       = fault("key-limit-unlocked", "Limits", "A claim counts the jobs in flight of each key and takes others under two locks.")
	KeyLimitExceededByOne  = fault("key-limit-exceeded-by-one", "Limits", "One job more of a key is in flight than MaxPerKey.")
	KeyLimitOfEachClaim    = fault("key-limit-of-each-claim", "Limits", "Each claim takes as many jobs of a key as MaxPerKey.")
	KeyLimitForgetsClaim   = fault("key-limit-forgets-claim", "Limits", "A claim does not count the jobs of a key that it takes itself.")
	KeyLimitOfAllQueues    = fault("key-limit-of-all-queues", "Limits", "The jobs in flight of other queues count for their keys.")
	KeyLimitForgetsExpired = fault("key-limit-forgets-expired", "Limits", "A job in flight does not count for its key once its lease has expired.")
	KeyLimitForgetsOlder   = fault("key-limit-forgets-older", "Limits", "Jobs that were in flight before the policy was set do not count for their keys.")
	KeyLimitCountsRetrying = fault("key-limit-counts-retrying", "Limits", "A retrying job counts for its key.")
	KeyLimitOfFreshOnly    = fault("key-limit-of-fresh-only", "Limits", "Retries are claimed beyond MaxPerKey.")
	KeyLimitEndsLeases     = fault("key-limit-ends-leases", "Limits", "A lower MaxPerKey ends the leases that are too many.")
	KeyLimitUnchecked      = fault("key-limit-unchecked", "Limits", "MaxPerKey has no bounds.")
	KeyFullAfterRelease    = fault("key-full-after-release", "Limits", "A released job goes on counting for its key.")
	KeyFullAfterCancel     = fault("key-full-after-cancel", "Limits", "A job that was cancelled in flight goes on counting for its key.")
	FullKeyHidesOthers     = fault("full-key-hides-others", "Limits", "A claim takes nothing that stands behind a job whose key has no room.")
	FullKeyTakesPlaces     = fault("full-key-takes-places", "Limits", "Jobs whose key has no room count toward the limit of the claim.")
	FullKeyWeighs          = fault("full-key-weighs", "Limits", "Jobs whose key has no room count toward the size of the answer.")
	KeyHidesLateJobs       = fault("key-hides-late-jobs", "Limits", "A job is not found that stands before the last one of its key that was claimed.")
	KeyForgetsEarlyJobs    = fault("key-forgets-early-jobs", "Limits", "A job that was not due when its key was looked at is not found when it is.")
	KeyForgetsExpired      = fault("key-forgets-expired", "Limits", "A job that a claim has found expired is not found when the clock is set back.")
	KeyGoneHidesLane       = fault("key-gone-hides-lane", "Limits", "A claim that finds the first job of a lane cancelled takes those of the other lane instead.")
	KeyLimitUnlisted       = fault("key-limit-unlisted", "Limits", "Queues leaves out a queue whose policy sets MaxPerKey only.")
	KeylessLimited         = fault("keyless-limited", "Limits", "The jobs without a key are limited as if they had one.")
	KeysAreOne             = fault("keys-are-one", "Limits", "The jobs of all keys count together.")
	LimitKeyLost           = fault("limit-key-lost", "Limits", "The limit key is not kept.")
	LimitKeyUnsaid         = fault("limit-key-unsaid", "Limits", "No answer has the limit key.")
	LimitKeyUnchecked      = fault("limit-key-unchecked", "Limits", "A limit key has no bounds.")
	LimitKeyIsPrefix       = fault("limit-key-is-prefix", "Limits", "A filter finds the limit keys that begin with the one that it names.")
	FilterIgnoresLimitKey  = fault("filter-ignores-limit-key", "Limits", "A filter ignores its limit key.")
	RepeatIgnoresLimitKey  = fault("repeat-ignores-limit-key", "RequestKey", "Jobs with other limit keys under a known request key get the first answer.")
	ReplaceOfOtherLimitKey = fault("replace-of-other-limit-key", "Unique", "A job with another limit key is replaced.")
)

// keyCounts are how many jobs with each limit key are in flight in a queue, with those that the present claim takes.
type keyCounts struct {
	most     int // jobs of a key, or 0 for any number
	inFlight map[string]int
}

func (s *Store) keysInFlight(queue string, now time.Time) keyCounts {
	keys := keyCounts{s.keyLimit(queue), map[string]int{}}
	if s.broken(KeyLimitExceededByOne) && keys.most > 0 {
		keys.most++
	}
	for _, j := range s.jobs {
		if s.countsForKey(j, queue, now) {
			keys.inFlight[s.keyOf(j)]++
		}
	}
	return keys
}

// keyOf is the limit key of the job, but for faults.
func (s *Store) keyOf(j job) string {
	if j.LimitKey() != "" && s.broken(KeysAreOne) {
		return "all keys"
	}
	return j.LimitKey()
}

// countsForKey says whether the job is one of those in flight of the queue, but for faults.
func (s *Store) countsForKey(j job, queue string, now time.Time) bool {
	switch {
	case j.Queue != queue && !s.broken(KeyLimitOfAllQueues),
		s.broken(KeyLimitOfEachClaim),
		s.broken(KeyLimitForgetsExpired) && j.State == store.InFlight && !j.LeaseExpiresAt.After(now),
		s.broken(KeyLimitForgetsOlder) && j.ClaimedAt.Before(s.limitedAt):
		return false
	case s.broken(KeyLimitCountsRetrying) && j.Phase() == store.Retrying,
		s.broken(KeyFullAfterRelease) && j.State == store.Ready && j.endedBy == store.OpRelease,
		s.broken(KeyFullAfterCancel) && j.State == store.Cancelled && len(j.history) > 0 && j.history[len(j.history)-1].Ending == store.EndCancelled:
		return true
	default:
		return j.State == store.InFlight
	}
}

// hasRoom says whether the claim may take the job under the limit of its key.
func (s *Store) hasRoom(j job, keys keyCounts) bool {
	key := s.keyOf(j)
	switch {
	case keys.most == 0, s.broken(KeyLimitIgnored),
		key == "" && !s.broken(KeylessLimited),
		s.broken(KeyLimitOfFreshOnly) && j.State != store.Ready,
		s.broken(FairLiftsKeyLimit) && s.fair(j.Queue):
		return true
	default:
		return keys.inFlight[key] < keys.most
	}
}

// countTaken counts a job that the claim takes.
func (s *Store) countTaken(j job, keys keyCounts) {
	if !s.broken(KeyLimitForgetsClaim) {
		keys.inFlight[s.keyOf(j)]++
	}
}

// places is how many places of a claim the jobs have that it passes over.
func (s *Store) places(passed int) int {
	if s.broken(FullKeyTakesPlaces) {
		return passed
	}
	return 0
}

// A place is where jobs of one key stand in line.
type place struct {
	queue, key string
	phase      store.State
	priority   int
}

func placeOf(j job) place { return place{j.Queue, j.LimitKey(), j.Phase(), j.Priority} }

// reach notes how far the claims of a key have come, for KeyHidesLateJobs and FairHidesLateJobs.
func (s *Store) reach(j job) { s.reached[placeOf(j)] = j }

// hidden says of a job that a fault makes a claim overlook it.
func (s *Store) hidden(j job) bool {
	limited, fair := s.policies[s.policyOf(j.Queue)].MaxPerKey > 0 && j.LimitKey() != "", s.fair(j.Queue)
	last, some := s.reached[placeOf(j)]
	late := some && cmp.Or(j.Next().Compare(last.Next()), cmp.Compare(j.ID, last.ID)) < 0
	early := s.early[j.Lease()]
	return limited && (late && s.broken(KeyHidesLateJobs) || early && s.broken(KeyForgetsEarlyJobs) || s.stale[j.Lease()] && s.broken(KeyForgetsExpired)) ||
		fair && s.broken(FairHidesOlder) && j.Phase() == store.Retrying && j.RetryAt.Before(s.limitedAt) ||
		fair && (late && s.broken(FairHidesLateJobs) || early && s.broken(FairForgetsEarlyJobs))
}

// hideLane leaves nothing of a lane whose first job was cancelled since a claim looked at it, if the other lane has jobs, for KeyGoneHidesLane.
func (s *Store) hideLane(queue string, lanes ...*lane) {
	if s.policies[s.policyOf(queue)].MaxPerKey == 0 {
		return
	}
	for i, l := range lanes {
		at := place{queue: queue, priority: i}
		first, known := s.find(s.firsts[at])
		if known && first.State == store.Cancelled && len(lanes[1-i].waiting) > 0 && s.broken(KeyGoneHidesLane) {
			l.waiting = nil
		}
		if len(l.waiting) > 0 {
			s.firsts[at] = l.waiting[0].ID
		}
	}
}

// lookAt notes which jobs of a queue are not due yet, for KeyForgetsEarlyJobs and FairForgetsEarlyJobs, and which have expired, for KeyForgetsExpired.
func (s *Store) lookAt(queue string, now time.Time) {
	for _, j := range s.those(func(j job) bool { return j.Queue == queue && j.Phase() != store.InFlight && j.Next().After(now) }) {
		s.early[j.Lease()] = true
	}
	for _, j := range s.those(func(j job) bool {
		return j.Queue == queue && j.Phase() != store.InFlight && !j.ExpiresAt().IsZero() && !j.ExpiresAt().After(now)
	}) {
		s.stale[j.Lease()] = true
	}
}

// limitKeys ends leases that a lower MaxPerKey does not allow, for KeyLimitEndsLeases.
func (s *Store) limitKeys(queue string, most int, now time.Time) {
	if !s.broken(KeyLimitEndsLeases) || most == 0 {
		return
	}
	held := map[string]int{}
	for _, j := range s.those(func(j job) bool { return j.Queue == queue && j.State == store.InFlight && j.LimitKey() != "" }) {
		if held[j.LimitKey()]++; held[j.LimitKey()] > most {
			s.recover(j, now)
		}
	}
}
