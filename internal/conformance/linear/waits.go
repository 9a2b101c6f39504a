package linear

import (
	"slices"

	"github.com/seed-ed332417/jq/internal/store"
)

// A moment is when a call was made and when it returned, in the order of the history: never, if its answer was lost.
type moment struct{ call, ret int64 }

func (r record) moment() moment {
	if r.lost {
		return moment{r.call, never}
	}
	return moment{r.call, r.ret}
}

// certainly says that the call was answered before the other one was made, or was that one.
func (m moment) certainly(before moment) bool {
	return m.ret != never && (m.ret < before.call || m.call == before.call)
}

// A change is what a call may have made of a job.
type change struct {
	moment
	to store.State // a phase: Ready if the job was requeued, Gone if it was deleted
}

// A birth is how a job came into the store.
type birth struct {
	moment
	asked *store.NewJob
	after []store.Wait // with the ids of jobs; a wait without an id or a group is for a job that nobody knows
}

// links are what couples jobs that porcupine judges apart: what each waits for, and which calls may have changed that. With lost
// answers they hold what may have happened, so that bounds which are taken from them accuse no right store.
type links struct {
	births  map[int64]birth
	changes map[int64][]change
	expired []moment // recoveries without an answer: they may have ended any job
	opens   map[string][]moment
	seals   map[string][]moment

	cascades map[int64]int64 // see cascade
}

func newLinks(s *splitter) *links {
	l := &links{
		births: map[int64]birth{}, changes: map[int64][]change{}, opens: map[string][]moment{}, seals: map[string][]moment{},
		cascades: map[int64]int64{},
	}
	for _, r := range s.h.records {
		for _, e := range r.events {
			l.learn(s, r, e)
		}
	}
	return l
}

// learn notes what the event may have changed.
func (l *links) learn(s *splitter, r record, e event) {
	at := r.moment()
	to := e.leadsTo()
	switch {
	case e.op == opEnqueue:
		for _, name := range e.open {
			l.opens[name] = append(l.opens[name], at)
		}
		for _, it := range e.items {
			l.born(s, at, e, it)
		}
	case e.op == opSeal:
		l.seals[e.group] = append(l.seals[e.group], at)
	case to == "":
	case e.id == 0:
		l.expired = append(l.expired, at)
	default:
		l.changes[e.id] = append(l.changes[e.id], change{at, to})
	}
}

// born notes that an item has become a job, if it may have.
func (l *links) born(s *splitter, at moment, e event, it item) {
	if e.lost {
		it.ID = s.idOf(it.job.Kind)
	}
	if it.Duplicate || it.ID == 0 {
		return
	}
	b := birth{moment: at, asked: it.job, after: slices.Clone(it.job.After)}
	for k, w := range b.after {
		if w.ID == 0 && w.Group == "" {
			b.after[k].ID = s.idOfItem(e, w.Item)
		}
	}
	l.births[it.ID] = b
	if len(b.after) > 0 && (e.lost || it.State == store.Cancelled) {
		l.changes[it.ID] = append(l.changes[it.ID], change{at, store.Cancelled})
	}
}

// idOfItem is the id of the job that waits for an item of its call are for, or zero if that can not be known: the holder of the key of
// an item whose answer was lost.
func (s *splitter) idOfItem(e event, i int) int64 {
	switch it := e.items[i]; {
	case !e.lost:
		return it.ID
	case it.job.UniqueKey != "":
		return 0
	default:
		return s.idOf(it.job.Kind)
	}
}

// leadsTo is the phase in which what waits for the job may find it because of the event, or empty if it ends or begins nothing.
func (e event) leadsTo() store.State {
	if !e.lost && e.status != store.StatusOK {
		return ""
	}
	switch e.op {
	case store.OpAck:
		return store.Succeeded
	case store.OpCancel:
		return store.Cancelled
	case store.OpDelete:
		return store.Gone
	case store.OpRequeue:
		return store.Ready
	case store.OpFail, store.OpNever, store.OpAfter, store.OpRecover:
		if e.lost || e.seen.phase() == store.Dead {
			return store.Dead
		}
	}
	return ""
}

// met is the call after which all waits of the job can be met at the earliest, or never. The job was enqueued by the call since or, again,
// requeued.
func (l *links) met(id int64, since moment, again bool) int64 {
	var from int64
	for _, w := range l.births[id].after {
		switch {
		case w.Group != "":
			from = max(from, l.done(w, since))
		case w.ID != 0:
			from = max(from, l.ended(w, since, again))
		}
	}
	return from
}

// ended is the call after which the wait for a job can be met at the earliest. A job that was requeued has to end once more, unless it may
// be gone when the one that waits is requeued: then the wait stays as it was before.
func (l *links) ended(w store.Wait, since moment, again bool) int64 {
	begun := l.begun(w.ID, since)
	if again && l.first(w.ID, 0, store.Gone) != never {
		begun = 0
	}
	if w.Any {
		return l.first(w.ID, begun, store.Succeeded, store.Dead, store.Cancelled)
	}
	return l.first(w.ID, begun, store.Succeeded)
}

// done is the call after which the wait for a group can be met at the earliest: when it was sealed, and each job that certainly was in it has
// ended or is gone.
func (l *links) done(w store.Wait, since moment) int64 {
	var from int64
	for _, opened := range l.opens[w.Group] {
		if opened.certainly(since) {
			from = max(from, earliest(l.seals[w.Group], opened.call))
		}
	}
	ends := []store.State{store.Succeeded, store.Gone}
	if w.Any {
		ends = append(ends, store.Dead, store.Cancelled)
	}
	for id, b := range l.births {
		if b.asked.Group == w.Group && b.certainly(since) {
			from = max(from, l.first(id, l.begun(id, since), ends...))
		}
	}
	return from
}

// begun is the latest call that certainly has enqueued or requeued the job before the other call, or zero.
func (l *links) begun(id int64, before moment) int64 {
	var latest int64
	if b := l.births[id]; b.certainly(before) {
		latest = b.call
	}
	for _, c := range l.changes[id] {
		if c.to == store.Ready && c.certainly(before) {
			latest = max(latest, c.call)
		}
	}
	return latest
}

// first is the first of the calls that may have ended the job so, and not before the call after; or never.
func (l *links) first(id, after int64, ends ...store.State) int64 {
	from := int64(never)
	for _, c := range l.changes[id] {
		if c.ret > after && slices.Contains(ends, c.to) {
			from = min(from, c.call)
		}
	}
	if slices.Contains(ends, store.Dead) {
		from = min(from, earliest(l.expired, after))
	}
	if slices.Contains(ends, store.Cancelled) {
		from = min(from, l.cascade(id))
	}
	return from
}

// cascade is the call after which the job can be cancelled because of what it needs, or never.
func (l *links) cascade(id int64) int64 {
	if from, known := l.cascades[id]; known {
		return from
	}
	l.cascades[id] = 0 // in a circle of groups the bound is not searched for
	l.cascades[id] = l.needed(id, 0)
	return l.cascades[id]
}

// needed is the first call, and not before the call after, that may have ended without success a job that this one needs, or never.
func (l *links) needed(id, after int64) int64 {
	from := int64(never)
	for _, w := range l.births[id].after {
		switch {
		case w.Any:
		case w.Group != "":
			from = min(from, l.spoiled(w.Group, after))
		case w.ID == 0:
			return 0
		default:
			from = min(from, l.first(w.ID, after, store.Cancelled, store.Gone))
		}
	}
	return from
}

// spoiled is the first call, and not before the call after, that may have spoiled the group, or never.
func (l *links) spoiled(group string, after int64) int64 {
	from := int64(never)
	for id, b := range l.births {
		if b.asked.Group == group {
			from = min(from, l.first(id, after, store.Cancelled, store.Gone))
		}
	}
	return from
}

// endsOf are the calls that may have ended what the wait is for.
func (l *links) endsOf(w store.Wait) []change {
	if w.Group == "" {
		return l.changes[w.ID]
	}
	var ends []change
	for id, b := range l.births {
		if b.asked.Group == w.Group {
			ends = append(ends, l.changes[id]...)
		}
	}
	return ends
}

// earliest is the first of the calls that did not return before the call after, or never.
func earliest(calls []moment, after int64) int64 {
	from := int64(never)
	for _, m := range calls {
		if m.ret > after {
			from = min(from, m.call)
		}
	}
	return from
}
