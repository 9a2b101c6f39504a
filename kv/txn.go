package kv

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/contract"
)

// A txn is one try of a call, or of several that share a commit: a view, what was read in it, and the writes that wait for the commit. It reads its own writes. It records its first error and
// then commits nothing. After an error, its steps return zero values instead of passing errors to each other.
type txn struct {
	ctx   context.Context
	s     *Store
	view  View
	asked time.Time // for the view
	now   time.Time
	meta  meta

	first  [][]Item          // answers to the ranges that the call asked for first
	cache  map[string]Item   // keys that were read; version 0 if there is no such key
	guards map[string]uint64 // versions of the keys on which the call has decided
	writes map[string][]byte // nil means deleted

	groups groupsOfCall
	noted  []news // what the call has left for others to be told
	hints  map[string]string
	gone   map[string]int // how many entries of jobs it has removed, by the names of their marks

	tickets []int64                  // for new jobs
	woken   map[contract.Wakeup]bool // the wake-ups to send after the commit
	added   map[string]bool          // the queues with new claimable jobs, of which a watch tells by itself
	later   map[string]time.Duration // the queues to wake after a while, whether or not the call changes something
	after   func()                   // runs if the call took effect; may be nil
	err     error
}

// An ask is what a call knows beforehand that it needs. It is read in one trip, with the time of the call.
type ask struct {
	keys    [][]byte
	uniques []string                    // unique keys; the jobs that hold them are read by a trip more
	ranges  func(now time.Time) []Range // now may be a little earlier than that of the call

	tickets int  // how many new jobs there may be
	any     bool // the store may be new, or have another layout, and the time does not matter
}

func (a *ask) add(other ask) {
	a.keys = append(a.keys, other.keys...)
	a.uniques = append(a.uniques, other.uniques...)
	a.tickets += other.tickets
}

// patience is how long a call is started again after conflicts, and longestPause the longest pause before that.
const (
	patience     = 8 * time.Second
	longestPause = 50 * time.Millisecond
)

// call runs a call, and commits what it writes. A call that writes nothing has no commit: its answer is that of its view.
// The function may run several times.
func call[T any](ctx context.Context, s *Store, refused error, first ask, do func(*txn) T) (T, error) {
	var none T
	if err := s.enter(ctx, refused); err != nil {
		return none, err
	}
	defer s.calls.Done()
	answer, noted, err := tries(ctx, s, first, do)
	s.follow(ctx, noted)
	return answer, err
}

// inTurn is call for calls that would conflict with each other.
func inTurn[T any](ctx context.Context, s *Store, name string, refused error, first ask, do func(*txn) T) (T, error) {
	var none T
	if err := s.enter(ctx, refused); err != nil {
		return none, err
	}
	defer s.calls.Done()
	leave, err := s.turns.take(ctx, name)
	if err != nil {
		return none, err
	}
	answer, noted, err := tries(ctx, s, first, do)
	leave()
	s.follow(ctx, noted)
	return answer, err
}

// tries runs a call until it does not conflict. It also returns what is to be told now.
func tries[T any](ctx context.Context, s *Store, first ask, do func(*txn) T) (T, []news, error) {
	var none T
	began, pause := time.Now(), 100*time.Microsecond
	for {
		answer, noted, err := try(ctx, s, first, do)
		switch {
		case err == nil:
			return answer, noted, nil
		case !errors.Is(err, ErrConflict):
			return none, nil, err
		case s.isClosed():
			return none, nil, contract.ErrClosed
		case time.Since(began) > patience:
			return none, nil, unavailable(fmt.Errorf("%w for %v: %w", errBusy, patience, err))
		}
		select {
		case <-time.After(rand.N(pause)):
		case <-ctx.Done():
			return none, nil, unavailable(ctx.Err())
		}
		pause = min(2*pause, longestPause)
	}
}

func try[T any](ctx context.Context, s *Store, first ask, do func(*txn) T) (T, []news, error) {
	var none T
	tickets, err := s.draw(ctx, first.tickets)
	if err != nil {
		return none, nil, err
	}
	asked := time.Now()
	view, err := s.engine.View(ctx)
	if err != nil {
		return none, nil, ours(err)
	}
	t := &txn{
		ctx: ctx, s: s, view: view, asked: asked, tickets: tickets, cache: map[string]Item{}, guards: map[string]uint64{}, writes: map[string][]byte{},
		woken: map[contract.Wakeup]bool{}, added: map[string]bool{}, later: map[string]time.Duration{}, gone: map[string]int{},
	}
	defer func() {
		if t.view != nil {
			t.view.Close()
		}
	}()
	t.begin(first)
	if t.err != nil {
		return none, nil, t.err
	}
	answer := do(t)
	t.endGroups()
	t.leaveHints()
	if !t.look() { // the last chance to undo a claim whose caller is gone
		return none, nil, t.err
	}
	if len(t.writes) > 0 {
		err := t.commit()
		for again := 0; again < 3 && errors.Is(err, ErrConflict) && t.onlyMarksMoved(); again++ {
			err = t.commit()
		}
		if err != nil {
			return none, nil, err
		}
		s.walks.note(t.gone)
	}
	if t.after != nil {
		t.after()
	}
	s.tell(t)
	return answer, t.noted, nil
}

// draw returns numbers for new jobs. Each try draws its own, in case that the engine has handed out some twice.
func (s *Store) draw(ctx context.Context, n int) ([]int64, error) {
	if n == 0 {
		return nil, nil
	}
	tickets, err := s.engine.Tickets(ctx, n)
	if err == nil && len(tickets) != n {
		err = fmt.Errorf("the engine returned %d of %d tickets", len(tickets), n)
	}
	if err != nil {
		return nil, ours(err)
	}
	return tickets, nil
}

// begin makes the first read. The time is taken after it, so that it is not older than what was read.
func (t *txn) begin(first ask) {
	keys := append([][]byte{key(metas)}, first.keys...)
	for _, name := range first.uniques {
		keys = append(keys, named(uniques, name))
	}
	var asked []Range
	for _, k := range keys {
		asked = append(asked, Range{From: k})
	}
	if first.ranges != nil {
		asked = append(asked, first.ranges(t.clock())...)
	}
	answers := t.readAll(asked)
	if t.err != nil {
		return
	}
	if !first.any { // a store that opens does not know the time yet
		t.now = t.clock()
	}
	for i, k := range keys {
		t.note(k, answers[i])
	}
	t.first = answers[len(keys):]
	t.meta, _ = get[meta](t, key(metas))
	switch {
	case known(t.meta.Layout) || first.any:
	case t.meta.Layout > withMarks: // a later version has begun to use it
		t.fail(otherLayout(t.meta.Layout))
		return
	default:
		t.fail(fmt.Errorf("%w: it says that its keys have the layout %d", errDamaged, t.meta.Layout))
		return
	}
	latest := t.meta // which the call may change
	t.s.latest.Store(&latest)
	t.fetchHolders(first.uniques)
}

// note remembers what was read of a key.
func (t *txn) note(key []byte, found []Item) {
	item := Item{Key: key}
	if len(found) > 0 {
		item = found[0]
	}
	t.cache[string(key)] = item
}

// fail records the error, unless there is one already.
func (t *txn) fail(err error) {
	if err != nil && t.err == nil {
		t.err = ours(err)
	}
}

// look fails the call if the context has ended, and reports whether the call may continue.
func (t *txn) look() bool {
	t.fail(t.ctx.Err())
	return t.err == nil
}

// readAll reads ranges of the view. It returns an empty answer for each after an error.
func (t *txn) readAll(asked []Range) [][]Item {
	none := make([][]Item, len(asked))
	if len(asked) == 0 || !t.look() {
		return none
	}
	var all [][]Item
	for some := range slices.Chunk(asked, rangesAtOnce) {
		answers, err := t.view.Read(t.ctx, some...)
		if err == nil {
			err = checkAnswers(some, answers)
		}
		if err != nil {
			t.fail(err)
			return none
		}
		all = append(all, answers...)
	}
	return all
}

// rangesAtOnce is for how many ranges a Read asks.
const rangesAtOnce = 4000

// checkAnswers refuses what no engine may answer, before it is decoded.
func checkAnswers(asked []Range, answers [][]Item) error {
	if len(answers) != len(asked) {
		return fmt.Errorf("the engine answered %d of %d ranges", len(answers), len(asked))
	}
	for i, r := range asked {
		for _, item := range answers[i] {
			if r.To == nil && !bytes.Equal(item.Key, r.From) || r.To != nil && (bytes.Compare(item.Key, r.From) < 0 || bytes.Compare(item.Key, r.To) >= 0) {
				return fmt.Errorf("the engine answered with the key %q, which is not in the range from %q to %q", item.Key, r.From, r.To)
			}
		}
	}
	return nil
}

// fetch reads the keys in one trip, so that peek and get need none for them.
func (t *txn) fetch(keys ...[]byte) {
	var asked []Range
	for _, k := range keys {
		if _, known := t.cache[string(k)]; !known {
			asked = append(asked, Range{From: k})
			t.cache[string(k)] = Item{Key: k} // asks for a key once
		}
	}
	for i, found := range t.readAll(asked) {
		t.note(asked[i].From, found)
	}
}

// peek returns a value that the call does not decide upon, unless it writes the key too.
func (t *txn) peek(key []byte) (value []byte, ok bool) {
	if value, written := t.writes[string(key)]; written {
		return value, value != nil
	}
	t.fetch(key)
	item := t.cache[string(key)]
	return item.Value, item.Version != 0
}

// guard makes the commit fail if the key, which was read, has changed.
func (t *txn) guard(key []byte) {
	if item, known := t.cache[string(key)]; known {
		t.guards[string(key)] = item.Version
	}
}

// absent makes the commit fail if there is such a key.
func (t *txn) absent(key []byte) { t.guards[string(key)] = 0 }

// get returns a value, and guards it.
func get[T any](t *txn, key []byte) (value T, ok bool) {
	raw, ok := t.peek(key)
	t.guard(key)
	if !ok {
		return value, false
	}
	return decode[T](t, key, raw), true
}

func decode[T any](t *txn, key, raw []byte) (value T) {
	if err := json.Unmarshal(raw, &value); err != nil {
		t.fail(fmt.Errorf("%w: the value of %q can not be read: %w", errDamaged, key, err))
	}
	return value
}

func (t *txn) put(key []byte, value any) {
	raw, err := json.Marshal(value)
	t.fail(err)
	t.putRaw(key, raw)
}

// putRaw writes a key. If it was read, it is guarded: what it was has been decided upon.
func (t *txn) putRaw(key, raw []byte) {
	t.guard(key)
	t.writes[string(key)] = append([]byte{}, raw...)
}

// putBlind writes a key, whatever it was: what counts is its new version. It does not conflict with others who do the same.
func (t *txn) putBlind(key []byte, value string) { t.writes[string(key)] = []byte(value) }

func (t *txn) remove(key []byte) {
	t.guard(key)
	t.writes[string(key)] = nil
}

// scan reads ranges in one trip, with what the call itself has written.
func (t *txn) scan(asked ...Range) [][]Item {
	var changed [][]string
	wider := slices.Clone(asked)
	written := t.written(asked)
	for i, r := range asked {
		mine := inRange(written, r)
		changed = append(changed, mine)
		if r.Limit > 0 {
			wider[i].Limit += len(mine) // as many may be deleted
		}
	}
	answers := t.readAll(wider)
	for i, r := range asked {
		if len(changed[i]) > 0 {
			answers[i] = t.merge(answers[i], changed[i])
		}
		if r.Limit > 0 && len(answers[i]) > r.Limit {
			answers[i] = answers[i][:r.Limit]
		}
	}
	return answers
}

// written returns the keys that the call has written, in order. For few ranges it leaves out those that are in none of them, because to sort them would take longer.
func (t *txn) written(asked []Range) (keys []string) {
	for k := range t.writes {
		if len(asked) > 8 || slices.ContainsFunc(asked, func(r Range) bool { return k >= string(r.From) && k < string(r.To) }) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// inRange returns those of the sorted keys that are in the range.
func inRange(sorted []string, r Range) []string {
	from, _ := slices.BinarySearch(sorted, string(r.From))
	to, _ := slices.BinarySearch(sorted, string(r.To))
	return sorted[from:max(from, to)]
}

// merge puts the written keys in the place of those that were read.
func (t *txn) merge(items []Item, written []string) []Item {
	merged := map[string]Item{}
	for _, item := range items {
		merged[string(item.Key)] = item
	}
	for _, k := range written {
		if value := t.writes[k]; value != nil {
			merged[k] = Item{Key: []byte(k), Value: value}
		} else {
			delete(merged, k)
		}
	}
	var list []Item
	for _, k := range slices.Sorted(maps.Keys(merged)) {
		list = append(list, merged[k])
	}
	return list
}

// chunk is how many items are read at once where it is not known how many are needed.
const chunk = 256

// each yields the items of the range, and reads them in chunks. Callers must not write keys of the range during the loop.
func (t *txn) each(r Range) iter.Seq[Item] {
	return func(yield func(Item) bool) {
		r.Limit = chunk
		for {
			items := t.scan(r)[0]
			for _, item := range items {
				if !t.look() || !yield(item) {
					return
				}
			}
			if len(items) < chunk {
				return
			}
			r.From = append(bytes.Clone(items[chunk-1].Key), 0)
		}
	}
}

// ticket returns a number that nobody else gets.
func (t *txn) ticket() int64 {
	next := t.tickets[0]
	t.tickets = t.tickets[1:]
	return next
}

// id returns an id for a new job, or a revision for a schedule, above the floor of the epoch.
func (t *txn) id() int64 {
	id := contract.Floor(t.meta.Epoch) + t.ticket()
	if id < 0 {
		t.fail(fmt.Errorf("%w: there are no more ids in epoch %d", errTooLarge, t.meta.Epoch))
	}
	return id
}

// commit applies what the call has written, if what it has decided upon is unchanged.
func (t *txn) commit() error {
	var c Change
	size := 0
	for k, version := range t.guards {
		c.Guards = append(c.Guards, Item{Key: []byte(k), Version: version})
		size += len(k)
	}
	for k, value := range t.writes {
		size += len(k) + len(value)
		if value == nil {
			c.Deletes = append(c.Deletes, []byte(k))
		} else {
			c.Puts = append(c.Puts, Item{Key: []byte(k), Value: value})
		}
	}
	limits, keys := t.s.engine.Limits(), len(t.guards)+len(t.writes)
	if limits.Keys > 0 && keys > limits.Keys || limits.Bytes > 0 && size > limits.Bytes {
		return unavailable(fmt.Errorf("%w: the call changes %d keys and %d bytes, and the engine takes %d and %d at once: ask for fewer jobs",
			errTooLarge, keys, size, limits.Keys, limits.Bytes))
	}
	return ofCommit(t.view.Commit(t.ctx, c))
}
