package conformance

import (
	"context"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	sentenceWoken       = "The store sends a wake-up after each commit that makes a job of the queue claimable immediately"
	sentenceWokenByRoom = ", and after a call that ends a lease if a claim on the queue has left out jobs because of MaxInFlight, MaxPerKey or Ordered."
)

var notifyCases = []Case{
	{"Notify/WakesItsQueues", "Subscribe returns a channel of wake-ups for the named queues, or for all queues if none is named.\nA store must not keep a slice that it was given, and must not return a slice that it keeps.", notifyWakesItsQueues},
	{"Notify/WakesForEveryQueueWhereNoneIsNamed", "Subscribe returns a channel of wake-ups for the named queues, or for all queues if none is named.", notifyWakesForEveryQueue},
	{"Notify/FollowsEachCommitThatMakesAJobClaimable", sentenceWoken, notifyFollowsEachCommit},
	{"Notify/FollowsTheEndOfAPause", sentenceWoken, notifyFollowsTheEndOfAPause},
	{"Notify/FollowsRoom", sentenceWoken + sentenceWokenByRoom, notifyFollowsRoom},
	{"Notify/FollowsRoomOfAKey", sentenceWoken + sentenceWokenByRoom, notifyFollowsRoomOfAKey},
	{"Notify/FollowsRoomOfAKeyInOrder", sentenceWoken + sentenceWokenByRoom, notifyFollowsRoomInOrder},
	{"Notify/FollowsRoomUnderARate", sentenceWokenByNow, notifyFollowsRoomUnderARate},
	{"Notify/FollowsTheCommitOfACallersTransaction", sentenceWoken, notifyFollowsTheCommitOfATx},
	{"Notify/FollowsTheCancellationOfJobsInFlight", "After a Cancel that has ended leases, it sends a wake-up with Cancelled for each queue of their jobs.\nThe wake-up of a Notifier tells the worker to call Extend at once.", notifyFollowsTheCancellation},
	{"Notify/FollowsACallThatLeavesSomething", "After a call that has left something to Settle, it sends a wake-up with Settle to every subscriber.", notifyFollowsWhatIsLeft},
	{"Notify/ReplacesNeitherPollNorHeartbeat", "A wake-up may come late, be lost, or come for nothing, so it replaces neither polling nor heartbeats.", notifyReplacesNoPoll},
	{"Notify/SlowReaderHoldsUpNobody", "A slow reader loses wake-ups and blocks nobody.", notifySlowReaderHoldsUpNobody},
	{"Notify/ChannelIsClosedWithTheContextAndTheStore", "The channel is closed when the context ends or the store is closed.", notifyClosed},
	{"Notify/ManySubscribersComeAndGo", "The channel is closed when the context ends or the store is closed.", notifyManySubscribers},
	{"Notify/RefusesAsTheCoreDoes", sentenceAbility, notifyRefusesAsTheCoreDoes},
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

// wakes says whether the wake-up comes in time.
func (c *C) wakes(wakeups <-chan store.Wakeup, want store.Wakeup) bool {
	patience := time.NewTimer(wakePatience)
	defer patience.Stop()
	for {
		select {
		case w, open := <-wakeups:
			if !open {
				c.Errorf("the channel was closed early")
				return false
			}
			if w == want {
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

// wokenBy checks that the change is followed by a wake-up that something is claimable.
func (c *C) wokenBy(what string, prepare func() func()) {
	c.followed(what, queue, store.Wakeup{Queue: queue}, prepare)
}

// followed checks that the change is followed by the wake-up, for a subscriber of the queue who comes when all is prepared for the
// change. Once is not enough: a wake-up may come for nothing, as when a store looks for the first time what others have written.
func (c *C) followed(what, to string, want store.Wakeup, prepare func() func()) {
	const enough = 2
	woken := 0
	for range wakeTries {
		change := prepare()
		ctx, cancel := context.WithCancel(c.Ctx)
		wakeups := c.subscribe(ctx, to)
		change()
		if c.wakes(wakeups, want) {
			woken++
		}
		cancel()
		if _, ended := c.endsInTime(wakeups); woken == enough || !ended {
			return
		}
	}
	c.Fatalf("%s was followed by %d wake-ups %+v in %d tries, want %d", what, woken, want, wakeTries, enough)
}

func (c *C) enqueueIn(name string) {
	c.Enqueue(plainBut(func(n *store.NewJob) { n.Queue = name }))
}

// woken enqueues into the queue until a wake-up for it comes.
func (c *C) woken(wakeups <-chan store.Wakeup, name string) {
	c.Helper()
	for range wakeTries {
		c.enqueueIn(name)
		if c.wakes(wakeups, store.Wakeup{Queue: name}) {
			return
		}
	}
	c.Errorf("no wake-up for the queue %q came in %d tries", name, wakeTries)
}

func notifyWakesItsQueues(c *C) {
	ctx, cancel := context.WithCancel(c.Ctx)
	defer cancel()
	names := []string{"a", "b"}
	wakeups := c.subscribe(ctx, names...)
	names[0], names[1] = "overwritten", "overwritten"
	for _, name := range []string{"a", "b"} {
		c.enqueueIn("other")
		c.woken(wakeups, name)
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
		c.woken(wakeups, name)
	}
}

// heldAtOnce prepares a lease for the change, on a job that is claimable at once when its lease ends.
func (c *C) heldAtOnce(change func(store.Lease)) func() func() {
	return func() func() {
		cancelling.on(c, store.Filter{Queue: queue}, 100)
		c.Enqueue(plainBut(func(n *store.NewJob) { n.Backoff, n.MaxRetries = store.Backoff{}, 1000 }))
		l := c.ClaimOne().Lease()
		return func() { change(l) }
	}
}

// formsAtOnce end a lease so that the job is claimable at once.
var formsAtOnce = []store.Form{store.Release, store.Snooze, store.After, store.Fail}

func notifyFollowsEachCommit(c *C) {
	c.wokenBy("Enqueue", func() func() { return func() { c.Enqueue(plain()) } })
	for _, form := range formsAtOnce {
		c.wokenBy("NAck "+string(form), c.heldAtOnce(func(l store.Lease) { c.NAck(l, form, 0, "") }))
	}
	c.wokenBy("RecoverExpiredLeases without a backoff", c.heldAtOnce(func(store.Lease) {
		c.Advance(ttl)
		c.Equal(len(c.Recover(10)), 1, "recovered")
	}))
	c.wokenBy("Requeue", func() func() {
		cancelling.on(c, store.Filter{Queue: queue}, 100)
		id := c.JobIn(store.Dead).ID
		return func() { c.Requeue(id) }
	})
	for _, op := range []store.Op{store.OpAfter, store.OpSnooze} {
		c.wokenBy("Reschedule after "+string(op), func() func() {
			cancelling.on(c, store.Filter{Queue: queue}, 100)
			l := c.JobIn(store.InFlight).Lease()
			underLease(c, op, l)
			return func() { c.Reschedule(l.ID, time.Time{}) }
		})
	}
	c.wokenBy("Enqueue with Replace", func() func() {
		cancelling.on(c, store.Filter{Queue: queue}, 100)
		later := keyed("key", 0)
		later.Delay = time.Hour
		c.Enqueue(later)
		return func() { c.answers(replacing("key", nil)) }
	})
}

func notifyFollowsTheEndOfAPause(c *C) {
	c.wokenBy("SetPaused false", func() func() {
		c.setPaused(queue, true)
		c.EnqueueOne()
		return func() { c.setPaused(queue, false) }
	})
}

// fillQueue empties the queue, in which one such job may be in flight, and claims one of two new ones.
func (c *C) fillQueue(n store.NewJob) store.Job {
	cancelling.on(c, store.Filter{Queue: queue}, store.MaxItems)
	c.Enqueue(n, n)
	held := c.ClaimOne()
	c.Equal(ids(c.Claim(1)), []int64{}, "claimed without room")
	return held
}

func notifyFollowsRoom(c *C) {
	c.wokenByRoom(plain(), func(most int) { c.admit(queue, most) })
}

func notifyFollowsRoomOfAKey(c *C) {
	c.wokenByRoom(ofKey("a"), func(most int) { c.admitPerKey(queue, most) })
	c.wokenBy("room of a key after a claim that has taken others", func() func() {
		held := c.fillQueue(ofKey("a"))
		other := c.enqueueOf("b")
		c.Equal(ids(c.Claim(1)), other, "claimed from another key")
		return func() { c.Ack(held.Lease()) }
	})
}

// notifyFollowsRoomInOrder ends the first job of a key, in flight and while it waits.
func notifyFollowsRoomInOrder(c *C) {
	c.wokenByRoom(ofKey("a"), func(most int) { c.keepInOrder(queue, store.Policy{RetainDead: time.Duration(most) * time.Hour}) })
	waiting := func(change func(*store.NewJob)) int64 {
		cancelling.on(c, store.Filter{Queue: queue}, store.MaxItems)
		n := ofKey("a")
		change(&n)
		list := c.Enqueue(n, ofKey("a"))
		c.Equal(ids(c.Claim(1)), []int64{}, "claimed behind a job that waits")
		return list[0]
	}
	delayed := func(n *store.NewJob) { n.Delay = time.Hour }
	c.wokenBy("a job behind one that is cancelled", func() func() {
		id := waiting(delayed)
		return func() { c.Cancel(id) }
	})
	c.wokenBy("a job behind one that was expired and is settled", func() func() {
		waiting(func(n *store.NewJob) { n.Delay, n.ExpiresAt = time.Minute, c.Now().Add(2*time.Minute) })
		c.Advance(2 * time.Minute)
		return c.settleAll
	})
}

// wokenByRoom checks that room for one more such job wakes up. The given function sets how many may be in flight.
func (c *C) wokenByRoom(n store.NewJob, admit func(most int)) {
	admit(1)
	for _, op := range []store.Op{store.OpAck, store.OpNever} {
		c.wokenBy("room by "+string(op), func() func() {
			held := c.fillQueue(n)
			return func() { takes(c, op, c.Get(held.ID), "under a lease that takes the only room") }
		})
	}
	c.wokenBy("room by a Cancel", func() func() {
		held := c.fillQueue(n)
		return func() { c.Cancel(held.ID) }
	})
	c.wokenBy("room by a recovery", func() func() {
		c.fillQueue(n)
		c.Advance(ttl)
		return func() { c.Recover(10) }
	})
	c.wokenBy("room by a policy", func() func() {
		c.fillQueue(n)
		return func() { admit(2); admit(1) }
	})
}

// notifyFollowsRoomUnderARate moves the clock by as long as it takes until there is room. Jobs that are claimed on the way are not those that wait.
func notifyFollowsRoomUnderARate(c *C) {
	c.rate(queue, aMinute(2))
	c.wokenBy("room under a rate", func() func() {
		c.EnqueueN(3)
		c.Equal(len(c.Claim(1)), 1, "claimed with room for two")
		c.Advance(20 * time.Second)
		c.Equal(len(c.Claim(2)), 1, "claimed with room for one more")
		return func() {
			c.Advance(40 * time.Second)
			c.Advance(time.Minute)
		}
	})
}

func notifyFollowsTheCommitOfATx(c *C) {
	committed := func(write func(in *C)) {
		c.inTx(func(t *txCase) {
			write(t.in)
			t.commit()
		})
	}
	c.wokenBy("the commit of an Enqueue", func() func() {
		return func() { committed(func(in *C) { in.EnqueueOne() }) }
	})
	for _, form := range formsAtOnce {
		c.wokenBy("the commit of a NAck, "+string(form), c.heldAtOnce(func(l store.Lease) {
			committed(func(in *C) { in.NAck(l, form, 0, "") })
		}))
	}
	c.admit(queue, 1)
	c.wokenBy("room by the commit of an Ack", func() func() {
		held := c.fillQueue(plain())
		return func() { committed(func(in *C) { in.Ack(held.Lease()) }) }
	})
	c.wokenBy("room by an Ack, after one that was rolled back", func() func() {
		held := c.fillQueue(plain())
		c.inTx(func(t *txCase) {
			t.acks(held.Lease())
			t.rollback()
		})
		return func() { c.Ack(held.Lease()) }
	})
}

// Each queue of one Cancel is told of, whether the jobs are named or looked for.
func notifyFollowsTheCancellation(c *C) {
	queues := []string{"a", "b"}
	for _, named := range []bool{true, false} {
		for _, told := range queues {
			var latest store.Lease
			c.followed("Cancel", told, store.Wakeup{Queue: told, Cancelled: true}, func() func() {
				f := store.Filter{Queues: queues}
				for _, name := range queues {
					c.enqueueIn(name)
					req := claimOf(1)
					req.Queue = name
					latest = c.ClaimBy(req)[0].Lease()
					if named {
						f.IDs = append(f.IDs, latest.ID)
					}
				}
				return func() { cancelling.on(c, f, 10) }
			})
			c.Equal(c.Extend(latest).Status, store.StatusCancelled, "the Extend that follows")
		}
	}
}

// Who claims from another queue is told too, because anybody may settle.
func notifyFollowsWhatIsLeft(c *C) {
	c.followed("an Ack that leaves something", "another queue", store.Wakeup{Settle: true}, func() func() {
		c.settleAll()
		before := c.parents(1)[0]
		c.Enqueue(slices.Repeat([]store.NewJob{needing(before)}, store.SettledByCall)...)
		c.Enqueue(needing(before))
		lease := c.hold(before)
		return func() { c.Ack(lease) }
	})
}

// A job that becomes due with time needs no commit, and a reader who lost its wake-ups still finds all: also what was cancelled.
func notifyReplacesNoPoll(c *C) {
	c.subscribe(c.Ctx, queue)
	list := c.EnqueueN(20)
	list = append(list, c.Enqueue(plainBut(func(n *store.NewJob) { n.Delay = time.Minute }))...)
	c.Advance(time.Minute)
	c.Equal(ids(c.Claim(100)), list, "claimed by a poll, with no wake-up read")
	c.Cancel(list[0])
	c.Equal(c.Extend(store.Lease{ID: list[0], Token: 1}).Status, store.StatusCancelled, "a heartbeat, with no wake-up read")
}

func notifySlowReaderHoldsUpNobody(c *C) {
	slow := c.subscribe(c.Ctx)
	fast := c.subscribe(c.Ctx, queue)
	const calls = 300
	for range calls {
		c.EnqueueOne()
	}
	c.True(len(slow) <= calls, "wake-ups kept for the slow reader: %d", len(slow))
	c.woken(fast, queue)
	c.Equal(len(c.Claim(store.MaxItems)), len(c.All()), "jobs claimed")
	c.True(c.wakes(slow, store.Wakeup{Queue: queue}), "the slow reader is woken when it looks")
}

func notifyClosed(c *C) {
	ctx, cancel := context.WithCancel(c.Ctx)
	ending, staying, unread := c.subscribe(ctx, queue), c.subscribe(c.Ctx, queue), c.subscribe(c.Ctx)
	cancel()
	c.endsInTime(ending)
	c.woken(staying, queue)
	c.OK(c.Store.Close(), "Close")
	c.endsInTime(staying)
	c.endsInTime(unread)
}

func notifyManySubscribers(c *C) {
	c.Parallel(8, func(int) {
		for range 20 {
			ctx, cancel := context.WithCancel(c.Ctx)
			wakeups := c.subscribe(ctx, queue)
			c.EnqueueOne()
			cancel()
			if _, ended := c.endsInTime(wakeups); !ended {
				return
			}
		}
	})
	c.Equal(len(c.Claim(store.MaxItems)), 8*20, "jobs claimed")
}

func notifyRefusesAsTheCoreDoes(c *C) {
	notifier := c.notifier()
	c.refusesAsTheCoreDoes(abilityCalls{"Subscribe": func(ctx context.Context, name string) error {
		wakeups, err := notifier.Subscribe(ctx, []string{queue, name})
		c.True(wakeups == nil, "no channel comes with an error")
		return err
	}}, func() {})
}
