package conformance

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	sentenceKeyRoom    = "If the policy sets MaxPerKey, a claim takes a job with a LimitKey only if, with it, at most that number of the queue's jobs with the same key are in flight, whatever other calls do at the same time."
	sentencePassesOver = "It passes over the others: a key that has no room holds back neither other keys nor jobs without a key."
	sentenceLanes      = "It takes up to RetryQuota retries and then fresh jobs up to Limit. If one lane has too few jobs, the other lane fills the places that are left."
	sentenceHeavy      = "A lane ends before the first job that would raise the total size of the lane's documents above MaxAnswerBytes."
	sentenceEveryJob   = "A claim that overlaps no other call takes every claimable job of its queue, up to these limits."
)

// NoKeyLimits is what an adapter excludes that keeps limit keys, but neither limits anything by them nor lets them take turns.
const NoKeyLimits = "Limits/Keys/"

var keyLimitCases = []Case{
	{"Limits/Keys/ClaimTakesWhatEachHasRoomFor", sentenceKeyRoom, keysClaimTakesWhatEachHasRoomFor},
	{"Limits/Keys/FullOneHidesNoOther", sentencePassesOver + "\n" + sentenceRoom, keysFullOneHidesNoOther},
	{"Limits/Keys/CountInBothLanes", sentenceLanes + "\n" + sentenceKeyRoom, keysCountInBothLanes},
	{"Limits/Keys/FullOneHidesNoLowerPriority", sentencePassesOver, keysFullOneHidesNoLowerPriority},
	{"Limits/Keys/JobsWithoutOneAreNotLimited", sentencePassesOver, keysJobsWithoutOneAreNotLimited},
	{"Limits/Keys/EveryEndOfALeaseMakesRoom", sentenceInFlight, keysEveryEndMakesRoom},
	{"Limits/Keys/OfOneQueueAlone", "Claims keep to its limits.\n" + sentenceKeyRoom, keysOfOneQueueAlone},
	{"Limits/Keys/FollowThePolicy", "A claim that begins after SetPolicy has returned keeps to the new limits. Jobs that were in flight before count as well, and go on if there are more of them.", keysFollowThePolicy},
	{"Limits/Keys/AreFoundInOrder", "In each lane, jobs with a higher priority come first, then jobs with an earlier due time, then jobs with a smaller id.\n" + sentencePassesOver, keysAreFoundInOrder},
	{"Limits/Keys/CancelledJobHidesNoLane", sentenceLanes, keysCancelledJobHidesNoLane},
	{"Limits/Keys/ClockThatWasAheadHidesNoJob", sentenceEveryJob, keysClockThatWasAhead},
	{"Limits/Keys/LaneEndsAtItsFirstHeavyJob", sentenceHeavy + "\n" + sentenceEveryJob, keysLaneEndsAtItsFirstHeavyJob},
	{"Limits/Keys/PassedOverJobsWeighNothing", sentenceHeavy + "\n" + sentencePassesOver, keysPassedOverJobsWeighNothing},
	{"Limits/Keys/ManyClaimersKeepToIt", sentenceKeyRoom, keysManyClaimersKeepToIt},
	{"Limits/Keys/PolicyIsKept", "SetPolicy replaces the queue's policy as a whole with p, and returns it with the next version.\nEach queue comes with its policy.", keysPolicyIsKept},
	{"Limits/Keys/HaveBounds", "ErrInvalid: the request breaks a limit and nothing was applied.", keysHaveBounds},
}

// admitPerKey sets how many jobs of the queue with the same limit key may be in flight.
func (c *C) admitPerKey(name string, most int) {
	c.Helper()
	c.setPolicy(name, store.Policy{MaxPerKey: most, Version: c.policy(name).Version})
}

// ofKey is a plain job with the limit key.
func ofKey(key string) store.NewJob {
	return plainBut(func(n *store.NewJob) { n.LimitKey = key })
}

// enqueueOf adds a job for each of the limit keys, and returns their ids.
func (c *C) enqueueOf(keys ...string) []int64 {
	c.Helper()
	return c.Enqueue(each(keys, ofKey)...)
}

// ackOf finishes jobs that are in flight.
func (c *C) ackOf(ids ...int64) {
	c.Helper()
	for _, id := range ids {
		c.Equal(c.Ack(c.Get(id).Lease()).Status, store.StatusOK, "Ack of job %d", id)
	}
}

func keysClaimTakesWhatEachHasRoomFor(c *C) {
	list := c.enqueueOf("a", "a", "a", "b", "", "a", "b", "b")
	c.admitPerKey(queue, 2)
	c.Equal(ids(c.Claim(1)), list[:1], "claimed with room for two of each")
	c.Equal(ids(c.Claim(10)), []int64{list[1], list[3], list[4], list[6]}, "claimed with room for one a and two b")
	c.Equal(ids(c.Claim(10)), []int64{}, "claimed without room")
	c.ackOf(list[0])
	c.Equal(ids(c.Claim(10)), list[2:3], "claimed when one a has ended")
	c.ackOf(list[3])
	c.Equal(ids(c.Claim(10)), list[7:], "claimed when one b has ended")
	c.ackOf(list[1], list[2], list[4])
	c.Equal(ids(c.Claim(10)), list[5:6], "claimed when both a have ended")
}

// keysFullOneHidesNoOther has more jobs of a key before the others than a claim can take.
func keysFullOneHidesNoOther(c *C) {
	c.admitPerKey(queue, 1)
	c.enqueueOf("full")
	held := c.ClaimOne()
	for range 3 {
		c.Enqueue(slices.Repeat([]store.NewJob{ofKey("full")}, store.MaxItems/2)...)
	}
	others := c.enqueueOf("b", "", "c", "b", "")
	for _, want := range [][]int64{others[:1], others[1:2], others[2:3], others[4:]} {
		c.Equal(ids(c.Claim(1)), want, "claimed behind the jobs of a key that has no room")
	}
	c.Equal(ids(c.Claim(store.MaxItems)), []int64{}, "claimed when every key is full")
	c.ackOf(others[:3]...)
	c.setPolicy(queue, store.Policy{MaxInFlight: 4, MaxPerKey: 1, Version: c.policy(queue).Version})
	more := c.enqueueOf("d", "")
	c.Equal(ids(c.Claim(store.MaxItems)), []int64{others[3], more[0]}, "claimed with room for two jobs of any key")
	c.Equal(ids(c.Claim(1)), []int64{}, "claimed when the queue is full")
	c.Ack(held.Lease())
	c.Equal(len(c.Claim(store.MaxItems)), 1, "claimed when a job of the full key has ended")
}

// keysCountInBothLanes has the retries a, a, b and one without a key, and the fresh jobs a, b, b, c and one without a key.
func keysCountInBothLanes(c *C) {
	for i, k := range []struct {
		limit, quota, inFlight int
		retries, fresh         []int // those that are claimed
	}{
		{10, 10, 0, []int{0, 2, 3}, []int{3, 4}},
		{10, 0, 0, []int{3}, []int{0, 1, 3, 4}},
		{10, 1, 0, []int{0, 3}, []int{1, 3, 4}},
		{2, 1, 0, []int{0}, []int{1}},
		{3, 2, 0, []int{0, 2}, []int{3}},
		{4, 0, 0, nil, []int{0, 1, 3, 4}},
		{10, 1, 2, []int{0}, []int{1}},
		{10, 5, 3, []int{0, 2, 3}, nil},
		{10, 0, 5, []int{3}, []int{0, 1, 3, 4}},
	} {
		name := fmt.Sprint("lanes ", i)
		in := func(key string) store.NewJob {
			return plainBut(func(n *store.NewJob) { n.Queue, n.LimitKey = name, key })
		}
		retries := c.Enqueue(each([]string{"a", "a", "b", ""}, in)...)
		c.endAll(c.claimFrom(name, 10, 0), store.After, 0)
		fresh := c.Enqueue(each([]string{"a", "b", "b", "c", ""}, in)...)
		c.setPolicy(name, store.Policy{MaxPerKey: 1, MaxInFlight: k.inFlight})
		var want []int64
		for _, at := range k.retries {
			want = append(want, retries[at])
		}
		for _, at := range k.fresh {
			want = append(want, fresh[at])
		}
		c.Equal(ids(c.claimFrom(name, k.limit, k.quota)), want, "claimed with limit %d and quota %d, %d in flight", k.limit, k.quota, k.inFlight)
	}
}

func keysFullOneHidesNoLowerPriority(c *C) {
	c.admitPerKey(queue, 2)
	var jobs []store.NewJob
	for _, key := range []string{"a", "a", "b"} {
		for _, priority := range []int{-9, 0, 9} {
			jobs = append(jobs, plainBut(func(n *store.NewJob) { n.LimitKey, n.Priority = key, priority }))
		}
	}
	list := c.Enqueue(jobs...)
	c.Equal(ids(c.Claim(10)), []int64{list[2], list[5], list[8], list[7]}, "claimed with room for two of each")
	c.ackOf(list[2])
	c.Equal(ids(c.Claim(10)), list[1:2], "claimed when one a has ended")
	c.ackOf(list[7], list[8])
	c.Equal(ids(c.Claim(10)), list[6:7], "claimed when both b have ended")
}

func keysJobsWithoutOneAreNotLimited(c *C) {
	c.admitPerKey(queue, 1)
	list := c.enqueueOf("", "a", "", "a", "", "", "a", "")
	c.Equal(ids(c.Claim(3)), list[:3], "claimed at first")
	c.Equal(ids(c.Claim(10)), []int64{list[4], list[5], list[7]}, "claimed beside a job of the only key")
}

// keysEveryEndMakesRoom has one job of a key in flight at a time: nothing else makes room but the end of its lease.
func keysEveryEndMakesRoom(c *C) {
	c.admitPerKey(queue, 1)
	c.everyEndMakesRoom(ofKey("a"))
	c.enqueueOf("b")
	req := claimOf(1)
	req.TTL = store.DefaultMaxLease
	c.Equal(len(c.ClaimBy(req)), 1, "claimed from another key")
	c.everyEndMakesRoom(ofKey("a"))
}

func keysOfOneQueueAlone(c *C) {
	for _, name := range []string{"a", "b", "c"} {
		c.Enqueue(slices.Repeat([]store.NewJob{plainBut(func(n *store.NewJob) { n.Queue, n.LimitKey = name, "k" })}, 4)...)
	}
	c.admitPerKey("b", 1)
	c.admitPerKey("c", 2)
	c.Equal(len(c.claimFrom("a", 3, 0)), 3, "claimed from a queue without a limit")
	c.Equal(len(c.claimFrom("c", 4, 0)), 2, "claimed from a queue with room for two of each key")
	c.Equal(len(c.claimFrom("b", 4, 0)), 1, "claimed from a queue with room for one of each key")
	c.Equal(len(c.claimFrom("a", 3, 0)), 1, "claimed from the queue without a limit once more")
}

func keysFollowThePolicy(c *C) {
	list := c.followThePolicy(ofKey("a"), c.admitPerKey)
	c.admitPerKey(queue, 1)
	c.ackOf(list[4], list[5])
	more := c.enqueueOf("a", "b", "b")
	c.Equal(ids(c.Claim(5)), more[1:2], "claimed when there is a limit again, and three are in flight")
	c.ackOf(list[6:]...)
	c.Equal(ids(c.Claim(5)), more[:1], "claimed when these have ended")
}

// A standing job waits in line, as a case sees it.
type standing struct {
	id   int64
	key  string
	job  store.NewJob
	held bool
}

// keysCancelledJobHidesNoLane has two retries and two fresh jobs, each with a key of its own. A claim that takes a job of one lane has looked at the other,
// whose first job is cancelled then.
func keysCancelledJobHidesNoLane(c *C) {
	for _, retries := range []bool{false, true} {
		name := fmt.Sprint("retries ", retries)
		in := func(key string) store.NewJob {
			return plainBut(func(n *store.NewJob) { n.Queue, n.LimitKey = name, key })
		}
		c.setPolicy(name, store.Policy{MaxPerKey: 1})
		hidden := c.Enqueue(each([]string{"a", "b"}, in)...)
		c.endAll(c.claimFrom(name, 2, 0), store.After, 0)
		others, quota := c.Enqueue(each([]string{"c", "d"}, in)...), 0
		if !retries {
			hidden, others, quota = others, hidden, 1
		}
		c.Equal(ids(c.claimFrom(name, 1, quota)), others[:1], "claimed of the lane whose turn it is, quota %d", quota)
		c.Cancel(hidden[0])
		c.Equal(ids(c.claimFrom(name, 1, 1-quota)), hidden[1:], "claimed of the lane whose first job is cancelled, quota %d", 1-quota)
	}
}

// keysClockThatWasAhead claims when the first job of each key has expired, and then sets the clock back, so that it has not.
func keysClockThatWasAhead(c *C) {
	now, list := c.Now(), map[string][]int64{}
	policies := map[string]store.Policy{"limited": {MaxPerKey: 1}, "fair": {Fair: true, MaxPerKey: 1}, "ordered": {Ordered: true}}
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		c.setPolicy(name, policies[name])
		alone, first, second := ofKey("a"), ofKey("b"), ofKey("b")
		alone.ExpiresAt, first.ExpiresAt = now.Add(time.Minute), now.Add(time.Minute)
		alone.Queue, first.Queue, second.Queue = name, name, name
		list[name] = c.Enqueue(alone, first, second)
	}
	claim := func(name string) []store.Job {
		req := claimOf(9)
		req.Queue = name
		return c.ClaimBy(req)
	}
	c.Advance(time.Minute)
	c.Equal(ids(claim("limited")), list["limited"][2:], "claimed with a limit for each key when the first jobs have expired")
	c.Equal(ids(claim("fair")), list["fair"][2:], "claimed when keys take turns and the first jobs have expired")
	c.Equal(ids(claim("ordered")), []int64{}, "claimed when keys are ordered and the first jobs have expired")
	c.Clock.Set(now)
	c.Equal(ids(claim("limited")), list["limited"][:1], "claimed with a limit for each key when the clock was set back")
	c.Equal(ids(claim("fair")), list["fair"][:1], "claimed when keys take turns and the clock was set back")
	c.Equal(ids(claim("ordered")), list["ordered"][:2], "claimed when keys are ordered and the clock was set back")
	c.ackOf(list["limited"][2])
	c.ackOf(list["fair"][2])
	c.Equal(ids(claim("limited")), list["limited"][1:2], "claimed with a limit for each key when there is room")
	c.Equal(ids(claim("fair")), list["fair"][1:2], "claimed when keys take turns and there is room")

	c.setPolicy("between", policies["limited"])
	between := func(expiresAt time.Time) store.NewJob {
		return plainBut(func(n *store.NewJob) { n.Queue, n.LimitKey, n.ExpiresAt = "between", "b", expiresAt })
	}
	three := c.Enqueue(between(time.Time{}), between(now.Add(time.Minute)), between(time.Time{}))
	c.Advance(time.Minute)
	c.Equal(ids(claim("between")), three[:1], "claimed when the second job has expired")
	c.Clock.Set(now)
	for i := range three[1:] {
		c.ackOf(three[i])
		c.Equal(ids(claim("between")), three[i+1:i+2], "claimed when the clock was set back, after %d jobs", i+1)
	}
}

// keysAreFoundInOrder has many keys with a few jobs each, which come in no order. It takes one job of each key at a time.
func keysAreFoundInOrder(c *C) {
	const keys, perKey, limit = 300, 3, 64
	c.admitPerKey(queue, 1)
	var line []standing
	for i := range keys * perKey {
		n := ofKey(fmt.Sprint("customer ", i*7919%keys))
		n.Priority, n.RunAt = i/5%3-1, c.Now().Add(time.Duration(i*31%1009)*time.Millisecond)
		line = append(line, standing{key: n.LimitKey, job: n})
	}
	for i, id := range c.Enqueue(each(line, func(s standing) store.NewJob { return s.job })...) {
		line[i].id = id
	}
	c.Advance(time.Minute)
	slices.SortFunc(line, func(a, b standing) int {
		return cmp.Or(cmp.Compare(b.job.Priority, a.job.Priority), a.job.RunAt.Compare(b.job.RunAt), cmp.Compare(a.id, b.id))
	})
	for round := range perKey {
		full := map[string]bool{}
		var held []store.Job
		for {
			want := []int64{}
			for i, s := range line {
				if len(want) < limit && !s.held && !full[s.key] {
					want = append(want, s.id)
					full[s.key], line[i].held = true, true
				}
			}
			claimed := c.Claim(limit)
			c.Equal(ids(claimed), want, "claimed from many keys, in round %d", round)
			if len(claimed) == 0 || c.Failed() {
				break
			}
			held = append(held, claimed...)
		}
		c.Equal(len(held), keys, "jobs in flight at the end of round %d", round)
		slices.Reverse(held)
		c.many(c.Store.Ack(c.Ctx, each(held, func(j store.Job) store.Ack { return store.Ack{Lease: j.Lease()} })))
	}
}

func keysPassedOverJobsWeighNothing(c *C) {
	c.admitPerKey(queue, 1)
	c.enqueueOf("full")
	c.ClaimOne()
	heavy := func(key string) store.NewJob {
		return plainBut(func(n *store.NewJob) { n.LimitKey, n.Payload = key, docOf(store.MaxDocBytes) })
	}
	for range 3 {
		c.Enqueue(heavy("full"), heavy("full"))
	}
	var list []int64
	for i := range 3 {
		list = append(list, c.Enqueue(heavy(""), heavy(fmt.Sprint(i)), heavy(""))...)
	}
	c.Equal(ids(c.Claim(20)), list[:8], "claimed behind heavy jobs of a full key, of nine such jobs")
	c.Equal(ids(c.Claim(20)), list[8:], "claimed then")
}

// keysLaneEndsAtItsFirstHeavyJob has jobs of which eight nearly fill an answer. In one queue, a job that still fits comes before the ninth, behind a key whose
// job is cancelled. In the other, it comes behind the ninth, which has no key.
func keysLaneEndsAtItsFirstHeavyJob(c *C) {
	add := func(name, key string, size int) int64 {
		return c.Enqueue(plainBut(func(n *store.NewJob) { n.Queue, n.LimitKey, n.Payload = name, key, docOf(size) }))[0]
	}
	const heavy, light = store.MaxDocBytes - 100, 2
	c.setPolicy("before", store.Policy{MaxPerKey: 1})
	first := add("before", "first", light)
	var list []int64
	for i := range mostHeavy {
		list = append(list, add("before", fmt.Sprint(i), heavy))
	}
	gone := add("before", "gone", light)
	list = append(list, add("before", "light", light))
	c.Equal(ids(c.claimFrom("before", 1, 0)), []int64{first}, "claimed when all keys are new")
	c.Cancel(gone)
	add("before", "last", heavy)
	c.Equal(ids(c.claimFrom("before", len(list), 0)), list, "claimed before the heavy job that does not fit")

	c.setPolicy("behind", store.Policy{MaxPerKey: 1})
	list = nil
	for range mostHeavy + 1 {
		list = append(list, add("behind", "", heavy))
	}
	list = append(list, add("behind", "light", light))
	c.Equal(ids(c.claimFrom("behind", 2*len(list), 0)), list[:mostHeavy], "claimed before the heavy job without a key that does not fit")
	c.Equal(ids(c.claimFrom("behind", 2*len(list), 0)), list[mostHeavy:], "claimed then")
}

// keysManyClaimersKeepToIt counts as limitsManyClaimersKeepToIt does, for each key.
func keysManyClaimersKeepToIt(c *C) {
	const most, claimers, rounds = 2, 6, 25
	keys := []string{"a", "b", ""}
	books := map[string]*ledger{}
	var jobs []store.NewJob
	for _, key := range keys {
		books[key] = &ledger{}
		jobs = append(jobs, slices.Repeat([]store.NewJob{ofKey(key)}, 8)...)
	}
	c.Enqueue(jobs...)
	c.admitPerKey(queue, most)
	held := make([][]store.Job, claimers)
	for round := range rounds {
		c.Parallel(claimers, func(i int) {
			for _, j := range held[i] {
				books[j.LimitKey()].gives(1)
			}
			if len(held[i]) > 0 {
				c.endAll(held[i], []store.Form{store.Release, store.Snooze}[round%2], 0)
			}
			held[i] = c.Claim(1 + (i+round)%4)
			for _, j := range held[i] {
				books[j.LimitKey()].took(1)
			}
		})
	}
	last := c.Claim(store.MaxItems)
	for _, j := range last {
		books[j.LimitKey()].took(1)
	}
	for _, key := range keys[:2] {
		book := books[key]
		c.True(book.mostOut <= most, "%d jobs of key %s were in flight at once, and %d may be", book.mostOut, key, most)
		c.Equal(book.out, most, "jobs of key %s in flight when all is quiet", key)
	}
	c.Equal(books[""].out, 8, "jobs without a key in flight when all is quiet")
}

func keysPolicyIsKept(c *C) {
	both := c.setPolicy("a", store.Policy{MaxInFlight: 9, MaxPerKey: 4})
	one := c.setPolicy("b", store.Policy{MaxPerKey: 1})
	unset := c.setPolicy("c", store.Policy{Version: c.setPolicy("c", store.Policy{MaxPerKey: 1}).Version})
	c.Equal(c.queues(), []store.Queue{{Name: "a", Policy: both}, {Name: "b", Policy: one}}, "queues")
	c.Equal(c.policy("c"), unset, "the policy that was unset")
	again := store.Policy{MaxPerKey: 4, Version: both.Version}
	next := c.setPolicy("a", again)
	c.answersPolicy("a", again, next)
	_, err := c.policyKeeper().SetPolicy(c.Ctx, "a", store.Policy{MaxPerKey: 5, Version: both.Version})
	c.ErrorIs(err, store.ErrConflict, "SetPolicy under an older version")
}

func keysHaveBounds(c *C) {
	for _, most := range []int{-1, store.MaxKeyLimit + 1} {
		p := store.Policy{MaxPerKey: most}
		c.refusesPolicy(p, store.ErrInvalid)
		_, err := c.policyKeeper().SetPolicy(c.Ctx, queue, p)
		c.refused(err, -1, "max_per_key", fmt.Sprintf("a policy with a limit of %d for each key", most))
	}
	for _, most := range []int{1, store.MaxKeyLimit, 0} {
		c.admitPerKey(queue, most)
	}
}
