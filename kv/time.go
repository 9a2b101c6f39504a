package kv

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// A machine has the clocks that a process can read.
type machine struct {
	wall   func() time.Time     // which people set
	steady func() time.Duration // which nobody sets, since some moment
}

func thisMachine() *machine {
	return &machine{wall: func() time.Time { return time.Now().Round(0) }, steady: steadyClock()}
}

func sinceNow() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) }
}

// agree makes the time of the store that of the engine: by the clock of the engine, or else, if other stores may use it, by a timekeeper. A test gives a machine, and
// takes the steps of the timekeeper itself.
func (s *Store) agree(ctx context.Context, given *machine) error {
	on := cmp.Or(given, thisMachine())
	view, err := s.engine.View(ctx)
	if err != nil {
		return ours(err)
	}
	clock, has := view.(Timer)
	if has {
		s.timer = &estimate{machine: on}
		s.timer.hear(clock.Now())
	}
	view.Close()
	if has || !shared(s.engine) {
		return nil
	}
	k := newTimekeeper(s.engine, on)
	if err := k.open(ctx); err != nil {
		k.close()
		return err
	}
	if given == nil {
		k.start()
	}
	s.keeper, s.shows = k, k.now
	return nil
}

// now returns the time where there is no view. If the engine has a clock, that is about what it shows.
func (s *Store) now() time.Time {
	if s.timer != nil {
		return s.timer.now()
	}
	return s.present.Read(s.shows)
}

// clock returns the time of the call, by the view if the engine has a clock.
func (t *txn) clock() time.Time {
	if t.s.timer == nil {
		return t.s.now()
	}
	shown := t.view.(Timer).Now()
	t.s.timer.hear(shown)
	return t.s.present.Heard(shown, t.asked)
}

// An estimate is what a process knows of a clock elsewhere, which shows its time now and then. What it shows is late when it arrives, so the estimate is behind that clock.
type estimate struct {
	machine *machine

	mu      sync.Mutex  // guards what follows
	origins []time.Time // when the steady clock began by the other clock, as its last answers say: the latest one took the shortest way
}

// remembered is of how many answers the best one counts. So an estimate follows a clock that is slower.
const remembered = 8

// hear notes what the clock has shown a little before.
func (e *estimate) hear(shown time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.origins = append(e.origins[max(0, len(e.origins)-remembered+1):], shown.Add(-e.machine.steady()))
}

// set makes the estimate what the clock shows when the steady one shows at, whatever was heard before.
func (e *estimate) set(shown time.Time, at time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.origins = []time.Time{shown.Add(-at)}
}

func (e *estimate) now() time.Time { return e.at(e.machine.steady()) }

// at returns the time when the steady clock shows at.
func (e *estimate) at(at time.Duration) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.MaxFunc(e.origins, time.Time.Compare).Add(at)
}
