package kv

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/contract"
)

// A news is what is to be told: that a job has ended, or that something has changed in a group.
type news struct {
	id    int64  // of the job, or zero
	group string // the name of the group
}

// A note is the value of what is to be told, with how far that has come. Whoever tells removes it with the last of those who wait. The key of an
// end has its token.
type note struct {
	order
	As   contract.State `json:",omitempty"` // how the job has ended
	UpTo int64          `json:",omitempty"` // who wait were told up to this id
}

// An order is a place among what is to be told, as it came about. It is exact for the ends of one store, and that of several stores follows their clocks.
type order struct {
	At int64 `json:",omitempty"` // the time of the call
	N  int64 `json:",omitempty"` // grows in a store
}

func (t *txn) next() order { return order{t.now.UnixMicro(), t.s.told.Add(1)} }

func (o order) compare(other order) int {
	return cmp.Or(cmp.Compare(o.At, other.At), cmp.Compare(o.N, other.N))
}

func (t *txn) decodeEnd(item Item) (contract.End, note) {
	n := decode[note](t, item.Key, item.Value)
	k := item.Key
	return contract.End{ID: numberAt(k[2:]), Token: lastNumber(k), As: n.As}, n
}

// ended notes that a job has ended, if others wait for it.
func (t *txn) ended(j *job, e contract.End) {
	if j.Links&contract.LinkAwaited == 0 {
		return
	}
	t.put(append(notesOfJob(e.ID), number(e.Token)...), note{order: t.next(), As: e.As})
	t.noted = append(t.noted, news{id: e.ID})
}

// A message is a note that is being told.
type message struct {
	key   []byte
	group string // the group in which something has changed, or empty
	end   contract.End
	note  note

	who  []Item // the keys of the next of those who wait
	most int    // so many were asked for
	told int    // so many of them were told
}

// toldAtOnce is how many jobs are told in one commit, and notesAtOnce of how many notes.
const (
	toldAtOnce  = 200
	notesAtOnce = 100
)

// hear reads the notes of the news.
func (t *txn) hear(list []news) (found []Item) {
	var asked []Range
	for _, n := range list {
		if n.group != "" {
			asked = append(asked, Range{From: noteOfGroup(n.group)})
		} else {
			asked = append(asked, under(notesOfJob(n.id)))
		}
	}
	for _, items := range t.scan(asked...) {
		found = append(found, items...)
	}
	return found
}

// tell tells those who wait what the notes say, at most so many, until a number of jobs has changed. What came about first is told first, because the error of a job
// names that. It returns the jobs that it has changed, how many it has told, and whether it has told all.
func (t *txn) tell(items []Item, limit, most int) (changed []contract.Settled, told int, all bool) {
	messages := t.messages(items, most)
	t.fetchTold(messages, most)
	for i := range messages {
		m := &messages[i]
		for ; m.told < len(m.who) && told < most && len(changed) < limit; m.told++ {
			told++
			if j := t.tellOne(m, lastNumber(m.who[m.told].Key)); j != nil {
				changed = append(changed, contract.SettledOf(&j.Job))
			}
		}
	}
	all = true
	for _, m := range messages {
		switch {
		case m.told == len(m.who) && len(m.who) < m.most:
			t.remove(m.key)
			continue
		case m.told > 0:
			m.note.UpTo = lastNumber(m.who[m.told-1].Key)
			t.put(m.key, m.note)
		}
		all = false
	}
	return changed, told, all
}

// messages reads who waits for what the notes are about. A change of a group that is neither over nor spoiled concerns nobody.
func (t *txn) messages(items []Item, most int) []message {
	list := make([]message, 0, len(items))
	var names []string
	for _, item := range items {
		t.note(item.Key, []Item{item})
		m := message{key: item.Key}
		if item.Key[1] == aGroup {
			m.group = string(item.Key[2:])
			m.note, _ = get[note](t, item.Key)
			names = append(names, m.group)
		} else {
			m.end, m.note = t.decodeEnd(item)
			t.guard(item.Key)
		}
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b message) int { return a.note.compare(b.note.order) })
	t.lookAt(names)
	var asked []Range
	var concerned []*message
	for i := range list {
		m := &list[i]
		prefix := waitersOfJob(m.end.ID)
		if m.group != "" {
			prefix = waitersOfGroup(m.group)
		}
		m.most = most
		if is := t.groups.known[m.group]; m.group == "" || is.Spoiled || !is.Open && !is.Live {
			r := Range{From: slices.Concat(prefix, number(m.note.UpTo+1)), To: following(prefix), Limit: most, KeysOnly: true}
			concerned, asked = append(concerned, m), append(asked, r)
		}
	}
	for i, who := range t.scan(asked...) {
		concerned[i].who = who
	}
	return list
}

// fetchTold reads in few trips those who are told next, and what else they wait for.
func (t *txn) fetchTold(messages []message, most int) {
	var ids []int64
	for _, m := range messages {
		who := m.who[:min(len(m.who), max(0, most-len(ids)))]
		ids = append(ids, idsOf(who)...)
	}
	keys := make([][]byte, 0, 2*len(ids))
	for _, id := range ids {
		keys = append(keys, key(rows, number(id)), needsOf(id))
	}
	t.fetch(keys...)
	var names []string
	for _, id := range ids {
		if j := t.job(id); j != nil && j.State == contract.Blocked {
			for _, w := range t.waitsOf(j) {
				if w.Group != "" {
					names = append(names, w.Group)
				}
			}
		}
	}
	t.lookAt(names)
}

// tellOne tells a job. It returns the job if that has changed its state. The job and its waits are guarded, changed or not.
func (t *txn) tellOne(m *message, id int64) *job {
	j := t.job(id)
	if j == nil { // deleted, and its waits are not forgotten yet
		return nil
	}
	waits, before := t.waitsOf(j), j.State
	changed := false
	if m.group != "" {
		changed = j.HearGroup(m.group, waits, t.awaits(), t.now)
	} else {
		changed = j.Hear(waits, m.end, t.awaits(), t.now)
	}
	if changed {
		t.put(needsOf(id), waits)
	}
	if j.State == before {
		return nil
	}
	t.saveEnded(j)
	return j
}

// untold has the news of calls of this process that wait for their turn to tell them.
type untold struct {
	mu   sync.Mutex
	news []news
}

func (u *untold) add(list []news) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.news = append(u.news, list...)
}

func (u *untold) take() []news {
	u.mu.Lock()
	defer u.mu.Unlock()
	list := u.news
	u.news = nil
	return list
}

// follow does what follows from calls that have committed, for a part of the jobs at most. Calls of this process take turns, and each does it for all that
// wait for the turn. What is left, or fails, is for Settle.
func (s *Store) follow(ctx context.Context, list []news) {
	if len(list) > 0 {
		s.untold.add(list)
		s.tellUntold(ctx)
	}
}

// tellUntold tells what calls of this process have left to be told.
func (s *Store) tellUntold(ctx context.Context) {
	leave, err := s.turns.take(ctx, string(notes))
	if err != nil { // whoever has the turn next tells the news, unless nobody has
		s.leaveToSettle(ctx)
		return
	}
	defer leave()
	var mine []news
	for most := contract.SettledByCall; most > 0; {
		if mine = append(mine, s.untold.take()...); len(mine) == 0 {
			return
		}
		next := mine[:min(len(mine), notesAtOnce)]
		did, noted, err := tries(ctx, s, ask{}, func(t *txn) (did telling) {
			_, did.told, did.all = t.tell(t.hear(next), toldAtOnce, min(most, toldAtOnce))
			return did
		})
		if ctx.Err() != nil {
			s.untold.add(mine) // for others who wait for the turn
		}
		if err != nil {
			break
		}
		most -= max(1, did.told)
		if did.all {
			mine = mine[len(next):]
		}
		mine = append(mine, noted...)
	}
	if len(mine) > 0 {
		s.leaveToSettle(ctx)
	}
}

// A telling is what one commit has told.
type telling struct {
	settled []contract.Settled
	told    int
	all     bool
}

// leaveToSettle wakes those who settle, because something is left.
func (s *Store) leaveToSettle(ctx context.Context) {
	_, watches := s.engine.(Watcher)
	_, _, err := tries(ctx, s, ask{}, func(t *txn) struct{} {
		t.woken[contract.Wakeup{Settle: true}] = true
		if watches {
			t.putBlind(key(lefts), "")
		}
		return struct{}{}
	})
	if err != nil {
		s.hub.Tell(contract.Wakeup{Settle: true})
	}
}

// Settle cancels jobs that have expired, the earliest ExpiresAt first, and then tells others of the ends of jobs, in commits of their own. Where a commit would be too
// large for the engine, because errors of jobs are long, it makes several.
func (s *Store) Settle(ctx context.Context, limit int) ([]contract.Settled, error) {
	if err := s.enter(ctx, contract.CheckSettle(limit)); err != nil {
		return nil, err
	}
	defer s.calls.Done()
	leave, err := s.turns.take(ctx, string(expiries))
	if err != nil {
		return nil, err
	}
	defer leave()
	var settled []contract.Settled
	most := limit // in one commit
	for begun := false; ; {
		some := min(most, limit-len(settled))
		did, noted, err := s.settleSome(ctx, some, begun)
		switch {
		case errors.Is(err, errTooLarge) && some > 1:
			most = some / 2
			continue
		case err != nil && len(settled) == 0: // otherwise those are committed
			return nil, err
		case err != nil:
			return settled, nil
		}
		settled = append(settled, did.settled...)
		if len(settled) == limit || did.all && len(noted) == 0 {
			return settled, nil
		}
		begun = begun || len(did.settled) < some // else more may have expired
	}
}

// settleSome makes one commit of a Settle. The first one forgets what has ended and cancels what has expired. If that is anything, it does nothing
// else, so that it does not become too large, and no call on a group makes it start again.
func (s *Store) settleSome(ctx context.Context, limit int, begun bool) (telling, []news, error) {
	first := ask{ranges: func(now time.Time) []Range {
		asked := []Range{{From: key(notes, []byte{aJob}), To: key(notes, []byte{aJob + 1}), Limit: notesAtOnce}, under(key(notes, []byte{aGroup}))}
		asked[1].Limit = notesAtOnce
		if !begun {
			asked = append(asked, ended(now), upTo(key(expiries), now, limit))
		}
		return asked
	}}
	return tries(ctx, s, first, func(t *txn) (did telling) {
		ends, changes := t.first[0], t.first[1]
		if !begun {
			t.forget(t.first[2])
			did.settled = t.settleExpired(t.first[3])
			if len(t.first[2])+len(did.settled) > 0 {
				return did
			}
		}
		if len(ends) == notesAtOnce {
			changes = nil
		}
		some, _, all := t.tell(append(ends, changes...), limit, toldAtOnce)
		did.settled = some
		did.all = all && len(ends) < notesAtOnce && len(changes) < notesAtOnce
		return did
	})
}

func (t *txn) settleExpired(found []Item) (settled []contract.Settled) {
	for _, j := range t.indexed(found) {
		if contract.ExpiredOf(&j.Job, t.now) {
			t.cancel(j)
			settled = append(settled, contract.SettledOf(&j.Job))
		}
	}
	return settled
}
