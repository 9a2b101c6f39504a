package memory

import (
	"context"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Enqueue adds all of the jobs or none of them.
func (s *Store) Enqueue(ctx context.Context, req store.EnqueueRequest) ([]store.Enqueued, error) {
	prepared, refused := prepare(req)
	now, err := s.enter(ctx, refused)
	if err != nil {
		return nil, err
	}
	defer s.leave()
	return s.enqueue(prepared, now)
}

func (s *Store) enqueue(req prepared, now time.Time) ([]store.Enqueued, error) {
	if len(req.Jobs) == 0 {
		return nil, nil
	}
	s.forget(now)
	if given, ok := s.requests[req.RequestKey]; ok {
		if given.fingerprint != req.fingerprint {
			return nil, req.KeyUsed()
		}
		return slices.Clone(given.jobs), nil
	}
	ordered := slices.DeleteFunc(store.Prioritized(req.Jobs), func(queue string) bool {
		q := s.queues[queue]
		return q == nil || !q.policy.Ordered
	})
	if err := store.CheckNew(req.Jobs, now, func(id int64) bool { return s.jobs.get(id) != nil }, ordered); err != nil {
		return nil, err
	}
	s.open(req, now)
	answers := make([]store.Enqueued, len(req.Jobs))
	for i, n := range req.Jobs {
		answers[i] = s.enqueueOne(n, func(item int) int64 { return answers[item].ID }, now)
	}
	s.arrived(req)
	if req.RequestKey != "" {
		s.keep(req, answers, now)
	}
	return answers, nil
}

func (s *Store) enqueueOne(n store.NewJob, item func(int) int64, now time.Time) store.Enqueued {
	if held := s.holderOf(n.UniqueKey, now); held != 0 {
		duplicate := s.duplicateOf(held)
		duplicate.Replaced = n.Replace && s.replace(held, n, now)
		return duplicate
	}
	s.lastID++
	payload := s.docs.clone(n.Payload, blockSize)
	n.Payload = nil
	row := n.Row(s.lastID, now)
	row.Payload = payload
	waits := n.KeptWaits(item)
	if len(waits) > 0 {
		row.Begin(waits, s.awaits(), now)
	}
	j := s.add(&row)
	if len(waits) > 0 {
		s.await(row.ID, waits)
	}
	if j.phase.terminal() {
		s.leaves(&row, false)
	}
	if row.UniqueKey != "" && (row.UniqueFor > 0 || !j.phase.terminal()) {
		s.hold(j)
	}
	return store.Enqueued{ID: row.ID, State: row.State}
}

func (s *Store) duplicateOf(id int64) store.Enqueued {
	duplicate := store.Enqueued{ID: id, Duplicate: true}
	if j := s.jobs.get(id); j != nil {
		duplicate.State = j.phase.state()
	}
	return duplicate
}

// replace changes the job that holds the unique key of n, if that waits and n asks for it.
func (s *Store) replace(held int64, n store.NewJob, now time.Time) bool {
	j, r := s.find(held)
	if !r.Replace(n, now) {
		return false
	}
	s.change(j, r)
	return true
}
