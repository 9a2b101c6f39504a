package kv

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/contract"
)

// A timekeeper gives the stores of an engine one time, although the clocks of their machines differ. One of the open stores keeps the time: each second it
// writes what time it is. The others read that, and count on from there by clocks that nobody sets. If the one is silent, another one goes on with the time as it knows it.
// So the clock of a machine matters only while its store keeps the time, and then only slowly, or if no other store is open.
//
// One goroutine uses it, except for now and poke.
type timekeeper struct {
	estimate
	engine Engine
	name   string
	poked  chan struct{} // somebody has written the time
	stop   context.CancelFunc
	done   sync.WaitGroup

	seen   tick
	seenAt time.Duration // when its count was new, by the steady clock
	joined bool          // the store is one of those that are open
	keeps  bool          // the store keeps the time, as far as it knows
}

// A tick is the value of the key of the time.
type tick struct {
	At     time.Time
	Keeper string // the store that keeps the time; empty if it was closed
	Count  int64  // how often the time was written
	Open   int    // how many stores are open, or more: those that have crashed may be counted until nobody keeps the time
}

const (
	tickEvery     = time.Second
	silence       = 3 * time.Second        // after it, a keeper is taken for dead
	agreement     = 2 * time.Second        // a time that differs less from that of the machine is believed, though its keeper may be dead
	drawn         = 5 * time.Millisecond   // how far a tick draws the time to that of the keeper's machine, at most
	openPause     = 100 * time.Millisecond // between the looks of a store that opens
	leavePatience = time.Second            // with the engine, when the store is closed
)

func newTimekeeper(engine Engine, on *machine) *timekeeper {
	return &timekeeper{estimate: estimate{machine: on}, engine: engine, name: rand.Text(), poked: make(chan struct{}, 1)}
}

// open returns when the time is known: at once, except if the time of the engine differs from that of the machine. Then it waits for the next tick, or until there was none for so
// long that no store can be open.
func (k *timekeeper) open(ctx context.Context) error {
	for {
		err := k.step(ctx)
		if err != nil && !errors.Is(err, ErrConflict) {
			return ours(err)
		}
		if k.joined {
			return nil
		}
		select {
		case <-time.After(openPause):
		case <-ctx.Done():
			return unavailable(ctx.Err())
		}
	}
}

// start keeps the time, or follows it, until close.
func (k *timekeeper) start() {
	ctx, cancel := context.WithCancel(context.Background())
	k.stop = cancel
	k.done.Go(func() { k.run(ctx) })
}

func (k *timekeeper) close() {
	if k == nil {
		return
	}
	if k.stop != nil {
		k.stop()
		k.done.Wait()
	}
	k.leave()
}

func (k *timekeeper) run(ctx context.Context) {
	for k.wait(ctx) {
		bounded, cancel := context.WithTimeout(ctx, silence)
		_ = k.step(bounded) // calls say why an engine can not be reached, and the time goes on meanwhile
		cancel()
	}
}

// wait returns when it is time for the next step, or false if the context has ended.
func (k *timekeeper) wait(ctx context.Context) bool {
	pause, poked := tickEvery, (<-chan struct{})(nil)
	if !k.keeps {
		pause += tickEvery/4 + mathrand.N(tickEvery/2) // if nobody pokes, the looks should not keep their distance from the ticks
		poked = k.poked
	}
	select {
	case <-time.After(pause):
		return true
	case <-poked:
		return true
	case <-ctx.Done():
		return false
	}
}

// poke tells that somebody has written the time.
func (k *timekeeper) poke() {
	select {
	case k.poked <- struct{}{}:
	default:
	}
}

// step reads the time, and does what there is to do: write the next tick, go on in the place of another store, or join the open ones.
func (k *timekeeper) step(ctx context.Context) error {
	return k.change(ctx, func(was tick, first bool) (tick, bool) {
		fresh := was.Count != k.seen.Count
		if first || fresh {
			k.seen, k.seenAt = was, k.machine.steady()
		}
		k.joined = k.joined && !(k.keeps && was.Keeper != k.name) // who was taken for dead is not counted any more
		k.keeps = was.Keeper == k.name
		silent := k.machine.steady()-k.seenAt >= silence
		switch {
		case k.keeps:
			return k.next(was, k.drawn()), true
		case was.Open == 0:
			return k.begin(was), true
		case k.joined && was.Keeper == "":
			return k.next(was, k.now()), true
		case k.joined && silent:
			was.Open = max(was.Open-1, 1)
			return k.next(was, k.now()), true
		case silent: // no other store has gone on, so none is open
			was.Open = 0
			return k.begin(was), true
		}
		if fresh {
			k.hear(was.At)
		}
		joins := !k.joined && (first && k.agrees(was.At) || !first && fresh)
		if joins {
			was.Open++
		}
		return was, joins
	})
}

// agrees reports whether the machine shows about the same time as the last tick. Then it is probably right about how old that is.
func (k *timekeeper) agrees(last time.Time) bool {
	shown := k.machine.wall()
	if shown.Sub(last).Abs() > agreement {
		return false
	}
	if since := shown.Sub(last); since > 0 {
		k.hear(last.Add(min(since, tickEvery)))
	}
	return true
}

// begin keeps the time of the machine, because no other store is open. It does not go back by a little.
func (k *timekeeper) begin(was tick) tick {
	at := k.machine.wall().UTC()
	if ahead := was.At.Sub(at); ahead > 0 && ahead <= contract.MaxSetBack {
		at = was.At
	}
	was.Open++
	return k.next(was, at)
}

// next returns the next tick.
func (k *timekeeper) next(after tick, at time.Time) tick {
	return tick{At: at, Keeper: k.name, Count: after.Count + 1, Open: after.Open}
}

// drawn returns the time, a little nearer to that of the machine.
func (k *timekeeper) drawn() time.Time {
	now := k.now()
	return now.Add(min(max(k.machine.wall().Sub(now), -drawn), drawn))
}

// leave says that the store is closed. A store that can not say so is taken for dead later.
func (k *timekeeper) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), leavePatience)
	defer cancel()
	for ctx.Err() == nil {
		err := k.change(ctx, func(was tick, _ bool) (tick, bool) {
			if was.Keeper == k.name {
				was.At, was.Keeper = k.now(), ""
			}
			was.Open = max(was.Open-1, 0)
			return was, k.joined
		})
		if !errors.Is(err, ErrConflict) {
			return
		}
	}
}

// change reads the tick, and writes the one that the function returns, if that returns true. The function also learns whether nothing was read before.
func (k *timekeeper) change(ctx context.Context, to func(was tick, first bool) (tick, bool)) error {
	view, err := k.engine.View(ctx)
	if err != nil {
		return err
	}
	defer view.Close()
	found, err := view.Read(ctx, Range{From: key(ticks)})
	if err == nil {
		err = checkAnswers([]Range{{From: key(ticks)}}, found)
	}
	if err != nil {
		return err
	}
	item := Item{Key: key(ticks)}
	var last tick
	if len(found[0]) > 0 {
		item = found[0][0]
		if err := json.Unmarshal(item.Value, &last); err != nil {
			return fmt.Errorf("%w: the time can not be read: %w", errDamaged, err)
		}
	}
	asked := k.machine.steady()
	next, writes := to(last, k.seen == tick{})
	if !writes {
		return nil
	}
	raw, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if err := view.Commit(ctx, Change{Guards: []Item{{Key: item.Key, Version: item.Version}}, Puts: []Item{{Key: item.Key, Value: raw}}}); err != nil {
		return err
	}
	k.seen, k.seenAt = next, asked
	k.joined = true
	if k.keeps = next.Keeper == k.name; k.keeps {
		k.set(next.At, asked)
	}
	return nil
}
