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

// Enqueueing together.
//
// Most of the time of a small enqueue goes into its commit. While one commit is under way, the callers that come gather, and
// those that gathered share the next transaction. A caller who is alone waits for nobody. Only calls that can not be in each
// other's way take part: those whose jobs have no keys, so that nothing but the database's own trouble can refuse them. If it
// does, each goes on alone.

const (
	commitsAtOnce = 2   // one waits for the disk, the other for the processor
	fewJobs       = 100 // of a call that takes part
	mostTogether  = store.MaxItems
	mostBytes     = store.MaxCallBytes // of payloads
)

// A gathering is the callers who gather.
type gathering struct {
	mu      sync.Mutex // guards what follows
	commits int        // under way
	waiting []*party
}

// A party is one call.
type party struct {
	jobs   []store.NewJob // the caller's own may be others once it has left
	bytes  int
	answer chan answer // has room for it
}

type answer struct {
	added []store.Enqueued
	err   error
	alone bool // the call has to be made alone: nothing was applied
}

// sociable says whether the call takes part.
func sociable(req store.EnqueueRequest) bool {
	return req.RequestKey == "" && len(req.Jobs) > 0 && len(req.Jobs) <= fewJobs &&
		!slices.ContainsFunc(req.Jobs, func(n store.NewJob) bool { return n.UniqueKey != "" })
}

// enqueueTogether adds the jobs alone, if nobody is about to commit, or else with those who come meanwhile.
func (s *Store) enqueueTogether(ctx context.Context, jobs []store.NewJob) ([]store.Enqueued, error) {
	add := func(t *txn) ([]store.Enqueued, error) { return t.add(jobs) }
	if err := sqlkit.Admit(ctx, s.closed, nil); err != nil {
		return nil, err
	}
	p := s.crowd.join(jobs)
	if p == nil {
		defer s.goOn()
		return write(ctx, s, nil, add)
	}
	got, err := s.await(ctx, p)
	switch {
	case err != nil:
		return nil, sqlkit.Because(ctx, s.closed, err)
	case got.alone:
		return write(ctx, s, nil, add)
	default:
		return got.added, sqlkit.Because(ctx, s.closed, got.err)
	}
}

// await waits for the answer. A caller who leaves is withdrawn if the call was not taken up; otherwise it goes on, and its
// answer is waited for a little, as that of a commit is.
func (s *Store) await(ctx context.Context, p *party) (answer, error) {
	select {
	case got := <-p.answer:
		return got, nil
	case <-ctx.Done():
	case <-s.closed:
	}
	if s.crowd.withdraw(p) {
		return answer{}, fmt.Errorf("%w: the call was not begun", store.ErrUnavailable)
	}
	long, cancel := linger(ctx, lingering)
	defer cancel()
	select {
	case got := <-p.answer:
		return got, nil
	case <-long.Done():
		return answer{}, fmt.Errorf("%w: its caller did not wait for the answer", store.ErrInDoubt)
	}
}

// goOn lets those share a transaction who gathered meanwhile, and whoever comes until nobody does.
func (s *Store) goOn() {
	parties := s.crowd.next()
	if parties == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sqlkit.Closed(s.closed) {
		refuse(parties, answer{err: store.ErrClosed})
		return
	}
	s.running.Go(func() {
		for ; parties != nil; parties = s.crowd.next() {
			s.commitTogether(parties)
			runtime.Gosched() // those who have just got their answers may want the next transaction
		}
	})
}

// commitTogether adds the jobs of all of them in one transaction, which is no caller's.
func (s *Store) commitTogether(parties []*party) {
	var jobs []store.NewJob
	for _, p := range parties {
		jobs = append(jobs, p.jobs...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.options.Timeout+lingering)
	defer cancel()
	added, err := write(ctx, s, nil, func(t *txn) ([]store.Enqueued, error) { return t.add(jobs) })
	if err != nil {
		refused := errors.Is(err, store.ErrUnavailable) && codeOf(err) != ""
		refuse(parties, answer{err: err, alone: refused && len(parties) > 1})
		return
	}
	for _, p := range parties {
		n := len(p.jobs)
		p.answer <- answer{added: added[:n:n]}
		added = added[n:]
	}
}

func refuse(parties []*party, a answer) {
	for _, p := range parties {
		p.answer <- a
	}
}

// join adds a call to those that wait. It is nil if there is no need to: a commit of the caller's own is under way then, until
// next says that there is nobody any more.
func (g *gathering) join(jobs []store.NewJob) *party {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.commits < commitsAtOnce {
		g.commits++
		return nil
	}
	p := &party{jobs: slices.Clone(jobs), answer: make(chan answer, 1)}
	for i, n := range jobs {
		p.jobs[i].Payload, p.jobs[i].Tags = bytes.Clone(n.Payload), slices.Clone(n.Tags)
		p.bytes += len(n.Payload)
	}
	g.waiting = append(g.waiting, p)
	return p
}

// withdraw takes a call out again, unless it was taken up.
func (g *gathering) withdraw(p *party) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, p)
	if i < 0 {
		return false
	}
	g.waiting = slices.Delete(g.waiting, i, i+1)
	return true
}

// next takes up those who wait, the first ones if they are too many for one call. If there is nobody, a commit is over.
func (g *gathering) next() []*party {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, jobs, bytes := 0, 0, 0
	for ; n < len(g.waiting); n++ {
		p := g.waiting[n]
		if jobs, bytes = jobs+len(p.jobs), bytes+p.bytes; n > 0 && (jobs > mostTogether || bytes > mostBytes) {
			break
		}
	}
	if n == 0 {
		g.commits--
		return nil
	}
	parties := slices.Clone(g.waiting[:n])
	g.waiting = slices.Delete(g.waiting, 0, n)
	return parties
}
