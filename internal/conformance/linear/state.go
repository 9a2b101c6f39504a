package linear

import (
	"hash/maphash"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/seed-ed332417/jq/internal/store"
)

// A state is the part of the sequential store that one history is checked against: the jobs of one unique key, or a single
// job. Its slice is never changed in place, for porcupine goes back to earlier states.
type state struct {
	jobs   []job
	holder int64 // of the key, perhaps past the end of its window; 0 if there is none
	over   bool  // the history has ended: what is still to come never took effect
}

// specification is the sequential store as porcupine wants it.
var specification = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(s, input, _ any) (bool, any) {
		next, ok := s.(state).step(input.(*event))
		return ok, next
	},
	Equal: func(a, b any) bool { return a.(state).equal(b.(state)) },
	Hash:  func(s any) uint64 { return s.(state).hash() },
}

// step is the state after the event, and whether the sequential store could have answered so.
//
// An event whose answer was lost may stand anywhere behind its call, but before the end only where it changes something:
// elsewhere it is the same as behind the end, where those stand that never took effect. So it needs no branch for the case
// that it took none, nor a lost claim one for the case that it took other jobs, and the search stays small.
func (s state) step(e *event) (state, bool) {
	switch {
	case e.op == opEnd:
		s.over = true
		return s, true
	case !e.lost:
		return s.apply(e)
	case s.over:
		return s, true
	default:
		after, ok := s.apply(e)
		return after, ok && !after.equal(s)
	}
}

// apply is step for an event that takes effect here.
func (s state) apply(e *event) (state, bool) {
	if e.op == opEnqueue {
		return s.enqueue(e)
	}
	i := slices.IndexFunc(s.jobs, func(j job) bool { return j.id == e.id })
	if i < 0 || s.jobs[i].phase == store.Gone {
		return s, e.status == store.StatusNotFound
	}
	if e.status == store.StatusBusy {
		return s, e.op == store.OpExtend
	}
	if j := s.jobs[i]; e.op == store.OpRequeue && j.terminal() && j.asked.UniqueKey != "" && s.holder != j.id {
		return s.requeue(i, e)
	}
	after, status := s.jobs[i].after(e)
	return s.changed(i, after, status, e)
}

// changed is the state in which the job became after, if the answer says so too.
func (s state) changed(i int, after job, status store.Status, e *event) (state, bool) {
	if !e.lost {
		seen, ok := after.agrees(e.seen)
		if !ok || status != e.status {
			return s, false
		}
		after = seen
	}
	s = s.with(i, after)
	if s.holder == after.id && after.takesKey() && (after.terminal() || after.phase == store.Gone) {
		s.holder = 0
	}
	return s, true
}

// requeue makes a job ready, unless another one holds its key. It takes the key again, unless it was for a window.
func (s state) requeue(i int, e *event) (state, bool) {
	if !e.lost && e.status == store.StatusDuplicate {
		held, ok := s.held(e.now)
		if !ok {
			return s, false
		}
		return held.changed(i, held.jobs[i], store.StatusDuplicate, e)
	}
	now := e.now
	if !e.lost && e.seen.state != store.Blocked {
		now, _ = now.meet(exactly(e.seen.next)) // an empty meeting agrees with no answer
	}
	free, now, ok := s.free(now)
	if !ok {
		return s, false
	}
	requeue := *e
	requeue.now = now
	after, status := free.jobs[i].requeued(&requeue)
	if after.takesKey() {
		free.holder = after.id
	}
	return free.changed(i, after, status, e)
}

// enqueue adds the items in order. Of a lost call only those were added that somebody has met since, as far as it matters.
func (s state) enqueue(e *event) (state, bool) {
	var ok bool
	for _, it := range e.items {
		switch {
		case e.lost && it.ID == 0:
			continue
		case it.Duplicate:
			s, ok = s.duplicate(it, e.now)
		default:
			s, ok = s.add(it, e.now)
		}
		if !ok {
			return s, false
		}
	}
	return s, true
}

// duplicate is the state as it is, if the key is held by the job that the answer names.
func (s state) duplicate(it item, now span) (state, bool) {
	s, ok := s.held(now)
	if !ok || it.ID != s.holder || it.job.UniqueKey == "" {
		return s, false
	}
	return s, it.State == stateOf(s.jobs[s.holderIndex()].phase)
}

// add is the state with one job more, unless its key is held or its id was used before.
func (s state) add(it item, now span) (state, bool) {
	if slices.ContainsFunc(s.jobs, func(j job) bool { return j.id == it.ID }) {
		return s, false
	}
	if it.job.UniqueKey != "" {
		free, rest, ok := s.free(now)
		if !ok {
			return s, false
		}
		s, now = free, rest
		s.holder = it.ID
	}
	added := newJob(it, now)
	if s.holder == it.ID && added.takesKey() && added.terminal() {
		s.holder = 0
	}
	s.jobs = append(slices.Clone(s.jobs), added)
	return s, !it.early && (added.phase == store.Ready || added.waits())
}

// free narrows what is known to the case that nobody holds the key now, and now itself, and says whether that can be.
func (s state) free(now span) (state, span, bool) {
	i := s.holderIndex()
	if i < 0 {
		return s, now, true
	}
	holder := s.jobs[i]
	if holder.takesKey() {
		return s, now, false
	}
	rest, ended := now.from(holder.windowEnd().lo)
	enqueued, ok := holder.enqueued.upTo(now.hi - holder.asked.UniqueFor.Microseconds())
	if !ended || !ok {
		return s, now, false
	}
	holder.enqueued = enqueued
	s = s.with(i, holder)
	s.holder = 0
	return s, rest, true
}

// held narrows what is known to the case that somebody holds the key now, and says whether that can be.
func (s state) held(now span) (state, bool) {
	i := s.holderIndex()
	if i < 0 {
		return s, false
	}
	holder := s.jobs[i]
	if holder.takesKey() {
		return s, true
	}
	enqueued, ok := holder.enqueued.from(now.lo - holder.asked.UniqueFor.Microseconds() + 1)
	holder.enqueued = enqueued
	return s.with(i, holder), ok
}

func (s state) holderIndex() int {
	return slices.IndexFunc(s.jobs, func(j job) bool { return s.holder != 0 && j.id == s.holder })
}

func (s state) with(i int, j job) state {
	s.jobs = slices.Clone(s.jobs)
	s.jobs[i] = j
	return s
}

// stateOf is the state that an answer shows of a job in the phase; of one that is gone it shows none.
func stateOf(phase store.State) store.State {
	switch phase {
	case store.Retrying, store.Dead:
		return store.Failed
	case store.Gone:
		return ""
	default:
		return phase
	}
}

func (s state) equal(t state) bool {
	return s.holder == t.holder && s.over == t.over && slices.Equal(s.jobs, t.jobs)
}

var hashSeed = maphash.MakeSeed() // any: hashes are compared within a process only

func (s state) hash() uint64 {
	sum := maphash.Comparable(hashSeed, s.holder)
	for _, j := range s.jobs {
		sum = sum*31 + maphash.Comparable(hashSeed, j)
	}
	return sum
}
