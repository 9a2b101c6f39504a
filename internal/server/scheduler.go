package server

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A scheduler chooses the queue to claim from next, by stride scheduling: the pass of a queue grows with every job claimed from it, more
// slowly the greater its weight, and the queue with the least pass is next. A queue that was found empty pauses, longer each time, until
// a wake-up. Where a wake-up led to all the jobs that there were, the queue pauses for the longest time at once, because the next jobs
// will be announced too. So jobs that come one by one cause one claim each.
type scheduler struct {
	minPause, maxPause time.Duration // of a pause
	interval           time.Duration // see ClaimOptions

	mu   sync.Mutex // guards what follows
	pass float64    // of the queue claimed from last: no queue begins below it
	all  []*queue
}

// A queue is what the scheduler knows of a queue.
type queue struct {
	name   string
	weight int
	slots  int // at most, or zero for no limit
	share  share

	pass      float64
	pause     time.Duration
	notBefore time.Time // no claim before this time
	wakeable  time.Time // no wake-up leads to a claim before this time
	woken     bool      // since the claim under way began
	announced bool      // a wake-up had caused that claim
	failed    bool      // the last claim
}

// firstPause is the first pause after a queue was found empty.
const firstPause = 20 * time.Millisecond

func newScheduler(o Options) *scheduler {
	s := &scheduler{minPause: min(firstPause, o.Claim.PollInterval), maxPause: o.Claim.PollInterval, interval: o.Claim.Interval}
	for name, options := range o.Queues {
		s.all = append(s.all, &queue{
			name: name, weight: max(1, options.Weight), slots: options.Slots, share: share{part: max(0, o.Claim.RetryShare)},
		})
	}
	slices.SortFunc(s.all, func(a, b *queue) int { return cmp.Compare(a.name, b.name) })
	return s
}

func (s *scheduler) names() []string {
	names := make([]string, len(s.all))
	for i, q := range s.all {
		names[i] = q.name
	}
	return names
}

// A claimPlan is the next claim to make.
type claimPlan struct {
	*queue
	limit, quota int
}

// next returns the claim to make now, or the time at which the first pause ends. A queue gets the part of the room that its weight gives
// it, because the others are asked next; what they leave it gets then.
func (s *scheduler) next(room int, inQueue func(string) int, now time.Time) (claimPlan, bool, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var best *queue
	var again time.Time
	most, weights := 0, 0
	for _, q := range s.all {
		free := q.room(room, inQueue)
		switch {
		case free == 0:
		case q.notBefore.After(now):
			if again.IsZero() || q.notBefore.Before(again) {
				again = q.notBefore
			}
		default:
			weights += q.weight
			if best == nil || s.turn(q) < s.turn(best) {
				best, most = q, free
			}
		}
	}
	if best == nil {
		return claimPlan{}, false, again
	}
	best.announced, best.woken = best.woken, false
	part := (room*best.weight + weights - 1) / weights
	limit := min(part, most, store.MaxItems)
	return claimPlan{best, limit, best.share.quota(limit)}, true, time.Time{}
}

// room returns how many jobs of the queue may be claimed, given the server's room.
func (q *queue) room(room int, inQueue func(string) int) int {
	if q.slots == 0 {
		return room
	}
	return max(0, min(room, q.slots-inQueue(q.name)))
}

// turn returns the pass by which the queue is chosen. A queue that was empty, or had no free slot, goes on from where the others are: it
// does not catch up on what it left to them. The caller holds the lock.
func (s *scheduler) turn(q *queue) float64 { return max(q.pass, s.pass) }

// claimed records how many jobs a claim returned, and whether there may be more. A queue without more pauses.
func (s *scheduler) claimed(o claimPlan, jobs int, more bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.failed = false
	o.share.claimed(o.limit, o.quota, jobs)
	if jobs > 0 {
		s.pass = s.turn(o.queue)
		o.pass = s.pass + float64(jobs)/float64(o.weight)
	}
	switch {
	case more:
		o.pause = 0
		o.woken = o.woken || o.announced // the next claim is for what this one has left
		return
	case o.announced && jobs > 0:
		o.pause = s.maxPause
	case jobs > 0:
		o.pause = s.minPause
	default:
		o.pause = s.longer(o.pause)
	}
	if s.interval > 0 && (o.announced || jobs > 0) {
		o.wakeable = now.Add(s.interval)
	}
	o.notBefore = o.wakeable
	if rested := now.Add(spread(o.pause)); !o.woken && rested.After(o.wakeable) {
		o.notBefore = rested
	}
}

// claimFailed records that a claim failed. Its queue pauses, and wake-ups do not end that pause: otherwise each new job would be another
// call to a store that does not answer.
func (s *scheduler) claimFailed(o claimPlan, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.failed = true
	o.pause = min(s.longer(o.pause), DefaultPollInterval)
	o.notBefore = now.Add(spread(o.pause))
}

func (s *scheduler) longer(pause time.Duration) time.Duration {
	return min(max(s.minPause, 2*pause), s.maxPause)
}

// wake ends the pause of the queue, or of every queue if name is empty, unless its last claim failed.
func (s *scheduler) wake(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.all {
		if (name == "" || q.name == name) && !q.failed {
			q.woken, q.notBefore, q.pause = true, q.wakeable, 0
		}
	}
}
