package memory

import "math"

// A keyed keeps a queue to the MaxPerKey of its policy, lets its keys take turns if it is fair, and keeps the jobs of each key in order if it is ordered: see
// order.go. Waiting jobs with a limit key stand in lines of their key. A claim looks only at the keys that have room, in the order of their first jobs or
// their turns, so it costs the same however many keys and jobs wait.
//
// It is nil in a queue with none of these, for which has, lane, giveTurns, leavesOut and oldest find nothing.
type keyed struct {
	most    int                  // jobs of a key that may be in flight, or zero for any number
	ordered bool                 // a key has its live jobs in order
	fair    bool                 // jobs without a key stand in the lines of the empty one, which is never full
	keys    map[string]*limitKey // those with jobs that wait or are in flight
	fresh   openLane
	retries openLane
	full    heap[*keyLine] // the lines of keys that have no room, and of jobs that wait for an earlier one of their key
	waiting heap[*keyLine] // in a fair queue, those that have had no due job yet
	turn    int64          // the latest one
	ranks   map[*job]*rank // if the queue is ordered, those of all live jobs with a key
}

// An openLane has the lines of keys that have room, by their first jobs or their turns: a heap for each priority, the highest first.
type openLane [priorities]heap[*keyLine]

// A limitKey is what a queue knows of a limit key.
type limitKey struct {
	of       *keyed
	name     string
	inFlight int      // jobs of the key, with those that the present claim takes
	full     bool     // its lines are among the full ones
	lines    *keyLine // the lines in which its jobs wait, mostly one

	live heap[*rank] // in an ordered queue, its live jobs by id
	head *job        // the first of them, or nil
}

// A keyLine is the line of a key in one lane and priority. It exists while a job stands in it.
type keyLine struct {
	line
	of    *limitKey
	home  *heap[*keyLine] // where the line belongs while its key has room
	in    *heap[*keyLine] // where it is, or nil
	index int             // in this heap
	next  *keyLine        // the next line of the key
	turn  int64           // in a fair queue, or zero if it has none
}

func (l *keyLine) moved(to int) { l.index = to }

// keepToKeys makes the queue follow its policy.
func (s *Store) keepToKeys(q *queue) {
	p := q.policy
	switch {
	case p.ByKey() && q.keyed != nil && q.keyed.fair == p.Fair && q.keyed.ordered == p.Ordered:
		q.keyed.most = p.KeyLimit()
		for _, key := range q.keyed.keys {
			key.settle()
		}
	case p.ByKey():
		q.keyed = &keyed{most: p.KeyLimit(), ordered: p.Ordered, fair: p.Fair, keys: map[string]*limitKey{}, ranks: map[*job]*rank{}}
		s.standAnew(q)
	case q.keyed != nil:
		q.keyed = nil
		s.standAnew(q)
	}
}

// standAnew puts the queue's waiting jobs into other lines.
func (s *Store) standAnew(q *queue) {
	for j := range s.jobs.rising(0) {
		if j.queue != q {
			continue
		}
		s.order(j, !j.phase.terminal())
		switch {
		case j.phase == inFlight:
			if q.keyed != nil {
				q.keyed.count(j, 1)
			}
		case j.line != nil:
			j.leave()
			q.lineFor(j).push(j, j.at() > s.last.UnixMicro())
		}
	}
}

// has reports whether the job stands in a line of its key.
func (k *keyed) has(j *job) bool { return k != nil && (k.fair || j.limitKey() != "") }

// key returns what is known of the key.
func (k *keyed) key(name string) *limitKey {
	key := k.keys[name]
	if key == nil {
		key = &limitKey{of: k, name: name}
		k.keys[name] = key
	}
	return key
}

// lane returns the open lane of the jobs in the phase.
func (k *keyed) lane(p phase) *openLane {
	switch {
	case k == nil:
		return nil
	case p == ready:
		return &k.fresh
	default:
		return &k.retries
	}
}

// lineFor returns the line in which the job waits. The caller must let the job stand in it.
func (k *keyed) lineFor(j *job) *line {
	key := k.key(j.limitKey())
	home := k.homeOf(key, j)
	for l := key.lines; l != nil; l = l.next {
		if l.home == home {
			return &l.line
		}
	}
	l := &keyLine{of: key, home: home, next: key.lines}
	l.key = l
	key.lines = l
	return &l.line
}

// homeOf returns where the line of the job belongs while its key has room.
func (k *keyed) homeOf(key *limitKey, j *job) *heap[*keyLine] {
	lane := k.lane(j.phase)
	if k.ordered && key.name != "" {
		if key.head != j {
			return &k.full
		}
		lane = &k.fresh
	}
	return &lane[lineOf(j.priority)]
}

// firstJob returns the first job of the lines, or nil if its time is after until.
func firstJob(lines *heap[*keyLine], until int64) *job {
	l, some := lines.first(until)
	if !some {
		return nil
	}
	return l.first(until)
}

// giveTurns gives turns to lines that have due jobs and no turn.
func (k *keyed) giveTurns(due int64) {
	if k == nil {
		return
	}
	for l, some := k.waiting.first(due); some; l, some = k.waiting.first(due) {
		l.endTurn()
		l.settle()
	}
}

// endTurn puts the line behind all others.
func (l *keyLine) endTurn() {
	k := l.of.of
	k.turn++
	l.turn = k.turn
}

// first returns the due job that comes first in the lines, which have the same priority, or nil if none is due.
func (k *keyed) first(lines *heap[*keyLine], due int64) *job {
	for k.fair {
		l, some := lines.first(math.MaxInt64)
		if !some {
			return nil
		}
		if j := l.first(due); j != nil {
			return j
		}
		l.turn = 0
		l.settle()
	}
	return firstJob(lines, due)
}

// take counts a job that a claim takes, so that the claim takes no more jobs of the key than it may, and ends the turn of the key.
func (k *keyed) take(j *job) {
	if k.fair {
		j.line.key.endTurn()
	}
	if name := j.limitKey(); name != "" {
		key := k.key(name)
		key.inFlight++
		key.settle()
	}
}

// handOver ends take for a job that is about to be in flight, and to be counted as such.
func (k *keyed) handOver(j *job) {
	if name := j.limitKey(); name != "" {
		k.key(name).inFlight--
	}
}

// count counts a job in flight.
func (k *keyed) count(j *job, by int) {
	if name := j.limitKey(); name != "" {
		key := k.key(name)
		key.inFlight += by
		key.settle()
	}
}

// leavesOut reports whether a job is due whose key has no room.
func (k *keyed) leavesOut(now int64) bool {
	if k == nil {
		return false
	}
	_, some := k.full.first(now)
	return some
}

// oldest returns the due job with the earliest time, whether its key has room or not, or nil if none is due.
func (k *keyed) oldest(now int64) *job {
	if k == nil {
		return nil
	}
	oldest := firstOf(firstJob(&k.full, now), firstJob(&k.waiting, now))
	for _, lane := range []*openLane{&k.fresh, &k.retries} {
		for i := range lane {
			oldest = firstOf(oldest, k.oldestOf(&lane[i], now))
		}
	}
	return oldest
}

// oldestOf returns the due job of the lines with the earliest time. In a fair queue, it looks at each line.
func (k *keyed) oldestOf(lines *heap[*keyLine], now int64) (oldest *job) {
	if !k.fair {
		return firstJob(lines, now)
	}
	for _, it := range lines.items {
		oldest = firstOf(oldest, it.value.first(now))
	}
	return oldest
}

// settle moves the lines of the key if it has become full or is full no more, and forgets a key without jobs.
func (key *limitKey) settle() {
	if full := key.of.most > 0 && key.inFlight >= key.of.most; full != key.full {
		key.full = full
		for l := key.lines; l != nil; l = l.next {
			l.settle()
		}
	}
	key.forgetIfIdle()
}

func (key *limitKey) forgetIfIdle() {
	if key.inFlight == 0 && key.lines == nil && key.head == nil {
		delete(key.of.keys, key.name)
	}
}

// settle puts the line where its key and its first job belong, and forgets it when the last job has left.
func (l *keyLine) settle() {
	first, belongs := l.first(math.MaxInt64), l.belongs()
	if l.in != nil && (first == nil || l.in != belongs) {
		l.in.remove(l.index)
		l.in = nil
	}
	switch {
	case first == nil:
		l.forget()
	case l.in == nil:
		l.in = belongs
		belongs.push(l.place(first), first.ID, l)
	default:
		belongs.move(l.index, l.place(first), first.ID)
	}
}

// belongs returns the heap of the line, if it has a job.
func (l *keyLine) belongs() *heap[*keyLine] {
	switch k := l.of.of; {
	case l.of.full || l.home == &k.full:
		return &k.full
	case k.fair && l.turn == 0:
		return &k.waiting
	default:
		return l.home
	}
}

// place returns by what the line stands in its heap: its turn, or the time of its first job.
func (l *keyLine) place(first *job) int64 {
	if k := l.of.of; k.fair && l.in == l.home && l.in != &k.full {
		return l.turn
	}
	return first.at()
}

// forget drops the line, which has no job.
func (l *keyLine) forget() {
	at := &l.of.lines
	for *at != l {
		at = &(*at).next
	}
	*at = l.next
	l.of.forgetIfIdle()
}
