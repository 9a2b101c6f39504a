package memory

import "math"

// A keyed keeps a queue to the MaxPerKey of its policy. Waiting jobs with a limit key stand in lines of their key. A claim looks only
// at the keys that have room, in the order of their first jobs, so it costs the same however many keys and jobs wait.
//
// It is nil in a queue without MaxPerKey, for which keyOf, lane, leavesOut and oldest find nothing.
type keyed struct {
	most    int
	keys    map[string]*limitKey // those with jobs that wait or are in flight
	fresh   openLane
	retries openLane
	full    heap[*keyLine] // the lines of keys that have no room
}

// An openLane has the lines of keys that have room, by their first jobs: a heap for each priority, the highest first.
type openLane [priorities]heap[*keyLine]

// A limitKey is what a queue knows of a limit key.
type limitKey struct {
	of       *keyed
	name     string
	inFlight int      // jobs of the key, with those that the present claim takes
	full     bool     // its lines are among the full ones
	lines    *keyLine // the lines in which its jobs wait, mostly one
}

// A keyLine is the line of a key in one lane and priority. It exists while a job stands in it.
type keyLine struct {
	line
	of    *limitKey
	home  *heap[*keyLine] // where the line belongs while its key has room
	in    *heap[*keyLine] // where it is, or nil
	index int             // in this heap
	next  *keyLine        // the next line of the key
}

func (l *keyLine) moved(to int) { l.index = to }

// keepToKeys makes the queue follow its policy.
func (s *Store) keepToKeys(q *queue) {
	most := q.policy.MaxPerKey
	switch {
	case q.keyed != nil && most > 0:
		q.keyed.most = most
		for _, key := range q.keyed.keys {
			key.settle()
		}
	case q.keyed != nil:
		q.keyed = nil
		s.standAnew(q)
	case most > 0:
		q.keyed = &keyed{most: most, keys: map[string]*limitKey{}}
		s.standAnew(q)
	}
}

// standAnew puts the queue's waiting jobs with a limit key into other lines, after the queue has begun or ceased to limit keys.
func (s *Store) standAnew(q *queue) {
	for j := range s.jobs.rising(0) {
		switch {
		case j.queue != q || j.limitKey() == "":
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

// keyOf returns the limit key of the job, or "" if the queue does not limit it.
func (k *keyed) keyOf(j *job) string {
	if k == nil {
		return ""
	}
	return j.limitKey()
}

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
func (k *keyed) lineFor(j *job, name string) *line {
	key, home := k.key(name), &k.lane(j.phase)[lineOf(j.priority)]
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

// firstJob returns the first job of the lines, or nil if its time is after until.
func firstJob(lines *heap[*keyLine], until int64) *job {
	l, some := lines.first(until)
	if !some {
		return nil
	}
	return l.first(until)
}

// take counts a job that a claim takes, so that the claim takes no more jobs of the key than it may.
func (k *keyed) take(j *job) {
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
	oldest := firstJob(&k.full, now)
	for _, lane := range []*openLane{&k.fresh, &k.retries} {
		for i := range lane {
			oldest = firstOf(oldest, firstJob(&lane[i], now))
		}
	}
	return oldest
}

// settle moves the lines of the key if it has become full or is full no more, and forgets a key without jobs.
func (key *limitKey) settle() {
	if full := key.inFlight >= key.of.most; full != key.full {
		key.full = full
		for l := key.lines; l != nil; l = l.next {
			l.settle()
		}
	}
	key.forgetIfIdle()
}

func (key *limitKey) forgetIfIdle() {
	if key.inFlight == 0 && key.lines == nil {
		delete(key.of.keys, key.name)
	}
}

// settle puts the line where its key and its first job belong, and forgets it when the last job has left.
func (l *keyLine) settle() {
	first, belongs := l.first(math.MaxInt64), l.home
	if l.of.full {
		belongs = &l.of.of.full
	}
	if l.in != nil && (first == nil || l.in != belongs) {
		l.in.remove(l.index)
		l.in = nil
	}
	switch {
	case first == nil:
		l.forget()
	case l.in == nil:
		l.in = belongs
		belongs.push(first.at(), first.ID, l)
	default:
		belongs.move(l.index, first.at(), first.ID)
	}
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
