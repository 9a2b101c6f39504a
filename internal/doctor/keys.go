package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// keys are the limit keys that have jobs in flight, in queues that limit them.
type keys struct {
	held map[keyName]*heldKey
	full []*heldKey // those with jobs that have waited for long, although the queue itself is not full

	holders []*holder // in ordered queues, those that hold their keys for long
}

type keyName struct{ queue, key string }

// A heldKey is a limit key with jobs in flight.
type heldKey struct {
	keyName
	jobs   int
	oldest store.Job // the job that was claimed first
	latest time.Time // when a job was claimed last

	waiting store.QueueCount // its due jobs
}

// note counts a job in flight.
func (k *keys) note(j store.Job, p store.Policy) {
	name := keyName{j.Queue, j.LimitKey()}
	if p.KeyLimit() == 0 || name.key == "" {
		return
	}
	h := k.held[name]
	if h == nil {
		if k.held == nil {
			k.held = map[keyName]*heldKey{}
		}
		h = &heldKey{keyName: name, oldest: j}
		k.held[name] = h
	}
	h.jobs++
	if j.ClaimedAt.Before(h.oldest.ClaimedAt) {
		h.oldest = j
	}
	if j.ClaimedAt.After(h.latest) {
		h.latest = j.ClaimedAt
	}
}

// keysOf finds the keys of a slow queue that are the reason. It reports whether the job that has waited longest is one of these: then nobody knows whether
// the other jobs of the queue wait for long, and the keys are the problem to solve first.
func (e *examination) keysOf(q store.QueueCount) (oldest bool, err error) {
	held, err := e.heldKeys(q)
	if err != nil {
		return false, err
	}
	full, err := e.fullKeys(q)
	return held || full, err
}

// mostKeys is how many keys of a queue are counted at most: those to which nothing has happened for the longest time.
const mostKeys = 20

// fullKeys finds the keys of a slow queue that have no room and jobs that have waited for long. It reports whether the job that has waited
// longest is one of these.
func (e *examination) fullKeys(q store.QueueCount) (oldest bool, err error) {
	most := e.listed[q.Queue].Policy.KeyLimit()
	var full []*heldKey
	for h := range maps.Values(e.keys.held) {
		if h.queue == q.Queue && h.jobs >= most {
			full = append(full, h)
		}
	}
	slices.SortFunc(full, func(a, b *heldKey) int { return a.latest.Compare(b.latest) })
	for _, h := range full[:min(len(full), mostKeys)] {
		counts, err := e.store.Count(e.ctx, store.Filter{Queue: h.queue, LimitKey: h.key, States: []store.State{store.Ready, store.Retrying}})
		if err != nil {
			return false, err
		}
		for _, c := range counts.Queues {
			if c.Due > 0 && counts.Now.Sub(c.OldestDue) >= starving {
				h.waiting = c
				e.keys.full = append(e.keys.full, h)
				oldest = oldest || !c.OldestDue.After(q.OldestDue)
			}
		}
	}
	return oldest, nil
}

// keysFinding adds one finding for all full keys. The key whose job has waited longest comes first.
func (e *examination) keysFinding() {
	full := e.keys.full
	if len(full) == 0 {
		return
	}
	slices.SortFunc(full, func(a, b *heldKey) int { return a.waiting.OldestDue.Compare(b.waiting.OldestDue) })
	var due int64
	var names []string
	var limited, ordered bool
	for _, h := range full {
		if e.listed[h.queue].Policy.Ordered {
			ordered = true
		} else {
			limited = true
		}
		due += h.waiting.Due
		names = append(names, fmt.Sprintf("%s in %s", h.key, h.queue))
	}
	first, now := full[0], e.counts.Now
	what, who := fmt.Sprintf("the limit key %s of the queue %s has as many jobs in flight as its policy allows, the oldest for %v (job %d of worker %s),",
		first.key, first.queue, now.Sub(first.oldest.ClaimedAt).Round(time.Second), first.oldest.ID, first.oldest.Worker), ""
	if len(full) > 1 {
		what, who = fmt.Sprintf("%d limit keys have as many jobs in flight as the policies of their queues allow,", len(full)), ": "+few(names, ", ")
	}
	var advice []string
	if limited {
		advice = append(advice, "look for jobs that hold their lease for long, or raise the limit with queues set --max-per-key")
	}
	if ordered {
		advice = append(advice, "an ordered queue runs one job of a key at a time: make its jobs shorter, or use more keys")
	}
	e.found = append(e.found, store.Finding{
		Name: "full_keys", Count: len(full), Examples: names[:min(len(names), shown)],
		Advice: strings.Join(advice, "; "),
		Detail: fmt.Sprintf("%s and %s waiting, the oldest for %v%s", what, jobs(due), now.Sub(first.waiting.OldestDue).Round(time.Second), who),
	})
}
