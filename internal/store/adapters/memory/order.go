package memory

import "github.com/seed-ed332417/jq/internal/store"

// In an ordered queue, each live job with a limit key has a rank among those of its key. Only the first of them, the head, stands in a line from which claims
// take jobs. The others wait in one that belongs among the full ones, so a claim passes them over.

// A rank is the place of a live job among those of its key.
type rank struct {
	job   *job
	index int // in the heap of its key
}

func (r *rank) moved(to int) { r.index = to }

// order gives a job its rank if it is live, and otherwise takes the rank away. If its key has another head then, that can be claimed.
func (s *Store) order(j *job, live bool) {
	k := j.queue.keyed
	if k == nil || !k.ordered || j.limitKey() == "" {
		return
	}
	key, has := k.key(j.limitKey()), k.ranks[j]
	switch {
	case live && has == nil:
		has = &rank{job: j}
		k.ranks[j] = has
		key.live.push(0, j.ID, has)
	case !live && has != nil:
		delete(k.ranks, j)
		key.live.remove(has.index)
	}
	before := key.head
	key.head = nil
	if first, some := key.live.first(0); some {
		key.head = first.job
	}
	if before != key.head {
		s.moveLine(before)
		s.moveLine(key.head)
		s.wake(store.Wakeup{Queue: j.queue.name})
	}
	key.forgetIfIdle()
}

// moveLine moves a job to the line in which it belongs, if it waits in another one.
func (s *Store) moveLine(j *job) {
	if j == nil || j.line == nil || !j.phase.waits() {
		return
	}
	j.leave()
	j.queue.lineFor(j).push(j, j.at() > s.last.UnixMicro())
}
