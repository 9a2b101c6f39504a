package conformance

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	sentenceUnblock   = "A blocked job becomes ready when its last wait is met, and is due at the later of that now and the time that was asked for."
	sentenceMet       = "A wait is met when its job succeeds or, with Any, when its job ends in whatever way or is deleted."
	sentenceAfter     = "A job with After waits for jobs that exist, named by their ids, or for earlier items of the call, named by their indices. It is blocked until every wait is met, see Settle."
	sentenceWaitsCut  = "A job has at most 64 waits, and a call at most 4,000."
	sentenceWaitsFor  = "A filter with WaitsFor matches jobs that wait for the job with this id, or have waited for it, whether that job still exists or not."
	sentenceUnneeded  = "A filter with Unneeded matches jobs for which no job waits or has waited, except jobs that have ended; a wait for its group counts like one for the job. A call looks at waits before it changes any job, and may overlook one that was not committed when the call began."
	sentenceLookAgain = "Jobs that had waits are looked at after all jobs of the call, by rising id. Such a job is blocked if one of its waits is not met as the jobs and groups are now."
)

var waitCases = []Case{
	{"Waits/BlockedUntilItsJobSucceeds", sentenceAfter + "\n" + sentenceUnblock + "\nUnblock is what follows from the end of another job.", waitsBlock},
	{"Waits/EarlierItemsOfTheCall", sentenceAfter, waitsForItems},
	{"Waits/DueAtTheLaterOfNowAndWhatWasAsked", "Each job becomes ready, unless it has to wait for others, and is due at the later of now and the requested time.\n" + sentenceUnblock, waitsDue},
	{"Waits/WhatHasEndedMeetsAtOnce", "What has succeeded meets a wait at once and, with Any, so does what has ended.", waitsMetAtOnce},
	{"Waits/NeedsACancelledJob", "A job that needs the success of a job that is cancelled or gone is added as cancelled.", waitsForCancelled},
	{"Waits/UnknownJobRefusesTheCall", "If a job that is named by its id does not exist, Enqueue adds none, and returns an InvalidError with the index of the item and the field after.", waitsForUnknown},
	{"Waits/LimitsAreKept", sentenceWaitsCut + "\nA schedule's name and expression are names as well; its time zone and its owner may also be empty, and its job has a payload of at most 64 KiB, no due time, no ExpiresAt, no Replace, no waits and no group.", waitsLimits},
	{"Waits/DuplicateStandsForItsHolder", "A wait for an item that is a duplicate is one for the job that holds its key. The waits of a duplicate are checked and not kept.", waitsForDuplicates},
	{"Waits/EveryEndMeetsAny", sentenceMet, waitsAnyEnd},
	{"Waits/WhatWasMetStaysMet", "A wait for a job that was met stays met, whatever becomes of its job.", waitsStayMet},
	{"Waits/DeadJobHoldsUp", "A job that is dead ends nothing: what needs its success stays blocked, and becomes ready if the job is requeued and succeeds.", waitsHeldUp},
	{"Waits/CancelledJobCancelsWhatNeedsIt", "A blocked job that needs the success of a job that is cancelled, or that is dead and deleted, is cancelled as by Cancel, and its Error names that job. So are those that need its own success in turn.", waitsCancel},
	{"Waits/SettleDoesTheRest", "Then it applies what follows for others from the ends of jobs.\nA call that ends jobs applies this to at most 1,000 others before it returns. It leaves the rest to Settle, and may also leave jobs that were added or ended in a caller's transaction, or that an open transaction locks. A Settle that changes fewer than limit jobs has applied the ends of all jobs that were committed before it began, except to jobs that an open transaction locks.", waitsSettle},
	{"Waits/OutcomesAreOfTheNamed", "The outcomes of a call are only about the jobs that it was asked to change.", waitsOutcomes},
	{"Waits/RequeueLooksAgain", sentenceLookAgain + "\nok the job is ready or blocked now;", waitsRequeue},
	{"Waits/RequeueIsNotUndone", "A wait for a job that no longer exists stays as it was or, with Any, is met. What was cancelled, deleted or spoiled before does not cancel the job again: it stays blocked.", waitsRequeueStays},
	{"Waits/BlockedJobIsLive", "If UniqueFor is zero, the job holds its key while it is blocked, ready, in flight or retrying.", waitsLive},
	{"Waits/RequeuedJobEndsAgain", "A wait for a job that was requeued is for its next end.", waitsForNextEnd},
	{"Waits/ShownByGet", "The answer has the waits of the job in the order in which they were enqueued, with whether each is met and the phase of the other job or of the group.", waitsShown},
	{"Waits/FiltersLookAtWaits", sentenceWaitsFor + "\n" + sentenceUnneeded, waitsFiltered},
	{"Waits/LastTwoAtOnce", "A call takes effect as a whole, at one moment between its start and its return, or not at all.\n" + sentenceUnblock, waitsLastTwo},
	{"Waits/RepeatUnderARequestKey", "For 24 hours, the same request with the same key adds nothing and returns the first answer, even after its jobs are gone.", waitsRepeat},
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// metBy is the waits, all met by jobs in the phase.
func metBy(waits []store.Waiting, phase store.State) []store.Waiting {
	return each(waits, func(w store.Waiting) store.Waiting {
		return store.Waiting{ID: w.ID, Any: w.Any, Met: true, State: phase}
	})
}

// first is the queue of jobs that others wait for.
const first = "first"

// parents enqueues jobs for others to wait for, in a queue of their own.
func (c *C) parents(n int) []int64 {
	c.Helper()
	return c.Enqueue(slices.Repeat([]store.NewJob{plainBut(func(n *store.NewJob) { n.Queue = first })}, n)...)
}

// needing is a plain job that needs the success of others.
func needing(ids ...int64) store.NewJob {
	return plainBut(func(n *store.NewJob) {
		n.After = each(ids, func(id int64) store.Wait { return store.Wait{ID: id} })
	})
}

// whatever is the job, with waits that any end meets.
func whatever(n store.NewJob) store.NewJob {
	for i := range n.After {
		n.After[i].Any = true
	}
	return n
}

// hold claims the job, which must be the next one of the first queue, and returns its lease.
func (c *C) hold(id int64) store.Lease {
	c.Helper()
	jobs := c.ClaimBy(store.ClaimRequest{Queue: first, Limit: 1, Worker: worker, TTL: ttl})
	if len(jobs) != 1 || jobs[0].ID != id {
		c.Fatalf("claiming job %d: got %v", id, ids(jobs))
	}
	return jobs[0].Lease()
}

// settleAll settles until nothing is left.
func (c *C) settleAll() {
	c.Helper()
	for range 1000 {
		if len(c.Settle(store.MaxItems)) < store.MaxItems {
			return
		}
	}
	c.Fatalf("Settle went on changing jobs")
}

// in checks the phases of jobs.
func (c *C) in(phase store.State, what string, list ...int64) {
	c.Helper()
	for _, id := range list {
		c.Equal(c.Get(id).Phase(), phase, "the phase of job %d %s", id, what)
	}
}

func waitsBlock(c *C) {
	before := c.parents(2)
	added := c.asked(store.EnqueueRequest{Jobs: []store.NewJob{needing(before...)}})
	c.Equal(added[0].State, store.Blocked, "the state in the answer")
	job := c.Get(added[0].ID)
	c.Equal(job.State, store.Blocked, "the state of a job that waits")
	c.Equal(job.Next(), time.Time{}, "Next of a blocked job")
	c.Equal(ids(c.Claim(10)), []int64{}, "claimed while both are waited for")
	c.Advance(time.Second)
	c.Ack(c.hold(before[0]))
	c.in(store.Blocked, "after the first has succeeded", job.ID)
	c.Equal(ids(c.Claim(10)), []int64{}, "claimed while one is waited for")
	c.NAck(c.hold(before[1]), store.Fail, 0, "boom")
	c.in(store.Blocked, "after the second has failed once", job.ID)
	c.Advance(time.Hour)
	c.Ack(c.hold(before[1]))
	c.Equal(c.Get(job.ID), becomes(store.OpUnblock, job, c.Now()), "the job after both have succeeded")
	c.Equal(ids(c.Claim(10)), []int64{job.ID}, "claimed then")
}

// waitsForItems has a diamond, whose ends run in the order of its edges.
func waitsForItems(c *C) {
	item := func(after ...int) store.NewJob {
		return plainBut(func(n *store.NewJob) {
			n.Queue = first
			for _, i := range after {
				n.After = append(n.After, store.Wait{Item: i})
			}
		})
	}
	list := c.Enqueue(item(), item(0), item(0), item(1, 2), item(0, 0))
	c.in(store.Ready, "at first", list[0])
	c.in(store.Blocked, "at first", list[1:]...)
	c.Ack(c.hold(list[0]))
	c.in(store.Ready, "after the first", list[1], list[2], list[4])
	c.in(store.Blocked, "after the first", list[3])
	c.Ack(c.hold(list[1]))
	c.in(store.Blocked, "after one of its two", list[3])
	c.Ack(c.hold(list[2]))
	c.in(store.Ready, "after both", list[3])
}

func waitsDue(c *C) {
	before := c.parents(1)[0]
	delayed := needing(before)
	delayed.Delay = time.Hour
	prompt := needing(before)
	prompt.Delay = time.Second
	list := c.Enqueue(delayed, prompt)
	asked := c.Get(list[0]).RunAt
	c.Equal(asked, c.Now().Add(time.Hour), "RunAt of a blocked job with a delay of an hour")
	c.Advance(time.Minute)
	c.Ack(c.hold(before))
	c.Equal(c.Get(list[0]).RunAt, asked, "RunAt of the job with a delay of an hour, after a minute")
	c.Equal(c.Get(list[1]).RunAt, c.Now(), "RunAt of the job with a delay of a second, after a minute")
	c.Equal(ids(c.Claim(10)), list[1:], "claimed at once")
}

// ended brings a job of the first queue to each end. Its names are the ends.
var ended = map[string]struct {
	phase store.State
	end   func(c *C, id int64)
}{
	"acked":     {store.Succeeded, func(c *C, id int64) { c.Ack(c.hold(id)) }},
	"nacked":    {store.Dead, func(c *C, id int64) { c.NAck(c.hold(id), store.Never, 0, "boom") }},
	"refused":   {store.Dead, func(c *C, id int64) { c.One(c.Store.Ack(c.Ctx, []store.Ack{{Lease: c.hold(id), Result: []byte("{")}})) }},
	"cancelled": {store.Cancelled, func(c *C, id int64) { c.Cancel(id) }},
	"expired":   {store.Cancelled, func(c *C, _ int64) { c.Advance(time.Hour); c.Settle(1) }},
	"recovered": {store.Dead, func(c *C, id int64) { c.hold(id); c.Advance(ttl); c.Recover(1) }},
}

// mortal is a job of the first queue that expires, and is dead after one failure.
func (c *C) mortal() int64 {
	c.Helper()
	n := c.expiring(time.Hour)
	n.Queue, n.MaxRetries = first, 0
	return c.Enqueue(n)[0]
}

func waitsMetAtOnce(c *C) {
	for name, way := range ended {
		id := c.mortal()
		way.end(c, id)
		c.in(way.phase, name, id)
		want := store.Ready
		if way.phase == store.Dead {
			want = store.Blocked
		}
		list := c.Enqueue(whatever(needing(id)), needing(id))
		c.in(store.Ready, "that waits for the end of a job that was "+name, list[0])
		if way.phase != store.Cancelled {
			c.in(want, "that needs a job that was "+name, list[1])
		}
		c.Cancel(list[0])
		c.Cancel(list[1])
	}
}

func waitsForCancelled(c *C) {
	cancelled := c.JobIn(store.Cancelled).ID
	next := plainBut(func(n *store.NewJob) { n.After = []store.Wait{{Item: 0}} })
	unheld := needing(cancelled)
	unheld.UniqueKey = "key"
	list := c.asked(store.EnqueueRequest{Jobs: []store.NewJob{unheld, next}})
	for i, e := range list {
		c.Equal(e.State, store.Cancelled, "the state in the answer")
		d := c.Get(e.ID)
		c.Equal([]any{d.State, d.FinishedAt, d.Token, len(d.History)}, []any{store.Cancelled, c.Now(), int64(0), 0}, "a job that needs a cancelled one")
		needs := []int64{cancelled, list[0].ID}[i]
		c.True(strings.Contains(d.Error, fmt.Sprint("job ", needs)), "its error %q names job %d", d.Error, needs)
	}
	c.free(keyed("key", 0), "the job that had it was never live")

	held := keyed("held", time.Hour)
	gone := c.Enqueue(held)[0]
	c.Cancel(gone)
	c.Delete(gone)
	list = c.asked(store.EnqueueRequest{Jobs: []store.NewJob{held, next}})
	c.Equal(list[0], store.Enqueued{ID: gone, Duplicate: true}, "a duplicate of a job that is gone")
	c.in(store.Cancelled, "that needs a job that is gone", list[1].ID)
}

func waitsForUnknown(c *C) {
	gone := c.JobIn(store.Succeeded).ID
	c.Delete(gone)
	there := c.EnqueueOne()
	for what, id := range map[string]int64{"a job that was deleted": gone, "a job that never was": there + 1000} {
		_, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{plain(), needing(there, id)}})
		c.refused(err, 1, "after", "an item that waits for "+what)
	}
	c.Equal(c.howMany(), 1, "jobs after the refused calls")
}

func waitsLimits(c *C) {
	before := c.parents(1)[0]
	for what, after := range map[string][]store.Wait{
		"65 jobs":                slices.Repeat([]store.Wait{{ID: before}}, store.MaxWaits+1),
		"a later item":           {{Item: 2}},
		"itself":                 {{Item: 1}},
		"an item before all":     {{Item: -1}},
		"an id that is negative": {{ID: -1}},
		"an id and an item":      {{ID: before, Item: 0}, {ID: before, Item: 1}},
	} {
		_, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{plain(), plainBut(func(n *store.NewJob) { n.After = after })}})
		c.refused(err, 1, "after", "an item that waits for "+what)
	}
	many := plainBut(func(n *store.NewJob) { n.After = slices.Repeat([]store.Wait{{ID: before}}, store.MaxWaits) })
	most := slices.Repeat([]store.NewJob{many}, store.MaxCallWaits/store.MaxWaits)
	rest := needing(slices.Repeat([]int64{before}, store.MaxCallWaits%store.MaxWaits)...)
	_, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: append(slices.Clone(most), rest, needing(before))})
	c.refused(err, len(most)+1, "after", "an item with the 4,001st wait of the call")
	c.Equal(c.howMany(), 1, "jobs of refused calls")
	c.Enqueue(append(slices.Clone(most), rest)...)
	c.in(store.Blocked, "with 64 waits for one job", c.All()[len(most)].ID)
	if keeper, ok := c.instance.Store.(store.ScheduleKeeper); ok {
		_, err := keeper.SetSchedule(c.Ctx, store.Schedule{Name: "s", Cron: "@daily", Job: needing(before)})
		c.refused(err, -1, "job.after", "a schedule whose job waits")
	}
}

func waitsForDuplicates(c *C) {
	holder := c.Enqueue(keyed("key", 0))[0]
	before := c.parents(1)[0]
	duplicate := keyed("key", 0)
	duplicate.After = []store.Wait{{ID: before}}
	next := plainBut(func(n *store.NewJob) { n.After = []store.Wait{{Item: 0}} })
	list := c.asked(store.EnqueueRequest{Jobs: []store.NewJob{duplicate, next}})
	c.Equal(list[0], store.Enqueued{ID: holder, State: store.Ready, Duplicate: true}, "the duplicate")
	c.Equal(c.Get(holder).Waits, []store.Waiting{}, "the waits of the holder")
	c.Equal(c.Get(list[1].ID).Waits, []store.Waiting{{ID: holder, State: store.Ready}}, "the waits of the item after it")
	c.Ack(c.ClaimOne().Lease())
	c.in(store.Ready, "after the holder has succeeded", list[1].ID)

	again := c.Enqueue(keyed("key", 0))[0]
	wrong := keyed("key", 0)
	wrong.After = []store.Wait{{ID: again + 1000}}
	_, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{wrong}})
	c.refused(err, 0, "after", "a duplicate that waits for a job that does not exist")
}

func waitsAnyEnd(c *C) {
	for name, way := range ended {
		id := c.mortal()
		list := c.Enqueue(whatever(needing(id)), needing(id))
		way.end(c, id)
		c.settleAll()
		c.in(store.Ready, "that waits for the end of a job that was "+name, list[0])
		want := map[store.State]store.State{store.Succeeded: store.Ready, store.Dead: store.Blocked, store.Cancelled: store.Cancelled}[way.phase]
		c.in(want, "that needs a job that was "+name, list[1])
		c.Cancel(list[0])
		c.Cancel(list[1])
	}
}

func waitsStayMet(c *C) {
	before := c.parents(2)
	job := c.Enqueue(needing(before...))[0]
	c.Ack(c.hold(before[0]))
	c.settleAll()
	c.Requeue(before[0])
	c.Cancel(before[0])
	c.settleAll()
	c.in(store.Blocked, "after the first has succeeded and was cancelled then", job)
	c.Delete(before[0])
	c.settleAll()
	c.Ack(c.hold(before[1]))
	c.in(store.Ready, "after the second has succeeded", job)
	c.Equal(c.Get(job).Waits, []store.Waiting{{ID: before[0], Met: true}, {ID: before[1], Met: true, State: store.Succeeded}}, "its waits")

	before = c.parents(2)
	job = c.Enqueue(needing(before...))[0]
	c.Ack(c.hold(before[0]))
	c.settleAll()
	c.Requeue(before[0])
	c.Cancel(before[0])
	c.Ack(c.hold(before[1]))
	c.in(store.Ready, "after the second has succeeded, while the first is cancelled", job)
}

func waitsHeldUp(c *C) {
	before := c.parents(1)[0]
	job := c.Get(c.Enqueue(needing(before))[0])
	c.NAck(c.hold(before), store.Never, 0, "boom")
	c.settleAll()
	held := job
	held.Waits = []store.Waiting{{ID: before, State: store.Dead}}
	c.Equal(c.Get(job.ID), held, "what needs a dead job")
	c.True(held.Waits[0].HoldsUp(), "a dead job holds it up")
	late := c.Enqueue(needing(before))[0]
	c.in(store.Blocked, "enqueued after the job was dead", late)
	c.Advance(time.Minute)
	c.Requeue(before)
	c.Ack(c.hold(before))
	c.Equal(c.Get(job.ID), becomes(store.OpUnblock, job, c.Now()), "after the job was requeued and has succeeded")
	c.in(store.Ready, "after that too", late)
}

func waitsCancel(c *C) {
	for what, end := range map[string]func(id int64){
		"cancelled":         func(id int64) { c.Cancel(id) },
		"cancelled running": func(id int64) { c.hold(id); c.Cancel(id) },
		"dead and deleted":  func(id int64) { c.NAck(c.hold(id), store.Never, 0, "boom"); c.Delete(id) },
		"expired":           func(int64) { c.Advance(time.Hour); c.Settle(1) },
	} {
		root := c.mortal()
		chain := []store.JobDetail{}
		for needs := root; len(chain) < 4; needs = chain[len(chain)-1].ID {
			chain = append(chain, c.Get(c.Enqueue(needing(needs))[0]))
		}
		spared := c.Enqueue(whatever(needing(chain[1].ID)))[0]
		end(root)
		c.settleAll()
		needs := root
		for _, before := range chain {
			got, want := c.Get(before.ID), becomes(store.OpCancel, before, c.Now())
			c.True(strings.Contains(got.Error, fmt.Sprint("job ", needs)), "after the first job was %s: the error %q names job %d", what, got.Error, needs)
			want.Error, want.Waits = got.Error, got.Waits
			c.Equal(got, want, "what needs a job that was %s", what)
			needs = before.ID
		}
		c.in(store.Ready, "that waits for the end of one that was cancelled", spared)
		c.Cancel(spared)
	}
}

func waitsSettle(c *C) {
	before := c.parents(1)[0]
	const all = store.SettledByCall + 250
	for left := all; left > 0; left -= store.MaxItems {
		c.Enqueue(slices.Repeat([]store.NewJob{needing(before)}, min(left, store.MaxItems))...)
	}
	c.Ack(c.hold(before))
	ready := func() int { return int(c.count(store.Filter{Queue: queue}).Queues[0].Jobs[store.Ready]) }
	done := ready()
	c.True(done <= store.SettledByCall, "the Ack has changed %d others, at most %d", done, store.SettledByCall)
	for round := 0; done < all; round++ {
		settled := c.Settle(100)
		c.Equal(len(settled), min(100, all-done), "how many a Settle changes")
		for _, one := range settled {
			is := c.Get(one.ID).Job
			c.Equal(one, store.SettledOf(&is), "the answer of Settle")
			c.Equal(one.State, store.Ready, "the state in the answer of Settle")
		}
		done += len(settled)
		c.Equal(ready(), done, "how many are ready")
		if c.Failed() || round > all/100+1 {
			return
		}
	}
	c.Equal(len(c.Settle(10)), 0, "how many are left at last")
}

func waitsOutcomes(c *C) {
	before := c.parents(1)[0]
	after := c.Enqueue(needing(before))[0]
	o := c.Cancel(before)
	c.Equal(o, store.OutcomeOf(c.Get(before).Job, store.StatusOK), "the outcome of the job that was named")
	c.settleAll()
	c.in(store.Cancelled, "that needed it", after)

	before = c.parents(1)[0]
	for range 3 {
		c.Enqueue(needing(before))
	}
	outcomes, err := c.Store.Cancel(c.Ctx, store.Filter{Queue: first}, 10)
	c.OK(err, "Cancel of a queue")
	c.Equal(each(outcomes, func(o store.Outcome) int64 { return o.ID }), []int64{before}, "the outcomes of a queue that was cancelled")
}

func waitsRequeue(c *C) {
	before := c.parents(2)
	list := c.Enqueue(needing(before[0]), needing(before[1]))
	last := c.Enqueue(needing(list...))[0]
	c.Ack(c.hold(before[0]))
	c.Cancel(before[1])
	c.settleAll()
	c.in(store.Cancelled, "that needs a cancelled one", list[1], last)
	all := only(last, list[1], before[1])
	outcomes, err := c.Store.Requeue(c.Ctx, all, 10)
	c.OK(err, "Requeue of three jobs")
	c.Equal(outcomes, each(all.IDs, func(id int64) store.Outcome { return store.OutcomeOf(c.Get(id).Job, store.StatusOK) }), "the outcomes")
	c.in(store.Ready, "that waits for nothing", before[1])
	c.in(store.Blocked, "whose job was requeued with it", list[1], last)

	c.Ack(c.hold(before[1]))
	c.in(store.Ready, "after its job has succeeded", list[1])
	c.in(store.Blocked, "while both are waited for", last)
	for range 2 {
		c.Ack(c.ClaimOne().Lease())
	}
	c.in(store.Ready, "after both have succeeded", last)

	c.Ack(c.ClaimOne().Lease())
	c.Equal(c.Requeue(last).State, store.Ready, "a requeued job whose waits are met")
	c.Ack(c.ClaimOne().Lease())
	c.Requeue(list[0])
	c.Equal(c.Requeue(last).State, store.Blocked, "a requeued job, after a job that it waited for was requeued")
	c.Ack(c.ClaimOne().Lease())
	c.in(store.Ready, "after that has succeeded again", last)
}

func waitsRequeueStays(c *C) {
	before := c.parents(1)[0]
	job := c.Enqueue(needing(before))[0]
	c.Cancel(before)
	c.settleAll()
	c.Equal(c.Requeue(job).State, store.Blocked, "requeued while its job is cancelled")
	c.settleAll()
	c.in(store.Blocked, "whose job was cancelled before the requeue", job)
	c.True(c.Get(job).Waits[0].HoldsUp(), "the cancelled job holds it up")
	c.Requeue(before)
	c.Cancel(before)
	c.settleAll()
	c.in(store.Cancelled, "whose job was cancelled once more", job)
	c.Delete(before)
	c.Equal(c.Requeue(job).State, store.Blocked, "requeued after its job is gone")
	c.settleAll()
	c.in(store.Blocked, "whose job was deleted before the requeue", job)
	c.True(c.Get(job).Waits[0].HoldsUp(), "the job that is gone holds it up")

	met := c.parents(1)[0]
	list := c.Enqueue(needing(met), whatever(needing(met)))
	c.Ack(c.hold(met))
	c.settleAll()
	c.Cancel(list[0])
	c.Cancel(list[1])
	c.Delete(met)
	for _, id := range list {
		c.Equal(c.Requeue(id).State, store.Ready, "a job whose wait was met, requeued after the other job is gone")
	}
}

func waitsForNextEnd(c *C) {
	before := c.mortal()
	old := c.Enqueue(needing(before))[0]
	c.Advance(time.Hour)
	c.Equal(each(c.Settle(1), func(s store.Settled) int64 { return s.ID }), []int64{before}, "what a Settle of one job changes")
	c.Requeue(before)
	list := c.Enqueue(needing(before), whatever(needing(before)))
	c.settleAll()
	c.in(store.Cancelled, "whose job was cancelled while it waited", old)
	c.in(store.Blocked, "that was enqueued after the requeue", list...)
	c.Ack(c.hold(before))
	c.settleAll()
	c.in(store.Ready, "after its job has ended again", list...)
}

func waitsLive(c *C) {
	before := c.parents(1)[0]
	n := needing(before)
	n.UniqueKey, n.ExpiresAt = "key", c.Now().Add(time.Hour)
	job := c.Enqueue(n)[0]
	c.held(keyed("key", 0), job, store.Blocked, "by a blocked job")
	other := keyed("key", 0)
	other.Replace, other.Payload, other.Delay = true, []byte(`"other"`), time.Minute
	c.Equal(c.asked(store.EnqueueRequest{Jobs: []store.NewJob{other}}), []store.Enqueued{{ID: job, State: store.Blocked, Duplicate: true, Replaced: true}}, "a duplicate with Replace")
	d := c.Get(job)
	c.Equal([]any{string(d.Payload), d.RunAt, d.State, len(d.Waits)}, []any{`"other"`, c.Now().Add(time.Minute), store.Blocked, 1}, "the replaced job")
	counts := c.count(store.Filter{Queue: queue})
	c.Equal(counts.Queues[0].Jobs, map[store.State]int64{store.Blocked: 1}, "the count")
	c.Equal(counts.Queues[0].Due, int64(0), "how many are due")
	c.Equal(ids(c.List(store.Filter{States: []store.State{store.Blocked}}, 10)), []int64{job}, "the blocked jobs")
	expiring := c.Enqueue(plainBut(func(n *store.NewJob) { n.After, n.ExpiresAt = []store.Wait{{ID: before}}, c.Now().Add(time.Hour) }))[0]
	c.Advance(time.Hour)
	c.Equal(each(c.Settle(10), func(s store.Settled) int64 { return s.ID }), []int64{expiring}, "settled when it expires")
	c.in(store.Cancelled, "that has expired", expiring)
}

func waitsShown(c *C) {
	succeeded, dead := c.JobIn(store.Succeeded).ID, c.JobIn(store.Dead).ID
	before := c.parents(1)[0]
	n := needing(before, dead, succeeded)
	n.After = append(n.After, store.Wait{ID: dead, Any: true})
	job := c.Enqueue(n)[0]
	want := []store.Waiting{{ID: before, State: store.Ready}, {ID: dead, State: store.Dead}, {ID: succeeded, Met: true, State: store.Succeeded}, {ID: dead, Any: true, Met: true, State: store.Dead}}
	c.Equal(c.Get(job).Waits, want, "the waits")
	l := c.hold(before)
	want[0].State = store.InFlight
	c.Equal(c.Get(job).Waits, want, "the waits, while the first is in flight")
	c.Ack(l)
	want[0] = store.Waiting{ID: before, Met: true, State: store.Succeeded}
	c.Equal(c.Get(job).Waits, want, "the waits, after it has succeeded")
}

func waitsLastTwo(c *C) {
	for range 20 {
		before := c.parents(2)
		job := c.Enqueue(needing(before...))[0]
		leases := []store.Lease{c.hold(before[0]), c.hold(before[1])}
		c.Parallel(2, func(i int) {
			_, err := c.Store.Ack(c.Ctx, []store.Ack{{Lease: leases[i]}})
			c.OK(err, "Ack of one of the last two")
		})
		c.settleAll()
		c.Equal(ids(c.Claim(10)), []int64{job}, "claimed after both have succeeded")
	}
}

func waitsRepeat(c *C) {
	before := c.parents(1)[0]
	req := store.EnqueueRequest{Jobs: []store.NewJob{needing(before)}, RequestKey: "key"}
	first := c.asked(req)
	c.Ack(c.hold(before))
	c.Delete(before)
	c.Equal(c.asked(req), first, "the answer to a repeat, after the job that it waits for is gone")
	req.Jobs[0].After[0].Any = true
	_, err := c.Store.Enqueue(c.Ctx, req)
	c.refused(err, -1, "request_key", "a request whose waits differ")
}
