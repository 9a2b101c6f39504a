package httpapi

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A quota bounds how many jobs wait: those of one queue, or those that a token sees. It goes by the latest count and by what was added
// here since; other servers of the store add unseen until the next count. A count is made when the latest one is old, and sooner where
// there seems to be no room, but at most once a second.
type quota struct {
	most   int64
	filter store.Filter

	turn  room // for one who counts
	known int64
	at    time.Time // of the count, zero before the first
}

// How old a count may be: where there is room, and where there seems to be none.
const (
	oldCount = 10 * time.Second
	newCount = time.Second
)

func newQuota(most int64, filter store.Filter) *quota {
	filter.States = []store.State{store.Ready, store.Retrying}
	return &quota{most: most, filter: filter, turn: newRoom(1)}
}

// admit takes room for so many jobs, or says that there is none. Where the store can not count in time, it lets them in: the
// quota is there to protect the store, and not to take it away.
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

// Quotas are those of the queues by their names, or those of the tokens. All are forgotten when there are too many, and counted
// anew.
type quotas struct {
	mu  sync.Mutex
	all map[string]*quota
}

// maxQuotas is how many are remembered: names cost nothing to those who send them.
const maxQuotas = 4096

func (q *quotas) of(name string, most int64, filter store.Filter) *quota {
	q.mu.Lock()
	defer q.mu.Unlock()
	one := q.all[name]
	if one == nil || one.most != most {
		if q.all == nil || len(q.all) >= maxQuotas {
			q.all = map[string]*quota{}
		}
		one = newQuota(most, filter)
		q.all[name] = one
	}
	return one
}

// hasRoom refuses jobs beyond the quotas of their queues and of the token. What would be refused anyway takes up no room, and learns
// nothing of it.
func (a *API) hasRoom(ctx context.Context, b *bearer, req store.EnqueueRequest) error {
	ofToken := b != nil && b.MaxWaiting > 0
	if !ofToken && a.options.MaxWaitingJobs == 0 {
		return nil
	}
	if err := req.Check(); err != nil {
		return err
	}
	if err := b.needsAll(req); err != nil {
		return err
	}
	if ofToken {
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
