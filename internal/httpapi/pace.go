package httpapi

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/timeout"
)

// heavy is the memory of a write that may take the store milliseconds: that of a body of 64 kB, or of jobs of 128 kB that a claim will
// probably get.
const heavy = 64 << 10 * asRequest

// maxHeavy is how many heavy writes run at once if there are no light ones.
func maxHeavy() int { return max(8, runtime.GOMAXPROCS(0)) }

// longestTurn is how long a heavy write waits for its turn: less than clients wait for an answer.
const longestTurn = 5 * time.Second

// paced lets a call write to the store. A heavy write waits for its turn, a light one does not.
func paced[Answer any](ctx context.Context, a *API, x *exchange, write func() (Answer, error)) (Answer, error) {
	if x.taken <= heavy {
		defer a.pacer.light()()
		return write()
	}
	done, err := a.turn(ctx, x)
	if err != nil {
		var none Answer
		return none, err
	}
	defer done()
	return write()
}

// turn waits for the turn of a heavy write. It fails with busy if that takes too long.
func (a *API) turn(ctx context.Context, x *exchange) (done func(), err error) {
	limited, cancel := timeout.Of(ctx, a.clock, min(longestTurn, a.options.CallTimeout/2))
	defer cancel()
	leave, err := x.wait(limited, func(s *share) room { return s.heavy })
	if err == nil {
		var ended func()
		if ended, err = a.pacer.heavy(limited); err == nil {
			return func() {
				ended()
				leave()
			}, nil
		}
		leave()
	}
	if ctx.Err() == nil {
		err = busy
	}
	return nil, err
}

// A pacer divides the time of the store between heavy writes and light ones. A few clients whose jobs or reports are large could otherwise keep
// all others waiting: a store that writes for one call after the other, or its disk, would be theirs for nearly all of the time.
// While there are light writes, heavy ones run one by one, and after each they rest for as long as it took.
type pacer struct {
	clock clock.Clock
	first room // held by the heavy write that is the next to begin

	mu               sync.Mutex
	lightly, heavily int           // how many of each kind run
	last             time.Time     // when the latest light write ended
	took             time.Duration // by the longest heavy write of late
	tookAt           time.Time     // when it ended
	rest             time.Time     // when the next heavy write may begin beside light ones
	ended            chan struct{} // closed at the end of a heavy write; nil if none waits for that
}

// longestRest is how long heavy writes rest at most, also after one that took longer because the store did not answer.
const longestRest = time.Second

func newPacer(c clock.Clock) *pacer { return &pacer{clock: c, first: newRoom(1)} }

// light begins a light write.
func (p *pacer) light() (done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lightly++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.lightly--
		p.last = p.clock.Now()
	}
}

// heavy waits for the turn of a heavy write, and begins it. It fails if the context ends before.
func (p *pacer) heavy(ctx context.Context) (done func(), err error) {
	if err := p.first.wait(ctx); err != nil {
		return nil, err
	}
	defer p.first.leave()
	for ctx.Err() == nil {
		begun, pause, ended := p.begin()
		if begun {
			return p.done(p.clock.Now()), nil
		}
		late := p.clock.Timer(pause)
		select {
		case <-ended:
		case <-late.C:
		case <-ctx.Done():
		}
		late.Stop()
	}
	return nil, gaveUp(ctx)
}

// begin begins a heavy write if it may. Otherwise it returns what to wait for: the end of a pause, or of another heavy write.
func (p *pacer) begin() (begun bool, pause time.Duration, ended <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	if p.lightly > 0 || now.Sub(p.last) < p.took { // light writes of clients that go on have gaps
		if p.heavily > 0 {
			if p.ended == nil {
				p.ended = make(chan struct{})
			}
			return false, longestRest, p.ended
		}
		if pause := p.rest.Sub(now); pause > 0 && pause <= longestRest { // a longer one means that the clock went back
			return false, pause, nil
		}
	}
	p.heavily++
	return true, 0, nil
}

// done returns the function that ends a heavy write.
func (p *pacer) done(begun time.Time) func() {
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		now := p.clock.Now()
		p.heavily--
		took := min(now.Sub(begun), longestRest)
		if took >= p.took || now.Sub(p.tookAt) >= longestRest { // a short one tells nothing of the others
			p.took, p.tookAt = took, now
		}
		if rest := now.Add(took); rest.After(p.rest) {
			p.rest = rest
		}
		if p.ended != nil {
			close(p.ended)
			p.ended = nil
		}
	}
}
