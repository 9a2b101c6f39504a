package model

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Faults of queues that are fair.
var (
	FairIgnored              = fault("fair-ignored", "Limits/Keys/Fair", "In a fair queue, jobs come in the order of their due times.")
	FairBeforePriority       = fault("fair-before-priority", "Limits/Keys/Fair", "A key that has its turn comes before jobs with a higher priority.")
	FairForgetsTurns         = fault("fair-forgets-turns", "Limits/Keys/Fair", "The turns begin anew with each claim.")
	FairTakesAllOfAKey       = fault("fair-takes-all-of-a-key", "Limits/Keys/Fair", "A claim takes as many jobs as there are of the key that has its turn.")
	FairTakesOneOfEach       = fault("fair-takes-one-of-each", "Limits/Keys/Fair", "A claim takes at most one job of each key.")
	FairKeylessLast          = fault("fair-keyless-last", "Limits/Keys/Fair", "Jobs without a key come after all others.")
	FairKeylessFirst         = fault("fair-keyless-first", "Limits/Keys/Fair", "Jobs without a key come before all others.")
	FairKeylessEachAKey      = fault("fair-keyless-each-a-key", "Limits/Keys/Fair", "Each job without a key has a turn of its own.")
	FairLanesShareTurns      = fault("fair-lanes-share-turns", "Limits/Keys/Fair", "A key has had its turn when a retry of it was claimed, for fresh jobs too.")
	FairPrioritiesShareTurns = fault("fair-priorities-share-turns", "Limits/Keys/Fair", "A key has had its turn when a job of it was claimed with another priority.")
	FairOfAllQueues          = fault("fair-of-all-queues", "Limits/Keys/Fair", "A key has had its turn when a job of it was claimed from another queue.")
	FairReversesKey          = fault("fair-reverses-key", "Limits/Keys/Fair", "The last job of a key comes first.")
	FairIgnoresDue           = fault("fair-ignores-due", "Limits/Keys/Fair", "Of a key, the job with the smallest id comes first, whatever its due time.")
	FairNewFirst             = fault("fair-new-first", "Limits/Keys/Fair", "A key that comes, or comes back, has the first turn.")
	FairNewLast              = fault("fair-new-last", "Limits/Keys/Fair", "A key that comes while others wait comes when those have no more jobs.")
	FairLosesTurn            = fault("fair-loses-turn", "Limits/Keys/Fair", "A key loses its turn when a job of it that waits is cancelled or put off, although others wait.")
	FairFullKeyBlocks        = fault("fair-full-key-blocks", "Limits/Keys/Fair", "A claim ends at the key that has its turn, if that has no room.")
	FairLiftsKeyLimit        = fault("fair-lifts-key-limit", "Limits/Keys/Fair", "A fair queue has no MaxPerKey.")
	FairLiftsLimits          = fault("fair-lifts-limits", "Limits/Keys/Fair", "A fair queue has no MaxInFlight.")
	FairHeavySkipped         = fault("fair-heavy-skipped", "Limits/Keys/Fair", "A lane goes on with other keys if the job whose turn it is would make it too heavy.")
	FairHeavyLosesTurn       = fault("fair-heavy-loses-turn", "Limits/Keys/Fair", "A key loses its turn if its job would make the lane too heavy.")
	FairHidesLateJobs        = fault("fair-hides-late-jobs", "Limits/Keys/Fair", "A job of a fair queue is not found that stands before the last one of its key that was claimed.")
	FairForgetsEarlyJobs     = fault("fair-forgets-early-jobs", "Limits/Keys/Fair", "A job of a fair queue that was not due when a claim looked at it is not found when it is.")
	FairUnlocked             = fault("fair-unlocked", "Limits/Keys/Fair", "A claim from a fair queue chooses jobs and takes them under two locks.")
	FairFenceForgetsTurns    = fault("fair-fence-forgets-turns", "Limits/Keys/Fair", "After a Fence, the turns begin anew.")
	FairStays                = fault("fair-stays", "Limits/Keys/Fair", "A queue that was fair once stays so.")
	FairHidesOlder           = fault("fair-hides-older", "Limits/Keys/Fair", "A retry that waited before the queue became fair is not found.")
	FairUnlisted             = fault("fair-unlisted", "Limits/Keys/Fair", "Queues leaves out a queue whose policy sets Fair only.")
	PolicyFairLost           = fault("policy-fair-lost", "Limits/Keys/Fair", "A policy forgets that it is fair.")
)

// A turn says where the jobs of one place stand in line: behind the claimed job with a number from lo to hi. Both are the number of their own
// last claimed job, as long as there have been jobs to take all the time. Otherwise the contract lets a store choose.
type turn struct {
	lo, hi   int
	standing map[int64]bool // the jobs to take
}

// atTheEnd is the hi of jobs that came after the last claim.
const atTheEnd = math.MaxInt

// fair says whether the limit keys of the queue take turns.
func (s *Store) fair(queue string) bool {
	return s.policies[s.policyOf(queue)].Fair || s.wasFair[queue] && s.broken(FairStays)
}

// setFair notes that the queue has another policy.
func (s *Store) setFair(queue string, before, now store.Policy) {
	if now.Fair {
		s.wasFair[queue] = true
	}
	if now.Fair && before.MaxInFlight == now.MaxInFlight && before.MaxPerKey == now.MaxPerKey && before.Ordered == now.Ordered && before.Rate == now.Rate {
		return
	}
	for p, t := range s.turns {
		switch {
		case p.queue != queue:
		case now.Fair:
			t.lo, t.hi = 0, atTheEnd
			s.turns[p] = t
		default:
			delete(s.turns, p)
		}
	}
}

// lineOf is the place in which the job stands, but for faults.
func (s *Store) lineOf(j job) place {
	p := placeOf(j)
	if s.isFresh(j) {
		p.phase = store.Ready
	}
	switch {
	case s.broken(FairOfAllQueues):
		p.queue = ""
	case s.broken(FairLanesShareTurns):
		p.phase = ""
	case s.broken(FairPrioritiesShareTurns), s.broken(FairBeforePriority):
		p.priority = 0
	case s.broken(FairKeylessEachAKey) && p.key == "":
		p.key = fmt.Sprint("job ", j.ID)
	}
	return p
}

// lookAtTurns notes which places have had jobs to take all the time. It is called whenever that may have changed. The changed job, if any, has left
// its place, though it may have come back.
func (s *Store) lookAtTurns(now time.Time, changed int64) {
	if len(s.wasFair) == 0 {
		return
	}
	toTake := s.toTake(now)
	for p := range toTake {
		if _, known := s.turns[p]; !known {
			s.turns[p] = turn{hi: atTheEnd}
		}
	}
	for p, t := range s.turns {
		stays := false
		for id := range t.standing {
			stays = stays || toTake[p][id] && id != changed
		}
		switch {
		case !stays:
			t.hi = atTheEnd
		case s.broken(FairLosesTurn) && t.standing[changed] && !s.isInFlight(changed):
			s.claimCount++
			t.lo, t.hi = s.claimCount, s.claimCount
		}
		t.standing = toTake[p]
		s.turns[p] = t
	}
}

func (s *Store) isInFlight(id int64) bool {
	j, _ := s.find(id)
	return j.State == store.InFlight
}

// toTake are the jobs that claims from fair queues could take.
func (s *Store) toTake(now time.Time) map[place]map[int64]bool {
	all, keys := map[place]map[int64]bool{}, map[string]keyCounts{}
	for _, j := range s.jobs {
		if !s.fair(j.Queue) || !j.Claimable(now) || s.waitsItsTurn(j, now) {
			continue
		}
		if _, known := keys[j.Queue]; !known {
			keys[j.Queue] = s.keysInFlight(j.Queue, now)
		}
		p := s.lineOf(j)
		if !s.hasRoom(j, keys[j.Queue]) {
			continue
		}
		if all[p] == nil {
			all[p] = map[int64]bool{}
		}
		all[p][j.ID] = true
	}
	return all
}

// lineUp puts the keys that have come since the last claim of a fair queue behind the others.
func (s *Store) lineUp(queue string, now time.Time) {
	if !s.fair(queue) {
		return
	}
	if s.broken(FairForgetsTurns) {
		clear(s.turns)
		s.lookAtTurns(now, 0)
	}
	before := maps.Clone(s.turns)
	for p, t := range before {
		waits := func(other place) bool {
			o := before[other]
			return other.queue == p.queue && other.phase == p.phase && other.priority == p.priority && o.hi != atTheEnd && len(o.standing) > 0
		}
		switch {
		case len(t.standing) == 0 || t.hi != atTheEnd || p.queue != queue && !s.broken(FairOfAllQueues):
			continue
		case s.broken(FairNewFirst):
			t.lo, t.hi = 0, 0
		case s.broken(FairNewLast) && slices.ContainsFunc(slices.Collect(maps.Keys(before)), waits):
			t.lo, t.hi = atTheEnd-1, atTheEnd-1
		default:
			t.hi = s.claimCount
		}
		s.turns[p] = t
	}
}

// Follow tells the model which jobs another store has taken, so that the next claim chooses them where the contract leaves a choice.
func (s *Store) Follow(ids ...int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followed = slices.Clone(ids)
}

// bringForward puts that job of a fair lane first whose key has its turn, and says whether there is one.
func (s *Store) bringForward(l *lane, keys keyCounts) bool {
	if !l.fair || s.broken(FairIgnored) {
		return true
	}
	heads := s.heads(l, keys)
	if len(heads) == 0 {
		return false
	}
	next := slices.MinFunc(heads, func(a, b job) int { return s.byTurn(l, a, b) })
	at := slices.IndexFunc(l.waiting, func(j job) bool { return j.ID == next.ID })
	l.waiting = slices.Insert(slices.Delete(l.waiting, at, at+1), 0, next)
	return true
}

// heads are the jobs one of which must be taken next: each is the first of its key, and no other key must come before it.
func (s *Store) heads(l *lane, keys keyCounts) []job {
	heads := map[place]job{}
	priority, some := 0, false
	for _, j := range l.waiting {
		switch {
		case !s.hasRoom(j, keys) && !s.broken(FairFullKeyBlocks), s.broken(FairTakesOneOfEach) && s.hasTaken(l, j):
			continue
		case some && j.Priority < priority && !s.broken(FairBeforePriority):
			continue
		}
		priority, some = j.Priority, true
		head, known := heads[s.lineOf(j)]
		if !known || s.broken(FairReversesKey) || s.broken(FairIgnoresDue) && j.ID < head.ID {
			heads[s.lineOf(j)] = j
		}
	}
	all := slices.Collect(maps.Values(heads))
	return slices.DeleteFunc(slices.Clone(all), func(j job) bool {
		return slices.ContainsFunc(all, func(other job) bool { return s.turnOf(l, other).hi < s.turnOf(l, j).lo })
	})
}

func (s *Store) hasTaken(l *lane, j job) bool {
	return slices.ContainsFunc(l.taken, func(other job) bool { return s.lineOf(other) == s.lineOf(j) })
}

// turnOf is the turn of the job's key, but for faults.
func (s *Store) turnOf(l *lane, j job) turn {
	last := len(l.taken) - 1
	switch {
	case s.broken(FairKeylessFirst) && j.LimitKey() == "",
		s.broken(FairTakesAllOfAKey) && last >= 0 && s.lineOf(l.taken[last]) == s.lineOf(j):
		return turn{lo: -1, hi: -1}
	case s.broken(FairKeylessLast) && j.LimitKey() == "":
		return turn{lo: atTheEnd, hi: atTheEnd}
	default:
		return s.turns[s.lineOf(j)]
	}
}

// byTurn is the order in which the model takes jobs where the contract leaves a choice: those of another store as that did.
func (s *Store) byTurn(l *lane, a, b job) int {
	followed := func(j job) int {
		if at := slices.Index(s.followed, j.ID); at >= 0 {
			return at
		}
		return len(s.followed)
	}
	return cmp.Or(cmp.Compare(followed(a), followed(b)), cmp.Compare(s.turnOf(l, a).hi, s.turnOf(l, b).hi), s.order(a, b))
}

// takeTurn notes that the job is taken.
func (s *Store) takeTurn(l *lane, j job) {
	if !l.fair {
		return
	}
	s.claimCount++
	t := s.turns[s.lineOf(j)]
	t.lo, t.hi = s.claimCount, s.claimCount
	s.turns[s.lineOf(j)] = t
}
