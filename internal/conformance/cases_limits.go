package conformance

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	sentenceRoom     = "If the queue's policy sets MaxInFlight, a claim takes at most as many jobs as that number is greater than that of the queue's jobs in flight, whatever other calls do at the same time."
	sentenceInFlight = "A job is in flight until its lease is ended, so a job whose lease has expired counts until it is recovered, and one that is finished in a caller's transaction counts until that is committed."
)

var limitCases = []Case{
	{"Limits/ClaimTakesWhatThereIsRoomFor", sentenceRoom, limitsClaimTakesWhatThereIsRoomFor},
	{"Limits/EveryEndOfALeaseMakesRoom", sentenceInFlight, limitsEveryEndMakesRoom},
	{"Limits/RetriesFirst", "It takes up to RetryQuota retries and then fresh jobs up to Limit. If one lane has too few jobs, the other lane fills the places that are left.\n" + sentenceRoom, limitsRetriesFirst},
	{"Limits/OfOneQueueAlone", "Claims keep to its limits.\n" + sentenceRoom, limitsOfOneQueueAlone},
	{"Limits/FollowsThePolicy", "A claim that begins after SetPolicy has returned keeps to the new limits. Jobs that were in flight before count as well, and go on if there are more of them.", limitsFollowsThePolicy},
	{"Limits/ManyClaimersKeepToIt", sentenceRoom, limitsManyClaimersKeepToIt},
	{"Limits/SetBesideClaims", "A claim that begins after SetPolicy has returned keeps to the new limits.", limitsSetBesideClaims},
	{"Limits/HasBounds", "ErrInvalid: the request breaks a limit and nothing was applied.", limitsHasBounds},
}

// admit sets how many jobs of the queue may be in flight.
func (c *C) admit(name string, most int) {
	c.Helper()
	c.setPolicy(name, store.Policy{MaxInFlight: most, Version: c.policy(name).Version})
}

func limitsClaimTakesWhatThereIsRoomFor(c *C) {
	list := c.EnqueueN(8)
	c.admit(queue, 3)
	first := c.Claim(2)
	c.Equal(ids(first), list[:2], "claimed with room for three")
	c.Equal(ids(c.Claim(5)), list[2:3], "claimed with room for one more")
	c.Equal(ids(c.Claim(5)), []int64{}, "claimed without room")
	for _, j := range first {
		c.Ack(j.Lease())
	}
	c.Equal(ids(c.Claim(5)), list[3:5], "claimed when two have ended")
	c.Equal(ids(c.Claim(1)), []int64{}, "claimed when they were replaced")
}

// limitsEveryEndMakesRoom has one job in flight at a time: nothing else makes room but the end of its lease.
func limitsEveryEndMakesRoom(c *C) {
	c.admit(queue, 1)
	c.everyEndMakesRoom(plain())
}

// everyEndMakesRoom finds that only the end of a lease makes room for another such job, of which one may be in flight.
func (c *C) everyEndMakesRoom(n store.NewJob) {
	c.Helper()
	ends := map[string]func(l store.Lease){
		"recovery": func(store.Lease) { c.Equal(len(c.Recover(10)), 1, "recovered") },
		"cancel":   func(l store.Lease) { c.Cancel(l.ID) },
	}
	for _, op := range finishOps {
		ends[string(op)] = func(l store.Lease) { underLease(c, op, l) }
	}
	for name, end := range ends {
		held := c.Get(c.Enqueue(n)[0])
		c.Equal(ids(c.Claim(1)), []int64{held.ID}, "claimed before %s", name)
		next := c.Enqueue(n)[0]
		held = c.Get(held.ID)
		c.SaveCheckpoint(held.Lease(), 1, "1")
		c.Extend(held.Lease())
		c.Ack(store.Lease{ID: held.ID, Token: held.Token - 1})
		c.Advance(ttl)
		c.Equal(ids(c.Claim(2)), []int64{}, "claimed beside a job in flight whose lease has expired")
		end(held.Lease())
		c.Cancel(held.ID) // if it waits again
		c.Equal(ids(c.Claim(2)), []int64{next}, "claimed after %s", name)
		c.Cancel(next)
	}
}

func limitsRetriesFirst(c *C) { c.retriesFirst(c.admit) }

// retriesFirst claims where there is room for fewer jobs than a claim asks for.
func (c *C) retriesFirst(admit func(name string, most int)) {
	c.Helper()
	for name, k := range map[string]struct{ most, quota, retries, fresh int }{
		"room for two, one of them a retry":         {2, 1, 1, 1},
		"room for two, and a quota of three":        {2, 3, 2, 0},
		"room for five, one of them a retry":        {5, 1, 2, 3},
		"room for more than there are of any sort":  {9, 0, 3, 3},
		"room for one, and no quota for retries":    {1, 0, 0, 1},
		"room for three, and a quota for all three": {3, 3, 3, 0},
	} {
		retries := each(holding(c, name, 3), func(d store.JobDetail) int64 {
			c.NAck(d.Lease(), store.After, 0, "")
			return d.ID
		})
		fresh := c.Enqueue(slices.Repeat([]store.NewJob{plainBut(func(n *store.NewJob) { n.Queue = name })}, 3)...)
		admit(name, k.most)
		c.Equal(ids(c.claimFrom(name, 6, k.quota)), slices.Concat(retries[:k.retries], fresh[:k.fresh]), "claimed with %s", name)
	}
}

func limitsOfOneQueueAlone(c *C) { c.limitOneQueueAlone(c.admit) }

func (c *C) limitOneQueueAlone(admit func(name string, most int)) {
	c.Helper()
	for _, name := range []string{"a", "a ", "b"} {
		c.Enqueue(slices.Repeat([]store.NewJob{plainBut(func(n *store.NewJob) { n.Queue = name })}, 4)...)
	}
	admit("a", 1)
	admit("b", 2)
	c.Equal(len(c.claimFrom("a ", 4, 0)), 4, "claimed from a queue without a limit")
	c.Equal(len(c.claimFrom("a", 4, 0)), 1, "claimed from a queue with room for one")
	c.Equal(len(c.claimFrom("b", 4, 0)), 2, "claimed from a queue with room for two")
}

func limitsFollowsThePolicy(c *C) {
	list := c.followThePolicy(plain(), c.admit)
	c.admit(queue, 1)
	c.Ack(c.Get(list[4]).Lease())
	c.Equal(ids(c.Claim(1)), []int64{}, "claimed when there is a limit again, and four are in flight")
}

// followThePolicy sets limits that take in all of the nine jobs that it enqueues, and lifts them. It returns the jobs, of which the last five are in
// flight then.
func (c *C) followThePolicy(n store.NewJob, admit func(name string, most int)) []int64 {
	c.Helper()
	list := c.Enqueue(slices.Repeat([]store.NewJob{n}, 9)...)
	held := c.Claim(4)
	c.Advance(time.Second)
	admit(queue, 5)
	c.Equal(ids(c.Claim(3)), list[4:5], "claimed with room for five, of which four were taken before there was a limit")
	c.Advance(time.Second)
	c.changesNothing("a lower limit", func() { admit(queue, 2) })
	for i, j := range held {
		c.Equal(ids(c.Claim(3)), []int64{}, "claimed while %d are in flight and 2 may be", 5-i)
		c.Ack(j.Lease())
	}
	c.Equal(ids(c.Claim(3)), list[5:6], "claimed with room for two, of which one is taken")
	admit(queue, 3)
	c.Equal(ids(c.Claim(3)), list[6:7], "claimed with room for one more")
	admit(queue, 0)
	c.Equal(ids(c.Claim(3)), list[7:], "claimed when there is no limit any more")
	return list
}

// A ledger counts, outside of the store, the jobs that have been handed out and not been given back.
type ledger struct {
	mu                    sync.Mutex
	out, mostOut, claimed int
}

func (l *ledger) took(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out, l.claimed = l.out+n, l.claimed+n
	l.mostOut = max(l.mostOut, l.out)
}

func (l *ledger) gives(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out -= n
}

// In each round, every claimer gives back what it has and claims again. More want jobs than there is room for, so that some get none. What a
// claimer gives back is off the ledger before the call that ends its leases.
func limitsManyClaimersKeepToIt(c *C) {
	const most, claimers, rounds = 3, 6, 25
	c.EnqueueN(10)
	c.admit(queue, most)
	var book ledger
	held := make([][]store.Job, claimers)
	for round := range rounds {
		c.Parallel(claimers, func(i int) {
			if book.gives(len(held[i])); len(held[i]) > 0 {
				c.endAll(held[i], []store.Form{store.Release, store.Snooze}[round%2], 0)
			}
			held[i] = c.Claim(1 + (i+round)%3)
			book.took(len(held[i]))
		})
	}
	c.True(book.mostOut <= most, "%d jobs were in flight at once, and %d may be", book.mostOut, most)
	c.True(book.claimed >= rounds, "%d jobs were claimed", book.claimed)
	c.Equal(book.out+len(c.Claim(10)), most, "in flight when all is quiet")
}

// limitsSetBesideClaims sets a limit while others claim. What claims take that began before counts, and those that began after keep to it.
func limitsSetBesideClaims(c *C) {
	const most = 4
	for range 5 {
		list := c.EnqueueN(60)
		late := c.setBesideClaims(func() { c.admit(queue, most) })
		inFlight := c.countOf(store.Filter{})[queue+" "+string(store.InFlight)]
		c.True(late == 0 || inFlight <= most, "%d are in flight and %d may be, although %d were taken after that was set", inFlight, most, late)
		c.True(inFlight >= most, "%d are in flight, and there was room for %d", inFlight, most)
		c.admit(queue, 0)
		cancelling.on(c, only(list...), len(list))
	}
}

// setBesideClaims sets something while others claim. It returns how many jobs were taken by claims that began after it was set.
func (c *C) setBesideClaims(set func()) int64 {
	c.Helper()
	const claimers = 4
	var isSet atomic.Bool
	var late atomic.Int64
	c.Parallel(claimers+1, func(i int) {
		if i == claimers {
			for c.countOf(store.Filter{})[queue+" "+string(store.InFlight)] == 0 && c.Ctx.Err() == nil { // until others claim
			}
			set()
			isSet.Store(true)
			for range 3 {
				late.Add(int64(len(c.Claim(10))))
			}
			return
		}
		for range 10 {
			after := isSet.Load()
			if n := int64(len(c.Claim(1))); after {
				late.Add(n)
			}
		}
	})
	return late.Load()
}

func limitsHasBounds(c *C) {
	for _, most := range []int{-1, store.MaxLimit + 1} {
		p := store.Policy{MaxInFlight: most}
		c.refusesPolicy(p, store.ErrInvalid)
		_, err := c.policyKeeper().SetPolicy(c.Ctx, queue, p)
		c.refused(err, -1, "max_in_flight", fmt.Sprintf("a policy with a limit of %d", most))
	}
	for _, most := range []int{1, store.MaxLimit, 0} {
		c.admit(queue, most)
	}
}
