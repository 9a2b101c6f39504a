package linear

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/seed-ed332417/jq/internal/store"
)

// A part is what a history did to one unique key and its jobs, or to one other job: it is judged on its own.
type part struct {
	name string
	ops  []porcupine.Operation
}

// never is when calls without an answer return: after the end of the history, which has a moment of its own.
const (
	never = math.MaxInt64
	end   = never - 1
)

// ended is the history with its end.
func ended(ops []porcupine.Operation) []porcupine.Operation {
	return append(slices.Clone(ops), porcupine.Operation{Input: &event{op: opEnd}, Call: end, Return: end})
}

// parts splits the history. A call with several items becomes several operations with the same call and return: they may
// take effect in any order, of which the order of the items is one.
func (h *history) parts() []part {
	s := splitter{h: h, kinds: map[int64]string{}, asked: map[string]*store.NewJob{}, ops: map[string][]porcupine.Operation{}}
	for _, r := range h.records {
		s.identify(r)
	}
	h.links = newLinks(&s)
	for _, r := range h.records {
		for _, e := range r.events {
			s.place(r, e)
		}
	}
	var parts []part
	for _, name := range slices.Sorted(maps.Keys(s.ops)) {
		parts = append(parts, part{name: name, ops: s.ops[name]})
	}
	return parts
}

type splitter struct {
	h     *history
	kinds map[int64]string                 // by id, as far as any answer showed it
	asked map[string]*store.NewJob         // by kind
	ops   map[string][]porcupine.Operation // by the part's name
}

// identify notes which job has which id: a lost Enqueue did not say, but later answers show the kind, which is its mark.
func (s *splitter) identify(r record) {
	for _, e := range r.events {
		for _, it := range e.items {
			s.asked[it.job.Kind] = it.job
			if !r.lost && !it.Duplicate {
				s.kinds[it.ID] = it.job.Kind
			}
		}
		if e.seen.kind != "" {
			s.kinds[e.id] = e.seen.kind
		}
	}
}

// place puts the event into the parts that it concerns.
func (s *splitter) place(r record, e event) {
	if r.lost {
		e.now.hi, r.ret = s.h.end, never
	}
	switch {
	case e.lost && e.op == opGet, e.op == opSeal:
		// It did nothing to a job, and showed nothing.
	case e.op == opEnqueue:
		s.placeItems(r, e)
	case e.id == 0:
		s.placeEverywhere(r, e)
	case e.op == store.OpRecover && s.asked[s.kinds[e.id]] == nil && s.h.shared:
		// It belongs to an earlier history on the same store.
	case e.op == store.OpRequeue:
		s.placeRequeue(r, e)
	default:
		s.put(s.nameOf(e.id), r, e)
	}
}

// placeRequeue begins another spell of a job that waits for others.
func (s *splitter) placeRequeue(r record, e event) {
	since := r.moment()
	e.spell = r.call
	e.early = s.h.links.met(e.id, since, true) > r.ret
	s.put(s.nameOf(e.id), r, e)
	if e.lost || e.status == store.StatusOK && e.seen.state == store.Blocked {
		s.placeOthers(e.id, e.spell, s.h.links.met(e.id, since, true), s.h.links.needed(e.id, since.call))
	}
}

// placeOthers puts what others may bring about for a blocked job into its part.
func (s *splitter) placeOthers(id, spell, met, cascade int64) {
	for op, from := range map[store.Op]int64{store.OpUnblock: met, opCascade: cascade} {
		if from != never {
			s.put(s.nameOf(id), record{client: nobody, call: from, ret: never}, event{op: op, id: id, spell: spell, lost: true, now: span{0, s.h.end}})
		}
	}
}

// nobody is the client of what no call does by itself.
const nobody = clients + 1

func (s *splitter) put(name string, r record, e event) {
	s.ops[name] = append(s.ops[name], porcupine.Operation{ClientId: r.client, Input: &e, Call: r.call, Return: r.ret})
}

func (s *splitter) nameOf(id int64) string {
	if asked, ok := s.asked[s.kinds[id]]; ok && asked.UniqueKey != "" {
		return "key " + asked.UniqueKey
	}
	return fmt.Sprintf("job %d", id)
}

// placeItems puts the items of a key into its part together, for they were applied in order, and other items apart.
func (s *splitter) placeItems(r record, e event) {
	byName := map[string][]item{}
	for _, it := range e.items {
		if e.lost {
			it.ID, it.State = s.idOf(it.job.Kind), store.Ready
		}
		if len(it.job.After) > 0 && !it.Duplicate && it.ID != 0 {
			it = s.placeWaiting(r, e, it)
		}
		switch {
		case it.job.UniqueKey != "":
			name := "key " + it.job.UniqueKey
			byName[name] = append(byName[name], it)
		case it.ID != 0:
			byName[s.nameOf(it.ID)] = []item{it}
		}
	}
	for name, items := range byName {
		e.items = items
		s.put(name, r, e)
	}
}

// placeWaiting puts what others may bring about for a new job into its part, and is the item with what the answer says of them. Without an
// answer, the job was added as blocked or as cancelled: a second event says that, and only one of the two can be.
func (s *splitter) placeWaiting(r record, e event, it item) item {
	since := r.moment()
	met, cancelled := s.h.links.met(it.ID, since, false), s.h.links.needed(it.ID, 0)
	switch {
	case e.lost:
		if cancelled != never {
			other := e
			it.State = store.Cancelled
			other.items = []item{it}
			s.put(s.nameOf(it.ID), r, other)
		}
		it.State = store.Blocked
		s.placeOthers(it.ID, 0, met, s.h.links.needed(it.ID, since.call))
	case it.State == store.Blocked:
		s.placeOthers(it.ID, 0, met, s.h.links.needed(it.ID, since.call))
	case it.State == store.Cancelled:
		it.early = cancelled > r.ret
	default:
		it.early = met > r.ret
	}
	return it
}

// idOf is the id of the job with the kind, or 0 if nobody has met it: then it was not added, or never looked at.
func (s *splitter) idOf(kind string) int64 {
	for id, k := range s.kinds {
		if k == kind {
			return id
		}
	}
	return 0
}

// placeEverywhere puts a claim or a recovery whose answer was lost into the part of every job that it may have touched.
func (s *splitter) placeEverywhere(r record, e event) {
	for _, id := range slices.Sorted(maps.Keys(s.kinds)) {
		asked, ok := s.asked[s.kinds[id]]
		if !ok || e.op == store.OpClaim && asked.Queue != e.queue {
			continue
		}
		e.id = id
		s.put(s.nameOf(id), r, e)
	}
}
