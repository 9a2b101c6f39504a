package store

import (
	"cmp"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// MaxSetBack is how far a clock may be behind the latest now of a store before the store follows it.
const MaxSetBack = 5 * time.Second

// A Present is the now of an open store. It follows the store's clock, but keeps the latest time it has seen while the clock
// is behind that time by at most MaxSetBack, as after a correction by NTP. Any goroutine may use it.
type Present struct {
	Logger *slog.Logger // logs when now follows a clock that was set back; nil means slog.Default()

	mu     sync.Mutex // guards what follows
	latest time.Time
	told   time.Time // when latest was learned, by the process's own monotonic clock
	jumps  int       // how often now has followed the clock back
	said   time.Time // when that was logged the last time
	unsaid int       // jumps that were not logged

	looked   int       // number of jumps when recovery last looked for leases that lie ahead
	lookedAt time.Time // when that was, zero before the first time
}

// Read returns now by a clock that this process can read.
func (p *Present) Read(clock func() time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.learn(clock(), time.Now())
}

// Heard returns now by a remote clock, which showed the time after it was asked. A late answer does not tell the current time
// of that clock. So a time that goes back counts only if it was asked for after the latest answer arrived.
func (p *Present) Heard(shown, asked time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !asked.After(p.told) && Truncate(shown).Before(p.latest) {
		return p.latest
	}
	return p.learn(shown, time.Now())
}

// Latest returns the latest now.
func (p *Present) Latest() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latest
}

func (p *Present) learn(shown, at time.Time) time.Time {
	shown = Truncate(shown)
	back := p.latest.Sub(shown)
	if back > 0 && back <= MaxSetBack {
		return p.latest
	}
	if back > MaxSetBack && !p.latest.IsZero() {
		p.jumps++
		p.say(back, at)
	}
	p.latest, p.told = shown, at
	return shown
}

// say logs a jump, at most once a minute.
func (p *Present) say(back time.Duration, at time.Time) {
	if !p.said.IsZero() && at.Sub(p.said) < time.Minute {
		p.unsaid++
		return
	}
	cmp.Or(p.Logger, slog.Default()).Warn("jq: the store's clock went back, and now with it: what was written meanwhile may lie ahead; see jobq doctor",
		"by", back.Round(time.Millisecond), "before", p.unsaid)
	p.said, p.unsaid = at, 0
}

// lookEvery is how often recovery looks for leases from a clock that was ahead, if nothing else makes it look.
const lookEvery = 30 * time.Second

// MustLook reports whether a recovery must look for leases that were granted by a clock that was ahead. Once it has found all
// of them, it must pass the mark to Looked.
func (p *Present) MustLook() (mark int, must bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.jumps, p.lookedAt.IsZero() || p.looked != p.jumps || time.Since(p.lookedAt) >= lookEvery
}

// Looked records that no such lease from before the mark is left.
func (p *Present) Looked(mark int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looked, p.lookedAt = mark, time.Now()
}

// DefaultMaxLease is how long a lease can be, unless the store was opened with another MaxLease.
const DefaultMaxLease = time.Hour

// CheckLease returns an [*InvalidError] if ttl is longer than longest, the MaxLease of the store. If refused is not nil, it
// returns refused.
func CheckLease(refused error, ttl, longest time.Duration) error {
	if refused == nil && ttl > longest {
		refused = refuse("ttl", fmt.Sprintf("must be at most %v, the MaxLease of the store", longest))
	}
	return refused
}

// CheckMaxLease returns an error if longest is not a valid MaxLease.
func CheckMaxLease(longest time.Duration) error {
	if longest < Resolution || longest > MaxDuration {
		return fmt.Errorf("jq: MaxLease is %v: want %v to %v", longest, Resolution, MaxDuration)
	}
	return nil
}

// LeaseAhead reports whether a lease of this length that ends at end was granted by a clock that was ahead of now. It also
// returns when the lease ends if it runs from now.
func LeaseAhead(end time.Time, length, longest time.Duration, now time.Time) (time.Time, bool) {
	length = min(length, longest)
	return now.Add(length), end.Add(-length).After(now.Add(MaxSetBack))
}
