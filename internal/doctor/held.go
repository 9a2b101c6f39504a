package doctor

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A holder is a job of an ordered queue that keeps the other jobs of its limit key waiting.
type holder struct {
	keyName
	job     store.Job
	why     string
	waiting store.QueueCount // the due jobs that wait for it
}

func (h *holder) String() string {
	return fmt.Sprintf("%s in %s (job %d %s)", h.key, h.queue, h.job.ID, h.why)
}

// mostPages is how many pages of blocked, of retrying and of ready jobs are read at most to find holders, the newest jobs first.
const mostPages = 10

// heldKeys finds the keys of a slow queue whose next job holds back others that have waited for long, if the queue is ordered. It forgets these keys, so
// that they are not called full as well. It reports whether the job that has waited longest is one of those that are held back.
func (e *examination) heldKeys(q store.QueueCount) (oldest bool, err error) {
	if !e.listed[q.Queue].Policy.Ordered {
		return false, nil
	}
	suspects, err := e.suspects(q.Queue)
	if err != nil {
		return false, err
	}
	for _, j := range suspects[:min(len(suspects), mostKeys)] {
		h := &holder{keyName: keyName{q.Queue, j.LimitKey()}, job: j, why: e.standstill(j)}
		if holds, err := e.holds(h); err != nil {
			return false, err
		} else if !holds {
			continue
		}
		e.keys.holders = append(e.keys.holders, h)
		delete(e.keys.held, h.keyName)
		oldest = oldest || !h.waiting.OldestDue.After(q.OldestDue)
	}
	return oldest, nil
}

// suspects returns one job for each key of an ordered queue that may be held: that in flight, or else the first one of those that no claim may take now.
// The job that nothing has happened to for the longest time comes first.
func (e *examination) suspects(queue string) ([]store.Job, error) {
	first := map[string]store.Job{}
	for _, state := range []store.State{store.Blocked, store.Retrying, store.Ready} {
		err := e.each(store.Filter{Queue: queue, States: []store.State{state}}, mostPages, func(j store.Job) {
			if has, found := first[j.LimitKey()]; e.standstill(j) != "" && (!found || j.ID < has.ID) {
				first[j.LimitKey()] = j
			}
		})
		if err != nil {
			return nil, err
		}
	}
	delete(first, "")
	for h := range maps.Values(e.keys.held) {
		if h.queue != queue {
			continue
		}
		delete(first, h.key)
		if h.oldest.Attempts > 1 || e.counts.Now.Sub(h.oldest.ClaimedAt) >= starving { // else the key is busy
			first[h.key] = h.oldest
		}
	}
	touched := func(j store.Job) time.Time {
		if j.ClaimedAt.IsZero() {
			return j.EnqueuedAt
		}
		return j.ClaimedAt
	}
	return slices.SortedFunc(maps.Values(first), func(a, b store.Job) int { return touched(a).Compare(touched(b)) }), nil
}

// standstill says why no claim may take a live job now, or nothing if one may.
func (e *examination) standstill(j store.Job) string {
	now, expires := e.counts.Now, j.ExpiresAt()
	failed := ""
	if j.Retries > 0 {
		failed = fmt.Sprintf("has failed %s and ", times(j.Retries))
	}
	switch phase := j.Phase(); {
	case phase == store.InFlight:
		return fmt.Sprintf("%shas been in flight for %v (worker %s)", failed, now.Sub(j.ClaimedAt).Round(time.Second), j.Worker)
	case phase == store.Blocked:
		return "is blocked by others"
	case !expires.IsZero() && !expires.After(now):
		return fmt.Sprintf("expired %v ago without being cancelled", now.Sub(expires).Round(time.Second))
	case phase == store.Retrying && j.RetryAt.After(now):
		return fmt.Sprintf("%swaits another %v for its retry", failed, j.RetryAt.Sub(now).Round(time.Second))
	case phase == store.Ready && j.RunAt.After(now):
		return fmt.Sprintf("is not due for another %v", j.RunAt.Sub(now).Round(time.Second))
	}
	return ""
}

// holds reports whether the job holds its key for long, and others that have waited for long. Jobs with smaller ids go first, unless it is in flight.
func (e *examination) holds(h *holder) (bool, error) {
	filter := store.Filter{Queue: h.queue, LimitKey: h.key, States: []store.State{store.Blocked, store.Retrying, store.Ready, store.InFlight}}
	if h.job.State != store.InFlight {
		filter.After = h.job.ID
	}
	counts, err := e.store.Count(e.ctx, filter)
	if err != nil || len(counts.Queues) == 0 {
		return false, err
	}
	h.waiting = counts.Queues[0]
	if h.waiting.Due == 0 || counts.Now.Sub(h.waiting.OldestDue) < starving {
		return false, nil
	}
	if filter.After != 0 {
		filter.After = 0
		all, err := e.store.Count(e.ctx, filter)
		if err != nil || len(all.Queues) == 0 || live(all.Queues[0])-live(h.waiting) > 1 {
			return false, err
		}
	}
	detail, err := e.store.Get(e.ctx, h.job.ID)
	if err != nil {
		return false, unlessGone(err)
	}
	if n := len(detail.History); n > 0 && detail.History[n-1].Ending == store.EndSnoozed && detail.History[n-1].Error != "" {
		h.why += fmt.Sprintf(" (%s)", detail.History[n-1].Error)
	}
	since := e.heldSince(h.job, detail)
	return !since.IsZero() && e.heldUntil(h.job).Sub(since) >= starving, nil
}

func live(q store.QueueCount) (n int64) {
	for _, of := range q.Jobs {
		n += of
	}
	return n
}

// heldUntil returns how long a job holds its key at least, as far as is known.
func (e *examination) heldUntil(j store.Job) time.Time {
	return slices.MaxFunc([]time.Time{e.counts.Now, j.RetryAt, j.RunAt}, time.Time.Compare)
}

// heldSince returns since when a job holds its key, if all jobs before it had ended by then: since it expired, was claimed for the first time, or was enqueued
// if it never was. A job that has ended and was requeued begins anew. The time is zero if something has happened to the job meanwhile.
func (e *examination) heldSince(j store.Job, detail store.JobDetail) time.Time {
	if detail.Token != j.Token || detail.Phase() != j.Phase() {
		return time.Time{}
	}
	if expires := j.ExpiresAt(); j.State != store.InFlight && !expires.IsZero() && !expires.After(e.counts.Now) {
		return expires
	}
	since, retries := j.EnqueuedAt, j.Retries
	for i, a := range slices.Backward(detail.History) {
		switch a.Ending {
		case store.EndFailed, store.EndExpired:
			retries--
		case store.EndSucceeded, store.EndCancelled:
			retries = -1
		}
		if retries < 0 { // of its life before
			if i == len(detail.History)-1 {
				since = a.EndedAt
			}
			break
		}
		since = a.StartedAt
	}
	return since
}

// heldFinding adds one finding for all keys that are held. The key whose job has waited longest comes first.
func (e *examination) heldFinding() {
	all := e.keys.holders
	if len(all) == 0 {
		return
	}
	slices.SortFunc(all, func(a, b *holder) int { return a.waiting.OldestDue.Compare(b.waiting.OldestDue) })
	var due int64
	var names []string
	for _, h := range all {
		due += h.waiting.Due
		names = append(names, h.String())
	}
	first, them, who := all[0], "it", ""
	what := fmt.Sprintf("job %d holds back the later ones of the limit key %s in the ordered queue %s: it %s", first.job.ID, first.key, first.queue, first.why)
	if len(all) > 1 {
		what, them, who = fmt.Sprintf("%d limit keys of ordered queues are each held back by one job", len(all)), "them", ": "+few(names, ", ")
	}
	e.found = append(e.found, store.Finding{
		Name: "held_keys", Count: len(all), Examples: names[:min(len(names), shown)],
		Advice: "let the job finish, or cancel it with jobs cancel: then the next one goes; requeue it once its cause is mended",
		Detail: fmt.Sprintf("%s; %s waiting behind %s, the oldest for %v%s", what, jobs(due), them, e.counts.Now.Sub(first.waiting.OldestDue).Round(time.Second), who),
	})
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
