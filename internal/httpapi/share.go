package httpapi

import (
	"math"
	"sync"
)

// lanes divides the claims of each queue between fresh jobs and retries. It carries fractions of a job over to the next
// claim, so that the shares are right even if each claim takes a single job.
type lanes struct {
	part float64 // the part of each claim that may be retries

	mu    sync.Mutex // guards what follows
	known map[string]owing
}

// An owing is what lanes know of a queue.
type owing struct {
	carry float64
	short int // how many jobs the latest claim got that was not full; zero after a full one
}

// maxLanes is how many queues it carries fractions for: clients can send any number of names.
const maxLanes = 4096

// A portion says how many jobs of a claim may be retries, and how many jobs the claim will probably get.
type portion struct{ quota, expected int }

// take returns the portion of the next claim. If the queue has a limit, the claim will probably get no more jobs than the one before.
func (l *lanes) take(queue string, limit int) portion {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil || len(l.known) >= maxLanes {
		l.known = map[string]owing{}
	}
	q := l.known[queue]
	expected := limit
	if q.short > 0 {
		expected = min(limit, q.short)
	}
	owed := q.carry + l.part*float64(expected)
	quota := max(0, min(expected, int(math.Floor(owed+1e-9)))) // floating point: five times a fifth must be one
	q.carry = owed - float64(quota)
	l.known[queue] = q
	return portion{quota, expected}
}

// took notes what a claim got. If it was not full, either no retry was left waiting, or the queue has a limit: then it was as if the claim
// had asked for no more jobs than it got. Of what is owed to retries for such claims, at most one job is carried over.
func (l *lanes) took(queue string, limit, jobs int, p portion) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q, ok := l.known[queue]
	if !ok {
		return
	}
	switch {
	case jobs == limit:
		q.carry, q.short = q.carry+l.part*float64(limit-p.expected), 0
	default:
		q.carry -= l.part*float64(p.expected) - float64(p.quota)
		if jobs > 0 {
			q.carry, q.short = min(1, q.carry+l.part*float64(jobs)-float64(min(p.quota, jobs))), jobs
		}
	}
	l.known[queue] = q
}
