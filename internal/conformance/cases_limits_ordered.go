package conformance

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	sentenceInOrder   = "If the policy is Ordered, a claim takes a job with a LimitKey only if no other live job of the queue with the same key has a smaller id or is in flight, whatever other calls do at the same time."
	sentenceHoldsBack = "So a job holds back the later ones of its key while it is in flight, not yet due, blocked, or expired but not yet cancelled."
	sentenceGone      = "One that has ended holds back none, and goes next if it is requeued."
	sentenceOneLane   = "A retrying job with a key is in the lane of fresh jobs there, so that no RetryQuota holds up its key."
	sentenceNoRank    = "A job with a LimitKey must have no priority if the policy of its queue is Ordered. Those of schedules, and those that are there already, keep theirs: it counts between keys."
)

var orderedCases = []Case{
	{"Limits/Keys/Ordered/OneAtATimeByID", sentenceInOrder, orderedOneAtATimeByID},
	{"Limits/Keys/Ordered/JobThatWaitsHoldsBack", sentenceHoldsBack, orderedJobThatWaitsHoldsBack},
	{"Limits/Keys/Ordered/BlockedJobHoldsBack", sentenceHoldsBack, orderedBlockedJobHoldsBack},
	{"Limits/Keys/Ordered/ExpiredJobHoldsBackUntilItIsCancelled", sentenceHoldsBack, orderedExpiredJobHoldsBack},
	{"Limits/Keys/Ordered/JobThatHasEndedHoldsBackNone", sentenceGone + "\n" + sentenceEveryJob, orderedEndedJobHoldsBackNone},
	{"Limits/Keys/Ordered/RequeuedJobGoesNext", sentenceGone, orderedRequeuedJobGoesNext},
	{"Limits/Keys/Ordered/NoQuotaHoldsUpAKey", sentenceOneLane, orderedNoQuotaHoldsUpAKey},
	{"Limits/Keys/Ordered/OfOneQueueAlone", "Claims keep to its limits.\n" + sentenceInOrder, orderedOfOneQueueAlone},
	{"Limits/Keys/Ordered/BesideOtherLimits", sentenceRoom + "\n" + sentenceInOrder + "\n" + sentenceNextKey, orderedBesideOtherLimits},
	{"Limits/Keys/Ordered/PriorityIsRefused", sentenceNoRank, orderedPriorityIsRefused},
	{"Limits/Keys/Ordered/PriorityCountsBetweenKeys", sentenceNoRank + "\n" + sentenceInOrder, orderedPriorityCountsBetweenKeys},
	{"Limits/Keys/Ordered/FollowsThePolicy", "A claim that begins after SetPolicy has returned keeps to the new limits.\n" + sentenceInOrder, orderedFollowsThePolicy},
	{"Limits/Keys/Ordered/JobThatBecomesClaimableIsFound", sentenceEveryJob + "\n" + sentenceHoldsBack, orderedLateJobIsFound},
	{"Limits/Keys/Ordered/ManyClaimersKeepTheOrder", sentenceInOrder, orderedManyClaimersKeepTheOrder},
	{"Limits/Keys/Ordered/PolicyIsKept", "SetPolicy replaces the queue's policy as a whole with p, and returns it with the next version.\nEach queue comes with its policy.", orderedPolicyIsKept},
}

// keepInOrder sets the queue's policy to p, with Ordered.
func (c *C) keepInOrder(name string, p store.Policy) {
	c.Helper()
	p.Ordered, p.Version = true, c.policy(name).Version
	c.setPolicy(name, p)
}

// orderedOneAtATimeByID has due times that disagree with the order of ids, in two keys and without one.
func orderedOneAtATimeByID(c *C) {
	c.keepInOrder(queue, store.Policy{MaxPerKey: 5})
	lines := map[string][]int64{}
	for i := range 12 {
		n := ofKey([]string{"a", "b", ""}[i%3])
		n.RunAt = c.Now().Add(-time.Duration(i) * time.Second).Add(time.Minute)
		lines[n.LimitKey] = append(lines[n.LimitKey], c.Enqueue(n)...)
	}
	c.Equal(ids(c.Claim(20)), []int64{}, "claimed when none is due")
	c.Advance(time.Minute)
	free := slices.Clone(lines[""])
	slices.Reverse(free)
	c.Equal(ids(c.Claim(20)), append(free, lines["b"][0], lines["a"][0]), "claimed in one call, the earliest due time first")
	c.Equal(ids(c.Claim(20)), []int64{}, "claimed while a job of each key is in flight")
	for i := range 3 {
		c.ackOf(lines["a"][i])
		c.Equal(ids(c.Claim(20)), lines["a"][i+1:i+2], "claimed when the job before has ended")
	}
	c.ackOf(lines["b"][0], lines["a"][3])
	c.Equal(ids(c.Claim(20)), lines["b"][1:2], "claimed of the other key")
	c.Equal(ids(c.Claim(20)), []int64{}, "claimed then")
}

// orderedJobThatWaitsHoldsBack has the first job of a key wait in each way, and lets it go.
func orderedJobThatWaitsHoldsBack(c *C) {
	for i, end := range []struct {
		form        store.Form
		delay, wait time.Duration // as given, and how long the job waits
	}{
		{store.Fail, 0, time.Minute}, {store.After, time.Minute, time.Minute}, {store.Snooze, time.Minute, time.Minute}, {store.Release, 0, 0},
	} {
		name := fmt.Sprint("waits ", i)
		c.keepInOrder(name, store.Policy{})
		n := plainBut(func(n *store.NewJob) {
			n.Queue, n.LimitKey, n.Delay, n.Backoff = name, "a", time.Minute, store.Backoff{Base: time.Minute, Cap: time.Minute}
		})
		first := c.Enqueue(n)[0]
		n.Delay = 0
		second := c.Enqueue(n)[0]
		c.Equal(ids(c.claimFrom(name, 9, 0)), []int64{}, "claimed while the first job is delayed")
		c.Advance(time.Minute)
		held := c.claimFrom(name, 9, 0)
		c.Equal(ids(held), []int64{first}, "claimed when the first job is due")
		c.NAck(held[0].Lease(), end.form, end.delay, "")
		if end.wait > 0 {
			c.Equal(ids(c.claimFrom(name, 9, 9)), []int64{}, "claimed while the first job waits after %s", end.form)
		}
		c.Advance(end.wait)
		c.Equal(ids(c.claimFrom(name, 9, 0)), []int64{first}, "claimed when it is due again after %s", end.form)
		c.Advance(2 * ttl)
		c.Equal(ids(c.claimFrom(name, 9, 9)), []int64{}, "claimed when its lease has expired, and was not recovered")
		c.Recover(9)
		c.Advance(time.Minute)
		c.Equal(ids(c.claimFrom(name, 9, 9)), []int64{first}, "claimed when it was recovered and is due")
		c.ackOf(first)
		c.Equal(ids(c.claimFrom(name, 9, 9)), []int64{second}, "claimed when it has ended")
		c.Cancel(second)
	}
}

func orderedBlockedJobHoldsBack(c *C) {
	if c.noWaits {
		return
	}
	c.keepInOrder(queue, store.Policy{})
	on := c.parents(1)[0]
	waits := ofKey("a")
	waits.After = []store.Wait{{ID: on}}
	list := c.Enqueue(waits, ofKey("a"), ofKey("b"))
	c.Equal(ids(c.Claim(9)), list[2:], "claimed while the first job of a key is blocked")
	c.Ack(c.hold(on))
	c.settleAll()
	c.Equal(ids(c.Claim(9)), list[:1], "claimed when it is not blocked any more")
	c.ackOf(list[0])
	c.Equal(ids(c.Claim(9)), list[1:2], "claimed when it has ended")
}

func orderedExpiredJobHoldsBack(c *C) {
	c.keepInOrder(queue, store.Policy{})
	n := ofKey("a")
	n.ExpiresAt = c.Now().Add(time.Minute)
	list := c.Enqueue(n, ofKey("a"))
	c.Advance(time.Minute)
	c.Equal(ids(c.Claim(9)), []int64{}, "claimed while the first job has expired and is not cancelled")
	c.settleAll()
	c.Equal(c.Get(list[0]).State, store.Cancelled, "the state of the first job after Settle")
	c.Equal(ids(c.Claim(9)), list[1:], "claimed when it is cancelled")
}

// orderedEndedJobHoldsBackNone ends the first job of a key in each way, while it waits and in flight.
func orderedEndedJobHoldsBackNone(c *C) {
	ways := map[string]func(id int64){
		"cancelled":           func(id int64) { c.Cancel(id) },
		"succeeded":           func(id int64) { c.Ack(c.claimIn(c.Get(id).Queue, id)) },
		"dead":                func(id int64) { c.NAck(c.claimIn(c.Get(id).Queue, id), store.Never, 0, "") },
		"cancelled in flight": func(id int64) { c.claimIn(c.Get(id).Queue, id); c.Cancel(id) },
		"cancelled and deleted": func(id int64) {
			c.Cancel(id)
			c.Delete(id)
		},
		"cancelled as a retry": func(id int64) {
			c.NAck(c.claimIn(c.Get(id).Queue, id), store.After, time.Hour, "")
			c.Cancel(id)
		},
	}
	for how, end := range ways {
		c.keepInOrder(how, store.Policy{})
		n := plainBut(func(n *store.NewJob) { n.Queue, n.LimitKey = how, "a" })
		list := c.Enqueue(n, n, n)
		end(list[0])
		c.Equal(ids(c.claimFrom(how, 9, 0)), list[1:2], "claimed when the first job was %s", how)
		c.Cancel(list[2])
		c.ackOf(list[1])
		c.Equal(ids(c.claimFrom(how, 9, 0)), []int64{}, "claimed when all have ended")
	}
}

// orderedRequeuedJobGoesNext requeues jobs that had ended before later ones began.
func orderedRequeuedJobGoesNext(c *C) {
	c.keepInOrder(queue, store.Policy{})
	list := c.enqueueOf(of("a", 5)...)
	c.NAck(c.claimIn(queue, list[0]), store.Never, 0, "")
	c.Ack(c.claimIn(queue, list[1]))
	c.claimIn(queue, list[2])
	c.Requeue(list[1])
	c.Equal(ids(c.Claim(9)), []int64{}, "claimed while a later job is in flight")
	c.endAll([]store.Job{c.Get(list[2]).Job}, store.After, 0)
	c.Advance(time.Second)
	c.Requeue(list[0])
	for _, id := range list {
		c.Ack(c.claimIn(queue, id))
	}
	c.Requeue(list[3])
	c.Equal(ids(c.Claim(9)), list[3:4], "claimed when all had ended, and one was requeued")
}

// orderedNoQuotaHoldsUpAKey has retries of keys, and of no key, beside fresh jobs.
func orderedNoQuotaHoldsUpAKey(c *C) {
	c.keepInOrder(queue, store.Policy{})
	retries := c.enqueueOf("a", "", "b", "")
	c.endAll(c.Claim(9), store.After, 0)
	c.Advance(time.Second)
	fresh := c.enqueueOf("", "a", "c", "")
	c.Equal(ids(c.claimFrom(queue, 3, 0)), []int64{retries[0], retries[2], fresh[0]}, "claimed first without a quota for retries")
	c.Equal(ids(c.claimFrom(queue, 9, 1)), []int64{retries[1], retries[3], fresh[2], fresh[3]}, "claimed then, retries without a key first")
	c.ackOf(retries[0])
	c.Equal(ids(c.claimFrom(queue, 9, 0)), fresh[1:2], "claimed behind a retry")
}

func orderedOfOneQueueAlone(c *C) {
	in := func(name, key string) store.NewJob {
		return plainBut(func(n *store.NewJob) { n.Queue, n.LimitKey = name, key })
	}
	var lists [3][]int64
	for i, name := range []string{"x", "y", "z"} {
		lists[i] = c.Enqueue(in(name, "a"), in(name, "a"), in(name, "b"), in(name, ""), in(name, ""))
	}
	c.keepInOrder("x", store.Policy{})
	c.keepInOrder("y", store.Policy{})
	for i, name := range []string{"x", "y"} {
		c.Equal(ids(c.claimFrom(name, 9, 0)), []int64{lists[i][0], lists[i][2], lists[i][3], lists[i][4]}, "claimed from the ordered queue %s", name)
	}
	c.Equal(ids(c.claimFrom("z", 9, 0)), lists[2], "claimed from a queue that is not ordered")
	c.ackOf(lists[0][0])
	c.Equal(ids(c.claimFrom("y", 9, 0)), []int64{}, "claimed when a job of another queue has ended")
	c.Equal(ids(c.claimFrom("x", 9, 0)), lists[0][1:2], "claimed from its own")
}

// orderedBesideOtherLimits has a queue that is full, and one in which keys take turns.
func orderedBesideOtherLimits(c *C) {
	c.keepInOrder(queue, store.Policy{MaxInFlight: 2})
	list := c.enqueueOf("a", "a", "b", "b", "c")
	c.Equal(ids(c.Claim(9)), []int64{list[0], list[2]}, "claimed with room for two")
	c.ackOf(list[0])
	c.Equal(ids(c.Claim(9)), list[1:2], "claimed with room for one more")
	c.ackOf(list[2], list[1])
	c.Equal(ids(c.Claim(9)), list[3:], "claimed at last")

	c.keepInOrder("fair", store.Policy{Fair: true})
	in := func(key string) store.NewJob {
		return plainBut(func(n *store.NewJob) { n.Queue, n.LimitKey = "fair", key })
	}
	lines := map[string][]int64{}
	for _, key := range []string{"a", "b", ""} {
		lines[key] = c.Enqueue(slices.Repeat([]store.NewJob{in(key)}, 6)...)
	}
	next := map[string]int{}
	for range 6 {
		var claimed []store.Job
		for range 3 {
			claimed = append(claimed, c.claimFrom("fair", 1, 0)...)
		}
		c.Equal(slices.Sorted(slices.Values(keysOf(claimed))), []string{"", "a", "b"}, "the keys of three jobs, sorted")
		for _, j := range claimed {
			c.Equal(j.ID, lines[j.LimitKey()][next[j.LimitKey()]], "the job of key %q", j.LimitKey())
			next[j.LimitKey()]++
		}
		c.ackOf(ids(claimed)...)
	}
}

// orderedPriorityIsRefused has jobs with priorities, with and without a key, in an ordered queue and in another one.
func orderedPriorityIsRefused(c *C) {
	with := func(name, key string, priority int) store.NewJob {
		return plainBut(func(n *store.NewJob) { n.Queue, n.LimitKey, n.Priority = name, key, priority })
	}
	req := store.EnqueueRequest{RequestKey: "before", Jobs: []store.NewJob{with(queue, "a", 1)}}
	before := c.asked(req)
	c.keepInOrder(queue, store.Policy{})
	c.Equal(c.asked(req), before, "the answers to a repeat of a call from before")
	c.Enqueue(with(queue, "", 9), with("other", "a", 9), with(queue, "a", 0))
	count := c.howMany()
	for _, priority := range []int{store.MinPriority, 1} {
		_, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{with(queue, "a", 0), with("other", "a", 1), with(queue, "b", priority), with(queue, "c", 2)}})
		c.refused(err, 2, "priority", "a job with a key and a priority")
	}
	c.Equal(c.howMany(), count, "jobs after calls that were refused")
	c.setPolicy(queue, store.Policy{Version: c.policy(queue).Version})
	c.Enqueue(with(queue, "a", 9))
}

func orderedPriorityCountsBetweenKeys(c *C) {
	with := func(key string, priority int) store.NewJob {
		return plainBut(func(n *store.NewJob) { n.LimitKey, n.Priority = key, priority })
	}
	list := c.Enqueue(with("a", -1), with("a", 9), with("b", 0), with("b", -9), with("c", 5))
	c.keepInOrder(queue, store.Policy{})
	c.Equal(ids(c.Claim(2)), []int64{list[4], list[2]}, "claimed first")
	c.Equal(ids(c.Claim(9)), list[:1], "claimed then, although a later job of the key has the highest priority")
	c.ackOf(list[0], list[2])
	c.Equal(ids(c.Claim(9)), []int64{list[1], list[3]}, "claimed when those before have ended")
}

// orderedFollowsThePolicy sets the policy while jobs are in every phase, and lifts it.
func orderedFollowsThePolicy(c *C) {
	list := c.enqueueOf(of("a", 6)...)
	c.Equal(ids(c.Claim(3)), list[:3], "claimed before")
	c.endAll([]store.Job{c.Get(list[1]).Job}, store.After, time.Minute)
	c.keepInOrder(queue, store.Policy{})
	c.Equal(ids(c.Claim(9)), []int64{}, "claimed while two of a key are in flight from before")
	c.ackOf(list[2])
	c.Equal(ids(c.Claim(9)), []int64{}, "claimed while one is")
	c.ackOf(list[0])
	c.Equal(ids(c.Claim(9)), []int64{}, "claimed while the first one waits for its retry")
	c.Advance(time.Minute)
	c.Ack(c.claimIn(queue, list[1]))
	c.keepInOrder(queue, store.Policy{RetainDead: time.Hour})
	c.claimIn(queue, list[3])
	c.setPolicy(queue, store.Policy{Version: c.policy(queue).Version})
	c.Equal(ids(c.Claim(1)), list[4:5], "claimed when the queue is not ordered any more")
	more := c.enqueueOf("a", "b")
	c.keepInOrder(queue, store.Policy{Fair: true})
	c.Equal(ids(c.Claim(9)), more[1:], "claimed when it is ordered again, and two of a key are in flight")
	c.ackOf(list[4], list[3])
	c.Equal(ids(c.Claim(9)), list[5:], "claimed when they have ended")
	c.ackOf(list[5])
	c.keepInOrder(queue, store.Policy{MaxPerKey: 3})
	c.Equal(ids(c.Claim(9)), more[:1], "claimed at last")
}

// orderedLateJobIsFound has a job that becomes claimable late hold back the others of its key while it is live, and go next then.
func orderedLateJobIsFound(c *C) {
	for i, late := range latecomers(c) {
		name := fmt.Sprint("late ", i)
		c.keepInOrder(name, store.Policy{})
		n := plainBut(func(n *store.NewJob) { n.Queue, n.LimitKey = name, "k" })
		id := late.prepare(c, n)
		others := c.Enqueue(n, n)
		first := c.Get(id)
		claimed := ids(c.claimFrom(name, 9, 0))
		if slices.Contains([]store.State{store.Succeeded, store.Dead, store.Cancelled}, first.Phase()) {
			c.Equal(claimed, others[:1], "claimed while the first job has ended, to be %s", late.how)
			c.endAll([]store.Job{c.Get(others[0]).Job}, store.After, 0)
		} else {
			c.Equal(claimed, []int64{}, "claimed before the first job is %s", late.how)
		}
		late.release(c, id)
		c.Ack(c.claimIn(name, id))
		for _, other := range others {
			c.Ack(c.claimIn(name, other))
		}
	}
}

// orderedManyClaimersKeepTheOrder has claimers that fail some of the jobs, and others that add more.
func orderedManyClaimersKeepTheOrder(c *C) {
	const claimers, keys, rounds = 4, 5, 30
	c.keepInOrder(queue, store.Policy{})
	key := func(i int) string { return fmt.Sprint("key ", i%keys) }
	var all []store.NewJob
	for i := range keys * rounds {
		n := ofKey(key(i))
		n.MaxRetries = store.MaxRetryLimit
		all = append(all, n)
	}
	c.Enqueue(all...)
	var mu sync.Mutex
	running, finished, left := map[string]int64{}, map[string]int64{}, len(all)
	begin := func(j store.Job) {
		mu.Lock()
		defer mu.Unlock()
		if other, some := running[j.LimitKey()]; some {
			c.Errorf("job %d was claimed while job %d of its key is in flight", j.ID, other)
		}
		if j.ID < finished[j.LimitKey()] {
			c.Errorf("job %d was claimed after job %d of its key", j.ID, finished[j.LimitKey()])
		}
		running[j.LimitKey()] = j.ID
	}
	end := func(j store.Job, ack bool) {
		mu.Lock()
		defer mu.Unlock()
		delete(running, j.LimitKey())
		if ack {
			finished[j.LimitKey()] = j.ID
			left--
		}
	}
	more := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return left > 0
	}
	c.Parallel(claimers, func(i int) {
		for n := 0; more() && n < 100*len(all); n++ {
			for k, j := range c.Claim(1 + (n+i)%3) {
				begin(j)
				ack := (n+k)%4 > 0
				end(j, ack) // before the call, which lets others claim
				if ack {
					c.Ack(j.Lease())
				} else {
					c.NAck(j.Lease(), store.After, 0, "")
				}
			}
		}
	})
	c.Equal(left, 0, "jobs that are not finished")
}

func orderedPolicyIsKept(c *C) {
	all := c.setPolicy("a", store.Policy{MaxInFlight: 9, MaxPerKey: 4, Fair: true, Ordered: true, Rate: aMinute(1)})
	only := c.setPolicy("b", store.Policy{Ordered: true})
	unset := c.setPolicy("c", store.Policy{Version: c.setPolicy("c", store.Policy{Ordered: true}).Version})
	c.Equal(c.queues(), []store.Queue{{Name: "a", Policy: all}, {Name: "b", Policy: only}}, "queues")
	c.Equal(c.policy("c"), unset, "the policy that was unset")
	c.answersPolicy("b", store.Policy{Ordered: true}, only)
	next := c.setPolicy("a", store.Policy{MaxPerKey: 4, Version: all.Version})
	c.True(!next.Ordered, "a policy that replaces one that is ordered is as it was given")
}
