package kv

import (
	"bytes"

	"github.com/seed-ed332417/jq/contract"
)

// A mode says what is kept of the limit keys of a queue. The key that concerns the whole store has the modes, and every change guards that. So no call places a
// job by another mode than the one that is in force when it commits, and jobs of other queues cost no key more.
type mode int

const (
	byKey   mode = 1 << iota // claims find jobs by limit key: waiting jobs have lines
	slotted                  // jobs in flight have slots
	inOrder                  // live jobs have ranks
	moving                   // some jobs do not have all of this yet
)

// modeOf returns what the policy needs, when all jobs have it.
func modeOf(p contract.Policy) (m mode) {
	if p.ByKey() {
		m |= byKey
	}
	if p.KeyLimit() > 0 {
		m |= slotted
	}
	if p.Ordered {
		m |= inOrder
	}
	return m
}

func (m mode) has(some mode) bool { return m&some != 0 }

// Spots are where a job stands among those of its limit key. Jobs without one are those of the empty key, which limits none.
type spots struct {
	at               string // its position, if it waits
	line, slot, rank entry
}

// spotsOf returns where the job belongs, by its place.
func (m mode) spotsOf(j *job) (s spots) {
	if !m.has(byKey) {
		return s
	}
	key := j.LimitKey()
	l, waits := lineOfJob(j)
	if waits {
		s.at = string(positionOf(l, []byte(j.place.key[len(j.place.key)-16:])))
	}
	if waits && !(m.has(inOrder) && key != "") { // there, claims find the first of its live jobs
		s.line = entry{string(ofKey(lined, j.Queue, key)) + s.at, j.place.value}
	}
	if key != "" && m.has(slotted) && j.State == contract.InFlight {
		s.slot = entry{key: string(append(ofKey(slots, j.Queue, key), number(j.ID)...))}
	}
	if key != "" && m.has(inOrder) && !j.Terminal() {
		s.rank = entry{key: string(append(ofKey(ranks, j.Queue, key), number(j.ID)...))}
	}
	return s
}

// moveSpots moves a job that was moved to its place among those of its key, and tells claims of what they must look at. A claim tells itself.
func (t *txn) moveSpots(j *job) {
	m := t.meta.Modes[j.Queue]
	if m == 0 {
		return
	}
	was, to := j.spots, m.spotsOf(j)
	t.moveSpot(was.line, to.line, m)
	t.moveSpot(was.slot, to.slot, m)
	t.moveSpot(was.rank, to.rank, m)
	if to.rank.key != "" && was.rank.key == "" {
		t.putBlind(joinsOf(j.Queue, j.LimitKey()), "")
	}
	left := was.slot.key != "" && to.slot.key == "" || was.rank.key != "" && to.rank.key == ""
	if left {
		t.woken[contract.Wakeup{Queue: j.Queue}] = true // there is room, or another job goes first
	}
	if to.at != "" && to.at != was.at {
		t.hint(j.Queue, j.LimitKey(), to.at)
	}
	if left && !j.Claimable(t.now) { // else all who watch hear of a job that waits
		t.hint(j.Queue, j.LimitKey(), endOfLease(j.ID))
	}
	j.spots = to
}

// moveSpot moves an entry. While the queue is moving, nobody knows whether it is there.
func (t *txn) moveSpot(from, to entry, m mode) {
	if from == to && to.key != "" && m.has(moving) {
		from = entry{}
	}
	t.move(&from, to)
}

// A position is where a job stands in the lines of its key: its line, and when it is due, and its id.
const positionLen = 2 + 16

func positionOf(l line, at []byte) []byte { return append([]byte{l[0], l[1]}, at...) }

// endOfLease returns the position in a hint that tells of no job which waits.
func endOfLease(id int64) string {
	return string(positionOf(line{byte(ends)}, append(number(0), number(id)...)))
}

// ofQueueIn returns the prefix of the keys of a queue in a table.
func ofQueueIn(in table, queue string) []byte { return key(in, []byte(queue), []byte{0}) }

// ofKey returns the prefix of the keys of a limit key in a table.
func ofKey(in table, queue, limitKey string) []byte {
	return append(append(ofQueueIn(in, queue), limitKey...), 0)
}

func joinsOf(queue, limitKey string) []byte  { return append(ofQueueIn(joins, queue), limitKey...) }
func standsOf(queue, limitKey string) []byte { return append(ofQueueIn(stands, queue), limitKey...) }

// hint lets the next claim look at a key, because of a job at the position. A call leaves one hint for each line of a key.
func (t *txn) hint(queue, limitKey, at string) {
	if t.hints == nil {
		t.hints = map[string]string{}
	}
	prefix := string(ofKey(hints, queue, limitKey)) + at[:2]
	if before, is := t.hints[prefix]; !is || at[2:] < before {
		t.hints[prefix] = at[2:]
	}
}

// hintRoom leaves a hint of which all hear who watch. It concerns no job.
func (t *txn) hintRoom(queue string) { t.hint(queue, "", endOfLease(0)) }

// leaveHints writes the hints at the end of a call.
func (t *txn) leaveHints() {
	for prefix, at := range t.hints {
		t.putRaw([]byte(prefix+at), nil)
	}
}

// hinted decodes the key of a hint. The line is that of an end if no job waits there.
func hinted(k []byte) (limitKey string, at []byte) {
	name := k[1+bytes.IndexByte(k[1:], 0)+1:]
	return string(name[:len(name)-positionLen-1]), name[len(name)-positionLen:]
}

// orderedOf returns those of the queues that are ordered.
func (t *txn) orderedOf(queues []string) (list []string) {
	for _, name := range queues {
		if t.meta.Modes[name].has(inOrder) {
			list = append(list, name)
		}
	}
	return list
}
