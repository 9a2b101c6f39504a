package kv

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/store/bykey"
)

// A stand is the value of a limit key at which claims have looked: the state that bykey.Keys keep, and where the key stands in the indexes.
type stand struct {
	State  json.RawMessage
	Fresh  *bykey.Place `json:",omitempty"`
	Retry  *bykey.Place `json:",omitempty"`
	LookAt time.Time    `json:",omitzero"`
}

// entries returns the keys of the indexes in which the limit key stands.
func (s stand) entries(queue, limitKey string) (keys []string) {
	if s.Fresh != nil {
		keys = append(keys, string(placeIn(queue, fresh, *s.Fresh))+limitKey)
	}
	if s.Retry != nil {
		keys = append(keys, string(placeIn(queue, retries, *s.Retry))+limitKey)
	}
	if !s.LookAt.IsZero() {
		keys = append(keys, string(ofQueueIn(later, queue))+string(moment(s.LookAt))+limitKey)
	}
	return keys
}

// placeIn encodes a place, which sorts by what it has.
func placeIn(queue string, l lane, at bykey.Place) []byte {
	k := append(ofQueueIn(standing, queue), byte(l), byte(at.Level))
	return append(append(k, moment(time.UnixMicro(at.At))...), number(at.ID)...)
}

// placeLen is the length of a place without its lane.
const placeLen = 1 + 16

// decodePlace returns the place and the limit key of an entry.
func decodePlace(queue string, k []byte) (at bykey.Place, limitKey string) {
	k = k[len(queue)+3:]
	return bykey.Place{Level: int(k[0]), At: momentAt(k, 1).UnixMicro(), ID: numberAt(k[9:])}, string(k[placeLen:])
}

// positionIn encodes where a line of a key begins.
func positionIn(retry bool, priority int, at, id int64) []byte {
	l := fresh
	if retry {
		l = retries
	}
	return positionOf(lineOf(l, priority), append(moment(time.UnixMicro(at)), number(id)...))
}

// hintsAtOnce is how many hints, and keys for which a time has come, a claim reads. If there are more, it does nothing but look at those, and begins again, up to mostRounds
// times. Then it takes jobs of the keys that it knows, or those who add hints all the time would keep it from taking any.
const (
	hintsAtOnce = 1_000
	mostRounds  = 10
)

// A look is what the first trip of a claim reads of the keys of its queue.
type look struct {
	hinted, fresh, retries, due []Item
}

// looks returns the ranges for a look at so many keys that stand in each lane.
func looks(queue string, now time.Time, n int) []Range {
	h, due := under(ofQueueIn(hints, queue)), upTo(ofQueueIn(later, queue), now, hintsAtOnce)
	h.Limit, h.KeysOnly, due.KeysOnly = hintsAtOnce, true, true
	return []Range{h, standingBehind(queue, fresh, bykey.Place{}, n), standingBehind(queue, retries, bykey.Place{}, n), due}
}

func lookOf(answers [][]Item) look { return look{answers[0], answers[1], answers[2], answers[3]} }

// standingBehind returns the range of keys that stand in a lane behind a place.
func standingBehind(queue string, l lane, at bykey.Place, n int) Range {
	all := append(ofQueueIn(standing, queue), byte(l))
	r := Range{From: all, To: following(all), Limit: n, KeysOnly: true}
	if at != (bykey.Place{}) {
		r.From = append(placeIn(queue, l, at), math.MaxUint8) // which no limit key begins with
	}
	return r
}

// A keyClaim chooses jobs of a queue by their limit keys.
type keyClaim struct {
	*txn
	queue  string
	policy contract.Policy
	keys   *bykey.Keys
	known  map[string]stand
	hinted map[string]bool
	turn   int64 // the number of the claim, in a fair queue
}

// chooseByKey returns the jobs to claim, retries first. If there is more to look at than one commit can hold, it only looks at a part of that, and reports it, unless it is
// to take jobs all the same.
func (t *txn) chooseByKey(req contract.ClaimRequest, p contract.Policy, l look, take bool) (chosen []Item, more bool) {
	c := &keyClaim{txn: t, queue: req.Queue, policy: p, keys: bykey.NewKeys(p, t.now), known: map[string]stand{}, hinted: map[string]bool{}}
	c.begin(l)
	var taken []bykey.Waiting
	if more = !take && (len(l.hinted) == hintsAtOnce || len(l.due) == hintsAtOnce); more {
		c.addDue(l.due)
		c.read(1)
	} else {
		taken = c.choose(req, l)
	}
	c.write(taken)
	for _, w := range taken {
		chosen = append(chosen, Item{Key: key(rows, number(w.ID))})
	}
	return chosen, more
}

// begin reads what is known of all keys of the look, and adds those that have hints.
func (c *keyClaim) begin(l look) {
	var names []string
	for _, h := range l.hinted {
		name, _ := hinted(h.Key)
		names = append(names, name)
	}
	names = slices.Compact(names) // they come in this order
	c.learn(slices.Concat(names, c.namesOf(l)))
	if c.policy.Fair {
		c.turn, _ = get[int64](c.txn, named(turnsOf, c.queue))
		c.turn++
		c.keys.Number(c.turn)
	}
	for _, name := range names {
		c.hinted[name] = true
		s := c.known[name]
		c.fail(c.keys.AddHinted(name, string(s.State), len(s.entries(c.queue, name)) > 0))
	}
	c.takeHints(l.hinted)
}

// takeHints takes away hints, and notes where their jobs wait.
func (c *keyClaim) takeHints(hints []Item) {
	for _, h := range hints {
		name, at := hinted(h.Key)
		if lane(at[0]) == fresh || lane(at[0]) == retries {
			c.keys.Hint(bykey.Line{
				Key: name, Retry: lane(at[0]) == retries, Priority: contract.MaxPriority - int(at[1]), At: momentAt(at, 2).UnixMicro(), ID: numberAt(at[10:]),
			})
		}
		c.note(h.Key, []Item{h})
		c.remove(h.Key) // guarded: one that was put again since must stay
	}
	c.keys.Hinted()
}

// namesOf returns the limit keys of what was read of those that stand.
func (c *keyClaim) namesOf(l look) (names []string) {
	for _, items := range [][]Item{l.fresh, l.retries} {
		for _, item := range items {
			_, name := decodePlace(c.queue, item.Key)
			names = append(names, name)
		}
	}
	for _, item := range l.due {
		names = append(names, c.laterName(item))
	}
	return names
}

func (c *keyClaim) laterName(item Item) string { return string(item.Key[len(c.queue)+2+8:]) }

// learn reads what is known of keys, in one trip.
func (c *keyClaim) learn(names []string) {
	keys := make([][]byte, len(names))
	for i, name := range names {
		keys[i] = standsOf(c.queue, name)
	}
	asked := slices.Clip(keys)
	if c.policy.Ordered {
		for _, name := range names {
			asked = append(asked, joinsOf(c.queue, name))
		}
	}
	if c.policy.Fair {
		asked = append(asked, named(turnsOf, c.queue))
	}
	c.fetch(asked...)
	for i, name := range names {
		if raw, ok := c.peek(keys[i]); ok {
			c.known[name] = decode[stand](c.txn, keys[i], raw)
		}
	}
}

func (c *keyClaim) add(name string) {
	c.fail(c.keys.Add(name, string(c.known[name].State)))
}

func (c *keyClaim) addDue(items []Item) {
	for _, item := range items {
		c.add(c.laterName(item))
	}
}

// addStanding adds keys that stand, as they were read.
func (c *keyClaim) addStanding(l look) {
	for retry, items := range map[bool][]Item{false: l.fresh, true: l.retries} {
		for _, item := range items {
			at, name := decodePlace(c.queue, item.Key)
			c.keys.Stands(retry, at)
			c.add(name)
		}
	}
	c.keys.Stood()
}

// choose reads keys and their jobs until it knows which ones to take.
func (c *keyClaim) choose(req contract.ClaimRequest, l look) (chosen []bykey.Waiting) {
	quota := min(req.Limit, req.RetryQuota)
	for first := true; c.keys.More(req.Limit, quota, chosen) && c.txn.look(); first = false {
		freshFrom, retryFrom, n := c.keys.From()
		if first {
			c.addDue(l.due)
		} else {
			l = c.next(freshFrom, retryFrom, n)
		}
		c.addStanding(l)
		for enough := false; !enough && c.txn.look(); {
			c.read(req.Limit)
			chosen, enough = c.keys.Choose(req.Limit, quota)
		}
	}
	return chosen
}

// next reads the next keys that stand.
func (c *keyClaim) next(freshFrom, retryFrom bykey.Place, n int) (l look) {
	var asked []Range
	var to []*[]Item
	ask := func(in lane, from bykey.Place, answer *[]Item) {
		if from.Level <= contract.MaxPriority-contract.MinPriority { // else none stands behind
			asked, to = append(asked, standingBehind(c.queue, in, from, n)), append(to, answer)
		}
	}
	ask(fresh, freshFrom, &l.fresh)
	ask(retries, retryFrom, &l.retries)
	for i, items := range c.scan(asked...) {
		*to[i] = items
	}
	c.learn(c.namesOf(l))
	return l
}

// read reads what is not known yet of the keys: jobs of their lines, and how many of their jobs are in flight.
func (c *keyClaim) read(limit int) {
	var heads []*bykey.Line
	var lines []*reading
	var asked []Range
	for _, l := range c.keys.Unread(limit) {
		if l.Head {
			heads = append(heads, l)
		} else {
			lines = append(lines, c.reading(l))
		}
	}
	limited := c.keys.Uncounted()
	for _, name := range limited {
		asked = append(asked, firstOf(slots, c.queue, name, c.policy.KeyLimit()))
	}
	for _, l := range heads {
		asked = append(asked, firstOf(ranks, c.queue, l.Key, 1))
	}
	for _, l := range lines {
		asked = append(asked, l.rest)
	}
	answers := c.scan(asked...)
	for i, name := range limited {
		c.keys.Slots(name, len(answers[i]))
	}
	answers = answers[len(limited):]
	c.readHeads(heads, answers[:len(heads)])
	c.readLines(lines, answers[len(heads):])
}

// firstOf returns the range of the first keys of a limit key in a table.
func firstOf(in table, queue, limitKey string, n int) Range {
	r := under(ofKey(in, queue, limitKey))
	r.Limit, r.KeysOnly = n, true
	return r
}

// readHeads reads the first live jobs of keys. The claim guards those that it takes.
func (c *keyClaim) readHeads(heads []*bykey.Line, found [][]Item) {
	c.fetchJobs(idsOf(slices.Concat(found...)))
	for i, l := range heads {
		for _, item := range found[i] {
			raw, ok := c.peek(key(rows, lastID(item)))
			if !ok {
				c.fail(fmt.Errorf("%w: an index has job %d, which is not there", errDamaged, lastNumber(item.Key)))
				return
			}
			j := c.decodeJob(raw)
			if _, waits := lineOfJob(j); waits {
				l.ReadHead(c.waiting(j.Priority, j.place.key, j.weight(), j.ExpiresAt()))
			}
		}
	}
}

func lastID(item Item) []byte { return item.Key[len(item.Key)-8:] }

// waiting returns a job by the end of the key of its entry, and by what a claim must know of it.
func (c *keyClaim) waiting(priority int, entry string, weight int, expires time.Time) bykey.Waiting {
	k := []byte(entry[len(entry)-16:])
	return bykey.Waiting{
		Priority: priority, At: momentAt(k, 0).UnixMicro(), ID: numberAt(k[8:]), Weight: weight, Expired: !expires.IsZero() && !expires.After(c.now),
	}
}

// A reading is a line whose jobs are being read.
type reading struct {
	line    *bykey.Line
	rest    Range
	left    int  // how many to read
	expired bool // one that has expired was read, and others are passed over
}

func (c *keyClaim) reading(l *bykey.Line) *reading {
	from := append(ofKey(lined, c.queue, l.Key), positionIn(l.Retry, l.Priority, l.At, l.ID)...)
	return &reading{line: l, rest: Range{From: from, To: following(from[:len(from)-16]), Limit: l.Want}, left: l.Want}
}

// readLines reads jobs of lines of which the first entries were read.
func (c *keyClaim) readLines(lines []*reading, found [][]Item) {
	for len(lines) > 0 && c.txn.look() {
		var more []*reading
		var asked []Range
		for i, l := range lines {
			if c.readLine(l, found[i]) {
				more, asked = append(more, l), append(asked, l.rest)
			}
		}
		lines, found = more, c.scan(asked...)
	}
}

// readLine reads some of the entries of a line, and reports whether it has to read more.
func (c *keyClaim) readLine(l *reading, found []Item) (more bool) {
	for _, item := range found {
		if l.left == 0 {
			return false
		}
		w, ok := decodeWaits(item.Value)
		if !ok {
			c.fail(fmt.Errorf("%w: job %d waits without saying how long it is", errDamaged, lastNumber(item.Key)))
			return false
		}
		one := c.waiting(l.line.Priority, string(item.Key), w.weight, w.expires)
		if one.Expired && l.expired {
			continue
		}
		l.expired = l.expired || one.Expired
		l.line.Read(one)
		l.left--
	}
	if l.left == 0 || len(found) < l.rest.Limit {
		return false
	}
	l.rest.From = append(bytes.Clone(found[len(found)-1].Key), 0)
	l.rest.Limit = max(l.left, chunk) // many that have expired may stand there
	return true
}

// movedByClaim is how many keys a claim lets stand elsewhere which have no hints, and of which it takes no job. The others still stand where they do not belong, and claims pass them over.
const movedByClaim = 1_000

// write writes what becomes of the keys when the jobs are taken. Each key of which it takes a job and that limits its jobs has a value, so two claims that have counted the same slots conflict.
func (c *keyClaim) write(taken []bykey.Waiting) {
	of := map[string]bool{}
	for _, w := range taken {
		of[w.Key()] = true
	}
	c.guardRanks(of)
	list, err := c.keys.Rows(taken)
	c.fail(err)
	changed, room := len(taken) > 0, movedByClaim
	for _, r := range list {
		before, after := c.known[r.Name], stand{json.RawMessage(r.State), r.Fresh, r.Retry, r.LookAt}
		if gate := joinsOf(c.queue, r.Name); c.policy.Ordered && r.State == "" && c.exists(gate) {
			c.remove(gate)
		}
		if !of[r.Name] && before.equal(after) {
			continue
		}
		if changed = true; !of[r.Name] && !c.hinted[r.Name] {
			if room--; room < 0 {
				continue
			}
		}
		c.restand(r.Name, before, after)
	}
	c.writeHinted()
	if changed && c.policy.Fair {
		c.put(named(turnsOf, c.queue), c.turn)
	}
}

// writeHinted writes the values of keys with hints for which nothing changes: a claim that does not know of the hint may be about to change the value, and must conflict.
func (c *keyClaim) writeHinted() {
	for name := range c.hinted {
		k := standsOf(c.queue, name)
		if _, did := c.writes[string(k)]; did {
			continue
		}
		if raw, is := c.peek(k); is {
			c.putRaw(k, raw)
		}
	}
}

// guardRanks guards that no other job of the keys gets a rank: it may be a smaller one.
func (c *keyClaim) guardRanks(of map[string]bool) {
	for name := range of {
		if c.policy.Ordered && name != "" {
			c.guard(joinsOf(c.queue, name))
		}
	}
}

func (c *keyClaim) exists(k []byte) bool {
	_, is := c.peek(k)
	return is
}

func (c *keyClaim) restand(limitKey string, before, after stand) {
	was, to := before.entries(c.queue, limitKey), after.entries(c.queue, limitKey)
	for _, k := range was {
		if !slices.Contains(to, k) {
			c.remove([]byte(k))
		}
	}
	for _, k := range to {
		if !slices.Contains(was, k) {
			c.putRaw([]byte(k), nil)
		}
	}
	if len(after.State) == 0 {
		c.remove(standsOf(c.queue, limitKey))
	} else {
		c.put(standsOf(c.queue, limitKey), after)
	}
}

func (s stand) equal(other stand) bool {
	samePlace := func(a, b *bykey.Place) bool { return a == b || a != nil && b != nil && *a == *b }
	return bytes.Equal(s.State, other.State) && samePlace(s.Fresh, other.Fresh) && samePlace(s.Retry, other.Retry) && s.LookAt.Equal(other.LookAt)
}
