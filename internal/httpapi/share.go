package httpapi

import (
	"math"
	"sync"
)

// lanes divides the claims of each queue between fresh jobs and retries. It carries fractions of a job over to the next
// claim, so that the shares are right even if each claim takes a single job.
type lanes struct {
	part  float64 // the part of each claim that may be retries
	mu    sync.Mutex
	carry map[string]float64 // by queue
}

// maxLanes is how many queues it carries fractions for: clients can send any number of names.
const maxLanes = 4096

// take returns how many jobs of the next claim may be retries.
func (l *lanes) take(queue string, limit int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.carry == nil || len(l.carry) >= maxLanes {
		l.carry = map[string]float64{}
	}
	owed := l.carry[queue] + l.part*float64(limit)
	quota := max(0, min(limit, int(math.Floor(owed+1e-9)))) // floating point: five times a fifth must be one
	l.carry[queue] = owed - float64(quota)
	return quota
}

// untake undoes take for a claim that got fewer jobs than its limit: then no retry was left waiting, and nothing is owed to
// the next claim.
func (l *lanes) untake(queue string, limit, quota int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if carried, ok := l.carry[queue]; ok {
		l.carry[queue] = carried - (l.part*float64(limit) - float64(quota))
	}
}
