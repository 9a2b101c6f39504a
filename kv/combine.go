package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/contract"
)

// A combiner lets small calls of this process share commits. Two commits are under way at once, and those who call meanwhile share the next one. So a call that
// comes alone waits for nobody, and many at once cost the engine few commits. In a shared commit the calls decide one after the other, and each reads what those before it
// have written. If it is not applied, each of them is made by itself.
type combiner struct {
	s *Store

	mu      sync.Mutex
	running int // slots in use, without those of slow commits
	waiting []*caller
}

// A caller is a call in a combiner.
type caller struct {
	first  ask // without ranges
	weight int
	do     func(*txn)

	in    *joint // nil while it waits
	begun bool   // its request is being read, or was
	left  bool   // before it has decided

	answered chan struct{} // closed when known is set, with what follows
	known    bool
	alone    bool  // it makes the call by itself
	slot     *slot // for that; nil if it needs none
	noted    bool  // something is to be told
	err      error
}

// A joint is a commit of several calls.
type joint struct {
	callers []*caller
	present int  // callers that wait for the answer
	decided bool // no request is read any more, and the commit may take effect
	ctx     context.Context
	cancel  context.CancelFunc
}

// A slot is for one commit.
type slot struct {
	slow *time.Timer
	free bool
}

const (
	commitsAtOnce = 2
	itemWeight    = 1 << 10          // of an item, without its documents
	smallWeight   = 16 * itemWeight  // a call that weighs more is made by itself
	sharedWeight  = 128 * itemWeight // of the calls that share a commit
)

// After slowCommit, a commit gives its slot to others. An engine whose leader has died may answer one commit late or never, and the next at once.
const slowCommit = 250 * time.Millisecond

// together is call for those that may share a commit.
func together[T any](ctx context.Context, s *Store, c *combiner, refused error, weight int, first ask, do func(*txn) T) (T, error) {
	if weight > smallWeight {
		return call(ctx, s, refused, first, do)
	}
	var answer, none T
	if err := s.enter(ctx, refused); err != nil {
		return none, err
	}
	defer s.calls.Done()
	one := &caller{first: first, weight: weight, do: func(t *txn) { answer = do(t) }, answered: make(chan struct{})}
	c.join(one)
	select {
	case <-one.answered:
	case <-ctx.Done():
		c.leave(one, ctx.Err())
		<-one.answered
	}
	switch {
	case one.alone:
		answer, noted, err := tries(ctx, s, first, do)
		c.release(one.slot)
		s.follow(ctx, noted)
		return answer, err
	case one.err != nil:
		return none, one.err
	case one.noted:
		s.tellUntold(ctx)
	}
	return answer, nil
}

func (c *combiner) join(one *caller) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, one)
	c.start()
}

// start begins commits for those who wait, as long as there are slots. The caller has locked mu.
func (c *combiner) start() {
	for c.running < commitsAtOnce && len(c.waiting) > 0 {
		n, weight := 0, 0
		for _, one := range c.waiting {
			if weight += one.weight; n > 0 && weight > sharedWeight {
				break
			}
			n++
		}
		some := slices.Clone(c.waiting[:n])
		c.waiting = slices.Delete(c.waiting, 0, n)
		at := c.take()
		if n == 1 {
			some[0].alone, some[0].slot = true, at
			some[0].answer(nil)
			continue
		}
		now := &joint{callers: some, present: n}
		now.ctx, now.cancel = context.WithCancel(context.Background())
		for _, one := range some {
			one.in = now
		}
		c.s.calls.Add(1) // as each of the callers has done
		go c.commit(now, at)
	}
}

// take takes a slot. The caller has locked mu.
func (c *combiner) take() *slot {
	c.running++
	at := &slot{}
	at.slow = time.AfterFunc(slowCommit, func() { c.release(at) })
	return at
}

// release frees the slot, unless it is free. It may be nil.
func (c *combiner) release(at *slot) {
	if at == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at.slow.Stop()
	if !at.free {
		at.free = true
		c.running--
		c.start()
	}
}

// leave answers a caller whose context has ended. If its request is being read, end does so, and the commit takes no effect.
func (c *combiner) leave(one *caller, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case one.known:
		return
	case one.in == nil:
		at := slices.Index(c.waiting, one)
		c.waiting = slices.Delete(c.waiting, at, at+1)
		one.answer(unavailable(cause))
		return
	}
	one.in.present--
	switch {
	case one.in.decided:
		one.answer(fmt.Errorf("%w: %w", contract.ErrInDoubt, cause))
	case one.begun:
		one.left = true
		one.in.cancel()
	default:
		one.left = true
		one.answer(unavailable(cause))
	}
	if one.in.present == 0 {
		one.in.cancel()
	}
}

func (o *caller) answer(err error) {
	o.known, o.err = true, err
	close(o.answered)
}

// commit makes one try of a shared commit.
func (c *combiner) commit(now *joint, at *slot) {
	defer c.s.calls.Done()
	defer now.cancel()
	began := time.Now()
	var first ask
	for _, one := range now.callers {
		first.add(one.first)
	}
	_, news, err := try(now.ctx, c.s, first, func(t *txn) struct{} {
		c.decide(t, now)
		return struct{}{}
	})
	c.s.untold.add(news)
	if nobody := c.end(now, len(news) > 0, err); nobody && len(news) > 0 {
		c.s.hub.Tell(contract.Wakeup{Settle: true})
	}
	// Those who have their answers may call again at once, and the first of them would have a commit alone.
	time.AfterFunc(min(time.Since(began), slowCommit)/16, func() { c.release(at) })
}

// decide lets the callers that are still there decide, one after the other.
func (c *combiner) decide(t *txn, now *joint) {
	for _, one := range now.callers {
		if c.begin(one) {
			one.do(t)
		}
		if t.err != nil {
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now.decided = t.look() // unless one of them has left
}

func (c *combiner) begin(one *caller) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	one.begun = !one.left
	return one.begun
}

// end answers the callers, and reports whether all have left. It lets them make their calls by themselves if nothing was applied.
func (c *combiner) end(now *joint, noted bool, err error) (nobody bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range now.callers {
		switch {
		case one.known:
		case err == nil || errors.Is(err, contract.ErrInDoubt):
			one.noted = noted
			one.answer(err)
		default:
			one.alone = true
			one.answer(nil)
		}
	}
	return now.present == 0
}
