package doctor

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-ed332417/jq/internal/store"
)

// HeldBack says what keeps claims from taking a due job now: that its queue is paused or full, that its limit key has no room, or which job of its key
// goes first in an ordered queue. It returns nothing for a job that is not due. It does not look at the rate of the queue, nor at whether there are workers.
func HeldBack(ctx context.Context, s store.Store, j store.Job) ([]string, error) {
	if phase := j.Phase(); phase != store.Ready && phase != store.Retrying {
		return nil, nil
	}
	counts, err := s.Count(ctx, store.Filter{IDs: []int64{j.ID}})
	if err != nil || len(counts.Queues) == 0 || counts.Queues[0].Due == 0 {
		return nil, err
	}
	e := &examination{ctx: ctx, store: s, counts: counts}
	if err := e.list(); err != nil {
		return nil, err
	}
	var reasons []string
	if e.listed[j.Queue].Paused {
		reasons = append(reasons, fmt.Sprintf("its queue %s is paused", j.Queue))
	}
	for _, look := range []func(store.Job) (string, error){e.fullQueue, e.fullKey, e.earlier} {
		reason, err := look(j)
		if err != nil {
			return nil, err
		}
		if reason != "" {
			reasons = append(reasons, reason)
		}
	}
	return reasons, nil
}

// fullQueue says that the queue of the job is full, if it is.
func (e *examination) fullQueue(j store.Job) (string, error) {
	p := e.listed[j.Queue].Policy
	if p.MaxInFlight == 0 {
		return "", nil
	}
	counts, err := e.store.Count(e.ctx, store.Filter{Queue: j.Queue, States: []store.State{store.InFlight}})
	if err != nil || len(counts.Queues) == 0 || p.Room(1, int(counts.Queues[0].Jobs[store.InFlight])) > 0 {
		return "", err
	}
	return fmt.Sprintf("its queue %s has as many jobs in flight as its policy allows (%d)", j.Queue, p.MaxInFlight), nil
}

// fullKey says that the limit key of the job has no room, if so, and which jobs take it up.
func (e *examination) fullKey(j store.Job) (string, error) {
	p := e.listed[j.Queue].Policy
	if p.MaxPerKey == 0 || p.Ordered || j.LimitKey() == "" {
		return "", nil
	}
	var ids []int64
	filter := store.Filter{Queue: j.Queue, LimitKey: j.LimitKey(), States: []store.State{store.InFlight}}
	err := e.each(filter, mostPages, func(j store.Job) { ids = append(ids, j.ID) })
	if err != nil || len(ids) < p.KeyLimit() {
		return "", err
	}
	slices.Sort(ids)
	var names []string
	for _, id := range ids {
		names = append(names, fmt.Sprint(id))
	}
	which := "job"
	if len(ids) > 1 {
		which = "jobs"
	}
	return fmt.Sprintf("its limit key %s has as many jobs in flight as its queue %s allows (%d): %s %s", j.LimitKey(), j.Queue, p.KeyLimit(), which, few(names, ", ")), nil
}

// earlier says which job of the same limit key goes first in an ordered queue: the one in flight, or else the first one of all that live.
func (e *examination) earlier(j store.Job) (string, error) {
	if !e.listed[j.Queue].Policy.Ordered || j.LimitKey() == "" {
		return "", nil
	}
	var first *store.Job
	filter := store.Filter{Queue: j.Queue, LimitKey: j.LimitKey()}
	for _, states := range [][]store.State{{store.InFlight}, {store.Blocked, store.Retrying, store.Ready}} {
		filter.States = states
		err := e.each(filter, mostPages, func(of store.Job) {
			if (of.ID < j.ID || of.State == store.InFlight) && (first == nil || of.ID < first.ID) {
				first = &of
			}
		})
		if err != nil {
			return "", err
		}
		if first != nil {
			break
		}
	}
	if first == nil {
		return "", nil
	}
	why := e.standstill(*first)
	if why == "" {
		why = "is due"
	}
	return fmt.Sprintf("its queue %s is ordered, and job %d of its limit key %s goes first: it %s", j.Queue, first.ID, j.LimitKey(), why), nil
}
