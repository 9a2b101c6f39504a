package server

import "math"

// A share hands the lane of retries its part of many claims, also where each of them takes a single job: what is less than a
// job is carried over.
type share struct {
	part  float64 // of each claim
	carry float64
}

// quota is how many of the next claim may be retries.
func (s *share) quota(limit int) int {
	whole := math.Floor(s.owed(limit) + 1e-9) // a fifth five times over is one
	return min(limit, int(whole))
}

func (s *share) owed(limit int) float64 { return s.carry + s.part*float64(limit) }

// claimed notes a claim with the quota. One that was not filled left nobody waiting: nothing is owed for it.
func (s *share) claimed(limit, quota, jobs int) {
	if jobs == limit {
		s.carry = max(0, s.owed(limit)-float64(quota))
	}
}
