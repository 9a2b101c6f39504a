package model

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/seed-ed332417/jq/internal/store"
)

// Queues is part of the contract.
func (s *Store) Queues(ctx context.Context) ([]store.Queue, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.enter(ctx); err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, j := range s.jobs {
		names[j.Queue] = true
	}
	for name, paused := range s.paused {
		if paused && !s.broken(EmptyQueueUnlisted) {
			names[name] = true
		}
	}
	var queues []store.Queue
	for _, name := range slices.Sorted(maps.Keys(names)) {
		queues = append(queues, store.Queue{Name: name, Paused: s.paused[name]})
	}
	return queues, nil
}

// SetPaused is part of the contract.
func (s *Store) SetPaused(ctx context.Context, queue string, paused bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.enter(ctx); err != nil {
		return err
	}
	if err := store.CheckQueue(queue); err != nil {
		return err
	}
	s.paused[queue] = paused || s.paused[queue] && s.broken(PauseIsForEver)
	return nil
}

// Beat is part of the contract.
func (s *Store) Beat(ctx context.Context, w store.Worker) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.enter(ctx)
	if err != nil {
		return err
	}
	if err := w.Check(); err != nil {
		return err
	}
	w.Queues = slices.Clone(w.Queues)
	w.StaleAfter = w.StaleAfter.Truncate(store.Resolution)
	w.BeatAt, w.Stale = now, false
	s.workers[w.Name] = w
	return nil
}

// Workers is part of the contract.
func (s *Store) Workers(ctx context.Context) ([]store.Worker, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	var workers []store.Worker
	for _, w := range s.workers {
		silent := now.Sub(w.BeatAt)
		if silent >= store.WorkerLife && !s.broken(WorkersNeverForgotten) {
			continue
		}
		w.Queues = slices.Clone(w.Queues)
		w.Stale = silent >= w.StaleAfter && !s.broken(WorkersNeverStale)
		workers = append(workers, w)
	}
	slices.SortFunc(workers, func(a, b store.Worker) int { return cmp.Compare(a.Name, b.Name) })
	return workers, nil
}

// Fence is part of the contract.
func (s *Store) Fence(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.enter(ctx); err != nil {
		return err
	}
	for i := range s.jobs {
		if s.jobs[i].Terminal() && s.broken(FenceMissesTerminal) {
			continue
		}
		if s.jobs[i].State == store.InFlight && s.broken(FenceMissesInFlight) {
			continue
		}
		s.jobs[i].Token += store.FenceStep
		if !s.broken(FenceKeepsEndings) {
			s.jobs[i].endedBy = ""
		}
	}
	if !s.broken(FenceMissesIDs) {
		s.nextID += store.FenceStep
	}
	return nil
}
