package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Queues returns every queue that has a job, is paused, or has a policy that sets something.
func (s *Store) Queues(ctx context.Context) ([]store.Queue, error) {
	if _, err := s.enter(ctx, nil); err != nil {
		return nil, err
	}
	defer s.leave()
	var queues []store.Queue
	for _, q := range sorted(s.queues) {
		if q.jobs > 0 || q.paused || q.policy.Sets() {
			queues = append(queues, store.Queue{Name: q.name, Paused: q.paused, Policy: q.policy})
		}
	}
	return queues, nil
}

// Ping returns an error if the store is closed. It does not wait for a transaction.
func (s *Store) Ping(ctx context.Context) error { return s.refuse(ctx, nil) }

// OldestDue returns the queues from which a claim could take a job, each with the earliest due time of its jobs.
func (s *Store) OldestDue(ctx context.Context) (store.Due, error) {
	now, err := s.enter(ctx, nil)
	if err != nil {
		return store.Due{}, err
	}
	defer s.leave()
	found := store.Due{Now: now}
	for _, q := range sorted(s.queues) {
		if due := q.oldestDue(now); !due.IsZero() {
			found.Queues = append(found.Queues, store.QueueDue{Queue: q.name, OldestDue: due})
		}
	}
	return found, nil
}

// oldestDue returns the earliest due time of the queue's due jobs, or the zero time if no job is due. It only needs to look at
// the head of each line, and of those of all keys at the earliest.
func (q *queue) oldestDue(now time.Time) time.Time {
	due := now.UnixMicro()
	oldest := q.keyed.oldest(due)
	for _, l := range []*lane{&q.fresh, &q.retries} {
		for i := range l {
			oldest = firstOf(oldest, l[i].first(due))
		}
	}
	if oldest == nil {
		return time.Time{}
	}
	return oldest.next().time()
}

// SetPaused pauses or resumes a queue.
func (s *Store) SetPaused(ctx context.Context, name string, paused bool) error {
	if _, err := s.enter(ctx, store.CheckQueue(name)); err != nil {
		return err
	}
	defer s.leave()
	q := s.queue(name)
	q.paused = paused
	if !paused {
		s.wake(store.Wakeup{Queue: name})
	}
	s.forgetIfIdle(q)
	return nil
}

// Policy returns the policy of the queue.
func (s *Store) Policy(ctx context.Context, name string) (store.Policy, error) {
	if _, err := s.enter(ctx, store.CheckQueue(name)); err != nil {
		return store.Policy{}, err
	}
	defer s.leave()
	if q := s.queues[name]; q != nil {
		return q.policy, nil
	}
	return store.Policy{}, nil
}

// SetPolicy replaces the queue's policy by p.
func (s *Store) SetPolicy(ctx context.Context, name string, p store.Policy) (store.Policy, error) {
	now, err := s.enter(ctx, cmp.Or(store.CheckQueue(name), p.Check()))
	if err != nil {
		return store.Policy{}, err
	}
	defer s.leave()
	q := s.queue(name)
	defer s.forgetIfIdle(q) // the queue may be new, and its policy refused
	next, err := q.policy.Replace(p)
	if err == nil {
		q.claims.Replace(q.policy.Rate, next.Rate, now)
		q.policy = next
		s.keepToKeys(q)
		s.wake(store.Wakeup{Queue: name}) // there may be room
	}
	return next, err
}

// Beat writes the worker's row.
func (s *Store) Beat(ctx context.Context, w store.Worker) error {
	now, err := s.enter(ctx, w.Check())
	if err != nil {
		return err
	}
	defer s.leave()
	s.forgetWorkers(now)
	w.Queues = slices.Clone(w.Queues)
	w.StaleAfter = w.StaleAfter.Truncate(store.Resolution)
	w.BeatAt, w.Stale = now, false
	s.workers[w.Name] = w
	return nil
}

// Leave removes the worker's row.
func (s *Store) Leave(ctx context.Context, name string) error {
	if _, err := s.enter(ctx, store.Worker{Name: name}.Check()); err != nil {
		return err
	}
	defer s.leave()
	delete(s.workers, name)
	return nil
}

// Workers returns the workers that match, by name.
func (s *Store) Workers(ctx context.Context, filter store.WorkerFilter, page store.Page) (store.WorkerPage, error) {
	after, refused := filter.Position(page)
	now, err := s.enter(ctx, refused)
	if err != nil {
		return store.WorkerPage{}, err
	}
	defer s.leave()
	s.forgetWorkers(now)
	var found store.WorkerPage
	room := store.MaxPageNames
	for _, name := range s.workerNames(filter, after) {
		w := s.workers[name]
		if room -= w.Weight(); len(found.Workers) == page.Limit || room < 0 {
			found.Next = filter.Cursor(found.Workers[len(found.Workers)-1].Name)
			break
		}
		w.Queues = slices.Clone(w.Queues)
		w.Stale = !w.BeatAt.Add(w.StaleAfter).After(now)
		found.Workers = append(found.Workers, w)
	}
	return found, nil
}

// workerNames returns the names of the workers that match and come after a name, in the order of their bytes.
func (s *Store) workerNames(filter store.WorkerFilter, after string) []string {
	var names []string
	if filter.Name != "" {
		if _, known := s.workers[filter.Name]; known && filter.Name > after {
			names = []string{filter.Name}
		}
		return names
	}
	for name := range s.workers {
		if name > after {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (s *Store) forgetWorkers(now time.Time) {
	maps.DeleteFunc(s.workers, func(_ string, w store.Worker) bool {
		return !w.BeatAt.Add(store.WorkerLife).After(now)
	})
}

// Fence begins a new epoch. Later tokens and ids are greater than the floor of that epoch.
func (s *Store) Fence(ctx context.Context, req store.FenceRequest) (int64, error) {
	if _, err := s.enter(ctx, req.Check()); err != nil {
		return 0, err
	}
	defer s.leave()
	epoch, err := req.Raised(s.epoch, s.lastID)
	if err != nil {
		return 0, err
	}
	s.epoch, s.lastID = epoch, store.Floor(epoch)
	if req.EndLeases {
		for j := range s.jobs.rising(0) {
			if j.phase == inFlight {
				s.raise(j)
			}
		}
	}
	return epoch, nil
}

// raise gives the job its next token.
func (s *Store) raise(j *job) { j.token = store.NextToken(j.token, s.epoch) }
