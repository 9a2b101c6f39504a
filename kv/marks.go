package kv

import (
	"bytes"
	"context"
	"reflect"
	"slices"
	"sync"
	"time"
)

// Claims and recoveries read the first keys of ranges. Some engines walk there over the keys of all jobs that were claimed or finished before, until they forget
// deleted keys. So stores on engines that several processes share have marks.

// A mark says where the keys of a line begin, or those of the leases. A call that puts a key before the mark takes the mark away in the same commit. Every change guards the key
// that has the marks, so each call knows them as they are when it commits.
//
// It is not enough that nothing stands before a mark in a view: ranges are not guarded, and a job may be put there before the commit. So a mark is proposed first. From that commit on,
// a call that puts a key before it takes it away too. So what a later view has before it is all that there is, and the mark holds up to that.
type mark struct {
	At       []byte `json:",omitempty"` // the end of a key, as all keys of the line have one: when a job is due, and its id. No key comes before it
	Proposed []byte `json:",omitempty"` // where it will be
}

// A store raises a mark when its reads have walked over so many keys that it has removed since the last time. To walk over them costs about as much as to raise a mark. So
// claims of few jobs raise marks often, and claims of many seldom.
const mostWalked = 300_000

// A mark stays so much behind the time, because the clocks of programs differ.
const markBehind = time.Second

// mostMarks is how many marks there are. Every call reads them.
const mostMarks = 32

// The end of a key has a moment and an id.
const endLen = 8 + 8

// markOf returns the name of the mark for the key of a waiting job or a lease, and the end of the key.
func markOf(k string) (name, end string) {
	end = k[len(k)-endLen:]
	if table(k[0]) == leases {
		return markOfLeases, end
	}
	return k[:len(k)-1-endLen], end // without its shard
}

const markOfLeases = string(leases)

func markOfLine(queue string, l line) string {
	return string(key(waiting, []byte(queue), []byte{0, l[0], l[1]}))
}

// marksOf returns the names of the marks of which claims on the queue make use.
func (s *Store) marksOf(queue string) (names []string) {
	latest := s.latest.Load()
	if !s.marks || latest.Modes[queue].has(byKey) {
		return nil
	}
	for _, l := range latest.Lines.all() {
		names = append(names, markOfLine(queue, l))
	}
	return names
}

// upTo is the range that the function upTo returns, from the mark on.
func (m mark) upTo(prefix []byte, until time.Time, limit int) Range {
	r := upTo(prefix, until, limit)
	last := append(bytes.Clone(prefix), moment(until)...) // a range must not end before it begins
	if r.From = append(bytes.Clone(prefix), m.At...); bytes.Compare(r.From, last) > 0 {
		r.From = last
	}
	return r
}

// before reports whether reads begin earlier by the mark than by another one.
func (m mark) before(other mark) bool { return bytes.Compare(m.At, other.At) < 0 }

// hides reports whether a key with the end stands before the mark, or will when that holds.
func (m mark) hides(end string) bool { return end < string(m.At) || end < string(m.Proposed) }

// moved keeps the marks when a job has moved from one key to another.
func (t *txn) moved(from, to string) {
	if from == to {
		return
	}
	if from != "" && t.s.marks {
		name, _ := markOf(from)
		t.gone[name]++
	}
	if to != "" {
		if name, end := markOf(to); t.meta.Marks[name].hides(end) {
			t.setMark(name, mark{})
		}
	}
}

func (t *txn) setMark(name string, m mark) {
	marks := with(t.meta.Marks, name, m, m.latest() != "")
	if len(marks) > mostMarks {
		delete(marks, oldest(marks))
	}
	t.meta.Marks = marks
	t.saveMeta(withMarks)
}

// latest is where the mark will be, or is.
func (m mark) latest() string { return max(string(m.At), string(m.Proposed)) }

// oldest returns the name of the mark that is the farthest behind.
func oldest(marks map[string]mark) (name string) {
	for one, m := range marks {
		if name == "" || m.latest() < marks[name].latest() {
			name = one
		}
	}
	return name
}

// roomFor reports whether the mark would not be the oldest of too many.
func roomFor(m mark, marks map[string]mark) bool {
	return len(marks) < mostMarks || m.latest() > marks[oldest(marks)].latest()
}

// onlyMarksMoved reports whether only marks have changed of what concerns the whole store, and hide no key that the call puts. Then it can commit what it has decided once more, by
// another view, which it has from then on. So calls that are under way need not begin again when a mark is raised.
func (t *txn) onlyMarksMoved() bool {
	if _, writes := t.writes[string(key(metas))]; writes || !t.s.marks {
		return false
	}
	t.view.Close() // or two would be open
	t.view = nil
	view, err := t.s.engine.View(t.ctx)
	if err != nil {
		return false
	}
	t.view = view
	found := t.readAll([]Range{{From: key(metas)}})[0]
	if len(found) == 0 || found[0].Version == t.guards[string(key(metas))] {
		return false
	}
	now := decode[meta](t, key(metas), found[0].Value)
	marks := now.Marks
	if now.Marks = t.meta.Marks; t.err != nil || !reflect.DeepEqual(now, t.meta) {
		return false
	}
	for k, value := range t.writes {
		if tab := table(k[0]); value != nil && (tab == waiting || tab == leases) {
			if name, end := markOf(k); marks[name].hides(end) {
				return false
			}
		}
	}
	t.guards[string(key(metas))] = found[0].Version
	return true
}

// walk counts that a call reads from the marks on, and raises one if it is time. No call fails because of a mark.
func (s *Store) walk(ctx context.Context, names ...string) {
	if !s.marks {
		return
	}
	for _, name := range names {
		if gone, due := s.walks.add(name); due {
			if s.enter(ctx, nil) != nil {
				return
			}
			defer s.calls.Done()
			if !s.raise(ctx, name) {
				s.walks.note(map[string]int{name: gone}) // another time
			}
			return
		}
	}
}

// A raised is what a commit has done to a mark.
type raised int

const (
	nothing raised = iota
	proposed
	held
)

// raise proposes a mark, and lets it hold, after one that somebody else has proposed. It gives up after a while, and then reports false.
func (s *Store) raise(ctx context.Context, name string) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(slowCommit, cancel).Stop()
	for before := nothing; ; {
		did, _, err := try(ctx, s, ask{}, func(t *txn) raised { return t.raise(name) })
		if err != nil {
			return false
		}
		if did == nothing || did == held && before == proposed {
			return true
		}
		before = did
	}
}

// raise makes one of the two steps.
func (t *txn) raise(name string) raised {
	m, to := t.meta.Marks[name], append(moment(t.now.Add(-t.s.walks.behind)), number(0)...)
	if m.Proposed != nil && bytes.Compare(m.Proposed, to) < 0 {
		to = m.Proposed
	}
	if bytes.Compare(to, m.At) <= 0 {
		return nothing
	}
	prefixes := []string{name}
	if name != markOfLeases {
		prefixes = nil
		for shard := range t.s.shards {
			prefixes = append(prefixes, name+string([]byte{byte(shard)}))
		}
	}
	var asked []Range
	for _, prefix := range prefixes {
		asked = append(asked, Range{From: append([]byte(prefix), m.At...), To: append([]byte(prefix), to...), Limit: 1, KeysOnly: true})
	}
	for _, found := range t.scan(asked...) {
		for _, item := range found {
			_, end := markOf(string(item.Key))
			to = slices.MinFunc([][]byte{to, []byte(end)}, bytes.Compare)
		}
	}
	switch {
	case m.Proposed != nil:
		t.setMark(name, mark{At: to})
		return held
	case bytes.Compare(to, m.At) <= 0 || !roomFor(mark{Proposed: to}, t.meta.Marks):
		return nothing
	default:
		t.setMark(name, mark{At: m.At, Proposed: to})
		return proposed
	}
}

// Walks are how far the reads of a store have walked over keys that it has removed, by the names of marks.
type walks struct {
	most   int           // mostWalked
	behind time.Duration // markBehind

	mu sync.Mutex
	of map[string]*walk
}

type walk struct {
	gone   int // keys that were removed since the mark was raised
	walked int // of them, by each read
}

// add counts a read, and reports whether it is time to raise the mark. Then it begins anew, and returns how many keys were removed.
func (w *walks) add(name string) (gone int, due bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.of[name]
	if one == nil {
		return 0, w.most == 0
	}
	if one.walked += one.gone; one.walked < w.most {
		return 0, false
	}
	gone = one.gone
	*one = walk{}
	return gone, true
}

// mostWalks is of how many lines the removed keys are counted. If there are more, the counts begin anew.
const mostWalks = 1_000

// note counts what a commit has removed.
func (w *walks) note(gone map[string]int) {
	if len(gone) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of == nil || len(w.of) > mostWalks {
		w.of = map[string]*walk{}
	}
	for name, n := range gone {
		one := w.of[name]
		if one == nil {
			one = &walk{}
			w.of[name] = one
		}
		one.gone += n
	}
}
