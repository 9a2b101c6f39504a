package kv

import (
	"context"
	"iter"
	"maps"
	"slices"

	"github.com/seed-ed332417/jq/contract"
)

// keepWaits notes that the store keeps waits or groups from now on. All calls that are under way conflict with the first one that does.
func (t *txn) keepWaits() {
	if t.meta.Layout < withWaits {
		t.saveMeta(withWaits)
	}
}

// jobsNamed returns the ids of the jobs for which the new ones wait, each once.
func jobsNamed(jobs []contract.NewJob) []int64 {
	named := map[int64]bool{}
	for _, n := range jobs {
		for _, w := range n.After {
			if w.ID != 0 {
				named[w.ID] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(named))
}

// linkedAtOnce is how many rows an Enqueue links in its own commit. More rows, which may be long, could make that too large.
const linkedAtOnce = 100

// linkAhead links the rows of many jobs for which the new ones wait before these are added. If they never are, it was for nothing.
func (s *Store) linkAhead(ctx context.Context, refused error, jobs []contract.NewJob) error {
	named := jobsNamed(jobs)
	if refused != nil || len(named) <= linkedAtOnce {
		return nil
	}
	for some := range slices.Chunk(named, linkedAtOnce) {
		_, err := call(ctx, s, nil, ask{}, func(t *txn) struct{} {
			t.fetchJobs(some)
			for _, id := range some {
				t.link(id)
			}
			return struct{}{}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// link notes in the row of a job that others wait for it. Whoever ends the job writes the row too, so it knows.
func (t *txn) link(id int64) {
	if j := t.job(id); j != nil && j.Links&contract.LinkAwaited == 0 {
		j.Links |= contract.LinkAwaited
		t.write(j)
	}
}

// await decides whether a new job waits, and keeps its waits.
func (t *txn) await(j *job, waits []contract.KeptWait) {
	t.keepWaits()
	j.Begin(waits, t.awaits(), t.now)
	j.Links |= contract.LinkWaits
	t.put(needsOf(j.ID), waits)
	for _, target := range targetsOf(waits) {
		t.putRaw(append(target, number(j.ID)...), nil)
	}
	for _, w := range waits {
		if w.Group != "" {
			t.changeOf(w.Group).awaited = true
		} else {
			t.link(w.On)
		}
	}
}

func needsOf(id int64) []byte { return key(needs, number(id)) }

// targetsOf returns the prefixes of the keys that lead from what the waits are for to who waits, each once.
func targetsOf(waits []contract.KeptWait) [][]byte {
	distinct := map[string]bool{}
	for _, w := range waits {
		if w.Group != "" {
			distinct[string(waitersOfGroup(w.Group))] = true
		} else {
			distinct[string(waitersOfJob(w.On))] = true
		}
	}
	var prefixes [][]byte
	for _, prefix := range slices.Sorted(maps.Keys(distinct)) {
		prefixes = append(prefixes, []byte(prefix))
	}
	return prefixes
}

// awaits is what there is to know of the jobs and groups that others wait for. All of it is guarded.
func (t *txn) awaits() contract.Awaits {
	return contract.Awaits{Group: t.status, Job: func(id int64) *contract.Job {
		if j := t.job(id); j != nil {
			return &j.Job
		}
		return nil
	}}
}

// waitsOf returns the waits of a job, and guards them.
func (t *txn) waitsOf(j *job) []contract.KeptWait {
	if j.Links&contract.LinkWaits == 0 {
		return nil
	}
	waits, _ := get[[]contract.KeptWait](t, needsOf(j.ID))
	return waits
}

// fetchAwaited reads in few trips what the jobs wait for.
func (t *txn) fetchAwaited(jobs []*job) {
	var keys [][]byte
	for _, j := range jobs {
		if j.Links&contract.LinkWaits != 0 {
			keys = append(keys, needsOf(j.ID))
		}
	}
	t.fetch(keys...)
	var ids []int64
	var names []string
	for _, j := range jobs {
		for _, w := range t.waitsOf(j) {
			if w.Group != "" {
				names = append(names, w.Group)
			} else {
				ids = append(ids, w.On)
			}
		}
	}
	t.fetchJobs(ids)
	t.lookAt(names)
}

// shown returns what Get shows of the waits of a job.
func (t *txn) shown(j *job) []contract.Waiting {
	t.fetchAwaited([]*job{j})
	return contract.WaitsOf(t.waitsOf(j), t.awaits())
}

// blockAgain blocks jobs that were requeued and wait for others, by rising id.
func (t *txn) blockAgain(ids []int64, outcomes []contract.Outcome) {
	slices.Sort(ids)
	var jobs []*job
	for _, id := range ids {
		jobs = append(jobs, t.job(id))
	}
	t.fetchAwaited(jobs)
	for _, id := range ids {
		j := t.job(id) // as it is now: others of the call may wait for it
		waits := t.waitsOf(j)
		t.hearGone(j, waits)
		if contract.LookAgain(waits, t.awaits()) {
			j.State = contract.Blocked
			t.save(j)
		}
		t.put(needsOf(id), waits)
		for i, o := range outcomes {
			if o.ID == id && o.Status == contract.StatusOK {
				outcomes[i] = contract.OutcomeOf(j.Job, o.Status)
			}
		}
	}
}

// hearGone lets the waits of a requeued job hear of the ends of jobs that are gone, if nobody has told it yet: what they were before counts.
func (t *txn) hearGone(j *job, waits []contract.KeptWait) {
	for _, w := range waits {
		if w.Group != "" || w.Met || t.job(w.On) != nil {
			continue
		}
		for _, item := range t.scan(under(notesOfJob(w.On)))[0] {
			end, _ := t.decodeEnd(item)
			j.Hear(waits, end, t.awaits(), t.now)
		}
	}
}

// dropWaits forgets the waits of jobs that are deleted, as many as there is room for, and returns the room that is left. Of the others nobody
// notices that they are still there, but that a group may be listed that nobody waits for any more, and they are left to forget.
func (t *txn) dropWaits(jobs []*job, room int) int {
	var keys [][]byte
	for _, j := range jobs {
		if j.Links&contract.LinkWaits != 0 {
			keys = append(keys, needsOf(j.ID))
		}
	}
	t.fetch(keys...)
	for _, j := range jobs {
		if waits := t.waitsOf(j); len(waits) > 0 && !t.dropWaitsOf(j.ID, waits, &room) {
			t.putRaw(endOf(t.now, needs, string(number(j.ID))), nil)
		}
	}
	return room
}

// keysOfGroup is how many keys a call changes and guards at most for a group that has lost somebody.
const keysOfGroup = 5

// dropWaitsOf forgets the waits of a job if there is room for that, and reports whether there was. If there is none, there is none for others either, so that a job with
// few waits does not overtake it for ever.
func (t *txn) dropWaitsOf(id int64, waits []contract.KeptWait, room *int) bool {
	targets := targetsOf(waits)
	needed := len(targets) + 1
	for _, w := range waits {
		if w.Group != "" {
			needed += keysOfGroup
		}
	}
	if needed > *room {
		*room = 0
		return false
	}
	*room -= needed
	for _, target := range targets {
		t.remove(append(target, number(id)...))
	}
	t.remove(needsOf(id))
	for _, w := range waits {
		if w.Group != "" {
			t.changeOf(w.Group).lost = true
		}
	}
	return true
}

// forgetWaits forgets the waits of jobs that were deleted, as many as there is room for, and returns the room that is left.
func (t *txn) forgetWaits(found []Item, room int) int {
	var keys [][]byte
	for _, end := range found {
		keys = append(keys, needsOf(lastNumber(end.Key)))
	}
	t.fetch(keys...)
	for i, end := range found {
		waits, _ := get[[]contract.KeptWait](t, keys[i])
		if !t.dropWaitsOf(lastNumber(end.Key), waits, &room) {
			break
		}
		t.remove(end.Key)
	}
	return room
}

// selected returns the ids that the filter can match, in rising order, or false if it can match any.
func (t *txn) selected(f contract.Filter) (ids []int64, is bool) {
	if len(f.IDs) > 0 {
		ids, is = slices.Compact(slices.Sorted(slices.Values(f.IDs))), true
	}
	for _, prefix := range waitingFor(f) {
		r := under(prefix)
		r.KeysOnly = true
		var who []int64
		for item := range t.each(r) {
			if id := lastNumber(item.Key); !is || contains(ids, id) {
				who = append(who, id)
			}
		}
		ids, is = who, true
	}
	return ids, is
}

func contains(sorted []int64, id int64) bool {
	_, found := slices.BinarySearch(sorted, id)
	return found
}

// waitingFor returns the prefixes of the keys of those of which the filter says for what they wait.
func waitingFor(f contract.Filter) (prefixes [][]byte) {
	if f.WaitsFor != 0 {
		prefixes = append(prefixes, waitersOfJob(f.WaitsFor))
	}
	if f.WaitsForGroup != "" {
		prefixes = append(prefixes, waitersOfGroup(f.WaitsForGroup))
	}
	return prefixes
}

// matching yields those of the jobs that the filter matches, which are among those that it can match.
func (t *txn) matching(f contract.Filter, jobs iter.Seq[*job]) iter.Seq[*job] {
	rest := f.WithoutWaits()
	return func(yield func(*job) bool) {
		var some []*job // of which it is not known yet whether others need them
		pass := func() bool {
			needed := t.needed(some)
			for _, j := range some {
				if !needed[j.ID] && !yield(j) {
					return false
				}
			}
			some = some[:0]
			return true
		}
		for j := range jobs {
			switch {
			case !rest.Matches(j.Job, t.now):
			case !f.Unneeded:
				if !yield(j) {
					return
				}
			default:
				if some = append(some, j); len(some) == chunk && !pass() {
					return
				}
			}
		}
		pass()
	}
}

// matchesWaits returns which of the ids of the filter have jobs that match what the filter says about waits.
func (t *txn) matchesWaits(f contract.Filter) map[int64]bool {
	var jobs []*job
	for _, id := range slices.Compact(slices.Sorted(slices.Values(f.IDs))) {
		if j := t.job(id); j != nil {
			jobs = append(jobs, j)
		}
	}
	prefixes := waitingFor(f)
	var keys [][]byte
	for _, prefix := range prefixes {
		for _, j := range jobs {
			keys = append(keys, slices.Concat(prefix, number(j.ID)))
		}
	}
	t.fetch(keys...)
	matching := map[int64]bool{}
	for _, j := range jobs {
		matching[j.ID] = !slices.ContainsFunc(prefixes, func(prefix []byte) bool {
			_, waits := t.peek(slices.Concat(prefix, number(j.ID)))
			return !waits
		})
	}
	if f.Unneeded {
		for id, is := range t.needed(jobs) {
			matching[id] = matching[id] && !is
		}
	}
	return matching
}

// firstWaiters is how many waiters are read at first of each job or group: mostly one of these is live, or there are no more.
const firstWaiters = 32

// needed returns for which of the jobs, or for whose groups, live jobs wait or have waited.
func (t *txn) needed(jobs []*job) map[int64]bool {
	prefixes := map[string][]byte{} // by themselves
	targets := map[int64][]string{} // of each job
	for _, j := range jobs {
		if j.Links&contract.LinkAwaited != 0 {
			targets[j.ID] = append(targets[j.ID], string(waitersOfJob(j.ID)))
		}
		if j.Group() != "" {
			targets[j.ID] = append(targets[j.ID], string(waitersOfGroup(j.Group())))
		}
		for _, target := range targets[j.ID] {
			prefixes[target] = []byte(target)
		}
	}
	order := slices.Sorted(maps.Keys(prefixes))
	var asked []Range
	for _, target := range order {
		r := under(prefixes[target])
		r.Limit, r.KeysOnly = firstWaiters, true
		asked = append(asked, r)
	}
	first := t.scan(asked...)
	t.fetchJobs(idsOf(slices.Concat(first...)))
	live := map[string]bool{}
	for i, target := range order {
		live[target] = slices.ContainsFunc(first[i], t.isLive)
		if !live[target] && len(first[i]) == firstWaiters {
			live[target] = t.anyLive(asked[i])
		}
	}
	needed := map[int64]bool{}
	for id, of := range targets {
		needed[id] = slices.ContainsFunc(of, func(target string) bool { return live[target] })
	}
	return needed
}

func idsOf(items []Item) []int64 {
	ids := make([]int64, len(items))
	for i, item := range items {
		ids[i] = lastNumber(item.Key)
	}
	return ids
}

// isLive reports whether the job at the end of the key is live. It guards nothing.
func (t *txn) isLive(item Item) bool {
	raw, ok := t.peek(key(rows, number(lastNumber(item.Key))))
	return ok && !t.decodeJob(raw).Terminal()
}

func (t *txn) anyLive(r Range) bool {
	r.Limit = chunk
	for t.look() {
		items := t.scan(r)[0]
		t.fetchJobs(idsOf(items))
		if slices.ContainsFunc(items, t.isLive) {
			return true
		}
		if len(items) < chunk {
			return false
		}
		r.From = append(slices.Clone(items[chunk-1].Key), 0)
	}
	return false
}
