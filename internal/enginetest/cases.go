package enginetest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/kv"
)

// Cases returns all cases, in an order in which to make a new engine pass.
func Cases() []Case {
	return []Case{
		{"Commit/AppliesPutsAndDeletes", "A value may be empty.\nTo delete a key that does not exist is no error.\nVersion 0 means that there is no such key.", putsAndDeletes},
		{"Read/RangeIsWithoutItsEnd", "A Range selects keys from From, without To. If To is nil, it selects the key From alone.\nFor a single key that does not exist, the answer is empty.", ranges},
		{"Read/KeysAreOrderedByteByByte", "Keys are ordered byte by byte.", ordered},
		{"Read/LimitTakesTheFirst", "at most so many items, the first ones; zero means all", limited},
		{"Read/KeysOnlyHasVersions", "the values are not needed, only keys and versions", keysOnly},
		{"Read/AnswersEachRangeInOrder", "A store asks everything that it can ask at once in one Read, up to 4,000 ranges.", manyRanges},
		{"View/HasWhatWasCommittedBefore", "View returns the map at one moment: with every commit that returned before View was called, in whatever process.", committedBefore},
		{"View/StaysAsItIs", "Read returns the items of each range, in order, all at the moment of the view.", stays},
		{"View/ShowsNoPartOfACommit", "Commit applies the change as a whole or not at all.", whole},
		{"View/TimeDoesNotGoBack", "A view of a later moment, in whatever process, returns no earlier time.", timeRises},
		{"Commit/ConflictsIfAGuardedKeyHasChanged", "If the version of a guarded key is no longer that of its guard, also because the key was added or removed, Commit must return an error that matches ErrConflict, and apply nothing.", guarded},
		{"Commit/ChecksGuardsOfAnEarlierView", "A guard may come from an earlier view, and its key need not have been read in this one.", earlier},
		{"Commit/ChecksGuardsWhenItApplies", "Guards must be checked at the moment of the commit: of two commits that each write a key that the other one guards, at most one succeeds.", skew},
		{"Commit/CountsToTheLast", "Guards must be checked at the moment of the commit", counts},
		{"Commit/SharesGuards", "Two commits that guard a key which neither writes must not make each other fail: every change has a guard on the same key.", shared},
		{"Commit/TakesALargeChange", "A call on 1,000 jobs changes up to 11,010 keys, guards 3,010, and writes up to 24 MiB. One with 4,000 waits changes up to 25,000 keys and guards 15,000.\na store uses keys of its own choice, of at most 600 bytes.", large},
		{"Version/NeverComesBack", "A version belongs to one value of one key: each commit that writes the key gives it another version, also if the value stays the same, the key was removed in between, or the engine was opened again.", versions},
		{"Tickets/Rise", "Tickets returns n positive numbers in rising order that no other call returns, in whatever process and however often the engine is opened. All of them are greater than each one that was returned before Tickets was called.", ticketsRise},
		{"Tickets/AreGivenOnce", "Tickets returns n positive numbers in rising order that no other call returns", ticketsOnce},
		{"Reopen/KeepsKeysAndVersions", "When it returns nil, the change is as durable as the engine promises, and every later view has it.", reopens},
		{"Context/EndedBeforeTheCall", "If the context of a method ends, the method must return soon. Its error must match that of the context.\nAny other error that is known to have applied nothing must match [ErrNothing], also if the context has ended before the change was given to the engine.", ended},
		{"Watch/TellsOfPuts", "Watch calls heard with each key with one of the prefixes that a commit puts, in whatever process, soon after the commit. It calls heard with nil once it has begun to watch.\nWatch returns when the context ends", watches},
	}
}

func putsAndDeletes(c *c) {
	e := c.open()
	c.is(e, "at first", "a", "-")
	c.put(e, "a", "1", "b", "", "c", "3")
	c.is(e, "after a commit", "a", "1", "b", "", "c", "3", "d", "-")
	change := puts("a", "2", "d", "4")
	change.Deletes = deleting("b", "e").Deletes
	c.commit(e, change)
	c.is(e, "after the next one", "a", "2", "b", "-", "c", "3", "d", "4", "e", "-")
	c.put(e, "b", "5")
	c.is(e, "after a deleted key was put again", "b", "5")
	c.put(e, "a", strings.Repeat("x", 1<<16), "c", "")
	c.is(e, "after a long and an empty value", "a", strings.Repeat("x", 1<<16), "c", "")
}

func ranges(c *c) {
	e := c.open()
	c.put(e, "a", "1", "b", "2", "b\x00", "3", "ba", "4", "c", "5")
	for _, k := range []struct {
		r    kv.Range
		want []string
	}{
		{between("a", "c"), []string{"a", "b", "b\x00", "ba"}},
		{between("b", "ba"), []string{"b", "b\x00"}},
		{between("b\x00", "d"), []string{"b\x00", "ba", "c"}},
		{between("bb", "c"), nil},
		{between("d", "e"), nil},
		{one("b"), []string{"b"}},
		{one("bb"), nil},
	} {
		c.hasKeys(c.now(e, k.r), k.want, fmt.Sprintf("the range from %q to %q", k.r.From, k.r.To))
	}
}

func (c *c) hasKeys(found []kv.Item, want []string, what string) {
	var keys []string
	for _, item := range found {
		keys = append(keys, string(item.Key))
	}
	if !slices.Equal(keys, want) {
		c.fail("%s has the keys %q, not %q", what, keys, want)
	}
}

func ordered(c *c) {
	e := c.open()
	var keys, pairs []string
	for _, first := range []string{"a", "k"} {
		for _, rest := range []string{"", "\x00", "\x00\x00", "\x00\xff", "\x01", "-", "0", "A", "a", "aa", "\x7f", "\x80", "\xc3\xa4", "\xff", "\xff\x00", "\xff\xff"} {
			keys = append(keys, first+rest)
		}
	}
	for _, i := range []int{1, 0} { // in two commits
		for n := i; n < len(keys); n += 2 {
			pairs = append(pairs, keys[n], strconv.Itoa(n))
		}
		c.put(e, pairs...)
		pairs = nil
	}
	c.hasKeys(c.now(e, between("a", "z")), keys, "the range of all keys")
	for i, k := range keys {
		c.is(e, "among many", k, strconv.Itoa(i))
	}
}

func limited(c *c) {
	e := c.open()
	var pairs []string
	for i := range 40 {
		pairs = append(pairs, fmt.Sprintf("k%02d", i), "v")
	}
	c.put(e, pairs...)
	all := c.now(e, between("k", "l"))
	if len(all) != 40 {
		c.fail("a range without a limit has %d of 40 items", len(all))
	}
	for _, limit := range []int{1, 2, 39, 40, 41} {
		r := between("k", "l")
		r.Limit = limit
		for range 2 { // an engine may remember something
			if found, want := c.now(e, r), all[:min(limit, 40)]; !same(found, want, true) {
				c.fail("with the limit %d, a range of 40 items has %s", limit, show(found))
			}
		}
	}
}

func keysOnly(c *c) {
	e := c.open()
	c.put(e, "a", "1", "b", "", "c", "3")
	r := between("a", "z")
	all := c.now(e, r)
	r.KeysOnly = true
	if found := c.now(e, r); !same(found, all, false) {
		c.fail("with KeysOnly, the keys and versions are %v, without they are %v", found, all)
	}
}

func manyRanges(c *c) {
	const n = 4000
	e := c.open()
	c.put(e, "k0001", "one", "k2000", "two", "k3999", "three")
	var ask []kv.Range
	for i := range n {
		key := fmt.Sprintf("k%04d", i)
		if i%2 == 0 {
			ask = append(ask, between(key, key+"\x00"))
		} else {
			ask = append(ask, one(key))
		}
	}
	v := c.view(e)
	defer c.end(v)
	want := map[int]string{1: "one", 2000: "two", 3999: "three"}
	for i, found := range c.read(v, ask...) {
		if value, is := want[i]; is && (len(found) != 1 || string(found[0].Value) != value) || !is && len(found) > 0 {
			c.fail("range %d of %d, which begins at %q, has %s", i, n, ask[i].From, show(found))
		}
	}
}

func committedBefore(c *c) {
	e := c.open()
	other := c.another(e)
	for i := range 50 {
		value := strconv.Itoa(i)
		c.put(e, "a", value)
		c.is(other, "after a commit had returned", "a", value)
		c.put(other, "b", value)
		c.is(e, "after a commit had returned", "b", value)
	}
}

func stays(c *c) {
	e := c.open()
	other := c.another(e)
	c.put(e, "a", "1", "b", "1", "d", "1")
	v := c.view(e)
	all := between("a", "z")
	before := c.read(v, all)[0]
	wait := c.behind(func() {
		change := puts("a", "2", "c", "2")
		change.Deletes = deleting("b").Deletes
		c.commit(other, change)
	})
	after, err := v.Read(c.ctx, all, one("b"), one("c"))
	switch {
	case errors.Is(err, kv.ErrConflict): // the view has ended by itself
	case err != nil:
		c.fail("Read: %w", err)
	case !same(after[0], before, true):
		c.fail("a view had %s, and %s after a commit", show(before), show(after[0]))
	case len(after[1]) != 1 || len(after[2]) != 0:
		c.fail("a view in which b stands and c does not has b: %s, c: %s", show(after[1]), show(after[2]))
	}
	c.end(v)
	wait()
	c.is(e, "in a later view", "a", "2", "b", "-", "c", "2")
}

// whole has writers that always write the same value to two keys, and readers that look at both.
func whole(c *c) {
	e := c.open()
	other := c.another(e)
	c.put(e, "left", "0", "right", "0")
	var stop atomic.Bool
	c.parallel(4, func(i int) {
		switch i {
		case 0:
			defer stop.Store(true)
			for n := range 150 {
				value := strconv.Itoa(n)
				c.put(other, "left", value, "right", value)
			}
		default:
			for !stop.Load() {
				v := c.view(e)
				left, right := c.read(v, one("left"))[0], c.read(v, one("right"))[0]
				c.end(v)
				if len(left) != 1 || len(right) != 1 || string(left[0].Value) != string(right[0].Value) {
					c.fail("commits write the same value to two keys, and a view has %s and %s", show(left), show(right))
				}
			}
		}
	})
}

func timeRises(c *c) {
	e := c.open()
	other := c.another(e)
	now := func(of kv.Engine) time.Time {
		v := c.view(of)
		defer c.end(v)
		timer, is := v.(kv.Timer)
		if !is {
			return time.Time{}
		}
		return timer.Now()
	}
	before := now(e)
	for n := range 2 * perWorker {
		shown := now([]kv.Engine{e, other}[n%2])
		if shown.Before(before) {
			c.fail("a view shows the time %v after one that has shown %v", shown, before)
		}
		before = shown
	}
}

func guarded(c *c) {
	e := c.open()
	absent := kv.Item{Key: []byte("a")}
	c.commit(e, guarding(puts("a", "1"), absent))
	first := c.get(e, "a")
	c.conflicts(c.try(e, guarding(puts("a", "x", "other", "x"), absent)), "was added")
	c.commit(e, guarding(puts("a", "2"), first))
	c.conflicts(c.try(e, guarding(puts("a", "x", "other", "x"), first)), "was changed")
	c.is(e, "after two conflicts", "a", "2", "other", "-")
	second := c.get(e, "a")
	c.commit(e, guarding(deleting("a"), second))
	c.conflicts(c.try(e, guarding(puts("other", "x"), second)), "was removed")
	c.put(e, "a", "2")
	c.conflicts(c.try(e, guarding(deleting("a"), second)), "was removed and added again with the same value")
	c.is(e, "after four conflicts", "a", "2", "other", "-")
	c.put(e, "b", "1")
	c.conflicts(c.try(e, guarding(puts("a", "x"), c.get(e, "a"), kv.Item{Key: []byte("b")})), "was added, beside one that is unchanged")
	c.is(e, "after five conflicts", "a", "2", "b", "1")
	c.commit(e, guarding(puts("c", "1"), c.get(e, "a"), kv.Item{Key: []byte("nothing")}))
	c.is(e, "after a commit whose guards fit", "c", "1")

	// The commit of another comes between the view and the commit.
	other := c.another(e)
	v := c.view(e)
	c.read(v, one("a"))
	guard := c.read(v, one("a"))[0][0]
	wait := c.behind(func() { c.put(other, "a", "3") })
	err := v.Commit(c.ctx, guarding(puts("a", "x"), guard))
	c.end(v)
	wait()
	if value := string(c.get(e, "a").Value); err == nil && value != "3" || err != nil && (!errors.Is(err, kv.ErrConflict) || value != "3") {
		c.fail("of two commits at once, one without a guard and one with a guard on the key that both write, the latter returned %v, and the value is %q", err, value)
	}
}

// earlier commits with guards whose keys the view has not read.
func earlier(c *c) {
	e := c.open()
	c.put(e, "a", "1", "b", "1")
	unread := func(change kv.Change) error {
		v := c.view(e)
		defer c.end(v)
		c.read(v, one("another"))
		return v.Commit(c.ctx, change)
	}
	a, b, absent := c.get(e, "a"), c.get(e, "b"), c.get(e, "absent")
	c.no("a commit whose guards fit", unread(guarding(puts("a", "2", "c", "1"), a, b, absent)))
	c.is(e, "after a commit whose guards fit", "a", "2", "c", "1")
	c.conflicts(unread(guarding(puts("a", "x"), a)), "was changed before the view, which has not read it")
	c.conflicts(unread(guarding(puts("other", "x"), a)), "was changed before the view, which neither reads nor writes it")
	c.commit(e, deleting("b"))
	c.conflicts(unread(guarding(puts("b", "x"), b)), "was removed before the view, which has not read it")
	c.put(e, "absent", "1")
	c.conflicts(unread(guarding(puts("absent", "x"), absent)), "was added before the view, which has not read it")
	c.conflicts(unread(guarding(puts("other", "x"), absent)), "was added before the view, which neither reads nor writes it")
	c.is(e, "after five conflicts", "a", "2", "b", "-", "absent", "1", "other", "-")
}

// skew lets two commits read both keys, guard one and write the other.
func skew(c *c) {
	e := c.open()
	other := c.another(e)
	for range perWorker {
		c.put(e, "a", "free", "b", "free")
		engines, keys := []kv.Engine{e, other}, []string{"a", "b"}
		meet := make(chan struct{})
		var taken atomic.Int64
		c.parallel(2, func(i int) {
			v := c.view(engines[i])
			defer c.end(v)
			found := c.read(v, one("a"), one("b"))
			select {
			case meet <- struct{}{}:
			case <-meet:
			case <-c.ctx.Done():
				c.fail("the other commit did not begin")
			}
			err := v.Commit(c.ctx, guarding(puts(keys[i], "taken"), found[1-i][0]))
			if err == nil {
				taken.Add(1)
			} else {
				c.conflicts(err, "another commit may have written")
			}
		})
		if taken.Load() > 1 {
			c.fail("two commits have each written a key that the other one guards")
		}
	}
}

// counts lets several goroutines add to the same number.
func counts(c *c) {
	e := c.open()
	other := c.another(e)
	c.put(e, "n", "0")
	var added atomic.Int64
	c.parallel(atOnce, func(i int) {
		mine := []kv.Engine{e, other}[i%2]
		for range perWorker {
			before := c.get(mine, "n")
			n, err := strconv.Atoi(string(before.Value))
			c.no("the number", err)
			switch err := c.try(mine, guarding(puts("n", strconv.Itoa(n+1)), before)); {
			case err == nil:
				added.Add(1)
			default:
				c.conflicts(err, "others write too")
			}
		}
	})
	if n := string(c.get(e, "n").Value); n != strconv.FormatInt(added.Load(), 10) {
		c.fail("%d commits have each added one to a number, which is %s", added.Load(), n)
	}
	if added.Load() == 0 {
		c.fail("no commit succeeded, although each conflict is one with a commit that did")
	}
}

func shared(c *c) {
	e := c.open()
	other := c.another(e)
	c.put(e, "common", "1")
	guard := c.get(e, "common")
	c.parallel(atOnce, func(i int) {
		mine := []kv.Engine{e, other}[i%2]
		for n := range perWorker {
			c.no("a commit that guards what nobody writes", c.try(mine, guarding(puts(fmt.Sprint("own ", i, " ", n), "1"), guard)))
		}
	})
}

func large(c *c) {
	e := c.open()
	limits := e.Limits()
	for _, l := range []struct {
		what       string
		has, least int
	}{{"keys", limits.Keys, kv.MinKeys}, {"bytes", limits.Bytes, kv.MinBytes}, {"bytes of a value", limits.Value, kv.MinValue}} {
		if l.has != 0 && l.has < l.least {
			c.fail("the engine takes %d %s, and a store needs %d", l.has, l.what, l.least)
		}
	}
	const guards, keys = 3010, 11_010
	long := func(i int) string { return fmt.Sprintf("%0600d", i) }
	var before kv.Change
	for i := range guards {
		before.Puts = append(before.Puts, kv.Item{Key: []byte(long(i)), Value: []byte("1")})
	}
	c.commit(e, before)
	found := c.now(e, between("0", "1"))
	if len(found) != guards {
		c.fail("of %d keys of 600 bytes, %d are there", guards, len(found))
	}
	var change kv.Change
	size := (kv.MinBytes - keys*600 - guards*600) / 1000
	for i := range 1000 {
		change.Puts = append(change.Puts, kv.Item{Key: []byte(long(i)), Value: []byte(strings.Repeat("x", size))})
	}
	for i := 1000; i < keys; i++ {
		change.Deletes = append(change.Deletes, []byte(long(i)))
	}
	change = guarding(change, found...)
	c.commit(e, change)
	if left := c.now(e, between("0", "1")); len(left) != 1000 || len(left[999].Value) != size {
		c.fail("of a change with 1,000 values, %d are there", len(left))
	}
	c.put(e, "value", strings.Repeat("y", kv.MinValue))
	c.is(e, "after a long one", "value", strings.Repeat("y", kv.MinValue))
	manyKeys(c, e)
}

// manyKeys makes a change of more keys, which are shorter. Most of them are not there, so that an engine has less to do.
func manyKeys(c *c, e kv.Engine) {
	const guards, keys, puts = 15_000, 25_000, 5_000
	var change kv.Change
	for i := range keys {
		name := fmt.Appendf(nil, "m%05d", i)
		if i < guards {
			change.Guards = append(change.Guards, kv.Item{Key: name})
		}
		if i < puts {
			change.Puts = append(change.Puts, kv.Item{Key: name, Value: []byte("1")})
		} else {
			change.Deletes = append(change.Deletes, name)
		}
	}
	c.commit(e, change)
	if left := c.now(e, between("m", "n")); len(left) != puts {
		c.fail("of a change that puts %d keys, %d are there", puts, len(left))
	}
}

func versions(c *c) {
	e := c.open()
	seen := map[uint64]string{}
	note := func(e kv.Engine, when string) {
		v := c.get(e, "a").Version
		if before, known := seen[v]; known {
			c.fail("the key has the version %d %s, which it had %s", v, when, before)
		}
		seen[v] = when
	}
	c.put(e, "a", "1")
	note(e, "when it was added")
	for range 3 {
		c.put(e, "a", "1")
		note(e, fmt.Sprintf("when the same value was put, %d", len(seen)))
		c.commit(e, deleting("a"))
		c.put(e, "a", "1")
		note(e, fmt.Sprintf("when it was removed and added, %d", len(seen)))
		c.commit(e, deleting("a"))
		e = c.reopen()
		c.put(e, "a", "1")
		note(e, fmt.Sprintf("when the engine was opened again, %d", len(seen)))
	}
}
