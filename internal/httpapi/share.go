package httpapi

import (
	"math"
	"sync"
)

// Lanes share the claims of each queue between fresh jobs and retries, also where each claim takes a single job: what is less than
// a job is carried over to the next.
type lanes struct {
	part  float64 // of each claim, for retries
	mu    sync.Mutex
	carry map[string]float64 // by queue
}

// maxLanes is for how many queues something is carried over: names cost nothing to those who send them.
const maxLanes = 4096

// take is how many of the next claim may be retries.
func (l *lanes) take(queue string, limit int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.carry == nil || len(l.carry) >= maxLanes {
		l.carry = map[string]float64{}
	}
	owed := l.carry[queue] + l.part*float64(limit)
	quota := max(0, min(limit, int(math.Floor(owed+1e-9)))) // a fifth five times over is one
	l.carry[queue] = owed - float64(quota)
	return quota
}

// untake is for a claim that was not filled: it left nobody waiting, and nothing is owed for it.
func (l *lanes) untake(queue string, limit, quota int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if carried, ok := l.carry[queue]; ok {
		l.carry[queue] = carried - (l.part*float64(limit) - float64(quota))
	}
}
