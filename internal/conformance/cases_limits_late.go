package conformance

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var lateKeyCases = []Case{
	{"Limits/Keys/JobThatBecomesClaimableIsFound", sentenceEveryJob, keysLateJobIsFound(othersGoOn)},
	{"Limits/Keys/JobThatBecomesClaimableIsFoundAfterOthers", sentenceEveryJob, keysLateJobIsFound(othersEnd)},
	{"Limits/Keys/JobThatBecomesClaimableIsFoundAlone", sentenceEveryJob, keysLateJobIsFound(othersAreGone)},
}

// A latecomer is a job that becomes claimable after others of its key, although it stands before them in line.
type latecomer struct {
	how     string
	prepare func(c *C, n store.NewJob) int64 // enqueues the job, which is not claimable
	release func(c *C, id int64)             // makes it claimable
}

// claimIn claims the job, which is the only claimable one of its queue.
func (c *C) claimIn(name string, id int64) store.Lease {
	c.Helper()
	jobs := c.claimFrom(name, 10, 0)
	if len(jobs) != 1 || jobs[0].ID != id {
		c.Fatalf("claiming job %d: got %v", id, ids(jobs))
	}
	return jobs[0].Lease()
}

// claimedFirst is a latecomer that is claimed, and claimable again when the lease ends.
func claimedFirst(how string, release func(c *C, l store.Lease)) latecomer {
	prepare := func(c *C, n store.NewJob) int64 {
		n.Backoff = store.Backoff{}
		id := c.Enqueue(n)[0]
		c.claimIn(n.Queue, id)
		return id
	}
	return latecomer{how, prepare, func(c *C, id int64) { release(c, c.Get(id).Lease()) }}
}

// endedFirst is a latecomer that was claimed and whose lease has ended, or is about to.
func endedFirst(how string, end func(c *C, l store.Lease), release func(c *C, id int64)) latecomer {
	late := claimedFirst(how, nil)
	prepare := late.prepare
	late.prepare = func(c *C, n store.NewJob) int64 {
		id := prepare(c, n)
		end(c, c.Get(id).Lease())
		return id
	}
	late.release = release
	return late
}

func latecomers(c *C) []latecomer {
	delayed := func(c *C, n store.NewJob) int64 {
		n.Delay = time.Minute
		return c.Enqueue(n)[0]
	}
	waits := func(form store.Form, delay time.Duration) func(*C, store.Lease) {
		return func(c *C, l store.Lease) { c.NAck(l, form, delay, "") }
	}
	aMinute := func(c *C, _ int64) { c.Advance(time.Minute) }
	atOnce := func(c *C, id int64) { c.Reschedule(id, time.Time{}) }
	again := func(c *C, id int64) { c.Requeue(id) }
	list := []latecomer{
		{"delayed", delayed, aMinute},
		{"rescheduled", delayed, atOnce},
		{"replaced", func(c *C, n store.NewJob) int64 {
			n.UniqueKey = n.Queue
			return delayed(c, n)
		}, func(c *C, id int64) {
			n := ofKey(c.Get(id).LimitKey())
			n.Queue, n.UniqueKey, n.Replace = c.Get(id).Queue, c.Get(id).Queue, true
			c.Equal(c.answers(n)[0].Replaced, true, "whether the job was replaced")
		}},
		{"cancelled and requeued", func(c *C, n store.NewJob) int64 {
			id := c.Enqueue(n)[0]
			c.Cancel(id)
			return id
		}, again},
		claimedFirst("failed", waits(store.Fail, 0)),
		claimedFirst("put off", waits(store.After, 0)),
		claimedFirst("snoozed", waits(store.Snooze, 0)),
		claimedFirst("released", waits(store.Release, 0)),
		endedFirst("recovered", func(c *C, l store.Lease) {
			c.One(c.Store.Extend(c.Ctx, []store.Lease{l}, store.Resolution))
			c.Advance(store.Resolution)
		}, func(c *C, _ int64) { c.Equal(len(c.Recover(10)), 1, "recovered") }),
		claimedFirst("failed for good and requeued", func(c *C, l store.Lease) {
			c.NAck(l, store.Never, 0, "")
			c.Requeue(l.ID)
		}),
		endedFirst("put off for a minute", waits(store.After, time.Minute), aMinute),
		endedFirst("snoozed for a minute", waits(store.Snooze, time.Minute), aMinute),
		endedFirst("put off and rescheduled", waits(store.After, time.Hour), atOnce),
		endedFirst("snoozed and rescheduled", waits(store.Snooze, time.Hour), atOnce),
		endedFirst("succeeded and requeued", func(c *C, l store.Lease) { c.Ack(l) }, again),
		endedFirst("cancelled in flight and requeued", func(c *C, l store.Lease) { c.Cancel(l.ID) }, again),
	}
	if !c.noWaits {
		list = append(list, latecomer{"unblocked", func(c *C, n store.NewJob) int64 {
			n.After = []store.Wait{{ID: c.parents(1)[0]}}
			return c.Enqueue(n)[0]
		}, func(c *C, id int64) {
			c.Ack(c.hold(c.Get(id).Waits[0].ID))
			c.settleAll()
		}})
	}
	return list
}

// What becomes of the other jobs of the key before the late one is claimable.
const (
	othersGoOn = iota
	othersEnd
	othersAreGone // all of them, also those that stood behind
)

// keysLateJobIsFound claims jobs of the key, in both lanes, before the one becomes claimable that stands before them. More jobs of the key
// stand behind it.
func keysLateJobIsFound(others int) func(*C) {
	return func(c *C) {
		for i, late := range latecomers(c) {
			for _, most := range []int{1, 2, 5} {
				c.lateJobIsFound(late, fmt.Sprintf("late %d %d", i, most), most, others)
			}
		}
	}
}

func (c *C) lateJobIsFound(late latecomer, name string, most, fate int) {
	c.Helper()
	c.admitPerKey(name, store.MaxKeyLimit)
	n := ofKey("k")
	n.Queue = name
	id := late.prepare(c, n)
	others := c.Enqueue(slices.Repeat([]store.NewJob{n}, 3)...)
	c.endAll(c.claimFrom(name, 10, 0), store.After, 0)
	others = append(others, c.Enqueue(slices.Repeat([]store.NewJob{n}, 4)...)...)
	c.admitPerKey(name, most)
	room := most
	if c.Get(id).State == store.InFlight {
		room--
	}
	held := c.claimFrom(name, 10, 10)
	c.Equal(ids(held), others[:room], "claimed before a job is %s, with room for %d of its key", late.how, most)
	var done []int64
	finish := func(jobs []store.Job) {
		c.ackOf(ids(jobs)...)
		done = append(done, ids(jobs)...)
	}
	switch fate {
	case othersGoOn:
		late.release(c, id)
		more := c.claimFrom(name, 10, 10)
		c.Equal(len(more), most-room, "claimed beside %d, with room for %d, after a job was %s", room, most, late.how)
		held = append(held, more...)
	case othersEnd:
		finish(held)
		late.release(c, id)
		held = c.claimFrom(name, 10, 10)
	case othersAreGone:
		for len(held) > 0 {
			finish(held)
			held = c.claimFrom(name, 10, 10)
		}
		late.release(c, id)
		held = c.claimFrom(name, 10, 10)
	}
	for len(held) > 0 && len(done) <= len(others) {
		c.True(len(held) <= most, "at most %d are in flight after a job was %s", most, late.how)
		finish(held)
		held = c.claimFrom(name, 10, 10)
	}
	slices.Sort(done)
	c.Equal(done, append([]int64{id}, others...), "all jobs that were claimed, with room for %d of a key, where the first was %s", most, late.how)
}
