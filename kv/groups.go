package kv

import (
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/contract"
)

// A group is what the store knows of a group besides its jobs. It has a value as long as it exists.
type group struct {
	OpenedAt time.Time `json:",omitzero"` // zero if it is not open
	Spoiled  bool      `json:",omitempty"`
	Awaited  bool      `json:",omitempty"` // jobs wait or have waited for it: whoever ends one of its jobs has to know
}

// groupsOfCall are what a call, or several that share a commit, know of groups.
type groupsOfCall struct {
	expected map[string]bool                 // those in which jobs of the call may be, which are not added yet
	known    map[string]contract.GroupStatus // as they are now
	changed  map[string]*groupChange
	spoiled  map[string]order // when the call has spoiled them
}

// A groupChange is what a call does to a group. It is written at the end of the call.
type groupChange struct {
	opened, sealed, spoiled bool
	joined                  bool  // a job has come, or one is live again
	awaited                 bool  // a job waits for it
	left                    bool  // a job has ended, so the group may be over
	last                    int64 // the greatest id of those
	lost                    bool  // a job, or one that waited, was deleted, so the group may be gone
}

// changeOf returns what the call does to the group, to be added to.
func (t *txn) changeOf(name string) *groupChange {
	if t.groups.changed == nil {
		t.groups.changed = map[string]*groupChange{}
	}
	if t.groups.changed[name] == nil {
		t.groups.changed[name] = &groupChange{}
	}
	return t.groups.changed[name]
}

// groupsNamed returns the groups that the request is about, each once.
func groupsNamed(req contract.EnqueueRequest) []string {
	named := map[string]bool{}
	for _, name := range req.Open {
		named[name] = true
	}
	for _, n := range req.Jobs {
		if n.Group != "" {
			named[n.Group] = true
		}
		for _, w := range n.After {
			if w.Group != "" {
				named[w.Group] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(named))
}

// expect opens the groups of an Enqueue, and expects its jobs in theirs.
func (t *txn) expect(req contract.EnqueueRequest) {
	for _, name := range req.Open {
		t.keepWaits()
		t.changeOf(name).opened = true
	}
	var awaited []string
	t.groups.expected = map[string]bool{}
	for _, n := range req.Jobs {
		if n.Group != "" {
			t.groups.expected[n.Group] = true
		}
		for _, w := range n.After {
			if w.Group != "" {
				awaited = append(awaited, w.Group)
			}
		}
	}
	t.lookAt(awaited)
}

// arrived ends what expect has begun. What waits for a group of which jobs were expected looks again, unless one of them has come and lives.
func (t *txn) arrived(req contract.EnqueueRequest) {
	for _, n := range req.Jobs {
		for _, w := range n.After {
			if w.Group != "" && t.groups.expected[w.Group] {
				t.changeOf(w.Group).left = true
			}
		}
	}
	t.groups.expected = nil
}

// fetchGroups reads in one trip what is known of the groups besides their jobs, and their gates.
func (t *txn) fetchGroups(names []string) {
	var keys [][]byte
	for _, name := range names {
		keys = append(keys, named(groups, name), named(gates, name))
	}
	t.fetch(keys...)
}

// groupNow returns the group as the call leaves it, and guards it.
func (t *txn) groupNow(name string) group {
	g, _ := get[group](t, named(groups, name))
	c := t.groups.changed[name]
	if c == nil {
		return g
	}
	if c.opened && g.OpenedAt.IsZero() {
		g.OpenedAt = t.now
	}
	if c.sealed {
		g.OpenedAt = time.Time{}
	}
	g.Spoiled, g.Awaited = g.Spoiled || c.spoiled, g.Awaited || c.awaited
	return g
}

// witnesses is among how many jobs of a group one is chosen as a witness: calls that choose the same one that ends then conflict.
const witnesses = 32

// status returns how a group is now. The answer is guarded: that it is not over by the key of a job that shows it, and that it is by the gate, which those
// write who add to it.
func (t *txn) status(name string) contract.GroupStatus {
	t.lookAt([]string{name})
	is := t.groups.known[name]
	is.Live = is.Live || t.groups.expected[name]
	return is
}

// lookAt looks at the groups in two trips, so that status needs none for them.
func (t *txn) lookAt(names []string) {
	var unknown []string
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		if _, known := t.groups.known[name]; !known {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return
	}
	t.fetchGroups(unknown)
	var asked []Range
	for _, name := range unknown {
		asked = append(asked, someOf(membersOf(name, liveMember)), someOf(membersOf(name, deadMember)))
	}
	found := t.scan(asked...)
	if t.groups.known == nil {
		t.groups.known = map[string]contract.GroupStatus{}
	}
	for i, name := range unknown {
		g := t.groupNow(name)
		live, dead := found[2*i], found[2*i+1]
		t.groups.known[name] = contract.GroupStatus{Open: !g.OpenedAt.IsZero(), Live: len(live) > 0, Dead: len(dead) > 0, Spoiled: g.Spoiled}
		t.witness(live)
		t.witness(dead)
		if len(live) == 0 {
			t.guard(named(gates, name))
		}
	}
}

// someOf returns the range of the first keys with the prefix.
func someOf(prefix []byte) Range {
	r := under(prefix)
	r.Limit, r.KeysOnly = witnesses, true
	return r
}

// witness guards one of the keys, the later ones of which are less likely to go away at once. It reports whether there is one.
func (t *txn) witness(items []Item) bool {
	if len(items) == 0 {
		return false
	}
	at := len(items)/2 + rand.IntN(len(items)-len(items)/2)
	if item := items[at]; item.Version != 0 { // else the call itself has put it
		t.guards[string(item.Key)] = item.Version
	}
	return true
}

// moveMember moves a job in its group, and notes what this does to the group.
func (t *txn) moveMember(j *job) {
	to, was := memberOf(j), j.member
	if to == was {
		return
	}
	t.move(&j.member, to)
	delete(t.groups.known, j.Group())
	c := t.changeOf(j.Group())
	if was.key == "" || !j.Terminal() {
		c.joined = true
	}
	if j.Terminal() {
		c.left, c.last = true, max(c.last, j.ID)
		c.spoiled = t.spoils(j, false) || c.spoiled
	}
}

// spoils reports whether the end of a job, or its deletion, spoils its group. If so, the note of the group comes behind that of the job's end, and before those
// of later ends.
func (t *txn) spoils(j *job, deleted bool) bool {
	name := contract.SpoilsOf(&j.Job, deleted)
	if name == "" {
		return false
	}
	if t.groups.spoiled == nil {
		t.groups.spoiled = map[string]order{}
	}
	if _, before := t.groups.spoiled[name]; !before {
		t.groups.spoiled[name] = t.next()
	}
	return true
}

// noteGroups notes that something has changed in the groups. Where nobody has told the last such change yet, the note keeps its place.
func (t *txn) noteGroups(names []string) {
	keys := make([][]byte, len(names))
	for i, name := range names {
		keys[i] = noteOfGroup(name)
	}
	t.fetch(keys...)
	for i, name := range names {
		at, spoiled := t.groups.spoiled[name]
		if !spoiled {
			at = t.next()
		}
		if raw, untold := t.peek(keys[i]); untold {
			at = decode[note](t, keys[i], raw).order
		}
		raw, err := json.Marshal(note{order: at})
		t.fail(err)
		t.putBlind(keys[i], string(raw))
		t.noted = append(t.noted, news{group: name})
	}
}

// dropMember is for a job that is deleted.
func (t *txn) dropMember(j *job) {
	if j.member.key == "" {
		return
	}
	t.move(&j.member, entry{})
	delete(t.groups.known, j.Group())
	c := t.changeOf(j.Group())
	c.lost = true
	c.spoiled = c.spoiled || contract.SpoilsOf(&j.Job, true) != ""
}

// endGroups writes, at the end of a call, what the call has done to groups.
func (t *txn) endGroups() {
	if len(t.groups.changed) == 0 || !t.look() {
		return
	}
	names := slices.Sorted(maps.Keys(t.groups.changed))
	t.fetchGroups(names)
	gone, over := t.goneAmong(names), t.overAmong(names)
	var changed []string
	for _, name := range names {
		if gone[name] {
			t.remove(named(groups, name))
			t.remove(named(gates, name))
			t.remove(noteOfGroup(name))
			continue
		}
		c := t.groups.changed[name]
		before, was := get[group](t, named(groups, name))
		after := t.groupNow(name)
		switch {
		case before != after || !was && (c.joined || c.awaited):
			t.put(named(groups, name), after)
		case c.joined || c.awaited:
			t.putBlind(named(gates, name), "")
		}
		if after.Awaited && (over[name] || c.sealed || after.Spoiled && !before.Spoiled) {
			changed = append(changed, name)
		}
	}
	t.noteGroups(changed)
}

// overAmong returns those groups that may be over by the call. For the others it guards the key of a job that is still live.
func (t *txn) overAmong(names []string) map[string]bool {
	var left []string
	var asked []Range
	for _, name := range names {
		g := t.groupNow(name)
		c := t.groups.changed[name]
		if !c.left || !g.Awaited || !g.OpenedAt.IsZero() {
			continue
		}
		all := someOf(membersOf(name, liveMember))
		later := all
		later.From = append(membersOf(name, liveMember), number(c.last)...)
		left, asked = append(left, name), append(asked, later, all)
	}
	found := t.scan(asked...)
	over := map[string]bool{}
	for i, name := range left {
		over[name] = !t.witness(found[2*i]) && !t.witness(found[2*i+1])
	}
	return over
}

// goneAmong returns those groups that exist no longer. For the others it guards something because of which they exist.
func (t *txn) goneAmong(names []string) map[string]bool {
	var less []string
	var asked []Range
	for _, name := range names {
		if g := t.groupNow(name); (t.groups.changed[name].lost || t.groups.changed[name].sealed) && g.OpenedAt.IsZero() {
			less, asked = append(less, name), append(asked, someOf(membersOf(name)), someOf(waitersOfGroup(name)))
		}
	}
	found := t.scan(asked...)
	var who []Item
	for i := range less {
		if len(found[2*i]) == 0 {
			who = append(who, found[2*i+1]...)
		}
	}
	t.fetchJobs(idsOf(who))
	gone := map[string]bool{}
	for i, name := range less {
		if t.witness(found[2*i]) || t.existsOne(asked[2*i+1], found[2*i+1]) {
			continue
		}
		gone[name] = true
		t.guard(named(groups, name))
		t.guard(named(gates, name))
	}
	return gone
}

// existsOne reports whether one of the jobs in a range exists, of which the first keys were read, and guards it. Keys of jobs that were deleted may still be there.
func (t *txn) existsOne(r Range, items []Item) bool {
	for t.look() {
		for _, item := range items {
			id := lastNumber(item.Key)
			if _, there := t.peek(key(rows, number(id))); there && t.job(id) != nil { // one that is gone never comes back, so it needs no guard
				return true
			}
		}
		if len(items) < r.Limit {
			return false
		}
		r.From = append(slices.Clone(items[len(items)-1].Key), 0)
		r.Limit = chunk
		items = t.scan(r)[0]
		t.fetchJobs(idsOf(items))
	}
	return true
}

// SealGroup seals a group that is open.
func (s *Store) SealGroup(ctx context.Context, name string) error {
	first := ask{keys: [][]byte{named(groups, name), named(gates, name)}}
	_, err := call(ctx, s, contract.CheckGroup(name), first, func(t *txn) struct{} {
		if g := t.groupNow(name); g.OpenedAt.IsZero() {
			t.fail(contract.NotOpen(name))
			return struct{}{}
		}
		t.changeOf(name).sealed = true
		return struct{}{}
	})
	return err
}

// Groups returns the groups that match, by name.
func (s *Store) Groups(ctx context.Context, filter contract.GroupFilter, page contract.Page) (contract.GroupPage, error) {
	after, refused := filter.Position(page)
	return call(ctx, s, refused, ask{}, func(t *txn) (found contract.GroupPage) {
		r := Range{From: append(named(groups, after), 0), To: following(key(groups))}
		if filter.Name != "" {
			r = Range{From: named(groups, filter.Name), To: append(named(groups, filter.Name), 0)}
		}
		var names []string
		for item := range t.each(r) {
			g := contract.Group{Name: string(item.Key[1:]), OpenedAt: decode[group](t, item.Key, item.Value).OpenedAt}
			g.Open = !g.OpenedAt.IsZero()
			if g.Name <= after || !filter.Matches(g, t.now) {
				continue
			}
			if len(found.Groups) == page.Limit {
				found.Next = filter.Cursor(names[len(names)-1])
				break
			}
			found.Groups, names = append(found.Groups, g), append(names, g.Name)
		}
		t.lookAt(names)
		for i, name := range names {
			found.Groups[i].GroupStatus = t.status(name)
		}
		return found
	})
}
