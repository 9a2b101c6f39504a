package server

import "math"

// A share reserves a part of all claims for retries. Claims of single jobs get their part too: what is less than one job is carried over.
type share struct {
	part  float64 // of each claim that retries get
	carry float64
}

// quota returns how many jobs of the next claim may be retries.
func (s *share) quota(limit int) int {
	whole := math.Floor(s.owed(limit) + 1e-9) // a fifth five times over is one
	return min(limit, int(whole))
}

func (s *share) owed(limit int) float64 { return s.carry + s.part*float64(limit) }

// claimed records a claim made with the quota. If the claim was not full, no retry was left waiting, so nothing is carried over.
func (s *share) claimed(limit, quota, jobs int) {
	if jobs == limit {
		s.carry = max(0, s.owed(limit)-float64(quota))
	}
}
