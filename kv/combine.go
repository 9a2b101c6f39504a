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

// A combiner lets small calls of a store share commits. At most two commits are under way at once, and those who call meanwhile share the next one. So a call that
// comes alone waits for nobody, and many at once cost the engine few commits. In a shared commit the calls decide one after the other, and each reads what those before it
// have written. If it is known that nothing was applied, each of them is made by itself.
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

	in    *sharedCommit // nil while it waits
	begun bool          // its request is being read, or was
	left  bool          // before it has decided

	answered chan struct{} // closed when known is set, with what follows
	known    bool
	alone    bool        // it makes the call by itself
	slot     *time.Timer // for that; nil if it needs none
	noted    bool        // something is to be told
	err      error
}

// A sharedCommit is a commit for several calls.
type sharedCommit struct {
	callers []*caller
	present int  // callers that wait for the answer
	decided bool // no request is read any more, and the commit may take effect
	cancel  context.CancelFunc
}

const (
	commitsAtOnce = 2
	itemWeight    = 1 << 10          // of an item, without its documents
	smallWeight   = 16 * itemWeight  // a call that weighs more is made by itself
	sharedWeight  = 128 * itemWeight // of the calls that share a commit
)

// An engine that has lost a leader may answer some calls late or never, and others at once. After slowCommit, a commit gives its slot to others. Calls that
// could not decide in sharedPatience are made by themselves, because what one of them needs may be out of reach.
const (
	slowCommit     = 250 * time.Millisecond
	sharedPatience = 2 * time.Second
)

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
		slot := c.take()
		if n == 1 {
			some[0].alone, some[0].slot = true, slot
			some[0].answer(nil)
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		now := &sharedCommit{callers: some, present: n, cancel: cancel}
		for _, one := range some {
			one.in = now
		}
		c.s.calls.Add(1) // as each of the callers has done
		go c.commit(ctx, now, slot)
	}
}

// take takes a slot, which is free when its timer ends. The caller has locked mu.
func (c *combiner) take() (slot *time.Timer) {
	c.running++
	return time.AfterFunc(slowCommit, c.free)
}

// release frees the slot, unless that has happened. It may be nil.
func (c *combiner) release(slot *time.Timer) {
	if slot != nil && slot.Stop() {
		c.free()
	}
}

func (c *combiner) free() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	c.start()
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
func (c *combiner) commit(ctx context.Context, now *sharedCommit, slot *time.Timer) {
	defer c.s.calls.Done()
	defer now.cancel()
	began := time.Now()
	patience := time.AfterFunc(sharedPatience, func() { c.giveUp(now) })
	defer patience.Stop()
	var first ask
	for _, one := range now.callers {
		first.add(one.first)
	}
	_, news, err := try(ctx, c.s, first, func(t *txn) struct{} {
		c.decide(t, now)
		return struct{}{}
	})
	c.s.untold.add(news)
	if nobody := c.end(now, len(news) > 0, err); nobody && len(news) > 0 {
		c.s.hub.Tell(contract.Wakeup{Settle: true})
	}
	// Those who have their answers may call again at once, and the first of them would have a commit alone.
	time.AfterFunc(min(time.Since(began), slowCommit)/16, func() { c.release(slot) })
}

// decide lets the callers that are still there decide, one after the other.
func (c *combiner) decide(t *txn, now *sharedCommit) {
	for _, one := range now.callers {
		if c.begin(one) {
			one.do(t)
		}
		if !t.look() {
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now.decided = t.look() // unless one of them has left
}

// giveUp ends a shared commit that has not been decided.
func (c *combiner) giveUp(now *sharedCommit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !now.decided {
		now.cancel()
	}
}

func (c *combiner) begin(one *caller) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	one.begun = !one.left
	return one.begun
}

// end answers the callers, and reports whether all have left. It lets them make their calls by themselves if nothing was applied.
func (c *combiner) end(now *sharedCommit, noted bool, err error) (nobody bool) {
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
