package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Group commit.
//
// A small enqueue spends most of its time in its commit. So calls that arrive during a commit wait, and share the next
// transaction. A lone caller waits for nobody. Only calls without unique keys, request keys, times of expiry, waits and groups take part: they
// cannot block each other, and only the database itself can refuse them. If it refuses a batch, each call runs alone.

const (
	commitsAtOnce  = 2   // one waits for the disk, the other for the processor
	maxJobsBatched = 100 // of a call that takes part
	maxBatchJobs   = store.MaxItems
	maxBatchBytes  = store.MaxCallBytes // of payloads
)

// A groupCommit holds the calls that wait for the next shared transaction.
type groupCommit struct {
	mu      sync.Mutex // guards the fields below
	commits int        // running
	waiting []*batchedCall
}

// A batchedCall is one waiting call.
type batchedCall struct {
	jobs   []store.NewJob // a copy: the caller may change its own once it has left
	bytes  int
	answer chan answer // buffered
}

type answer struct {
	added []store.Enqueued
	err   error
	alone bool // run the call alone; nothing was applied
}

// batchable reports whether the call may share a transaction.
func batchable(req store.EnqueueRequest) bool {
	return req.RequestKey == "" && len(req.Open) == 0 && len(req.Jobs) > 0 && len(req.Jobs) <= maxJobsBatched &&
		!slices.ContainsFunc(req.Jobs, func(n store.NewJob) bool {
			return n.UniqueKey != "" || !n.ExpiresAt.IsZero() || waitsForOthers(n)
		})
}

// addAll adds the jobs of a batch.
func (s *Store) addAll(ctx context.Context, jobs []store.NewJob) ([]store.Enqueued, error) {
	if added, done, err := s.insertSingle(ctx, jobs); done || err != nil {
		return added, err
	}
	return write(ctx, s, nil, func(t *txn) ([]store.Enqueued, error) { return t.addJobs(jobs, nil) })
}

// enqueueBatched adds the jobs in a transaction of their own if fewer than commitsAtOnce are running, or else in a shared one.
func (s *Store) enqueueBatched(ctx context.Context, jobs []store.NewJob) ([]store.Enqueued, error) {
	if err := sqlkit.Admit(ctx, s.closed, nil); err != nil {
		return nil, err
	}
	p := s.group.join(jobs)
	if p == nil {
		defer s.commitWaiting()
		return s.addAll(ctx, jobs)
	}
	got, err := s.await(ctx, p)
	switch {
	case err != nil:
		return nil, sqlkit.Because(ctx, s.closed, err)
	case got.alone:
		return s.addAll(ctx, jobs)
	default:
		return got.added, sqlkit.Because(ctx, s.closed, got.err)
	}
}

// await waits for the answer. If the caller's context ends, await withdraws the call. If a batch has already taken it, await
// waits a little longer, as for the answer to a commit.
func (s *Store) await(ctx context.Context, p *batchedCall) (answer, error) {
	select {
	case got := <-p.answer:
		return got, nil
	case <-ctx.Done():
	case <-s.closed:
	}
	if s.group.withdraw(p) {
		return answer{}, fmt.Errorf("%w: the call had not begun", store.ErrUnavailable)
	}
	long, cancel := linger(ctx, lingering)
	defer cancel()
	select {
	case got := <-p.answer:
		return got, nil
	case <-long.Done():
		return answer{}, fmt.Errorf("%w: the caller did not wait for the answer", store.ErrInDoubt)
	}
}

// commitWaiting commits the waiting calls, batch by batch, until none is left.
func (s *Store) commitWaiting() {
	batch := s.group.next()
	if batch == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sqlkit.Closed(s.closed) {
		refuse(batch, answer{err: store.ErrClosed})
		return
	}
	s.running.Go(func() {
		for ; batch != nil; batch = s.group.next() {
			s.commitBatch(batch)
			runtime.Gosched() // callers that have just got their answers may want to join the next transaction
		}
	})
}

// commitBatch adds the jobs of all calls in one transaction, which no caller's context can end.
func (s *Store) commitBatch(batch []*batchedCall) {
	var jobs []store.NewJob
	for _, p := range batch {
		jobs = append(jobs, p.jobs...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.options.Timeout+lingering)
	defer cancel()
	added, err := s.addAll(ctx, jobs)
	if err != nil {
		refused := errors.Is(err, store.ErrUnavailable) && codeOf(err) != ""
		refuse(batch, answer{err: err, alone: refused && len(batch) > 1})
		return
	}
	for _, p := range batch {
		n := len(p.jobs)
		p.answer <- answer{added: added[:n:n]}
		added = added[n:]
	}
}

func refuse(batch []*batchedCall, a answer) {
	for _, p := range batch {
		p.answer <- a
	}
}

// join queues the call for a batch. It returns nil if the caller may commit by itself: that commit counts as running until next
// finds no waiting call.
func (g *groupCommit) join(jobs []store.NewJob) *batchedCall {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.commits < commitsAtOnce {
		g.commits++
		return nil
	}
	p := &batchedCall{jobs: slices.Clone(jobs), answer: make(chan answer, 1)}
	for i, n := range jobs {
		p.jobs[i].Payload, p.jobs[i].Tags = bytes.Clone(n.Payload), slices.Clone(n.Tags)
		p.bytes += len(n.Payload)
	}
	g.waiting = append(g.waiting, p)
	return p
}

// withdraw removes a call, unless a batch has taken it.
func (g *groupCommit) withdraw(p *batchedCall) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return takeOut(&g.waiting, p)
}

// next returns the next batch: the first waiting calls, within the limits of one call. If none waits, it counts a commit as
// ended.
func (g *groupCommit) next() []*batchedCall {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, jobs, bytes := 0, 0, 0
	for ; n < len(g.waiting); n++ {
		p := g.waiting[n]
		if jobs, bytes = jobs+len(p.jobs), bytes+p.bytes; n > 0 && (jobs > maxBatchJobs || bytes > maxBatchBytes) {
			break
		}
	}
	if n == 0 {
		g.commits--
		return nil
	}
	batch := slices.Clone(g.waiting[:n])
	g.waiting = slices.Delete(g.waiting, 0, n)
	return batch
}
