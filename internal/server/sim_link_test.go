package server_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/server"
	"github.com/seed-ed332417/jq/internal/store"
)

// A span is a time in which something was wrong: with calls of one method, or with all calls.
type span struct {
	method   string
	from, to time.Time
}

func (s span) overlaps(from, to time.Time) bool { return !s.from.After(to) && !s.to.Before(from) }

// A link is the connection of one server, or of one person, to the store. What happens to its nth call of a method depends on the seed
// alone. The link of a process that died is cut for good.
type link struct {
	sim     *simulation
	name    string
	to      *witness
	options server.Options // of the server whose it is

	mu        sync.Mutex // guards what follows
	calls     map[string]int
	cuts      []cut
	troubles  []span // in which the store could not be reached, or calls took long
	failures  []failure
	missed    time.Time // when its server last learnt that the store is away
	deafUntil time.Time
	stopping  time.Time            // when its server was told to stop, or zero
	breaks    []context.CancelFunc // end subscriptions
}

// A failure is a call that failed at once.
type failure struct {
	at     time.Time
	method string
}

// A cut is a time in which the store cannot be reached.
type cut struct {
	span
	hang bool // calls hang, rather than being refused
}

var _ store.Store = (*link)(nil)

func newLink(s *simulation, name string) *link {
	return &link{sim: s, name: name, to: s.witness, calls: map[string]int{}}
}

// sever cuts the connection for so long.
func (l *link) sever(lasts time.Duration, hang bool) {
	now := time.Now()
	l.cut(span{from: now, to: now.Add(lasts)}, hang)
}

func (l *link) cut(s span, hang bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cuts = append(l.cuts, cut{s, hang})
	l.troubles = append(l.troubles, s)
	for _, end := range l.breaks {
		end()
	}
	l.breaks = nil
}

// telling are the methods by which a server learns whether the store is reachable.
var telling = []string{"FetchAndClaim", "Ack", "NAck", "Extend", "Recover", "Get"}

// severed returns the cut that a call of the method meets now, if there is one.
func (l *link) severed(method string) (cut, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, c := range l.cuts {
		if !c.from.After(now) && c.to.After(now) {
			if slices.Contains(telling, method) {
				l.missed = now
			}
			return c, true
		}
	}
	return cut{}, false
}

// trouble records that a call takes so long, or, without a method, that no call is made for so long.
func (l *link) trouble(method string, lasts time.Duration) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.troubles = append(l.troubles, span{method, now, now.Add(lasts)})
}

// troubled returns whether anything but quick failures went wrong in that time, for calls of the method, or of any if it is empty. One
// span does not count.
func (l *link) troubled(method string, from, to time.Time, but span) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.troubles, func(s span) bool {
		return s != but && s.overlaps(from, to) && (method == "" || s.method == "" || s.method == method)
	})
}

// hangsUntil returns when the last call that hangs, or takes long, ends.
func (l *link) hangsUntil() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	var last time.Time
	for _, s := range l.troubles {
		if s.method != "" {
			last = latest(last, s.to)
		}
	}
	return last
}

// failed returns how many calls of the method failed at once in that time, or of all methods.
func (l *link) failed(method string, from, to time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, f := range l.failures {
		if (f.method == method || method == "") && !f.at.Before(from) && !f.at.After(to) {
			n++
		}
	}
	return n
}

// hasMissed returns whether the server knows of the outage.
func (l *link) hasMissed(outage span) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.missed.After(outage.from)
}

// outlived returns whether only a call that ignores its context held the server up at that time: everything else has ended, including
// its heartbeats.
func (l *link) outlived(at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.stopping.IsZero() && l.stopping.Before(at) && !l.deafUntil.Before(at)
}

// clean returns whether the store answered every call in that time.
func (l *link) clean(from, to time.Time) bool {
	return !l.troubled("", from, to, span{}) && l.failed("", from, to) == 0
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// through takes a call to the store and its answer back, unless its fate is another one.
func through[T any](ctx context.Context, l *link, method string, call func(context.Context) (T, error)) (T, error) {
	var none T
	f := l.fate(method)
	if !pause(ctx, f.there) {
		return none, broken(store.ErrUnavailable, ctx.Err())
	}
	if err := l.reach(ctx, method); err != nil {
		return none, err
	}
	switch f.fault {
	case refused:
		return none, broken(store.ErrUnavailable, errors.New("connection refused"))
	case lost:
		_, _ = call(ctx)
		return none, broken(store.ErrInDoubt, errors.New("reply lost"))
	case stalled:
		pause(ctx, f.lasts)
		return none, broken(store.ErrInDoubt, errors.New("no answer"))
	case late:
		return belated(ctx, l, f, call)
	case deaf:
		return unheeding(ctx, f, call)
	case delayed:
		if !pause(ctx, f.lasts/8) {
			return none, broken(store.ErrUnavailable, ctx.Err())
		}
	}
	answer, err := call(ctx)
	if !pause(ctx, f.back) {
		return none, broken(store.ErrInDoubt, ctx.Err())
	}
	if _, gone := l.severed(method); gone {
		l.sim.count(lost)
		return none, broken(store.ErrInDoubt, errors.New("connection broke before the reply"))
	}
	return answer, err
}

// reach returns why the store cannot be reached now. If calls hang, it returns when the context or the cut ends.
func (l *link) reach(ctx context.Context, method string) error {
	c, gone := l.severed(method)
	switch {
	case !gone:
		return nil
	case c.hang:
		pause(ctx, time.Until(c.to))
		return broken(store.ErrInDoubt, errors.New("no answer"))
	default:
		return broken(store.ErrUnavailable, errors.New("no connection"))
	}
}

// belated applies the call after a while, whether the caller still waits or not.
func belated[T any](ctx context.Context, l *link, f fate, call func(context.Context) (T, error)) (T, error) {
	type reply struct {
		answer T
		err    error
	}
	replied := make(chan reply, 1)
	l.sim.spawn(func() {
		pause(context.Background(), f.lasts)
		answer, err := call(context.WithoutCancel(ctx))
		replied <- reply{answer, err}
	})
	select {
	case r := <-replied:
		return r.answer, r.err
	case <-ctx.Done():
		var none T
		return none, broken(store.ErrInDoubt, ctx.Err())
	}
}

// unheeding makes the caller wait whatever its context says, and answers then.
func unheeding[T any](ctx context.Context, f fate, call func(context.Context) (T, error)) (T, error) {
	ctx = context.WithoutCancel(ctx)
	if !f.after {
		pause(ctx, f.lasts)
	}
	answer, err := call(ctx)
	if f.after {
		pause(ctx, f.lasts)
	}
	return answer, err
}

// broken returns an error of the contract with what is known of its cause.
func broken(sentinel, cause error) error { return fmt.Errorf("%w: %w", sentinel, cause) }

// pause lets time pass. It returns false if the context ended first.
func pause(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
