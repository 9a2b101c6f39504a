package conformance

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	sentenceTurns        = "If the policy is Fair, the limit keys of the queue take turns in each lane, and jobs without a key are those of one key."
	sentenceFairPriority = "Jobs with a higher priority still come first."
	sentenceNextKey      = "Among the keys that have jobs of the same priority to take, that one comes first from which claims have taken no such job for the longest time, with the first of its jobs by due time and id."
	sentenceLaterKey     = "A key that had no such job in between, or no room, may come later, but before those from which claims take such a job once it has both."
	sentenceTurnsFrom    = "Turns count from when the policy becomes Fair, or from when another of its limits changes."
)

// In which order keys have their first turns is left to the store, so cases take it from the first claims.
var fairCases = []Case{
	{"Limits/Keys/Fair/KeysTakeTurns", sentenceTurns + "\n" + sentenceNextKey, fairKeysTakeTurns},
	{"Limits/Keys/Fair/ClaimTakesRoundByRound", sentenceTurns + "\n" + sentenceNextKey, fairClaimTakesRoundByRound},
	{"Limits/Keys/Fair/JobsWithoutAKeyAreOfOneKey", sentenceTurns, fairJobsWithoutAKeyAreOfOneKey},
	{"Limits/Keys/Fair/EarliestOfAKeyFirst", sentenceNextKey, fairEarliestOfAKeyFirst},
	{"Limits/Keys/Fair/PriorityFirst", sentenceFairPriority + "\n" + sentenceNextKey, fairPriorityFirst},
	{"Limits/Keys/Fair/HigherPriorityEndsNoTurn", sentenceFairPriority + "\n" + sentenceNextKey, fairHigherPriorityEndsNoTurn},
	{"Limits/Keys/Fair/LanesApart", sentenceTurns, fairLanesApart},
	{"Limits/Keys/Fair/OfOneQueueAlone", "Claims keep to its limits.\n" + sentenceTurns, fairOfOneQueueAlone},
	{"Limits/Keys/Fair/FullKeyIsPassedOver", sentencePassesOver + "\n" + sentenceLaterKey, fairFullKeyIsPassedOver},
	{"Limits/Keys/Fair/BesideOtherLimits", sentenceRoom + "\n" + sentenceRate + "\n" + sentenceNextKey, fairBesideOtherLimits},
	{"Limits/Keys/Fair/HeavyJobKeepsItsTurn", "A lane ends before the first job that would raise the total size of the lane's documents above MaxAnswerBytes.\n" + sentenceNextKey, fairHeavyJobKeepsItsTurn},
	{"Limits/Keys/Fair/KeyWithJobsKeepsItsTurn", sentenceNextKey, fairKeyWithJobsKeepsItsTurn},
	{"Limits/Keys/Fair/NewKeyWaitsOneRound", sentenceLaterKey, fairNewKeyWaitsOneRound},
	{"Limits/Keys/Fair/NobodyComesTwiceBeforeAnother", sentenceNextKey + "\n" + sentenceLaterKey, fairNobodyComesTwiceBeforeAnother},
	{"Limits/Keys/Fair/FollowsThePolicy", "A claim that begins after SetPolicy has returned keeps to the new limits.\n" + sentenceTurnsFrom, fairFollowsThePolicy},
	{"Limits/Keys/Fair/ChangesOfThePolicyHideNoJob", sentenceEveryJob, fairChangesOfThePolicyHideNoJob},
	{"Limits/Keys/Fair/FenceLeavesTurns", sentenceFenceOnly + "\n" + sentenceNextKey, fairFenceLeavesTurns},
	{"Limits/Keys/Fair/JobThatBecomesClaimableIsFound", sentenceEveryJob, fairLateJobIsFound},
	{"Limits/Keys/Fair/ManyClaimersTakeEachJobOnce", "The store must not hand out a job twice with the same token.\n" + sentenceEveryJob, fairManyClaimersTakeEachJobOnce},
	{"Limits/Keys/Fair/PolicyIsKept", "SetPolicy replaces the queue's policy as a whole with p, and returns it with the next version.\nEach queue comes with its policy.", fairPolicyIsKept},
}

// takeTurns sets the queue's policy to p, with Fair.
func (c *C) takeTurns(name string, p store.Policy) {
	c.Helper()
	p.Fair, p.Version = true, c.policy(name).Version
	c.setPolicy(name, p)
}

// keysOf are the limit keys of the jobs, in order.
func keysOf(jobs []store.Job) []string {
	return each(jobs, func(j store.Job) string { return j.LimitKey() })
}

// of repeats the key.
func of(key string, n int) []string { return slices.Repeat([]string{key}, n) }

// linesOf adds a job for each of the limit keys, and returns their ids by key.
func (c *C) linesOf(keys ...string) map[string][]int64 {
	c.Helper()
	lines := map[string][]int64{}
	for i, id := range c.enqueueOf(keys...) {
		lines[keys[i]] = append(lines[keys[i]], id)
	}
	return lines
}

// firstRound claims a job of each of the keys, which have jobs and no turns yet, and returns the keys in the order in which they came.
func (c *C) firstRound(keys ...string) []string {
	c.Helper()
	order := keysOf(c.Claim(len(keys)))
	c.Equal(slices.Sorted(slices.Values(order)), keys, "the keys of the first jobs that were claimed, sorted")
	return order
}

// claimsInTurns claims all jobs, in claims of these sizes again and again, and finds that the keys take turns. The lines have the jobs of each key in
// order, and are all jobs that can be claimed.
func (c *C) claimsInTurns(lines map[string][]int64, sizes ...int) {
	c.Helper()
	left := 0
	for _, line := range lines {
		left += len(line)
	}
	var claimed []store.Job
	for i := 0; left > 0; i++ {
		size := sizes[i%len(sizes)]
		jobs := c.Claim(size)
		c.Equal(len(jobs), min(size, left), "how many jobs a claim took with limit %d, of %d", size, left)
		if len(jobs) == 0 {
			return
		}
		claimed, left = append(claimed, jobs...), left-len(jobs)
	}
	order := keysOf(claimed[:len(lines)])
	c.Equal(slices.Sorted(slices.Values(order)), slices.Sorted(maps.Keys(lines)), "the keys of the first jobs that were claimed, sorted")
	c.Equal(ids(claimed), inTurns(order, lines), "claimed by claims of %v jobs, where the keys came in the order %q", sizes, order)
}

// inTurns are the jobs of the lines as they come if the keys come in this order.
func inTurns(order []string, lines map[string][]int64) (list []int64) {
	for round, some := 0, true; some; round++ {
		some = false
		for _, key := range order {
			if line := lines[key]; round < len(line) {
				list, some = append(list, line[round]), true
			}
		}
	}
	return list
}

func fairKeysTakeTurns(c *C) {
	c.takeTurns(queue, store.Policy{})
	c.claimsInTurns(c.linesOf(slices.Concat(of("a", 6), of("b", 2), of("c", 4))...), 1)
}

func fairClaimTakesRoundByRound(c *C) {
	c.takeTurns(queue, store.Policy{})
	lines := c.linesOf(slices.Concat(of("a", 9), of("b", 1), of("c", 5), of("d", 7))...)
	c.claimsInTurns(lines, 7, 2, 6)
	c.claimsInTurns(c.linesOf(slices.Concat(of("e", 40), of("f", 30), of("g", 20))...), 100)
}

func fairJobsWithoutAKeyAreOfOneKey(c *C) {
	c.takeTurns(queue, store.Policy{})
	c.claimsInTurns(c.linesOf(slices.Concat(of("", 6), of("a", 3), of("b", 4))...), 3, 4)
	c.claimsInTurns(c.linesOf(slices.Concat(of("c", 6), of("", 3))...), 1)
}

// fairEarliestOfAKeyFirst has due times that disagree with the order of ids, some of them equal.
func fairEarliestOfAKeyFirst(c *C) {
	c.takeTurns(queue, store.Policy{})
	keys := []string{"a", "b", ""}
	var jobs []store.NewJob
	for i := range 30 {
		n := ofKey(keys[i%3])
		n.RunAt = c.Now().Add(time.Duration(i*7%11) * time.Second)
		jobs = append(jobs, n)
	}
	lines, due := map[string][]int64{}, map[int64]time.Time{}
	for i, id := range c.Enqueue(jobs...) {
		lines[jobs[i].LimitKey], due[id] = append(lines[jobs[i].LimitKey], id), jobs[i].RunAt
	}
	for _, line := range lines {
		slices.SortFunc(line, func(a, b int64) int { return cmp.Or(due[a].Compare(due[b]), cmp.Compare(a, b)) })
	}
	c.Advance(time.Minute)
	c.claimsInTurns(lines, 1, 4, 2)
}

// fairPriorityFirst has the key whose turn it was first come with jobs of another priority in between.
func fairPriorityFirst(c *C) {
	c.takeTurns(queue, store.Policy{})
	c.enqueueOf(slices.Concat(of("a", 4), of("b", 4), of("c", 4))...)
	order := c.firstRound("a", "b", "c")
	with := func(key string, priority int) store.NewJob {
		return plainBut(func(n *store.NewJob) { n.LimitKey, n.Priority = key, priority })
	}
	low := c.Enqueue(with(order[0], -9), with(order[1], -9), with(order[0], -9))
	high := c.Enqueue(with(order[0], 9), with(order[0], 9))
	c.Equal(ids(c.Claim(2)), high, "claimed of jobs with a higher priority, although their key was the first to have its turn")
	c.Equal(keysOf(c.Claim(3)), order, "the keys after the jobs with a higher priority")
	c.Equal(keysOf(c.Claim(4)), append(order[:3:3], order[0]), "the keys then")
	last := c.Claim(10)
	c.Equal(keysOf(last)[:2], order[1:], "the keys in the last round of their priority")
	c.Equal(ids(last)[4:], low[2:], "claimed at last of the lowest priority")
}

// fairLanesApart has a retry of the key whose turn it was first claimed in between. Then it has both lanes in one claim.
func fairLanesApart(c *C) {
	c.takeTurns(queue, store.Policy{})
	c.enqueueOf(slices.Concat(of("a", 3), of("b", 3), of("c", 3))...)
	order := c.firstRound("a", "b", "c")
	held := c.Claim(3)
	c.Equal(keysOf(held), order, "the keys in the second round")
	c.endAll(held[:1], store.After, 0)
	c.Equal(ids(c.claimFrom(queue, 1, 1)), ids(held[:1]), "the retry that was claimed")
	c.Equal(keysOf(c.Claim(3)), order, "the keys of fresh jobs after a retry")

	c.enqueueOf("d", "d", "d", "e")
	c.endAll(c.Claim(4), store.After, 0)
	c.enqueueOf("d", "d", "d", "e", "e")
	both := keysOf(c.claimFrom(queue, 6, 3))
	c.Equal(slices.Sorted(slices.Values(both[:2])), []string{"d", "e"}, "the keys of the first retries, sorted")
	c.Equal(both[2], "d", "the key of the third retry")
	c.Equal(slices.Sorted(slices.Values(both[3:5])), []string{"d", "e"}, "the keys of the first fresh jobs, sorted")
	c.Equal(both[5], both[3], "the key of the third fresh job")
}

// fairOfOneQueueAlone has queues that are fair, and one that is not.
func fairOfOneQueueAlone(c *C) {
	for _, name := range []string{"a", "b", "c"} {
		in := func(key string) store.NewJob {
			return plainBut(func(n *store.NewJob) { n.Queue, n.LimitKey = name, key })
		}
		c.Enqueue(in("x"), in("x"), in("x"), in("y"), in("y"), in("y"))
	}
	c.takeTurns("a", store.Policy{})
	c.takeTurns("b", store.Policy{})
	next := func(name string, n int) []string { c.Helper(); return keysOf(c.claimFrom(name, n, 0)) }
	first := map[string][]string{"a": next("a", 2), "b": next("b", 2)}
	c.Equal(next("a", 1), first["a"][:1], "the third key of queue a")
	c.Equal(next("b", 1), first["b"][:1], "the third key of queue b")
	c.Equal(next("b", 1), first["b"][1:], "the fourth key of queue b")
	c.Equal(next("a", 1), first["a"][1:], "the fourth key of queue a")
	c.Equal(next("c", 4), []string{"x", "x", "x", "y"}, "the keys of a queue that is not fair")
}

func fairFullKeyIsPassedOver(c *C) {
	c.takeTurns(queue, store.Policy{MaxPerKey: 1})
	lines := c.linesOf(slices.Concat(of("a", 3), of("b", 3), of("", 3), of("c", 1))...)
	first := c.Claim(10)
	c.Equal(slices.Sorted(slices.Values(keysOf(first[:4]))), []string{"", "a", "b", "c"}, "the keys of the first four jobs, sorted")
	c.Equal(ids(first[4:]), lines[""][1:], "claimed then, when only jobs without a key have room")
	c.Equal(ids(c.Claim(10)), []int64{}, "claimed when every key is full")
	more := c.enqueueOf("", "d", "")
	c.Equal(len(c.Claim(10)), len(more), "claimed of those that came, while two keys are full")
	c.ackOf(lines["b"][0])
	c.Equal(ids(c.Claim(10)), lines["b"][1:2], "claimed when a job of one key has ended")
	c.ackOf(lines["a"][0], lines["b"][1])
	c.Equal(slices.Sorted(slices.Values(ids(c.Claim(10)))), []int64{lines["a"][1], lines["b"][2]}, "claimed when jobs of two keys have ended, sorted")

	c.takeTurns(queue, store.Policy{MaxPerKey: 2})
	c.Equal(ids(c.Claim(10)), lines["a"][2:], "claimed with room for one more of a key")
	c.enqueueOf(slices.Concat(of("e", 4), of("f", 4))...)
	order := keysOf(c.Claim(3))
	c.Equal(order[2], order[0], "the key of the third job, with room for two of each")
	c.Equal(keysOf(c.Claim(10)), order[1:2], "the keys then")
}

// fairBesideOtherLimits has limits that end claims in the middle of a round.
func fairBesideOtherLimits(c *C) {
	c.takeTurns(queue, store.Policy{MaxInFlight: 3, Rate: aMinute(4)})
	c.enqueueOf(slices.Concat(of("a", 5), of("b", 5), of("c", 5))...)
	held := c.Claim(10)
	order := keysOf(held)
	c.Equal(slices.Sorted(slices.Values(order)), []string{"a", "b", "c"}, "the keys that were claimed with room for three, sorted")
	c.ackOf(ids(held)...)
	c.Equal(keysOf(c.Claim(10)), order[:1], "the keys when the rate admits one more")
	c.Equal(ids(c.Claim(10)), []int64{}, "claimed when the rate admits none")
	c.Advance(time.Minute)
	c.Equal(keysOf(c.Claim(10)), order[1:], "the keys when the queue has room for two")
	c.Equal(ids(c.Claim(10)), []int64{}, "claimed when the queue is full")
	c.takeTurns(queue, store.Policy{})
	c.Equal(keysOf(c.Claim(3)), order, "the keys when there is no limit any more")
}

// fairHeavyJobKeepsItsTurn has a key whose jobs are heavy, and one with light jobs, of which more wait than a claim may pass over.
func fairHeavyJobKeepsItsTurn(c *C) {
	c.takeTurns(queue, store.Policy{})
	var heavy []int64
	for range mostHeavy {
		heavy = append(heavy, c.Enqueue(plainBut(func(n *store.NewJob) { n.LimitKey, n.Payload = "heavy", docOf(store.MaxDocBytes) }))...)
	}
	light := c.enqueueOf(of("light", mostHeavy+10)...)
	claimed := c.Claim(10 * mostHeavy)
	keys := keysOf(claimed)
	c.Equal(len(slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return key == "light" })), mostHeavy-1, "heavy jobs in the claim")
	c.Equal(keys[len(keys)-1], "light", "the key of the last job that found room")
	c.True(len(keys) <= 2*mostHeavy-1, "the claim ends before the heavy job that finds no room: it has %d jobs", len(keys))
	c.Equal(ids(c.Claim(1)), heavy[mostHeavy-1:], "claimed next")
	c.Equal(keysOf(c.Claim(1)), []string{"light"}, "the key after that")
	c.drop(slices.Concat(heavy, light))
}

// fairKeyWithJobsKeepsItsTurn changes jobs of each key while the key has others to take.
func fairKeyWithJobsKeepsItsTurn(c *C) {
	c.takeTurns(queue, store.Policy{})
	lines := c.linesOf(slices.Concat(of("a", 6), of("b", 6), of("c", 6))...)
	order := c.firstRound("a", "b", "c")
	x, y, z := lines[order[0]], lines[order[1]], lines[order[2]]
	c.Cancel(x[1])
	c.Reschedule(y[1], c.Now().Add(time.Hour))
	c.enqueueOf(order[2], order[0])
	c.Equal(ids(c.Claim(3)), []int64{x[2], y[2], z[1]}, "claimed when the first job of one key was cancelled, and that of another was put off")
	c.Advance(time.Hour)
	c.Requeue(x[1])
	held := c.Claim(2)
	c.Equal(keysOf(held), order[:2], "the keys when these jobs are due again")
	c.endAll(held, store.Release, 0)
	c.Ack(c.Get(x[0]).Lease())
	c.Equal(keysOf(c.Claim(4)), []string{order[2], order[0], order[1], order[2]}, "the keys after a release")
}

// fairNewKeyWaitsOneRound has a key with one job at a time among keys with many.
func fairNewKeyWaitsOneRound(c *C) {
	c.takeTurns(queue, store.Policy{})
	c.enqueueOf(slices.Concat(of("a", 20), of("b", 20), of("c", 20))...)
	all := []string{"a", "b", "c", "new"}
	round := func() (keys []string) {
		for range all {
			keys = append(keys, keysOf(c.Claim(1))...)
		}
		return keys
	}
	for i := range 5 {
		c.Claim(i + 1)
		c.enqueueOf("new")
		c.Equal(slices.Sorted(slices.Values(round())), all, "the keys of the next four jobs, when one of them has come for the %d. time, sorted", i+1)
	}
	c.enqueueOf("new")
	for i := 0; ; i++ {
		if keys := keysOf(c.Claim(1)); slices.Equal(keys, []string{"new"}) || i > len(all) {
			break
		}
	}
	c.enqueueOf("new")
	c.Equal(slices.Index(round(), "new"), 3, "the place of a key among the next four, when its only job was just claimed, and another one has come")
}

// fairNobodyComesTwiceBeforeAnother claims for long from keys that have jobs all the time, and from others that have some now and then.
func fairNobodyComesTwiceBeforeAnother(c *C) {
	c.takeTurns(queue, store.Policy{})
	always, sometimes := []string{"a", "b", "", "c"}, []string{"x", "y", "z"}
	script, waiting := rand.New(rand.NewPCG(1, 2)), map[string]int{}
	var keys []string
	for range 80 {
		var come []string
		for i, key := range always {
			come = append(come, of(key, max(8-waiting[key], script.IntN(5*i+1)))...)
		}
		for _, key := range sometimes {
			come = append(come, of(key, max(0, script.IntN(6)-3))...)
		}
		for _, key := range come {
			waiting[key]++
		}
		c.enqueueOf(come...)
		limit := 1 + script.IntN(9)
		claimed := c.Claim(limit)
		c.Equal(len(claimed), limit, "how many of many jobs were claimed")
		for _, j := range claimed {
			keys = append(keys, j.LimitKey())
			waiting[j.LimitKey()]--
		}
		c.many(c.Store.Ack(c.Ctx, each(claimed, func(j store.Job) store.Ack { return store.Ack{Lease: j.Lease()} })))
	}
	for _, key := range always {
		seen := map[string]int{}
		for i, k := range keys {
			if seen[k]++; seen[k] > 1 && k != key {
				c.Fatalf("key %q came twice while %q waited, at the %d. of the keys %q", k, key, i+1, keys)
			}
			if k == key {
				clear(seen)
			}
		}
	}
}

// fairHigherPriorityEndsNoTurn has jobs of a key that come first all the time, and others of the same key that wait for their turn.
func fairHigherPriorityEndsNoTurn(c *C) {
	for _, urgent := range []string{"a", ""} {
		name := "urgent of " + urgent
		in := func(key string, priority int) store.NewJob {
			return plainBut(func(n *store.NewJob) { n.Queue, n.LimitKey, n.Priority = name, key, priority })
		}
		c.takeTurns(name, store.Policy{})
		for _, key := range []string{"a", "b", ""} {
			c.Enqueue(slices.Repeat([]store.NewJob{in(key, 0)}, 5)...)
		}
		order := keysOf(c.claimFrom(name, 3, 0))
		for range 3 {
			for _, key := range order {
				first := c.Enqueue(in(urgent, 5), in(urgent, 5))
				jobs := c.claimFrom(name, 3, 0)
				c.Equal(len(jobs), 3, "how many jobs were claimed")
				c.Equal(ids(jobs[:2]), first, "claimed first")
				c.Equal(jobs[2].LimitKey(), key, "the key that has its turn, of %q", order)
			}
		}
	}
}

// fairFollowsThePolicy lets keys take turns, and no longer, while jobs wait.
func fairFollowsThePolicy(c *C) {
	list := c.enqueueOf(slices.Concat(of("a", 12), of("b", 12))...)
	next := func(n int) (keys []string) {
		c.Helper()
		claimed := c.Claim(n)
		list = slices.DeleteFunc(list, func(id int64) bool { return slices.Contains(ids(claimed), id) })
		return keysOf(claimed)
	}
	inOrder := func(when string) {
		c.Helper()
		first := slices.Clone(list[:2])
		c.Equal(ids(c.Claim(2)), first, "claimed %s", when)
		list = list[2:]
	}
	for range 2 {
		inOrder("when the queue is not fair")
		c.takeTurns(queue, store.Policy{})
		keys := next(3)
		c.True(keys[0] != keys[1] && keys[2] == keys[0], "both keys have their turns, and the first its second one, when the queue is fair: %q", keys)
		c.takeTurns(queue, store.Policy{RetainDead: time.Hour})
		c.Equal(next(2), []string{keys[1], keys[0]}, "the keys when another part of the policy has changed")
		c.setPolicy(queue, store.Policy{Version: c.policy(queue).Version})
	}
	inOrder("when the queue is not fair any more")
}

// fairChangesOfThePolicyHideNoJob changes between policies that find jobs in different ways, and keep none back. Jobs come in between, and again as
// retries.
func fairChangesOfThePolicyHideNoJob(c *C) {
	const most = store.MaxKeyLimit
	script, policies := rand.New(rand.NewPCG(3, 4)), []store.Policy{{Fair: true}, {MaxPerKey: most}, {Fair: true, MaxPerKey: most}, {}, {MaxPerKey: most}}
	change := func() {
		p := policies[script.IntN(len(policies))]
		p.Version = c.policy(queue).Version
		c.setPolicy(queue, p)
	}
	waiting := 0
	claim := func(limit, quota int) []store.Job {
		c.Helper()
		jobs := c.claimFrom(queue, limit, quota)
		c.Equal(len(jobs), min(limit, waiting), "how many jobs were claimed with limit %d of %d, with policy %+v", limit, waiting, c.policy(queue))
		return jobs
	}
	for round := range 100 {
		change()
		waiting += len(c.Enqueue(each([]string{"a", "b", "", "a"}, func(key string) store.NewJob {
			return plainBut(func(n *store.NewJob) { n.LimitKey, n.MaxRetries = key, store.MaxRetryLimit })
		})...))
		c.Advance(time.Duration(script.IntN(2)) * time.Second)
		if script.IntN(2) == 0 {
			change()
		}
		for range 2 {
			limit := 1 + script.IntN(4)
			jobs := claim(limit, script.IntN(limit+1))
			if script.IntN(3) == 0 {
				c.endAll(jobs, store.After, 0)
				continue
			}
			c.ackOf(ids(jobs)...)
			waiting -= len(jobs)
		}
		if round%10 == 9 {
			jobs := claim(500, 100)
			c.ackOf(ids(jobs)...)
			waiting -= len(jobs)
		}
	}
}

// fairFenceLeavesTurns claims before and after the epoch is raised, by little and to the last one.
func fairFenceLeavesTurns(c *C) {
	c.takeTurns(queue, store.Policy{})
	c.enqueueOf(slices.Concat(of("", 9), of("a", 9), of("b", 9))...)
	order := c.firstRound("", "a", "b")
	for _, req := range []store.FenceRequest{{}, {EndLeases: true}, {Epoch: store.MaxEpoch}} {
		c.Equal(keysOf(c.Claim(1)), order[:1], "the key before %+v", req)
		c.fence(req)
		c.enqueueOf("a", "b", "")
		c.Equal(keysOf(c.Claim(3)), []string{order[1], order[2], order[0]}, "the keys after %+v", req)
		order = []string{order[1], order[2], order[0]}
	}
}

// fairLateJobIsFound claims jobs before the one becomes claimable that stands before them, with and without a key.
func fairLateJobIsFound(c *C) {
	for i, late := range latecomers(c) {
		for k, key := range []string{"k", ""} {
			for othersEnd := range 2 {
				c.fairLateJobIsFound(late, fmt.Sprint("late ", i, k, othersEnd), key, othersEnd == 1)
			}
		}
	}
}

func (c *C) fairLateJobIsFound(late latecomer, name, key string, othersEnd bool) {
	c.Helper()
	c.takeTurns(name, store.Policy{})
	n := ofKey(key)
	n.Queue = name
	id := late.prepare(c, n)
	other := n
	other.LimitKey = "other"
	left := c.Enqueue(n, other, n)
	c.endAll(c.claimFrom(name, 10, 0), store.After, 0)
	left = append(left, c.Enqueue(n, n, other, n)...)
	claim := func(limit, want int) {
		c.Helper()
		claimed := c.claimFrom(name, limit, limit/2)
		c.Equal(len(claimed), want, "how many jobs were claimed where one was %s", late.how)
		c.ackOf(ids(claimed)...)
		left = slices.DeleteFunc(left, func(id int64) bool { return slices.Contains(ids(claimed), id) })
	}
	claim(4, 4)
	if othersEnd {
		claim(10, 3)
	}
	late.release(c, id)
	left = append(left, id)
	claim(10, len(left))
	c.Equal(left, []int64{}, "jobs that were not claimed where one was %s", late.how)
}

func fairManyClaimersTakeEachJobOnce(c *C) {
	const claimers = 4
	c.takeTurns(queue, store.Policy{})
	keys := slices.Concat(of("a", 60), of("", 30), of("b", 20), of("c", 10))
	for round := range 4 {
		list := c.enqueueOf(keys...)
		var mu sync.Mutex
		var all []int64
		c.Parallel(claimers, func(i int) {
			for {
				claimed := ids(c.Claim(1 + (i+round)%4))
				mu.Lock()
				all = append(all, claimed...)
				mu.Unlock()
				if len(claimed) == 0 {
					return
				}
			}
		})
		all = append(all, ids(c.Claim(len(list)))...)
		slices.Sort(all)
		c.Equal(all, list, "claimed by %d at once", claimers)
	}
}

func fairPolicyIsKept(c *C) {
	all := c.setPolicy("a", store.Policy{MaxInFlight: 9, MaxPerKey: 4, Fair: true, Rate: aMinute(1)})
	only := c.setPolicy("b", store.Policy{Fair: true})
	unset := c.setPolicy("c", store.Policy{Version: c.setPolicy("c", store.Policy{Fair: true}).Version})
	c.Equal(c.queues(), []store.Queue{{Name: "a", Policy: all}, {Name: "b", Policy: only}}, "queues")
	c.Equal(c.policy("c"), unset, "the policy that was unset")
	c.answersPolicy("b", store.Policy{Fair: true}, only)
	next := c.setPolicy("a", store.Policy{MaxPerKey: 4, Version: all.Version})
	c.True(!next.Fair, "a policy that replaces one that is fair is as it was given")
	_, err := c.policyKeeper().SetPolicy(c.Ctx, "b", store.Policy{})
	c.ErrorIs(err, store.ErrConflict, "SetPolicy under an older version")
}
