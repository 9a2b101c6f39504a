package sqlite

import (
	"maps"
	"slices"
	"sync"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/bykey"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// limits is what the store remembers of queues that are limited.
type limits struct {
	held sqlkit.Held

	mu     sync.Mutex // guards across
	across map[string]*bykey.Across
}

// of returns what it remembers of claims across keys.
func (l *limits) of(queue string, p store.Policy) *bykey.Across {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.across[queue].Under(p, bykey.Often{}) // hints are few, since a line has only one
	switch {
	case a == nil:
		delete(l.across, queue)
	case l.across == nil:
		l.across = map[string]*bykey.Across{queue: a}
	default:
		l.across[queue] = a
	}
	return a
}

// claimAcross takes as many jobs as the claim may, whatever their keys, unless there are fewer, or a key may have no room: see bykey.Across.
func (t *txn) claimAcross(req store.ClaimRequest, a *bykey.Across) (jobs []store.Job, done bool, err error) {
	if !a.Tries() {
		return nil, false, nil
	}
	chosen, err := t.first(req, req.Limit)
	if err != nil {
		return nil, false, err
	}
	if len(chosen) == req.Limit {
		done, err = t.haveRoom(req.Queue, chosen, a.Limit)
	}
	if done && err == nil {
		jobs, err = t.lease(chosen, req)
	}
	a.Took(jobs)
	return jobs, done, err
}

// haveRoom reports whether each key of the jobs has room for all of them.
func (t *txn) haveRoom(queue string, jobs []*store.Record, limit int) (bool, error) {
	more := map[string]int{}
	for _, e := range jobs {
		if e.LimitKey() != "" {
			more[e.LimitKey()]++
		}
	}
	slots, err := t.slotsOf(queue, slices.Collect(maps.Keys(more)))
	for name, n := range more {
		if slots[name]+n > limit {
			return false, err
		}
	}
	return true, err
}
