package server

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// A field is a scheduler whose queues have as many jobs as a test likes, and a server with room for a number of them. Nothing in it
// runs.
type field struct {
	*testing.T
	*scheduler
	now   time.Time
	jobs  map[string]int // that can be claimed
	got   map[string]int
	calls int
}

func newField(t *testing.T, queues map[string]QueueOptions) *field {
	t.Helper()
	o, err := Options{Queues: queues}.withDefaults()
	require.NoError(t, err)
	return &field{T: t, scheduler: newScheduler(o), now: time.Unix(0, 0), jobs: map[string]int{}, got: map[string]int{}}
}

// claim makes one claim with the given room. It returns false if all queues pause.
func (f *field) claim(room int) (claimPlan, bool) {
	o, found, _ := f.next(room, func(string) int { return 0 }, f.now)
	if !found {
		return o, false
	}
	f.calls++
	fits := 1 <= o.limit && o.limit <= room && 0 <= o.quota && o.quota <= o.limit
	require.True(f, fits, "limit %d, quota %d, room %d", o.limit, o.quota, room)
	jobs := min(o.limit, f.jobs[o.name])
	f.jobs[o.name] -= jobs
	f.got[o.name] += jobs
	f.claimed(o, jobs, jobs == o.limit, f.now)
	return o, true
}

// claimJobs claims until the given number of jobs is claimed, with the given room each time.
func (f *field) claimJobs(n, room int) {
	for until := f.all() + n; f.all() < until; {
		free := min(room, until-f.all())
		if _, found := f.claim(free); !found {
			f.now = f.now.Add(time.Second)
		}
	}
}

func (f *field) all() int {
	all := 0
	for _, n := range f.got {
		all += n
	}
	return all
}

const plenty = math.MaxInt / 2

// If all queues have enough jobs, each gets the part of its weight, whatever the room.
func TestWeightsShareTheServer(t *testing.T) {
	for _, room := range []int{1, 2, 3, 10, 100} {
		f := newField(t, map[string]QueueOptions{"a": {Weight: 3}, "b": {Weight: 1}, "c": {}})
		f.jobs = map[string]int{"a": plenty, "b": plenty, "c": plenty}
		f.claimJobs(1000, room)
		for queue, want := range map[string]float64{"a": 600, "b": 200, "c": 200} {
			assert.InDelta(t, want, f.got[queue], max(2, float64(room)), "room %d, queue %s", room, queue)
		}
	}
}

// The room of one moment is shared as well: no queue fills all slots with long jobs while another one waits.
func TestWeightsShareTheRoom(t *testing.T) {
	f := newField(t, map[string]QueueOptions{"a": {Weight: 3}, "b": {Weight: 1}})
	f.jobs = map[string]int{"a": plenty, "b": plenty}
	f.claimJobs(1000, 10)
	for room := 40; room > 0; room -= first(f.claim(room)).limit {
		if room == 40 {
			clear(f.got)
		}
	}
	assert.InDelta(t, 30, f.got["a"], 2)
	assert.InDelta(t, 10, f.got["b"], 2)
}

// The share of an empty queue goes to the others, by their weights.
func TestShareOfAnEmptyQueueGoesToTheOthers(t *testing.T) {
	f := newField(t, map[string]QueueOptions{"a": {Weight: 2}, "b": {Weight: 1}, "empty": {Weight: 100}})
	f.jobs = map[string]int{"a": plenty, "b": plenty}
	f.claimJobs(900, 1)
	assert.InDelta(t, 600, f.got["a"], 2)
	assert.InDelta(t, 300, f.got["b"], 2)
}

// A queue that was empty gets its share from then on, and nothing for the time before, even if a wake-up ended its pause.
func TestQueueThatComesBackGetsNoBurst(t *testing.T) {
	for _, woken := range []bool{false, true} {
		f := newField(t, map[string]QueueOptions{"a": {}, "b": {}})
		f.jobs["a"] = plenty
		f.claimJobs(10_000, 1)
		f.jobs["b"] = plenty
		if woken {
			f.wake("b")
		}
		f.now = f.now.Add(time.Minute)
		before := f.got["a"]
		f.claimJobs(100, 1)
		assert.InDelta(t, 50, f.got["b"], 1, "woken %t", woken)
		assert.InDelta(t, 50, f.got["a"]-before, 1, "woken %t", woken)
	}
}

// The same holds for a queue that waited for one of its slots.
func TestQueueThatHadNoSlotGetsNoBurst(t *testing.T) {
	f := newField(t, map[string]QueueOptions{"a": {}, "b": {Slots: 5}})
	full := func(queue string) int { return map[string]int{"b": 5}[queue] }
	for range 10_000 {
		o, _, _ := f.next(1, full, f.now)
		require.Equal(t, "a", o.name)
		f.claimed(o, 1, o.limit == 1, f.now)
	}
	f.jobs = map[string]int{"a": plenty, "b": plenty}
	f.claimJobs(100, 1)
	assert.InDelta(t, 50, f.got["b"], 1)
}

// However long a server lives, and however different the weights are, the shares stay exact: the sums of floats never stand still.
func TestSharesDoNotDrift(t *testing.T) {
	f := newField(t, map[string]QueueOptions{"a": {Weight: maxWeight}, "b": {}})
	f.jobs = map[string]int{"a": plenty, "b": plenty}
	o, _, _ := f.next(1, func(string) int { return 0 }, f.now)
	f.claimed(o, 1, o.limit == 1, f.now)
	const years = 1e11 // at a thousand jobs a second, three
	f.pass += years
	for _, q := range f.scheduler.all {
		q.pass += years
	}
	f.claimJobs(100*(maxWeight+1), 1)
	assert.InDelta(t, 100, f.got["b"], 2)
}

// A queue takes no more slots than its limit, counting running and buffered jobs, and none when they are taken.
func TestSlotsOfAQueueAreItsLimit(t *testing.T) {
	f := newField(t, map[string]QueueOptions{"a": {Slots: 4}})
	for held, want := range map[int]int{0: 4, 1: 3, 3: 1} {
		o, found, _ := f.next(10, func(string) int { return held }, f.now)
		require.True(t, found)
		assert.Equal(t, want, o.limit, "holding %d", held)
	}
	for _, held := range []int{4, 5} {
		_, found, rest := f.next(10, func(string) int { return held }, f.now)
		assert.False(t, found)
		assert.Zero(t, rest, "no time will help: it waits for a slot")
	}
}

// No claim asks for more jobs than a call may.
func TestNoClaimAsksForMoreThanACallMay(t *testing.T) {
	f := newField(t, map[string]QueueOptions{"a": {Weight: maxWeight}, "b": {}})
	for _, room := range []int{999, 1000, 1001, 2 * maxHeld} {
		o, _, _ := f.next(room, func(string) int { return 0 }, f.now)
		require.NoError(t, store.ClaimRequest{Queue: o.name, Limit: o.limit, RetryQuota: o.quota, Worker: "w", TTL: time.Second}.Check())
	}
}

// The pause of an empty queue grows up to PollInterval at random, is never longer, and starts from the shortest again after a claim that
// found jobs.
func TestPauseGrowsUpToPoll(t *testing.T) {
	f := newField(t, map[string]QueueOptions{"a": {}})
	pauses := func(n int) []time.Duration {
		var all []time.Duration
		for range n {
			_, found := f.claim(10)
			require.True(t, found)
			_, found, rest := f.next(10, func(string) int { return 0 }, f.now)
			require.False(t, found)
			all = append(all, rest.Sub(f.now))
			f.now = rest
		}
		return all
	}
	grown := pauses(100)
	want := firstPause
	differ := false
	for i, p := range grown {
		require.LessOrEqual(t, p, want, "pause %d", i)
		require.GreaterOrEqual(t, p, want*4/5, "pause %d", i)
		want = min(2*want, DefaultPollInterval)
		differ = differ || p != grown[len(grown)-1] && i > 10
	}
	assert.True(t, differ, "servers that became idle together look at different times")
	f.jobs["a"] = 1
	assert.LessOrEqual(t, pauses(1)[0], firstPause, "one was there")
	pauses(20)
	f.wake("a")
	assert.LessOrEqual(t, pauses(1)[0], firstPause, "it was woken for nothing: another server was quicker, or a retry is due in a moment")
	f.jobs["a"] = 1
	f.wake("a")
	assert.GreaterOrEqual(t, pauses(1)[0], DefaultPollInterval*4/5, "the next job will be announced too")
	f.jobs["a"] = 15
	f.wake("a")
	f.claim(10)
	assert.GreaterOrEqual(t, pauses(1)[0], DefaultPollInterval*4/5, "the claim took what the one before had left")
}

// With an interval, wake-ups lead to one claim in that time. A claim that has left jobs is followed by the next one at once.
func TestIntervalGathersWakeUps(t *testing.T) {
	f := newField(t, map[string]QueueOptions{"a": {}})
	f.interval = time.Second
	wake := func() { f.jobs["a"]++; f.wake("a") }
	wake()
	_, found := f.claim(10)
	require.True(t, found, "the first one waits for nothing")
	last := f.now
	for range 3 {
		wake()
		_, found, again := f.next(10, func(string) int { return 0 }, f.now)
		require.False(t, found)
		require.Equal(t, last.Add(time.Second), again)
		f.now = f.now.Add(300 * time.Millisecond)
	}
	f.now = last.Add(time.Second)
	_, found = f.claim(10)
	require.True(t, found)
	assert.Equal(t, 4, f.got["a"])

	f.now = f.now.Add(time.Second)
	f.jobs["a"] = 25
	f.wake("a")
	for range 3 {
		_, found = f.claim(10)
		assert.True(t, found, "there are more")
	}
	assert.Zero(t, f.jobs["a"])
	_, found = f.claim(10)
	assert.False(t, found)

	f.now = f.now.Add(time.Hour)
	o, found, _ := f.next(10, func(string) int { return 0 }, f.now)
	require.True(t, found)
	f.wake("a")
	f.claimed(o, 0, false, f.now)
	_, found, _ = f.next(10, func(string) int { return 0 }, f.now)
	assert.True(t, found, "a look that nothing had announced delays nobody")
	f.wake("a")
	f.claimed(o, 0, false, f.now)
	_, found, again := f.next(10, func(string) int { return 0 }, f.now)
	assert.False(t, found, "a wake-up during a claim waits as well")
	assert.Equal(t, f.now.Add(time.Second), again)

	f.interval = time.Hour
	f.now = f.now.Add(time.Hour)
	f.jobs["a"] = 1
	_, found = f.claim(10)
	require.True(t, found)
	_, _, again = f.next(10, func(string) int { return 0 }, f.now)
	assert.Equal(t, f.now.Add(time.Hour), again, "a pause is no shorter")
}

// A wake-up during a claim is not lost: a job that became claimable after the claim is claimed at once.
func TestWakeUpDuringAClaimIsNotLost(t *testing.T) {
	f := newField(t, map[string]QueueOptions{"a": {}})
	none := func(string) int { return 0 }
	o, _, _ := f.next(10, none, f.now)
	f.wake("a")
	f.claimed(o, 0, false, f.now)
	o, found, _ := f.next(10, none, f.now)
	require.True(t, found)
	f.claimed(o, 0, false, f.now)
	_, found, _ = f.next(10, none, f.now)
	assert.False(t, found, "one wake-up is one more look")
}

// A wake-up for one queue, or for an unknown one, does not end the pause of another; a wake-up without a name is for all.
func TestWakeUpIsForItsQueue(t *testing.T) {
	f := newField(t, map[string]QueueOptions{"a": {}, "b": {}})
	rested := func() bool {
		for range 2 {
			f.claim(10)
		}
		_, found := f.claim(10)
		return !found
	}
	require.True(t, rested())
	f.wake("stranger")
	_, found := f.claim(10)
	require.False(t, found)
	f.wake("b")
	o, found := f.claim(10)
	require.True(t, found)
	assert.Equal(t, "b", o.name)
	require.True(t, rested())
	f.wake("")
	assert.Len(t, map[string]bool{first(f.claim(10)).name: true, first(f.claim(10)).name: true}, 2)
}

func first(o claimPlan, _ bool) claimPlan { return o }

// A failed claim counts for nothing, and its queue pauses, woken or not, until a claim succeeds.
func TestFailedClaimRests(t *testing.T) {
	f := newField(t, map[string]QueueOptions{"a": {}, "b": {}})
	none := func(string) int { return 0 }
	o, _, _ := f.next(1, none, f.now)
	require.Equal(t, "a", o.name)
	before := *o.queue
	f.wake("a")
	f.claimFailed(o, f.now)
	f.wake("a")
	before.pause, before.notBefore, before.woken, before.failed = o.pause, o.notBefore, true, true
	assert.Equal(t, before, *o.queue, "neither the share nor the pass has changed")
	o, found, _ := f.next(1, none, f.now)
	require.True(t, found)
	assert.Equal(t, "b", o.name, "the others go on")
	f.claimFailed(o, f.now)
	_, found, rest := f.next(1, none, f.now)
	assert.False(t, found)
	assert.LessOrEqual(t, rest.Sub(f.now), firstPause)
	f.now = rest
	f.claim(1)
	f.wake("")
	o, found = f.claim(1)
	require.True(t, found, "an answer later it can be woken again")
}
