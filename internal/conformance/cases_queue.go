package conformance

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// What refusesAsTheCoreDoes proves: of every ability, and of those whose methods take a name.
const (
	sentenceRefusals = "If the context has ended before the call, the store must not apply the call: the error is ErrUnavailable and matches the context's own error.\n" +
		"Every later call returns ErrClosed."
	sentenceAbility = "Queue, kind, group, limit key, unique key, request key, tag and worker are 1 to 255 bytes of valid UTF-8 without NUL; trace and host may also be empty.\n" +
		sentenceRefusals
)

var queueCases = []Case{
	{"Queue/ListedByNameByteByByte", "A queue can be paused before it has a job.\nQueues returns every queue that has a job, is paused, or has a policy that sets something, in bytewise order of name.", queueListedByNameByteByByte},
	{"Queue/ListedAsLongAsItHasAJobOrIsPaused", "Queues returns every queue that has a job, is paused, or has a policy that sets something, in bytewise order of name.", queueListedAsLongAsItHasAJobOrIsPaused},
	{"Queue/PausedQueueGivesNothing", "It is safe to repeat a pause.\nOnce SetPaused(true) has returned, new claims on the queue return no jobs until the queue is resumed.", queuePausedQueueGivesNothing},
	{"Queue/NothingIsTakenAfterPauseReturned", "Once SetPaused(true) has returned, new claims on the queue return no jobs until the queue is resumed.", queueNothingIsTakenAfterPauseReturned},
	{"Queue/EnqueueingFinishingAndRecoveryGoOn", "SetPaused pauses a queue or resumes it. While a queue is paused, claims on it return no jobs, but enqueueing, finishing and recovery go on.\nA pause does not stop recovery.", queueEnqueueingFinishingAndRecoveryGoOn},
	{"Queue/RefusesAsTheCoreDoes", sentenceAbility, queueRefusesAsTheCoreDoes},
	{"Queue/PauseDoesNotStopSettle", "A pause does not stop it.", queuePauseStopsNoSettle},
}

func (c *C) queueKeeper() store.QueueKeeper { return ability[store.QueueKeeper](c) }

func (c *C) queues() []store.Queue {
	queues, err := c.queueKeeper().Queues(c.Ctx)
	c.OK(err, "Queues")
	return queues
}

func (c *C) setPaused(name string, paused bool) {
	c.OK(c.queueKeeper().SetPaused(c.Ctx, name, paused), "SetPaused %q %v", name, paused)
}

// trickyNames are in the order of their bytes, which is neither that of a language nor that of UTF-16.
var trickyNames = []string{
	" q", "-", "A", "B", "Q", "Z", "_", "a", "a ", "a b", "a-b", "aa", "ab", "b", "q ", "z", "\u00c4", "\u00df", "\u00e4", "\uffee", "\U0001f600",
}

func queueListedByNameByteByByte(c *C) {
	var want []store.Queue
	for i := range trickyNames {
		name := trickyNames[i*8%len(trickyNames)] // in no order, each once
		if i%3 != 0 {
			c.setPaused(name, true)
		}
		if i%3 != 1 {
			c.Enqueue(plainBut(func(n *store.NewJob) { n.Queue = name }))
		}
		want = append(want, store.Queue{Name: name, Paused: i%3 != 0})
	}
	slices.SortFunc(want, func(a, b store.Queue) int { return strings.Compare(a.Name, b.Name) })
	c.Equal(c.queues(), want, "queues")

	counted := each(c.count(store.Filter{}).Queues, func(q store.QueueCount) string { return q.Queue })
	c.True(slices.IsSorted(counted), "counts are by name, byte by byte: %q", counted)
}

func queueListedAsLongAsItHasAJobOrIsPaused(c *C) {
	c.Equal(c.queues(), []store.Queue{}, "queues of an empty store")
	for _, phase := range []store.State{store.InFlight, store.Retrying, store.Succeeded, store.Dead, store.Cancelled, store.Ready} {
		id := c.JobIn(phase).ID
		c.Equal(c.queues(), []store.Queue{{Name: queue}}, "queues with a job that is %s", phase)
		c.setPaused(queue, true)
		c.Equal(c.queues(), []store.Queue{{Name: queue, Paused: true}}, "queues with a job that is %s, paused", phase)
		c.Cancel(id)
		c.Delete(id)
		c.Equal(c.queues(), []store.Queue{{Name: queue, Paused: true}}, "queues without a job, paused")
		c.setPaused(queue, false)
		c.Equal(c.queues(), []store.Queue{}, "queues without a job")
	}
}

func queuePauseStopsNoSettle(c *C) {
	id := c.Enqueue(c.expiring(time.Second))[0]
	c.setPaused(queue, true)
	c.Advance(time.Second)
	before := c.Get(id)
	c.Equal(c.Settle(10), settledAs(becomes(store.OpCancel, before, c.Now())), "settled while the queue is paused")
}

func queuePausedQueueGivesNothing(c *C) {
	retrying, ready := c.JobIn(store.Retrying), c.JobIn(store.Ready)
	other := c.Enqueue(plainBut(func(n *store.NewJob) { n.Queue = "other" }))[0]
	c.Advance(time.Hour)
	fromOther := claimOf(10)
	fromOther.Queue = "other"

	c.setPaused(queue, true)
	c.setPaused(queue, true)
	c.changesNothing("a claim from a paused queue", func() {
		req := claimOf(10)
		req.RetryQuota = 10
		c.Equal(ids(c.ClaimBy(req)), []int64{}, "claimed from a paused queue")
	})
	c.Equal(ids(c.ClaimBy(fromOther)), []int64{other}, "claimed from another queue")

	c.setPaused(queue, false)
	c.Equal(ids(c.Claim(10)), []int64{retrying.ID, ready.ID}, "claimed when the queue goes on, after two pauses and one resume")
	c.setPaused(queue, false)
	c.Equal(c.queues(), []store.Queue{{Name: "other"}, {Name: queue}}, "queues after two resumes")
}

// Claimers give back what they took, so that there is always something to take. A claim that found the same pause before it
// began and after it returned began after that pause. Each pause lasts until a few have.
func queueNothingIsTakenAfterPauseReturned(c *C) {
	c.EnqueueN(20)
	var pause, within atomic.Int64 // pause is odd while the queue is paused, within counts claims that began after it was
	var stop atomic.Bool
	c.Parallel(4, func(i int) {
		if i == 0 {
			defer stop.Store(true)
			for range 20 {
				c.setPaused(queue, true)
				pause.Add(1)
				c.Equal(ids(c.Claim(1)), []int64{}, "claimed from a paused queue")
				for enough := within.Load() + 3; within.Load() < enough && !c.Failed() && c.Ctx.Err() == nil; {
					runtime.Gosched()
				}
				c.True(c.count(store.Filter{Queue: queue}).Queues[0].Due > 0, "jobs are left to be claimed but for the pause")
				pause.Add(1)
				c.setPaused(queue, false)
			}
			return
		}
		for !stop.Load() {
			before := pause.Load()
			jobs := c.Claim(1)
			c.endAll(jobs, store.Release, 0)
			if before%2 == 1 && pause.Load() == before {
				within.Add(1)
				c.Equal(ids(jobs), []int64{}, "claimed although the queue had been paused")
			}
		}
	})
}

func queueEnqueueingFinishingAndRecoveryGoOn(c *C) {
	c.EnqueueN(6)
	held := c.Claim(6)
	c.setPaused(queue, true)

	c.EnqueueOne()
	for i, ops := range [][]store.Op{{store.OpExtend, store.OpSave, store.OpAck}, {store.OpFail}, {store.OpNever}, {store.OpSnooze}, {store.OpRelease}} {
		for _, op := range ops {
			c.Equal(underLease(c, op, held[i].Lease()).Status, store.StatusOK, "%s in a paused queue", op)
		}
	}
	c.Advance(ttl)
	c.Equal(len(c.Recover(10)), 1, "recovered in a paused queue")
	c.Equal(c.countOf(store.Filter{}), map[string]int64{
		queue + " succeeded": 1, queue + " retrying": 2, queue + " dead": 1, queue + " ready": 3,
	}, "phases after all that")
	c.Equal(c.Requeue(held[0].ID).Status, store.StatusOK, "Requeue in a paused queue")
	c.Equal(c.Reschedule(held[0].ID, c.Now().Add(time.Minute)).Status, store.StatusOK, "Reschedule in a paused queue")
	c.Equal(c.Reschedule(held[0].ID, time.Time{}).Status, store.StatusOK, "Reschedule to now in a paused queue")
	c.Equal(c.Cancel(held[0].ID).Status, store.StatusOK, "Cancel in a paused queue")
	c.Equal(c.Delete(held[0].ID).Status, store.StatusOK, "Delete in a paused queue")
	c.Equal(ids(c.Claim(10)), []int64{}, "claimed after all that")
}

func queueRefusesAsTheCoreDoes(c *C) {
	keeper := c.queueKeeper()
	longest := strings.Repeat("x", store.MaxNameBytes)
	c.setPaused(longest, true)
	want := []store.Queue{{Name: longest, Paused: true}}
	c.refusesAsTheCoreDoes(abilityCalls{
		"Queues": unnamed(func(ctx context.Context) error { _, err := keeper.Queues(ctx); return err }),
		"pause":  func(ctx context.Context, name string) error { return keeper.SetPaused(ctx, name, true) },
		"resume": func(ctx context.Context, name string) error { return keeper.SetPaused(ctx, name, false) },
	}, func() { c.Equal(c.queues(), want, "queues after the refusals") })
}
