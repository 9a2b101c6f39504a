package memory

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Settle cancels jobs that have expired, the earliest ExpiresAt first, and tells others of the ends of jobs that they wait for.
func (s *Store) Settle(ctx context.Context, limit int) ([]store.Settled, error) {
	now, err := s.enter(ctx, store.CheckSettle(limit))
	if err != nil {
		return nil, err
	}
	defer s.leave()
	var settled []store.Settled
	for len(settled) < limit {
		e, some := s.expired.first(now.UnixMicro())
		if !some {
			break
		}
		s.cancel(e.job, now)
		settled = append(settled, store.SettledOf(&s.record(e.job).Job))
	}
	for _, j := range s.hear(limit-len(settled), now) {
		settled = append(settled, store.SettledOf(&s.record(j).Job))
	}
	s.heard = false // what is left is for the next call
	return settled, nil
}

// An expiry is a waiting job with an ExpiresAt. Once it has expired, it stands in no line.
type expiry struct {
	job     *job
	expired bool
	index   int // in the heap of those that have expired, or of the others
}

func (e *expiry) moved(to int) { e.index = to }

// heapOf returns the heap in which the expiry is.
func (s *Store) heapOf(e *expiry) *heap[*expiry] {
	if e.expired {
		return &s.expired
	}
	return &s.expiring
}

// expire takes jobs that have expired out of their lines. If the clock has gone back, it returns those that have not expired
// any more.
func (s *Store) expire(before, now time.Time) {
	if now.Before(before) {
		for _, e := range s.expiries {
			if e.expired && e.job.expiresAt().After(now) {
				s.forgetExpiry(e.job)
				s.place(e.job)
			}
		}
	}
	for {
		e, some := s.expiring.first(now.UnixMicro())
		if !some {
			return
		}
		s.forgetExpiry(e.job)
		e.job.leave()
		s.expect(e.job)
	}
}

// expect notes when a waiting job expires, and reports whether it has expired.
func (s *Store) expect(j *job) (expired bool) {
	at := j.expiresAt()
	if at.IsZero() {
		return false
	}
	e := &expiry{job: j, expired: !at.After(s.last)}
	s.expiries[j.ID] = e
	s.heapOf(e).push(at.UnixMicro(), j.ID, e)
	return e.expired
}

// stepOut ends the waiting of a job.
func (s *Store) stepOut(j *job) {
	j.leave()
	if j.rares().extras != nil {
		s.forgetExpiry(j)
	}
}

func (s *Store) forgetExpiry(j *job) {
	if e := s.expiries[j.ID]; e != nil {
		s.heapOf(e).remove(e.index)
		delete(s.expiries, j.ID)
	}
}
