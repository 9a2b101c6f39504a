package server

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// lanes choose from which queue to claim next. Each queue has a pass, which grows with every job that it got, the less the
// greater its weight; the queue with the least pass is the next one. A queue that was found empty rests for a pause that
// grows, unless it is woken.
type lanes struct {
	least, most time.Duration // of a pause

	mu    sync.Mutex // guards what follows
	pass  float64    // with which the latest jobs were claimed: no turn comes before it
	lanes []*lane
}

type lane struct {
	queue  string
	weight int
	slots  int // at most, or zero
	share  share

	pass   float64
	pause  time.Duration
	rest   time.Time // no claim before
	woken  bool      // since the claim under way began
	failed bool      // the last claim
}

// leastPause is the first pause after a queue was found empty.
const leastPause = 20 * time.Millisecond

func newLanes(o Options) *lanes {
	l := &lanes{least: min(leastPause, o.Poll), most: o.Poll}
	for name, q := range o.Queues {
		l.lanes = append(l.lanes, &lane{
			queue: name, weight: max(1, q.Weight), slots: q.Slots, share: share{part: max(0, o.RetryShare)},
		})
	}
	slices.SortFunc(l.lanes, func(a, b *lane) int { return cmp.Compare(a.queue, b.queue) })
	return l
}

func (l *lanes) queues() []string {
	names := make([]string, len(l.lanes))
	for i, lane := range l.lanes {
		names[i] = lane.queue
	}
	return names
}

// An order is one claim to be made.
type order struct {
	*lane
	limit, quota int
}

// next is the claim to make now with so much room, or, where all queues rest, until when. A queue gets no more of the room
// than its weight, for the others are asked next; what they leave it gets then.
func (l *lanes) next(room int, inQueue func(string) int, now time.Time) (order, bool, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var best *lane
	var rest time.Time
	most, weights := 0, 0
	for _, lane := range l.lanes {
		free := lane.room(room, inQueue)
		switch {
		case free == 0:
		case lane.rest.After(now):
			if rest.IsZero() || lane.rest.Before(rest) {
				rest = lane.rest
			}
		default:
			weights += lane.weight
			if best == nil || l.turn(lane) < l.turn(best) {
				best, most = lane, free
			}
		}
	}
	if best == nil {
		return order{}, false, rest
	}
	best.woken = false
	part := (room*best.weight + weights - 1) / weights
	limit := min(part, most, store.MaxItems)
	return order{best, limit, best.share.quota(limit)}, true, time.Time{}
}

// room is how many jobs of the queue may be claimed, given the server's room.
func (l *lane) room(room int, inQueue func(string) int) int {
	if l.slots == 0 {
		return room
	}
	return max(0, min(room, l.slots-inQueue(l.queue)))
}

// turn is when it is the lane's turn. One that comes back, after it was empty or had no slot, begins where the others are:
// it does not get all at once what it left to them. The lock is held.
func (l *lanes) turn(lane *lane) float64 { return max(lane.pass, l.pass) }

// claimed notes how many jobs a claim has brought, and whether there may be more. A queue that has no more rests.
func (l *lanes) claimed(o order, jobs int, more bool, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o.failed = false
	o.share.claimed(o.limit, o.quota, jobs)
	if jobs > 0 {
		l.pass = l.turn(o.lane)
		o.pass = l.pass + float64(jobs)/float64(o.weight)
	}
	switch {
	case more:
		o.pause = 0
		return
	case jobs > 0:
		o.pause = l.least
	default:
		o.pause = l.longer(o.pause)
	}
	if !o.woken {
		o.rest = now.Add(spread(o.pause))
	}
}

// refused notes that a claim has failed. Its queue rests and is not woken: else each new job would be one more call for a
// store that does not answer.
func (l *lanes) refused(o order, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o.failed = true
	o.pause = min(l.longer(o.pause), DefaultPoll)
	o.rest = now.Add(spread(o.pause))
}

func (l *lanes) longer(pause time.Duration) time.Duration { return min(max(l.least, 2*pause), l.most) }

// wake ends the rest of the queue, or of all queues if it has no name, unless the last claim has failed.
func (l *lanes) wake(queue string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lane := range l.lanes {
		if (queue == "" || lane.queue == queue) && !lane.failed {
			lane.woken, lane.rest, lane.pause = true, time.Time{}, 0
		}
	}
}
