// Package bykey chooses jobs by their limit keys, for the SQL stores and the kit for ordered engines.
package bykey

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Limits for each key.
//
// The policy of a queue may limit how many jobs with the same limit key are in flight. Claims on such a queue must not walk over the jobs of
// keys that have no room, so they find jobs by key. A row of the table keys says where the jobs of one key begin and, unless the store can
// count those in flight, which of them claims have taken. Keys that have room stand in the order of their first jobs that are due. Claims
// alone write the rows, and each locks those of the keys that it looks at. Everybody else leaves hints: that a job of a key waits, or that a
// lease has ended. The next claim looks at the keys of the hints.
//
// A key that has no room stands nowhere. When a lease on one of its jobs ends, that leaves a hint, so a claim looks at it again.
//
// In a fair queue, keys stand in the order of their turns instead. When a claim takes a job of a key, it gives the key a turn behind all others.
// Claims have numbers, and a turn begins with that of the claim which gave it. So no claim must know which turns others give.
//
// In an ordered queue, a key has one line with one job at most: the first of its live jobs by id, if that waits. Each claim that locks the key reads it anew.
// Whatever may make another job the first one, or the first one due, leaves a hint.

// Keys are the keys at which one claim looks.
type Keys struct {
	most int // jobs of a key that may be in flight, or zero for any number
	now  int64
	all  map[string]*key
	by   map[int64][]*key // of which jobs that claims have taken are

	read    [2]places // of the keys that stand, by lane: fresh jobs, then retries
	asked   int
	some    bool           // a key was added
	skipped map[int64]bool // jobs that the claim can not have
	others  []Waiting      // jobs without a key, unless these have turns as those of a key

	ordered bool

	fair  bool
	turn  int64 // the latest one that was given to a key which had none
	later int64 // behind all these
}

// A Place is where a key stands: where its first due job of a lane does or, in a fair queue, where the first job of a lane and priority has its turn.
type Place struct {
	Level int   // of the priority, the highest first
	At    int64 // when the job is due, in microseconds since 1970, or the turn
	ID    int64 // of the job
}

func placeOf(priority int, at, id int64) Place { return Place{store.MaxPriority - priority, at, id} }

// place is where a key would stand with the job as its first one, if the queue is not fair.
func (w Waiting) place() Place { return placeOf(w.Priority, w.At, w.ID) }

func (p Place) compare(other Place) int {
	return cmp.Or(cmp.Compare(p.Level, other.Level), cmp.Compare(p.At, other.At), cmp.Compare(p.ID, other.ID))
}

// nowhere is behind every place.
var nowhere = Place{Level: math.MaxInt32}

// places says how far the keys of a lane have been read.
type places struct {
	last  Place
	some  int  // how many were read at last
	none  bool // no key stands behind
	ended bool // a job that stands no later than the last one did not fit into the answer, so no key behind matters
}

// A key is a limit key of a queue. Its JSON is the state in its row.
type key struct {
	Taken []int64 `json:"taken,omitempty"` // jobs that claims have taken; some may be in flight no more
	Lines []*Line `json:"lines,omitempty"` // its waiting jobs

	idle     bool           // nothing has changed for it, and the claim need not look at it
	counted  bool           // the store counts its jobs in flight, and Taken does not matter
	slots    int            // how many these are
	asked    bool           // Taken has returned its jobs
	inFlight map[int64]bool // those of Taken that are in flight, and what this claim has taken
	free     bool           // it is not limited
	chosen   int

	others bool // its jobs are not found by key, so it stands nowhere, and all its turns are kept
}

// A Line is where the waiting jobs of a key begin that are in the same lane and have the same priority.
type Line struct {
	Retry    bool  `json:"retry,omitempty"`
	Priority int   `json:"priority,omitempty"`
	At       int64 `json:"at"` // no job is due before, in microseconds since 1970,
	ID       int64 `json:"id"` // nor at that time with a smaller id
	Turn     int64 `json:"turn,omitempty"`

	Key  string `json:"-"`
	Head bool   `json:"-"` // the queue is ordered: read the first live job of the key, if that waits, by ReadHead
	Want int    `json:"-"` // how many jobs to read

	jobs     []Waiting
	complete bool // there are no more jobs than these
}

// A Waiting is a job that waits, with what the order of claims depends on.
type Waiting struct {
	Retry    bool
	Priority int
	At       int64 // when it is due, in microseconds since 1970
	ID       int64
	Weight   int  // of its documents
	Expired  bool // it is not claimable, but would be if the clock was set back

	Record *store.Record // if it was read with its documents: jobs without a key are

	key  *key
	line *Line
	at   Place // jobs are claimed in this order
}

// Key returns the limit key of a job that was read as part of a line.
func (w Waiting) Key() string { return w.line.Key }

// TurnsOfClaim is how many turns a claim can give: to keys that have none, and as many for later. The first one is the claim's number, so many times.
const TurnsOfClaim = 1 << 20

// NewKeys returns the keys of a claim at now, which keeps to the policy. None is there yet.
func NewKeys(p store.Policy, now time.Time) *Keys {
	return &Keys{
		most: p.KeyLimit(), ordered: p.Ordered, fair: p.Fair, now: now.UnixMicro(),
		all: map[string]*key{}, by: map[int64][]*key{}, skipped: map[int64]bool{},
	}
}

// Number gives the claim its number. In a fair queue, that must be greater than the numbers of all claims that had written the keys which this one
// reads, and that have ended before this one began.
func (k *Keys) Number(n int64) { k.turn, k.later = n*TurnsOfClaim, n*TurnsOfClaim+TurnsOfClaim/2 }

// Add adds a key with the state of its row, which is empty if the row is new. The empty key is that of jobs without one.
func (k *Keys) Add(name, state string) error { return k.add(name, state, false) }

// AddHinted is Add for a key of which the claim only knows that it has hints. If it stands somewhere, it has room, and the end of a lease
// changes nothing.
func (k *Keys) AddHinted(name, state string, stands bool) error { return k.add(name, state, stands) }

func (k *Keys) add(name, state string, idle bool) error {
	k.some = true
	head := k.ordered && name != ""
	idle = idle && !head
	if has := k.all[name]; has != nil {
		has.idle = has.idle && idle
		return nil
	}
	added := &key{idle: idle, inFlight: map[int64]bool{}, free: name == "" || k.most == 0}
	if state != "" {
		if err := json.Unmarshal([]byte(state), added); err != nil {
			return err
		}
	}
	if head && len(added.Lines) == 0 {
		added.Lines = []*Line{{}}
	}
	for _, l := range added.Lines {
		l.Key, l.Head = name, head
	}
	k.all[name] = added
	return nil
}

// More reports whether a claim with the limit and quota must read keys that stand: at first, and as long as others may stand before the jobs that were
// chosen. Some keys stand further in front than they should, because their first jobs do not wait any more. From says which keys to read.
func (k *Keys) More(limit, quota int, chosen []Waiting) bool {
	if k.asked == 0 {
		k.asked = limit
		return true
	}
	retries := 0
	for _, w := range chosen {
		if w.Retry {
			retries++
		}
	}
	short := [2]bool{retries > quota, retries < quota} // the other lane has filled places of this one
	more := false
	for i := range k.read {
		lane := &k.read[i]
		behind := func(w Waiting) bool {
			return w.Retry == (i == 1) && w.at.compare(lane.last) > 0
		}
		more = more || !lane.none && !lane.ended && (len(chosen) < limit || short[i] || slices.ContainsFunc(chosen, behind))
	}
	return more
}

// From returns behind which places to read keys, and how many of each lane. Call Stands for each, in their order, and then Stood.
func (k *Keys) From() (fresh, retry Place, n int) {
	from := func(lane places) Place {
		if lane.none {
			return nowhere
		}
		return lane.last
	}
	return from(k.read[0]), from(k.read[1]), k.asked
}

// Stands notes that a key stands there.
func (k *Keys) Stands(retry bool, at Place) {
	lane := &k.read[0]
	if retry {
		lane = &k.read[1]
	}
	lane.some++
	if lane.last.compare(at) < 0 {
		lane.last = at
	}
}

// Stood notes that all keys were read that From asked for.
func (k *Keys) Stood() {
	for i := range k.read {
		k.read[i].none = k.read[i].none || k.read[i].some < k.asked
		k.read[i].some = 0
	}
	k.asked = min(2*k.asked, store.MaxItems)
}

// Has reports whether the key was added.
func (k *Keys) Has(name string) bool { return k.all[name] != nil }

// Holds notes that the claim has locked keys that it does not add, because hints change nothing for them.
func (k *Keys) Holds() { k.some = true }

// None reports whether no key was added, not even one for which hints changed nothing.
func (k *Keys) None() bool { return !k.some }

// Skip leaves out jobs that were chosen, because somebody else has locked them. The next Choose chooses others. Their lines begin with them as before.
func (k *Keys) Skip(jobs []Waiting) {
	for _, w := range jobs {
		k.skipped[w.ID] = true
	}
}

// leftOut reports whether the claim can not have the job. Its line begins with it all the same.
func (k *Keys) leftOut(w Waiting) bool { return w.Expired || k.skipped[w.ID] }

// Hint notes that a job of the key, which was added, waits in such a line.
func (k *Keys) Hint(at Line) {
	of := k.all[at.Key]
	if k.ordered && at.Key != "" {
		return // its first job is read anyway
	}
	for _, l := range of.Lines {
		if l.Retry == at.Retry && l.Priority == at.Priority {
			if cmp.Or(cmp.Compare(at.At, l.At), cmp.Compare(at.ID, l.ID)) < 0 {
				l.At, l.ID, of.idle = at.At, at.ID, false
			}
			return
		}
	}
	of.Lines, of.idle = append(of.Lines, &at), false
}

// Hinted ends the hints: keys for which they change nothing are left as they are.
func (k *Keys) Hinted() { maps.DeleteFunc(k.all, func(_ string, of *key) bool { return of.idle }) }

// Taken returns the jobs that claims have taken of keys that were added since it was called before. Call InFlight for those of them that are in flight.
func (k *Keys) Taken() (ids []int64) {
	for _, of := range k.all {
		if of.asked {
			continue
		}
		of.asked = true
		for _, id := range of.Taken {
			k.by[id], ids = append(k.by[id], of), append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Uncounted is for a store that can count the jobs in flight of a key, in place of Taken and InFlight: it returns the limited keys that were added since it was
// called before. Call Slots for each of them that has jobs in flight.
func (k *Keys) Uncounted() (names []string) {
	for name, of := range k.all {
		if !of.free && !of.counted {
			of.counted, names = true, append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Slots notes how many jobs of the key are in flight.
func (k *Keys) Slots(name string, n int) { k.all[name].slots = n }

// InFlight notes that a job that claims have taken is in flight.
func (k *Keys) InFlight(id int64) {
	for _, of := range k.by[id] {
		of.inFlight[id] = true
	}
}

// Unread returns the lines whose jobs are not known, with how many to read of each, for a claim of so many jobs. Call Read for each.
func (k *Keys) Unread(limit int) []*Line {
	var lines []*Line
	for _, of := range k.all {
		for _, l := range of.Lines {
			if l.jobs == nil && !l.complete {
				lines = append(lines, l)
			}
		}
	}
	for _, l := range lines { // one more than it takes, to know where the line begins then
		if l.Head {
			l.Want, l.complete = 1, true
			continue
		}
		most, few := limit, 2*limit/len(lines)+2
		if !k.all[l.Key].free {
			most = min(limit, k.most)
		}
		if l.Want > 0 {
			few = 4 * l.Want // it was too few
		}
		l.Want = max(l.Want, min(few, most+len(k.skipped)+1))
	}
	return lines
}

// Read adds the next job of the line, due or not. Of the jobs that have expired, the first one must be read: a line that began behind it would hide it from a
// clock that is set back.
func (l *Line) Read(d Waiting) {
	d.Retry, d.Priority, d.line = l.Retry, l.Priority, l
	l.jobs = append(l.jobs, d)
}

// ReadHead is Read for the first live job of a key in an ordered queue.
func (l *Line) ReadHead(d Waiting) {
	l.Priority = d.Priority
	l.Read(d)
}

// AddOthers adds due jobs without a key, in a store that does not find these by key. In a fair queue, add the empty key before.
func (k *Keys) AddOthers(others []Waiting) {
	if !k.fair {
		k.others = others
		return
	}
	of := k.all[""]
	if of == nil {
		return
	}
	of.others = true
	for _, w := range slices.SortedFunc(slices.Values(others), func(a, b Waiting) int { return a.place().compare(b.place()) }) {
		at := slices.IndexFunc(of.Lines, func(l *Line) bool { return l.Retry == w.Retry && l.Priority == w.Priority })
		if at < 0 {
			at, of.Lines = len(of.Lines), append(of.Lines, &Line{Retry: w.Retry, Priority: w.Priority})
		}
		w.line = of.Lines[at]
		w.line.jobs = append(w.line.jobs, w)
	}
	for _, l := range of.Lines {
		l.complete = true
	}
}

// Choose returns the jobs to claim: retries up to the quota, then fresh jobs up to the limit, then more retries. It reports false if it must know more
// of the jobs of some lines, which are unread then.
func (k *Keys) Choose(limit, quota int) (chosen []Waiting, enough bool) {
	k.giveTurns()
	retries, fresh := k.lane(true), k.lane(false)
	for _, of := range k.all {
		of.chosen = 0
	}
	enough = k.take(retries, quota) && k.take(fresh, limit-len(retries.chosen)) && k.take(retries, limit-len(fresh.chosen))
	k.read[0].ended, k.read[1].ended = fresh.endsBy(k.read[0].last), retries.endsBy(k.read[1].last)
	return slices.Concat(retries.chosen, fresh.chosen), enough
}

// giveTurns gives turns to the lines that have none, in the order of their first jobs.
func (k *Keys) giveTurns() {
	if !k.fair {
		return
	}
	var lines []*Line
	for _, of := range k.all {
		for _, l := range of.Lines {
			if l.Turn == 0 && len(l.jobs) > 0 && l.jobs[0].At <= k.now {
				lines = append(lines, l)
			}
		}
	}
	slices.SortFunc(lines, func(a, b *Line) int { return a.jobs[0].place().compare(b.jobs[0].place()) })
	for _, l := range lines {
		k.turn++
		l.Turn = k.turn
	}
}

// A lane has the due jobs of a lane, and what a claim has chosen of them.
type lane struct {
	jobs   []Waiting
	chosen []Waiting
	room   int       // for documents, or negative if a job did not fit: no later one is let in either
	heavy  Place     // of that job
	ended  []Waiting // the last known jobs of lines in which others may follow, once those were the latest ones
}

// endsBy reports whether a job that stands no later than the place did not fit.
func (l *lane) endsBy(at Place) bool { return l.room < 0 && l.heavy.compare(at) <= 0 }

func (k *Keys) lane(retry bool) *lane {
	of := &lane{room: store.MaxAnswerBytes}
	for _, d := range k.others {
		if d.at = d.place(); d.Retry == retry {
			of.jobs = append(of.jobs, d)
		}
	}
	for _, one := range k.all {
		for _, l := range one.Lines {
			if l.isComplete(); l.Retry == retry {
				of.jobs = append(of.jobs, k.inOrder(one, l)...)
			}
		}
	}
	slices.SortFunc(of.jobs, func(a, b Waiting) int { return cmp.Or(a.at.compare(b.at), cmp.Compare(a.ID, b.ID)) })
	return of
}

// inOrder returns the due jobs of a line with their places.
func (k *Keys) inOrder(of *key, l *Line) (due []Waiting) {
	turn := placeOf(l.Priority, l.Turn, 0)
	for _, d := range l.jobs {
		if d.At > k.now {
			break
		}
		if d.key, d.at = of, d.place(); k.fair {
			d.at = turn
			turn = k.behind(d)
		}
		due = append(due, d)
	}
	return due
}

// behind returns where the next job of a line stands. In a fair queue, that is behind the jobs that are the first ones of their lines, in a round in which
// the lines have the same order.
func (k *Keys) behind(d Waiting) Place {
	if !k.fair || k.leftOut(d) {
		return d.at
	}
	return Place{d.at.Level, max(d.at.At, k.later) + 1, d.line.Turn}
}

// take chooses jobs until there are so many, and passes over those that are skipped or have no room. It reports false if it comes to the end of what is
// known of a line whose key has room for more.
func (k *Keys) take(from *lane, limit int) bool {
	for len(from.chosen) < limit && from.room >= 0 {
		if k.mustRead(from) {
			return false
		}
		if len(from.jobs) == 0 {
			break
		}
		d := from.jobs[0]
		if !k.leftOut(d) && (d.key == nil || k.room(d.key) > 0) {
			if from.room -= d.Weight; from.room < 0 {
				from.heavy = d.at
				break
			}
			from.chosen = append(from.chosen, d)
			if d.key != nil {
				d.key.chosen++
			}
		}
		from.jobs = from.jobs[1:]
		if l := d.line; l != nil && !l.complete && l.jobs[len(l.jobs)-1].ID == d.ID {
			from.ended = append(from.ended, d)
		}
	}
	return true
}

// mustRead reports whether an unknown job may come before the next known one. The lines with such jobs are unread then.
func (k *Keys) mustRead(from *lane) (must bool) {
	for _, d := range from.ended {
		if k.room(d.key) > 0 && (len(from.jobs) == 0 || k.behind(d).compare(from.jobs[0].at) < 0) {
			d.line.jobs, must = nil, true
		}
	}
	return must
}

// room returns how many more jobs of the key may be in flight.
func (k *Keys) room(of *key) int {
	if of.free {
		return math.MaxInt
	}
	return k.most - of.slots - len(of.inFlight) - of.chosen
}

// A Row is what becomes of the row of a key. If its state is empty, the row is to be deleted.
type Row struct {
	Name, State  string
	Fresh, Retry *Place    // where it stands, if it has room and jobs that are due
	LookAt       time.Time // when others become due, if the key has room
}

// Rows returns the rows of the keys after the claim has taken the jobs.
func (k *Keys) Rows(taken []Waiting) ([]Row, error) {
	k.giveTurns()
	gone := map[int64]bool{}
	for i, d := range taken {
		gone[d.ID] = true
		switch {
		case d.key == nil || d.key.free:
		case d.key.counted:
			d.key.slots++
		default:
			d.key.inFlight[d.ID] = true
		}
		if k.fair {
			d.line.Turn = k.later + int64(i) + 1
		}
	}
	rows := make([]Row, 0, len(k.all))
	for name, of := range k.all {
		of.chosen = 0
		of.Taken = slices.Sorted(maps.Keys(of.inFlight))
		of.Lines = slices.DeleteFunc(of.Lines, func(l *Line) bool { return !l.leave(gone) && !of.others })
		row := Row{Name: name}
		if k.room(of) > 0 && !of.others {
			k.stand(&row, of.Lines)
		}
		if of.slots+len(of.Taken)+len(of.Lines) > 0 {
			state, err := json.Marshal(of)
			if err != nil {
				return nil, err
			}
			row.State = string(state)
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Compare(a.Name, b.Name) })
	return rows, nil
}

// leave moves the begin of the line to the first job that is not gone or, if there is none, to the last one, and reports whether any may be left. The line
// never begins where one of another key may begin: those who read keys that stand from place to place would pass over one of them.
func (l *Line) leave(gone map[int64]bool) bool {
	for _, d := range l.jobs {
		if l.At, l.ID = d.At, d.ID; !gone[d.ID] {
			return true
		}
	}
	return !l.isComplete()
}

// isComplete reports whether the line has no other jobs than those that were read.
func (l *Line) isComplete() bool {
	l.complete = l.complete || len(l.jobs) < l.Want
	return l.complete
}

// stand lets the key stand where its lines begin.
func (k *Keys) stand(row *Row, lines []*Line) {
	for _, l := range lines {
		if l.At > k.now {
			if at := time.UnixMicro(l.At).UTC(); row.LookAt.IsZero() || at.Before(row.LookAt) {
				row.LookAt = at
			}
			continue
		}
		first, here := &row.Fresh, placeOf(l.Priority, l.At, l.ID)
		if k.fair {
			here.At = l.Turn
		}
		if l.Retry {
			first = &row.Retry
		}
		if *first == nil || here.compare(**first) < 0 {
			*first = &here
		}
	}
}
