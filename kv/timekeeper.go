package kv

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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
	logger *slog.Logger
	name   string
	poked  chan struct{} // somebody has written the time
	stop   context.CancelFunc
	done   sync.WaitGroup

	seen     tick
	seenAt   time.Duration // when its count was new, by the steady clock
	lookedAt time.Duration
	told     bool // the time is known
	opened   bool // the store was opened with it, so it never begins with the time of its machine
	joined   bool // the store is counted as open
	keeps    bool // the store keeps the time, as far as it knows
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
	silence       = 2 * tickEvery          // after it, an open store takes the keeper for dead
	longSilence   = 8 * tickEvery          // after it, a store that opens takes all for dead: an open one would have gone on, though it looked late and its look took long
	agreement     = 2 * time.Second        // a time that differs less from that of the machine is believed, though its keeper may be dead
	drift         = 5 * time.Millisecond   // how far a tick draws the time to that of the keeper's machine, at most
	openPause     = 100 * time.Millisecond // between the looks of a store that opens
	leavePatience = time.Second            // with the engine, when the store is closed
)

func newTimekeeper(engine Engine, on *machine, logger *slog.Logger) *timekeeper {
	return &timekeeper{estimate: estimate{machine: on}, engine: engine, logger: logger, name: rand.Text(), poked: make(chan struct{}, 1)}
}

// open returns when the time is known: at once, except if the last tick differs from the time of the machine. Then it waits for the next tick, or until there was none for so
// long that no store can be open. A store that cannot write, as one without the right or in a full cluster, is open all the same, and uncounted.
func (k *timekeeper) open(ctx context.Context) error {
	for {
		err := k.look(ctx)
		switch {
		case ctx.Err() != nil:
			return unavailable(ctx.Err())
		case k.told && !errors.Is(err, ErrConflict):
			k.opened = true
			return nil
		case err != nil && !errors.Is(err, ErrConflict):
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
		bounded, cancel := context.WithTimeout(ctx, tickEvery)
		if err := k.look(bounded); errors.Is(err, errDamaged) { // of any other error, calls tell
			k.logger.Warn("jq: the stores of the engine can not agree on the time", "error", err)
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

// look reads the time, and does what there is to do: write the next tick, go on in the place of another store, or join the open ones.
func (k *timekeeper) look(ctx context.Context) error {
	return k.change(ctx, func(was tick, now time.Duration) (tick, bool) {
		first, fresh := k.seen == tick{}, was.Count != k.seen.Count
		if first || fresh || !k.opened && now-k.lookedAt > 2*tickEvery { // a store that opens counts no silence in which it did not look
			k.seenAt = now
		}
		k.joined = k.counted(was)
		k.seen, k.lookedAt, k.keeps = was, now, was.Keeper == k.name
		silent := now - k.seenAt
		switch {
		case k.keeps:
			was.Open = max(was.Open, 1)
			return k.next(was, k.drawn(was, now)), true
		case k.opened && (was.Open <= 0 || was.Keeper == "" || silent >= silence):
			return k.goOn(was, now), true
		case !k.opened && (was.Open <= 0 || silent >= longSilence):
			return k.begin(was, now), true
		}
		k.listen(was.At, now, first, fresh)
		if k.joined || !k.told {
			return was, false
		}
		was.Open++
		return was, true
	})
}

// counted reports whether the tick counts the store. It does not if another store has taken this one for dead, or if the engine was restored.
func (k *timekeeper) counted(was tick) bool {
	others := was.Keeper != "" && was.Keeper != k.name
	return k.joined && was.Count >= k.seen.Count && !(others && (k.keeps || was.Open < 2))
}

// listen follows a tick. A store that opens believes one that comes while it looks, or that agrees with its machine.
func (k *timekeeper) listen(shown time.Time, now time.Duration, first, fresh bool) {
	switch {
	case k.opened && fresh:
		k.hear(shown)
	case !k.opened && fresh && !first:
		k.set(shown, now)
		k.told = true
	case !k.opened && first:
		age := k.machine.wall().Sub(shown)
		k.told = age.Abs() <= agreement
		k.set(shown.Add(min(max(age, 0), tickEvery)), now) // the machine is probably right about the age of the tick
	}
}

// goOn keeps the time in the place of a store that has crashed, or was closed.
func (k *timekeeper) goOn(was tick, now time.Duration) tick {
	if was.Keeper != "" {
		was.Open--
	}
	if !k.joined {
		was.Open++
	}
	was.Open = max(was.Open, 1)
	return k.next(was, k.at(now))
}

// begin keeps the time of the machine, because no other store is open. It does not go back by a little.
func (k *timekeeper) begin(was tick, now time.Duration) tick {
	at := k.machine.wall().UTC()
	if ahead := was.At.Sub(at); ahead > 0 && ahead <= contract.MaxSetBack {
		at = was.At
	}
	k.set(at, now)
	k.told = true
	was.Open = 1
	return k.next(was, at)
}

// next returns the next tick.
func (k *timekeeper) next(after tick, at time.Time) tick {
	return tick{At: at, Keeper: k.name, Count: after.Count + 1, Open: after.Open}
}

// drawn returns the time, a little nearer to that of the machine. If no other store is open, it follows a machine that was set or asleep.
func (k *timekeeper) drawn(was tick, now time.Duration) time.Time {
	at, shown := k.at(now), k.machine.wall().UTC()
	off := shown.Sub(at)
	if was.Open == 1 && off.Abs() > contract.MaxSetBack {
		return shown
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
	if errors.Is(err, ErrConflict) || errors.Is(err, ErrNothing) {
		return err
	}
	k.keeps = next.Keeper == k.name // perhaps, if the commit is in doubt: the next look finds out
	if err != nil {
		return err
	}
	k.seen, k.seenAt, k.joined = next, now, true
	if k.keeps {
		k.set(next.At, now)
	}
	return nil
}
