package store

import (
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// MaxSetBack is how far a clock may be behind the latest now of a store before now follows it.
const MaxSetBack = 5 * time.Second

// A Present is the now of an open store. It follows the store's clock, but stands still while that is behind by no more than
// MaxSetBack, as after a correction by NTP. It may be used from any goroutine.
type Present struct {
	Logger *slog.Logger // is told when now follows a clock that was set back: nil means slog.Default()

	mu     sync.Mutex // guards what follows
	latest time.Time
	told   time.Time // when latest was learned, by the process's own monotonic clock
	jumps  int       // how often now has followed the clock back
	said   time.Time // when that was logged the last time
	unsaid int       // jumps that were not

	looked   int       // how many jumps there had been when recovery looked for leases that lie ahead
	lookedAt time.Time // when that was, zero before the first time
}

// Read is now by a clock that this process can read.
func (p *Present) Read(clock func() time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.learn(clock(), time.Now())
}

// Heard is now by a clock elsewhere, which showed the time after it was asked. An answer that has been on its way for long
// says nothing of the clock of the present: it must have been asked after the latest one was heard.
func (p *Present) Heard(shown, asked time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !asked.After(p.told) && Truncate(shown).Before(p.latest) {
		return p.latest
	}
	return p.learn(shown, time.Now())
}

// Latest is the latest now.
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
	log := p.Logger
	if log == nil {
		log = slog.Default()
	}
	log.Warn("jq: the store's clock went back, and now with it: what was written meanwhile may lie ahead; see jobq doctor",
		"by", back.Round(time.Millisecond), "before", p.unsaid)
	p.said, p.unsaid = at, 0
}

// lookEvery is how often recovery looks for leases of a clock that was ahead, where nothing calls for it.
const lookEvery = 30 * time.Second

// MustLook says whether a recovery has to look for leases that a clock has given which was ahead. Looked is to be told of the
// mark once all were found.
func (p *Present) MustLook() (mark int, must bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.jumps, p.lookedAt.IsZero() || p.looked != p.jumps || time.Since(p.lookedAt) >= lookEvery
}

// Looked notes that no such lease was left which had been given before the mark.
func (p *Present) Looked(mark int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looked, p.lookedAt = mark, time.Now()
}

// DefaultMaxLease is how long a lease can be, unless the store was opened with another MaxLease.
const DefaultMaxLease = time.Hour

// CheckLease says what is wrong with the length of a lease in a store with that MaxLease. A request that is refused already
// stays so.
func CheckLease(refused error, ttl, longest time.Duration) error {
	if refused == nil && ttl > longest {
		refused = refuse("ttl", fmt.Sprintf("must be at most %v, the MaxLease of the store", longest))
	}
	return refused
}

// CheckMaxLease says what is wrong with the setting.
func CheckMaxLease(longest time.Duration) error {
	if longest < Resolution || longest > MaxDuration {
		return fmt.Errorf("jq: MaxLease is %v: want %v to %v", longest, Resolution, MaxDuration)
	}
	return nil
}

// Ahead says of a lease of the length, which ends at the given time, whether a clock has given it that was ahead of now, and
// when it ends if it runs from now.
func Ahead(end time.Time, length, longest time.Duration, now time.Time) (time.Time, bool) {
	length = min(length, longest)
	return now.Add(length), end.Add(-length).After(now.Add(MaxSetBack))
}
