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

	seen     tick
	seenAt   time.Duration // when its keeper last gave a sign of life, by the steady clock; for a store that is not told, when anybody did
	lookedAt time.Duration
	told     bool          // the store knows the time of the engine, and never again begins with that of its machine
	joined   bool          // the store is counted as open
	keeps    bool          // the store keeps the time, as far as it knows
	off      time.Duration // by how much the machine was ahead when the store began to keep the time
}

// A tick is the value of the key of the time.
type tick struct {
	At     time.Time
	Keeper string // the store that keeps the time; empty if it was closed
	Count  int64  // how often the time was written
	Open   int    // how many stores are open, or more: those that crash stay counted until nobody keeps the time
	Began  string // who counted the open stores first. Stores that another one has counted are not among them
}

const (
	tickEvery     = time.Second
	silence       = 2 * tickEvery          // after it, an open store goes on in the place of the keeper
	longSilence   = 10 * tickEvery         // after it, a store that opens takes all others for dead: an open one would have gone on, though it looked late and its looks took long
	agreement     = 2 * time.Second        // a time that differs less from that of the machine is believed, though its keeper may be dead
	drift         = 5 * time.Millisecond   // how far a tick draws the time to that of the keeper's machine, at most
	openPause     = 100 * time.Millisecond // between the looks of a store that opens
	openTries     = 20                     // of a store that knows the time, to be counted at once: else it is counted soon
	lookPatience  = 3 * time.Second        // with the engine
	leavePatience = time.Second
)

func newTimekeeper(engine Engine, on *machine) *timekeeper {
	return &timekeeper{estimate: estimate{machine: on}, engine: engine, name: rand.Text(), poked: make(chan struct{}, 1)}
}

// open returns when the time is known: at once, except if the last tick differs from the time of the machine. Then it waits for the next tick, or until there was none for so
// long that no store can be open. Where nothing can be written, as in a full cluster, it returns with the time of the machine, and the store goes on asking.
func (k *timekeeper) open(ctx context.Context) error {
	for tries := 1; ; tries++ {
		looked, err := k.look(ctx)
		conflict := errors.Is(err, ErrConflict)
		switch {
		case ctx.Err() != nil:
			return unavailable(ctx.Err())
		case conflict && tries < openTries:
			continue
		case k.told || looked && err != nil && !conflict:
			return nil
		case err != nil && !conflict:
			return ours(err)
		}
		select {
		case <-time.After(openPause):
		case <-ctx.Done():
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
		bounded, cancel := context.WithTimeout(ctx, lookPatience)
		for err := ErrConflict; errors.Is(err, ErrConflict) && bounded.Err() == nil; {
			_, err = k.look(bounded) // calls say why an engine can not be reached, and the time goes on meanwhile
		}
		cancel()
	}
}

// wait returns when it is time for the next look, or false if the context has ended.
func (k *timekeeper) wait(ctx context.Context) bool {
	pause, poked := tickEvery, (<-chan struct{})(nil)
	if !k.keeps {
		pause += mathrand.N(tickEvery / 4) // if nobody pokes, the looks should not keep their distance from the ticks
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

// look reads the time, and does what there is to do: write the next tick, go on in the place of another store, or join the open ones. It reports whether it could read.
func (k *timekeeper) look(ctx context.Context) (looked bool, err error) {
	err = k.change(ctx, func(was tick, now time.Duration) (tick, bool) {
		looked = true
		first, fresh, lost := k.seen == tick{}, was.Count != k.seen.Count, was.Count < k.seen.Count
		if first || fresh || !k.told && (was != k.seen || now-k.lookedAt > lookPatience) { // who opens counts no silence in which it did not look
			k.seenAt = now
		}
		k.joined = k.counted(was)
		before := k.seen
		k.seen, k.lookedAt, k.keeps = was, now, was.Keeper == k.name
		silent := now - k.seenAt
		switch {
		case k.told && lost: // the engine was restored, or the key deleted
			return tick{At: k.at(now), Keeper: k.name, Count: before.Count + skipped, Open: 1, Began: rand.Text()}, true
		case k.keeps:
			return k.next(was, k.drawn(was, now)), true
		case k.told && (was.Keeper == "" || silent >= silence):
			if !k.joined {
				was.Open++
			}
			return k.next(was, k.at(now)), true
		case !k.told && (was.Open <= 0 || silent >= longSilence):
			was.Open, was.Began = 1, rand.Text()
			return k.next(was, k.begin(was.At, now)), true
		}
		k.listen(was.At, now, first, fresh)
		if k.joined || !k.told {
			return was, false
		}
		was.Open++
		return was, true
	})
	return looked, err
}

// skipped is more than others may have seen of a count that is lost.
const skipped = 1000

// counted reports whether the tick counts the store as open.
func (k *timekeeper) counted(was tick) bool {
	return was.Keeper == k.name || k.joined && was.Began == k.seen.Began
}

// listen follows a tick. A store that opens believes one that comes while it looks, or that agrees with its machine.
func (k *timekeeper) listen(shown time.Time, now time.Duration, first, fresh bool) {
	switch {
	case k.told && fresh:
		k.hear(shown)
	case !k.told && first:
		age := k.machine.wall().Sub(shown)
		k.told = age.Abs() <= agreement
		k.set(shown.Add(min(max(age, 0), tickEvery)), now) // the machine is probably right about the age of the tick
	case !k.told && fresh:
		k.set(shown, now)
		k.told = true
	}
}

// begin returns the time of the machine, because no other store is open. It does not go back by a little.
func (k *timekeeper) begin(last time.Time, now time.Duration) time.Time {
	at := k.machine.wall().UTC()
	if ahead := last.Sub(at); ahead > 0 && ahead <= contract.MaxSetBack {
		at = last
	}
	k.set(at, now)
	return at
}

// next returns the next tick.
func (k *timekeeper) next(after tick, at time.Time) tick {
	return tick{At: at, Keeper: k.name, Count: after.Count + 1, Open: max(after.Open, 1), Began: after.Began}
}

// drawn returns the time, a little nearer to that of the machine. If no other store is open, it follows a machine whose clock was set.
func (k *timekeeper) drawn(was tick, now time.Duration) time.Time {
	at := k.at(now)
	off := k.machine.wall().Sub(at)
	if was.Open == 1 && off.Abs() > contract.MaxSetBack && (off-k.off).Abs() > contract.MaxSetBack {
		k.off = 0
		return at.Add(off)
	}
	return at.Add(min(max(off, -drift), drift))
}

// leave says that the store is closed. A store that can not say so is taken for dead later.
func (k *timekeeper) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), leavePatience)
	defer cancel()
	for ctx.Err() == nil {
		err := k.change(ctx, func(was tick, now time.Duration) (tick, bool) {
			counted := k.counted(was)
			if was.Keeper == k.name {
				was.At, was.Keeper = k.at(now), ""
			}
			was.Open = max(was.Open-1, 0)
			return was, counted
		})
		if !errors.Is(err, ErrConflict) {
			return
		}
	}
}

// change reads the tick, and writes the one that the function returns, if that returns true. The function also learns what the steady clock shows.
func (k *timekeeper) change(ctx context.Context, to func(was tick, now time.Duration) (tick, bool)) error {
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
	now := k.machine.steady()
	next, writes := to(last, now)
	if !writes {
		return nil
	}
	raw, err := json.Marshal(next)
	if err != nil {
		return err
	}
	err = view.Commit(ctx, Change{Guards: []Item{{Key: item.Key, Version: item.Version}}, Puts: []Item{{Key: item.Key, Value: raw}}})
	if err != nil { // if it is in doubt, the next look finds out
		return err
	}
	k.seen, k.seenAt, k.told, k.joined = next, now, true, true
	if next.Keeper != k.name {
		k.keeps = false
		return nil
	}
	k.set(next.At, now)
	if !k.keeps {
		k.keeps, k.off = true, k.machine.wall().Sub(next.At)
	}
	return nil
}
