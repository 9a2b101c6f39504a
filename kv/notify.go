package kv

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/contract"
)

// Subscribe returns a channel of wake-ups for the queues.
func (s *Store) Subscribe(ctx context.Context, names []string) (<-chan contract.Wakeup, error) {
	if err := s.enter(ctx, nil); err != nil {
		return nil, err
	}
	defer s.calls.Done()
	return s.hub.Subscribe(ctx, names)
}

// tell sends the wake-ups of a call that took effect, except those that a watch sends.
func (s *Store) tell(t *txn) {
	watched := s.watch.live.Load()
	for w := range t.woken {
		if !w.Cancelled && !w.Settle || !watched {
			s.hub.Tell(w)
		}
	}
	for name := range t.added {
		if !watched && !t.woken[contract.Wakeup{Queue: name}] {
			s.hub.Tell(contract.Wakeup{Queue: name})
		}
	}
	for name, wait := range t.later {
		s.hub.TellLater(s.clock, wait, name)
	}
}

// tellCancelled notes that leases of the queue are cancelled. Those who watch hear of a key: cancelling is rare enough for that.
func (t *txn) tellCancelled(name string) {
	t.woken[contract.Wakeup{Queue: name, Cancelled: true}] = true
	if _, watches := t.s.engine.(Watcher); watches {
		until := t.now.Add(cancelLife)
		t.put(named(cancels, name), cancelled{until})
		t.putRaw(endOf(until, cancels, name), nil)
	}
}

// cancelLife is how long the key stays that tells of a cancellation: longer than an engine takes to tell of a commit.
const cancelLife = time.Minute

// A cancelled is the value of such a key.
type cancelled struct{ Until time.Time }

// A watch tells listeners in this process of commits of all stores of the engine.
type watch struct {
	live atomic.Bool // tells of every commit from now on
	stop context.CancelFunc
	done sync.WaitGroup
}

func (w *watch) end() {
	if w.stop != nil {
		w.stop()
		w.done.Wait()
	}
}

// watchPause is how long a store waits before it watches again.
const watchPause = time.Second

func (s *Store) startWatch() {
	engine, watches := s.engine.(Watcher)
	if !watches {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.watch.stop = cancel
	s.watch.done.Go(func() {
		for {
			err := engine.Watch(ctx, func(key []byte) { s.heard(ctx, key) }, key(waiting), key(cancels), key(lefts), key(hints), key(ticks))
			s.watch.live.Store(false)
			if ctx.Err() != nil {
				return
			}
			s.logger.Warn("jq: the watch of the engine was lost, and begins anew", "error", err)
			select {
			case <-time.After(watchPause):
			case <-ctx.Done():
				return
			}
		}
	})
}

// heard tells listeners of a key that somebody has put, or to look everywhere if the key is nil.
func (s *Store) heard(ctx context.Context, k []byte) {
	if k == nil {
		s.watch.live.Store(true)
		s.lookEverywhere(ctx)
		return
	}
	name := k[1:]
	switch table(k[0]) {
	case ticks:
		if s.keeper != nil {
			s.keeper.poke()
		}
	case lefts:
		s.hub.Tell(contract.Wakeup{Settle: true})
	case cancels:
		s.hub.Tell(contract.Wakeup{Queue: string(name), Cancelled: true})
	case hints:
		if k[len(k)-positionLen] == byte(ends) {
			s.hub.Tell(contract.Wakeup{Queue: string(name[:bytes.IndexByte(name, 0)])})
		}
	case waiting:
		s.tellDue(string(name[:bytes.IndexByte(name, 0)]), dueOf(k))
	}
}

// mostBehind is how far the clock of a store that hears of a commit may be behind that of the store which made it.
const mostBehind = time.Second

// tellDue wakes the queue of a job when it is due by the clock of this store, if it may be due by another one. Each job gets a timer: one that is due after others needs
// a wake-up of its own.
func (s *Store) tellDue(queue string, due time.Time) {
	switch wait := due.Sub(s.now()); {
	case wait <= 0:
		s.hub.Tell(contract.Wakeup{Queue: queue})
	case wait <= mostBehind:
		s.clock.AfterFunc(wait, func() { s.hub.Tell(contract.Wakeup{Queue: queue}) })
	}
}

// lookEverywhere sends what may have been missed: that something is to settle, and the other wake-ups for each queue.
func (s *Store) lookEverywhere(ctx context.Context) {
	s.hub.Tell(contract.Wakeup{Settle: true})
	unnamed := s.hub.TellNamed(false)
	s.hub.TellNamed(true)
	if !unnamed {
		return
	}
	known, err := s.Queues(ctx)
	if err != nil {
		return // a wake-up may be lost: listeners also look by themselves
	}
	for _, q := range known {
		s.hub.Tell(contract.Wakeup{Queue: q.Name}, contract.Wakeup{Queue: q.Name, Cancelled: true})
	}
}
