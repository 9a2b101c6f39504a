package httpapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A quota limits how many jobs wait: those of one queue, or those that a token sees. It uses the latest count and the jobs
// that were added here since. Jobs that other servers add are noticed at the next count. It counts again when the latest
// count is old, and earlier if there seems to be no room, but at most once a second.
type quota struct {
	most   int64
	filter store.Filter

	turn  room // held by the call that counts
	known int64
	at    time.Time // the time of the count; zero before the first one
}

// How old a count may be if there is room, and if there seems to be none.
const (
	oldCount = 10 * time.Second
	newCount = time.Second
)

func newQuota(most int64, filter store.Filter) *quota {
	filter.States = []store.State{store.Blocked, store.Ready, store.Retrying}
	return &quota{most: most, filter: filter, turn: newRoom(1)}
}

// admit reserves room for the jobs, or refuses them. If the store can not count in time, it admits them: the quota should
// protect the store, not make it unavailable.
func (q *quota) admit(ctx context.Context, a *API, jobs int) error {
	if err := q.turn.wait(ctx); err != nil {
		return err
	}
	defer q.turn.leave()
	fits := func() bool { return q.known+int64(jobs) <= q.most }
	age := a.clock.Since(q.at)
	if age >= oldCount || !fits() && age >= newCount {
		counts, err := a.store.Count(ctx, q.filter)
		if err != nil {
			a.log.Warn("jq: a quota is not looked at, for the waiting jobs can not be counted", "queue", q.filter.Queue, "error", err)
			return nil
		}
		q.known, q.at = counts.Total(), a.clock.Now()
	}
	if !fits() {
		f := overQuota
		f.Detail = fmt.Sprintf("%d jobs wait, and at most %d may", q.known, q.most)
		return f
	}
	q.known += int64(jobs)
	return nil
}

// quotas holds the quotas of queues, or of tokens, by name. If there are too many, all are forgotten and counted again.
type quotas struct {
	mu  sync.Mutex
	all map[string]*quota
}

// maxQuotas is how many quotas are kept: clients can send any number of names.
const maxQuotas = 4096

func (q *quotas) of(name string, most int64, filter store.Filter) *quota {
	q.mu.Lock()
	defer q.mu.Unlock()
	one := q.all[name]
	if one == nil || one.most != most || !slices.Equal(one.filter.Queues, filter.Queues) {
		if q.all == nil || len(q.all) >= maxQuotas {
			q.all = map[string]*quota{}
		}
		one = newQuota(most, filter)
		q.all[name] = one
	}
	return one
}

// passes remembers the requests with a request key that the store has applied, or may have applied. A repeat needs no room: its jobs are there
// already. If there are too many, all are forgotten.
type passes struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]time.Time // when, by the key and the jobs
}

// passOf identifies a request by its key and its jobs.
func passOf(req store.EnqueueRequest) [sha256.Size]byte {
	jobs := req.Fingerprint()
	return sha256.Sum256(append(jobs[:], req.RequestKey...))
}

func (p *passes) has(req store.EnqueueRequest, now time.Time) bool {
	if req.RequestKey == "" {
		return false
	}
	sum := passOf(req)
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.all[sum]
	return ok && now.Sub(at) < store.RequestKeyLife
}

// note takes into account that the store has answered so.
func (p *passes) note(req store.EnqueueRequest, answer error, now time.Time) {
	if req.RequestKey == "" || answer != nil && !errors.Is(answer, store.ErrInDoubt) {
		return
	}
	sum := passOf(req)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil || len(p.all) >= maxQuotas {
		p.all = map[[sha256.Size]byte]time.Time{}
	}
	p.all[sum] = now
}

// hasQuota reports whether a quota limits what the bearer enqueues.
func (a *API) hasQuota(b *bearer) bool {
	return a.options.MaxWaitingJobs > 0 || b != nil && b.MaxWaiting > 0
}

// hasRoom refuses jobs beyond the quotas of their queues and of the token. It first refuses requests that would be refused
// anyway, so that they reserve nothing and learn nothing about the quotas.
func (a *API) hasRoom(ctx context.Context, b *bearer, req store.EnqueueRequest) error {
	if !a.hasQuota(b) {
		return nil
	}
	if err := req.Check(); err != nil {
		return err
	}
	if err := b.needsAll(req); err != nil {
		return err
	}
	if a.passes.has(req, a.clock.Now()) {
		return nil
	}
	if b != nil && b.MaxWaiting > 0 {
		q := a.byToken.of(b.Hash, b.MaxWaiting, store.Filter{Queues: b.Queues})
		if err := q.admit(ctx, a, len(req.Jobs)); err != nil {
			return err
		}
	}
	if a.options.MaxWaitingJobs == 0 {
		return nil
	}
	added := map[string]int{}
	for _, j := range req.Jobs {
		added[j.Queue]++
	}
	for queue, n := range added {
		if err := a.byQueue.of(queue, a.options.MaxWaitingJobs, store.Filter{Queue: queue}).admit(ctx, a, n); err != nil {
			return err
		}
	}
	return nil
}
