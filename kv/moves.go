package kv

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/seed-ed332417/jq/contract"
)

// Moves say how far a queue has come on its way to the mode of its policy. As long as it is on the way, no claim takes jobs by their keys, and whatever call changes a job
// puts it where it belongs. Whoever comes upon such a queue goes on with it: the call that has set the policy, claims, and recoveries.
type moves struct {
	Anew bool   `json:",omitempty"` // all jobs are where they belong, and only the keys must stand anew
	Step int    // how many steps are done
	From []byte `json:",omitempty"` // of the next one, the keys up to this one are done
}

// movedAtOnce is how many keys one commit looks at, at most.
const movedAtOnce = 1_000

// A step is a range of keys, and what is done with a part of them.
type step struct {
	over Range
	do   func(t *txn, some []Item)
}

// limitKeys begins the way to the mode of a queue's policy. It goes no part of it, because calls that began before may still commit what they have decided by the mode before. From this
// commit on, they conflict.
func (t *txn) limitKeys(name string, q *queue, before contract.Policy) {
	now := q.Policy
	if before.MaxPerKey == now.MaxPerKey && before.Fair == now.Fair && before.Ordered == now.Ordered {
		return
	}
	was, to := t.meta.Modes[name], modeOf(now)
	q.Moves = &moves{Anew: was == to}
	t.setMode(name, to|moving)
	t.saveQueue(name, *q)
}

func (t *txn) setMode(name string, m mode) {
	t.meta.Modes = with(t.meta.Modes, name, m, m != 0)
	t.saveMeta(withKeys)
}

// moveAll goes on with a queue until all of its jobs are where they belong.
func (s *Store) moveAll(ctx context.Context, name string) error {
	for {
		if done, err := s.movePart(ctx, name); err != nil || done {
			return err
		}
	}
}

// moveLeft goes a part of the way of queues whose movers may be gone. Nobody needs to hear whether that succeeds: it is tried again.
func (s *Store) moveLeft(ctx context.Context) {
	for name, m := range s.latest.Load().Modes {
		if m.has(moving) {
			_, _ = s.movePart(ctx, name)
		}
	}
}

// movePart goes a part of the way, and reports whether that was the rest of it. Jobs whose heartbeats come often conflict with it, so each try looks at fewer.
func (s *Store) movePart(ctx context.Context, name string) (done bool, err error) {
	room := 2 * movedAtOnce
	return inTurn(ctx, s, "moves of "+name, nil, queueOf(name), func(t *txn) bool {
		room = max(room/2, 1)
		return t.moveSome(name, room)
	})
}

// moveSome looks at so many keys at most, and reports whether those were the rest.
func (t *txn) moveSome(name string, room int) (done bool) {
	q, _ := get[queue](t, named(queues, name))
	if q.Moves == nil {
		return true
	}
	steps := t.stepsOf(name, *q.Moves)
	at := *q.Moves
	for room > 0 && at.Step < len(steps) && t.look() {
		one := steps[at.Step]
		if len(at.From) > 0 {
			one.over.From = append(bytes.Clone(at.From), 0)
		}
		one.over.Limit = room
		some := t.scan(one.over)[0]
		one.do(t, some)
		if len(some) < room {
			at.Step, at.From = at.Step+1, nil
		} else {
			at.From = some[len(some)-1].Key
		}
		room -= len(some)
	}
	q.Moves = &at
	if done = at.Step == len(steps); done {
		q.Moves = nil
		t.setMode(name, t.meta.Modes[name]&^moving)
		t.woken[contract.Wakeup{Queue: name}] = true
		if t.meta.Modes[name].has(byKey) {
			t.hintRoom(name)
		}
	}
	t.saveQueue(name, q)
	return done
}

// stepsOf returns the way of a queue. First it forgets what is known of keys, and then looks at each job, or at each key. In between, other calls put jobs where they belong.
// Those may be taken away again, but then their jobs are among those that are looked at.
func (t *txn) stepsOf(name string, m moves) (steps []step) {
	clearing := func(tables ...table) {
		for _, in := range tables {
			r := under(ofQueueIn(in, name))
			r.KeysOnly = true
			steps = append(steps, step{r, removeAll})
		}
	}
	clearing(standing, later)
	steps = append(steps, step{Range{From: named(turnsOf, name), To: append(named(turnsOf, name), 0)}, removeAll})
	if m.Anew {
		return append(steps, step{under(ofQueueIn(stands, name)), func(t *txn, some []Item) { t.standAnew(name, some) }})
	}
	clearing(stands, hints, lined, slots, ranks, joins)
	visit := func(r Range, of func(Item) bool) {
		r.KeysOnly = of == nil
		steps = append(steps, step{r, func(t *txn, some []Item) { t.visit(some, of) }})
	}
	switch to := t.meta.Modes[name]; {
	case to.has(inOrder): // blocked jobs too, of which there is no other index
		visit(under(ofQueueIn(ofQueue, name)), nil)
	case to.has(byKey):
		visit(under(ofQueueIn(waiting, name)), nil)
		if to.has(slotted) {
			visit(under(key(leases)), func(lease Item) bool { return string(lease.Value[8:]) == name })
		}
	}
	return steps
}

func removeAll(t *txn, some []Item) {
	for _, item := range some {
		t.remove(item.Key)
	}
}

// visit puts jobs of the queue where they belong: those that the function selects, if there is one. They are guarded, so whatever changes one of them meanwhile puts it there instead.
func (t *txn) visit(some []Item, of func(Item) bool) {
	var ids []int64
	for _, item := range some {
		if of == nil || of(item) {
			ids = append(ids, lastNumber(item.Key))
		}
	}
	t.fetchJobs(ids)
	for _, id := range ids {
		if j := t.job(id); j != nil && !j.Terminal() {
			j.spots = spots{}
			t.moveSpots(j)
		}
	}
}

// standAnew forgets where keys stand, and lets claims look at all their lines.
func (t *txn) standAnew(name string, some []Item) {
	for _, item := range some {
		t.note(item.Key, []Item{item})
		limitKey := string(item.Key[1+len(name)+1:])
		for _, l := range decode[stand](t, item.Key, item.Value).lines(t) {
			t.hint(name, limitKey, string(positionIn(l.Retry, l.Priority, l.At, l.ID)))
		}
		t.remove(item.Key)
	}
}

// A keptLine is what the state of a key has of a line.
type keptLine struct {
	Retry    bool  `json:"retry"`
	Priority int   `json:"priority"`
	At       int64 `json:"at"`
	ID       int64 `json:"id"`
}

func (s stand) lines(t *txn) []keptLine {
	var state struct {
		Lines []keptLine `json:"lines"`
	}
	t.fail(json.Unmarshal(s.State, &state))
	return state.Lines
}
