package conformance

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var notifyCases = []Case{
	{"Notify/WakesItsQueues", "Subscribe returns a channel of wake-ups for the named queues, or for all queues if none is named.", notifyWakesItsQueues},
	{"Notify/WakesForEveryQueueWhereNoneIsNamed", "Subscribe returns a channel of wake-ups for the named queues, or for all queues if none is named.", notifyWakesForEveryQueue},
	{"Notify/FollowsEachCommitThatMakesAJobClaimable", "The store sends a wake-up after each commit that makes a job of the queue claimable immediately.", notifyFollowsEachCommit},
	{"Notify/FollowsTheEndOfAPause", "The store sends a wake-up after each commit that makes a job of the queue claimable immediately.", notifyFollowsTheEndOfAPause},
	{"Notify/FollowsTheCommitOfACallersTransaction", "The store sends a wake-up after each commit that makes a job of the queue claimable immediately.", notifyFollowsTheCommitOfATx},
	{"Notify/ReplacesNoPoll", "A wake-up may come late, be lost, or come although there is nothing to claim, so it does not replace polling.", notifyReplacesNoPoll},
	{"Notify/SlowReaderHoldsUpNobody", "A slow reader loses wake-ups and blocks nobody.", notifySlowReaderHoldsUpNobody},
	{"Notify/ChannelIsClosedWhenTheContextEnds", "The channel is closed when the context ends or the store is closed.", notifyClosedWithTheContext},
	{"Notify/ChannelIsClosedWhenTheStoreIs", "The channel is closed when the context ends or the store is closed.", notifyClosedWithTheStore},
	{"Notify/ManySubscribersComeAndGo", "The channel is closed when the context ends or the store is closed.", notifyManySubscribers},
	{"Notify/KeepsNoSlice", "A store must not keep a slice that it was given, and must not return a slice that it keeps.", notifyKeepsNoSlice},
	{"Notify/RefusesAsTheCoreDoes", "Queue, kind, unique key, request key, tag and worker are 1 to 255 bytes of valid UTF-8 without NUL; trace and host may also be empty.\nIf the context has ended before the call, the store must not apply the call: the error is ErrUnavailable and matches the context's own error.\nEvery later call returns ErrClosed.", notifyRefusesAsTheCoreDoes},
}

// Wake-ups come in real time and may be lost: a healthy store is given so many tries, each so long.
const (
	wakeTries    = 5
	wakePatience = time.Second
)

func (c *C) notifier() store.Notifier { return ability[store.Notifier](c) }

func (c *C) subscribe(ctx context.Context, queues ...string) <-chan store.Wakeup {
	wakeups, err := c.notifier().Subscribe(ctx, queues)
	c.OK(err, "Subscribe to %q", queues)
	return wakeups
}

// wakes says whether a wake-up for the queue comes in time.
func (c *C) wakes(wakeups <-chan store.Wakeup, name string) bool {
	patience := time.NewTimer(wakePatience)
	defer patience.Stop()
	for {
		select {
		case w, open := <-wakeups:
			if !open {
				c.Errorf("the channel was closed early")
				return false
			}
			if w.Queue == name {
				return true
			}
		case <-patience.C:
			return false
		}
	}
}

// endsInTime checks that the channel is closed, and returns what it still held.
func (c *C) endsInTime(wakeups <-chan store.Wakeup) (rest []store.Wakeup, ok bool) {
	patience := time.NewTimer(wakeTries * wakePatience)
	defer patience.Stop()
	for {
		select {
		case w, open := <-wakeups:
			if !open {
				return rest, true
			}
			rest = append(rest, w)
		case <-patience.C:
			c.Errorf("the channel was not closed")
			return rest, false
		}
	}
}

// wokenBy checks that the change wakes a subscriber of the queue, who comes when all is prepared for it. Once is not enough: a
// wake-up may come for nothing, as when a store looks for the first time what others have written.
func (c *C) wokenBy(what string, prepare func() func()) {
	const enough = 2
	woken := 0
	for range wakeTries {
		change := prepare()
		ctx, cancel := context.WithCancel(c.Ctx)
		wakeups := c.subscribe(ctx, queue)
		change()
		if c.wakes(wakeups, queue) {
			woken++
		}
		cancel()
		if _, ended := c.endsInTime(wakeups); woken == enough || !ended {
			return
		}
	}
	c.Errorf("%s was followed by %d wake-ups in %d tries, want %d", what, woken, wakeTries, enough)
}

func (c *C) enqueueIn(name string) {
	c.Enqueue(plainBut(func(n *store.NewJob) { n.Queue = name }))
}

func notifyWakesItsQueues(c *C) {
	ctx, cancel := context.WithCancel(c.Ctx)
	defer cancel()
	wakeups := c.subscribe(ctx, "a", "b")
	for _, name := range []string{"a", "b"} {
		woken := false
		for try := 0; try < wakeTries && !woken; try++ {
			c.enqueueIn("other")
			c.enqueueIn(name)
			woken = c.wakes(wakeups, name)
		}
		c.True(woken, "a wake-up for the queue %s came", name)
	}
	c.enqueueIn("other")
	cancel()
	rest, _ := c.endsInTime(wakeups)
	for _, w := range rest {
		c.True(w.Queue == "a" || w.Queue == "b", "a wake-up for %q came to a subscriber of a and b", w.Queue)
	}
}

func notifyWakesForEveryQueue(c *C) {
	wakeups := c.subscribe(c.Ctx)
	for _, name := range []string{"a", "b", trickyNames[len(trickyNames)-1]} {
		woken := false
		for try := 0; try < wakeTries && !woken; try++ {
			c.enqueueIn(name)
			woken = c.wakes(wakeups, name)
		}
		c.True(woken, "a wake-up for the queue %q came", name)
	}
}

func notifyFollowsEachCommit(c *C) {
	atOnce := plainBut(func(n *store.NewJob) { n.Backoff, n.MaxRetries = store.Backoff{}, 1000 })
	held := func(change func(store.Lease)) func() func() {
		return func() func() {
			cancelling.on(c, store.Filter{Queue: queue}, 100)
			c.Enqueue(atOnce)
			l := c.ClaimOne().Lease()
			return func() { change(l) }
		}
	}
	c.wokenBy("Enqueue", func() func() { return func() { c.Enqueue(plain()) } })
	c.wokenBy("Release", held(func(l store.Lease) { c.NAck(l, store.Release, 0, "") }))
	c.wokenBy("Snooze 0", held(func(l store.Lease) { c.NAck(l, store.Snooze, 0, "") }))
	c.wokenBy("After 0", held(func(l store.Lease) { c.NAck(l, store.After, 0, "") }))
	c.wokenBy("Fail without a backoff", held(func(l store.Lease) { c.NAck(l, store.Fail, 0, "") }))
	c.wokenBy("RecoverExpiredLeases without a backoff", held(func(store.Lease) {
		c.Advance(ttl)
		c.Equal(len(c.Recover(10)), 1, "recovered")
	}))
	c.wokenBy("Requeue", func() func() {
		cancelling.on(c, store.Filter{Queue: queue}, 100)
		id := c.JobIn(store.Dead).ID
		return func() { c.Requeue(id) }
	})
}

func notifyFollowsTheEndOfAPause(c *C) {
	c.wokenBy("SetPaused false", func() func() {
		c.setPaused(queue, true)
		c.EnqueueOne()
		return func() { c.setPaused(queue, false) }
	})
}

func notifyFollowsTheCommitOfATx(c *C) {
	c.wokenBy("the commit of an Enqueue", func() func() {
		return func() {
			c.inTx(func(t *txCase) {
				t.in.EnqueueOne()
				t.commit()
			})
		}
	})
	atOnce := plainBut(func(n *store.NewJob) { n.Backoff, n.MaxRetries = store.Backoff{}, 1000 })
	for _, form := range []store.Form{store.Release, store.Snooze, store.After, store.Fail} {
		c.wokenBy("the commit of a NAck, "+string(form), func() func() {
			cancelling.on(c, store.Filter{Queue: queue}, 100)
			c.Enqueue(atOnce)
			l := c.ClaimOne().Lease()
			return func() {
				c.inTx(func(t *txCase) {
					t.in.NAck(l, form, 0, "")
					t.commit()
				})
			}
		})
	}
}

// A job that becomes due with time needs no commit, and a reader who lost its wake-ups still finds all.
func notifyReplacesNoPoll(c *C) {
	c.subscribe(c.Ctx, queue)
	list := c.EnqueueN(20)
	list = append(list, c.Enqueue(plainBut(func(n *store.NewJob) { n.Delay = time.Minute }))...)
	c.Advance(time.Minute)
	c.Equal(ids(c.Claim(100)), list, "claimed by a poll, with no wake-up read")
}

func notifySlowReaderHoldsUpNobody(c *C) {
	slow := c.subscribe(c.Ctx)
	fast := c.subscribe(c.Ctx, queue)
	const calls = 300
	for range calls {
		c.EnqueueOne()
	}
	c.True(len(slow) <= calls, "wake-ups kept for the slow reader: %d", len(slow))
	woken := c.wakes(fast, queue)
	for try := 1; try < wakeTries && !woken; try++ {
		c.EnqueueOne()
		woken = c.wakes(fast, queue)
	}
	c.True(woken, "a wake-up came beside a reader that is slow")
	c.Equal(len(c.Claim(store.MaxItems)), len(c.All()), "jobs claimed")
	c.True(c.wakes(slow, queue), "the slow reader is woken when it looks")
}

func notifyClosedWithTheContext(c *C) {
	ctx, cancel := context.WithCancel(c.Ctx)
	ending, staying := c.subscribe(ctx, queue), c.subscribe(c.Ctx, queue)
	cancel()
	c.endsInTime(ending)
	woken := false
	for try := 0; try < wakeTries && !woken; try++ {
		c.EnqueueOne()
		woken = c.wakes(staying, queue)
	}
	c.True(woken, "a wake-up came to the subscriber whose context goes on")
}

func notifyClosedWithTheStore(c *C) {
	read, unread := c.subscribe(c.Ctx, queue), c.subscribe(c.Ctx)
	c.EnqueueN(3)
	c.OK(c.Store.Close(), "Close")
	c.endsInTime(read)
	c.endsInTime(unread)
}

func notifyManySubscribers(c *C) {
	notifier := c.notifier()
	c.Parallel(8, func(int) {
		for range 20 {
			ctx, cancel := context.WithCancel(c.Ctx)
			wakeups, err := notifier.Subscribe(ctx, []string{queue})
			if err != nil {
				c.Errorf("Subscribe: %v", err)
			} else if _, err = c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{plain()}}); err != nil {
				c.Errorf("Enqueue: %v", err)
			}
			cancel()
			if wakeups == nil {
				return
			}
			if _, ended := c.endsInTime(wakeups); !ended {
				return
			}
		}
	})
	c.Equal(len(c.Claim(store.MaxItems)), 8*20, "jobs claimed")
}

func notifyKeepsNoSlice(c *C) {
	names := []string{queue}
	wakeups, err := c.notifier().Subscribe(c.Ctx, names)
	c.OK(err, "Subscribe")
	names[0] = "overwritten"
	woken := false
	for try := 0; try < wakeTries && !woken; try++ {
		c.EnqueueOne()
		woken = c.wakes(wakeups, queue)
	}
	c.True(woken, "a wake-up came although the caller wrote over its slice")
}

func notifyRefusesAsTheCoreDoes(c *C) {
	notifier := c.notifier()
	c.refusesAsTheCoreDoes(abilityCalls{"Subscribe": func(ctx context.Context, name string) error {
		wakeups, err := notifier.Subscribe(ctx, []string{queue, name})
		c.True(wakeups == nil, "no channel comes with an error")
		return err
	}}, func() {})
}
