package server

import "math"

// A share reserves a part of all claims for retries. Claims of single jobs get their part too: what is less than one job is carried over.
type share struct {
	part  float64 // of each claim that retries get
	carry float64
	short int // how many jobs the latest claim got that was not full; zero after a full one
}

// quota returns how many jobs of the next claim may be retries. If the queue has a limit, the claim will probably get no more jobs than the
// one before.
func (s *share) quota(limit int) int {
	if s.short > 0 {
		limit = min(limit, s.short)
	}
	whole := math.Floor(s.owed(limit) + 1e-9) // a fifth five times over is one
	return min(limit, int(whole))
}

func (s *share) owed(limit int) float64 { return s.carry + s.part*float64(limit) }

// claimed records a claim made with the quota. If the claim was not full, either no retry was left waiting, or the queue has a limit: then it was
// as if the claim had asked for no more jobs than it got. Of what is owed to retries for such claims, at most one job is carried over.
func (s *share) claimed(limit, quota, jobs int) {
	switch {
	case jobs == limit:
		s.carry, s.short = max(0, s.owed(limit)-float64(quota)), 0
	case jobs > 0:
		s.carry, s.short = min(1, max(0, s.owed(jobs)-float64(min(quota, jobs)))), jobs
	}
}
