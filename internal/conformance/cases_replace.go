package conformance

import (
	"fmt"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	sentenceReplace = "A duplicate with Replace changes the holder of its key, if that is blocked, ready or retrying, has not expired, and has the queue, the kind, the group and the limit key of the duplicate."
	sentencePlain   = "Any other duplicate with Replace changes nothing."
)

var replaceCases = []Case{
	{"Unique/ReplaceChangesAWaitingHolder", sentenceReplace + "\nThe holder gets the duplicate's payload, priority and ExpiresAt, and its due time: as RetryAt if it is retrying, otherwise as RunAt. Its checkpoint and progress and their numbers are cleared, and its token grows.\nThe answer says replaced.", replaceChangesAWaitingHolder},
	{"Unique/ReplaceMovesTheHolderInItsLane", sentenceReplace, replaceMovesTheHolder},
	{"Unique/ReplaceLeavesTheWindow", "Nothing else changes, and a window stays as it is.\n" + sentencePlain, replaceLeavesTheWindow},
	{"Unique/ReplaceOfInFlightHolderIsAPlainDuplicate", sentencePlain, replaceOfInFlight},
	{"Unique/ReplaceOfOtherKindQueueOrLimitKeyIsAPlainDuplicate", sentencePlain, replaceOfOthers},
	{"Unique/ReplaceOfExpiredHolder", sentencePlain + "\n" + sentenceExpiredKey, replaceOfExpired},
	{"Unique/ReplaceInsideOneCall", "A holder that an earlier item of the call has added or changed is changed as well.", replaceInsideOneCall},
	{"Unique/ReplaceNeedsAKey", "A job with Replace but without a unique key is invalid.", replaceNeedsAKey},
	{"Unique/ReplaceUnderARequestKey", sentenceRequestKey + "\n" + sentenceOtherJobs, replaceUnderARequestKey},
	{"Unique/ReplaceRacingClaimIsDecidedOnce", sentenceWholeCall, replaceRacesClaims},
}

// replacing is a job that replaces the holder of the key.
func replacing(key string, change func(*store.NewJob)) store.NewJob {
	return plainBut(func(n *store.NewJob) {
		n.UniqueKey, n.Replace = key, true
		if change != nil {
			change(n)
		}
	})
}

// waitingHolder makes a job that holds the key, has a checkpoint, one retry and its error, and waits for two hours.
func (c *C) waitingHolder(form store.Form, n store.NewJob) store.JobDetail {
	id := c.free(n, "the holder to replace")
	c.NAck(c.ClaimOne().Lease(), store.After, 0, "the first try failed")
	l := c.ClaimOne().Lease()
	underLease(c, store.OpSave, l)
	c.NAck(l, form, 2*time.Hour, "not yet")
	return c.Get(id)
}

// replacedBy is the holder after it was replaced at now.
func replacedBy(d store.JobDetail, n store.NewJob, now time.Time) store.JobDetail {
	row := n.Row(d.ID, now)
	d.Payload, d.Priority, d.Extras = row.Payload, row.Priority, d.Extras.WithExpiresAt(row.ExpiresAt())
	d.Checkpoint, d.Progress, d.CheckpointSeq, d.ProgressSeq = nil, nil, 0, 0
	if d.State == store.Ready {
		d.RunAt = row.RunAt
	} else {
		d.RetryAt = row.RunAt
	}
	d.Token++
	return d
}

// replaces checks that the job replaces the holder, and returns the holder.
func (c *C) replaces(before store.JobDetail, n store.NewJob, what string) store.JobDetail {
	want := []store.Enqueued{{ID: before.ID, State: before.State, Duplicate: true, Replaced: true}}
	c.Equal(c.answers(n), want, "the answer for a job that replaces another: %s", what)
	after := replacedBy(before, n, c.Now())
	c.Equal(c.Get(before.ID), after, "the job that was replaced: %s", what)
	return after
}

// replaceChangesAWaitingHolder compares the whole row, and claims the job when it is due and not one tick before.
func replaceChangesAWaitingHolder(c *C) {
	for _, form := range []store.Form{store.Snooze, store.After} {
		for name, change := range map[string]func(n *store.NewJob, now time.Time){
			"due now":            func(*store.NewJob, time.Time) {},
			"due in the past":    func(n *store.NewJob, now time.Time) { n.RunAt = now.Add(-time.Hour) },
			"due earlier":        func(n *store.NewJob, now time.Time) { n.RunAt = now.Add(time.Minute - 1) },
			"due later, expires": func(n *store.NewJob, now time.Time) { n.Delay, n.ExpiresAt = 3*time.Hour, now.Add(4*time.Hour) },
		} {
			name = fmt.Sprintf("after %s, %s", form, name)
			before := c.waitingHolder(form, keyed("key", 0))
			last := store.Lease{ID: before.ID, Token: before.Token}
			c.Advance(time.Minute)
			n := replacing("key", func(n *store.NewJob) {
				n.Payload, n.Priority, n.Tags, n.MaxRetries, n.Timeout = []byte(`{"other": 1}`), 7, []string{"other"}, 9, time.Hour
				change(n, c.Now())
			})
			after := c.replaces(before, n, name)
			copy(n.Payload, "overwrites")
			c.Equal(c.Get(before.ID), after, "the job that was replaced, after its caller changed the payload: %s", name)
			c.changesNothing("a repeat of how the lease ended: "+name, func() {
				for _, l := range []store.Lease{last, after.Lease()} {
					c.Equal(underLease(c, store.Op(form), l).Status, store.StatusStale, "the outcome under token %d: %s", l.Token, name)
				}
			})
			if early := after.Next().Sub(c.Now()) - store.Resolution; early > 0 {
				c.Advance(early)
				c.Equal(ids(c.Claim(10)), []int64{}, "claimed one tick before the job is due: %s", name)
				c.Advance(store.Resolution)
			}
			c.Equal(c.Claim(10), []store.Job{becomes(store.OpClaim, after, c.Now()).Job}, "claimed when the job is due: %s", name)
			c.Cancel(before.ID)
		}
	}
	due := c.Get(c.free(keyed("key", 0), "a job that is due"))
	c.Advance(time.Second)
	again := c.replaces(due, replacing("key", nil), "a job that is due")
	c.replaces(again, replacing("key", nil), "a job that is due at the same time")
	c.Equal(c.ClaimOne().ID, due.ID, "the job that was replaced twice")
}

// replaceMovesTheHolder has the holder change its place among other jobs, and lose or get its ExpiresAt.
func replaceMovesTheHolder(c *C) {
	for _, form := range []store.Form{store.Snooze, store.After} {
		before := c.waitingHolder(form, keyed("key", 0))
		var others []int64
		for _, priority := range []int{5, 3} {
			n := keyed(fmt.Sprint(priority), 0)
			n.Priority = priority
			others = append(others, c.waitingHolder(form, n).ID)
		}
		c.Advance(2 * time.Hour)
		now := c.replaces(before, replacing("key", func(n *store.NewJob) { n.Priority, n.ExpiresAt = 9, c.Now().Add(time.Minute) }), "first")
		now = c.replaces(now, replacing("key", func(n *store.NewJob) { n.Priority, n.ExpiresAt = 4, c.Now().Add(time.Second) }), "between the others")
		c.Equal(c.Settle(10), []store.Settled{}, "settled before the job expires")
		now = c.replaces(now, replacing("key", func(n *store.NewJob) { n.Priority = 4 }), "without ExpiresAt")
		c.Advance(time.Hour)
		c.Equal(c.Settle(10), []store.Settled{}, "settled after the job has lost its ExpiresAt")
		req := store.ClaimRequest{Queue: queue, Worker: worker, Limit: 10, RetryQuota: 10, TTL: ttl}
		claimed, err := c.Store.FetchAndClaim(c.Ctx, req)
		c.OK(err, "FetchAndClaim")
		c.Equal(ids(claimed), []int64{others[0], now.ID, others[1]}, "jobs in the order of their priority, after %s", form)
		cancelling.on(c, store.Filter{Queue: queue}, 10)
	}
	n := replacing("key", func(n *store.NewJob) { n.ExpiresAt = c.Now().Add(time.Second) })
	after := c.replaces(c.Get(c.free(keyed("key", 0), "a job without ExpiresAt")), n, "with ExpiresAt")
	c.Advance(time.Second)
	c.Equal(c.Settle(10), settledAs(becomes(store.OpCancel, after, c.Now())), "settled when the job expires")
}

// replaceLeavesTheWindow also asks when the job of the window has ended, and when it is gone.
func replaceLeavesTheWindow(c *C) {
	holder := c.Get(c.free(keyed("key", time.Hour), "the first job"))
	c.Advance(time.Minute)
	c.replaces(holder, replacing("key", func(n *store.NewJob) { n.UniqueFor = 10 * time.Hour }), "in a window")
	c.Ack(c.ClaimOne().Lease())
	c.changesNothing("Replace within the window of a job that has ended", func() {
		c.held(replacing("key", nil), holder.ID, store.Succeeded, "by a job that has succeeded")
	})
	c.Delete(holder.ID)
	c.held(replacing("key", nil), holder.ID, "", "by a job that is gone")
	c.Advance(time.Hour - time.Minute - store.Resolution)
	c.held(replacing("key", nil), holder.ID, "", "one tick before the window ends")
	c.Advance(store.Resolution)
	second := c.Get(c.free(replacing("key", nil), "the window has ended"))
	c.replaces(second, replacing("key", func(n *store.NewJob) { n.UniqueFor = time.Hour }), "without a window")
	c.Cancel(second.ID)
	c.free(replacing("key", nil), "the job before was cancelled")
}

func replaceOfInFlight(c *C) {
	for _, window := range []time.Duration{0, 100 * time.Hour} {
		key := window.String()
		id := c.free(keyed(key, window), "the first job")
		c.ClaimOne()
		c.changesNothing("Replace of a job in flight", func() { c.held(replacing(key, nil), id, store.InFlight, "in flight") })
		c.Advance(ttl)
		c.changesNothing("Replace of a job whose lease has expired", func() { c.held(replacing(key, nil), id, store.InFlight, "expired") })
		c.Recover(1)
		c.replaces(c.Get(id), replacing(key, nil), "recovered")
		c.NAck(c.ClaimOne().Lease(), store.Never, 0, "boom")
		if window == 0 {
			id = c.free(replacing(key, nil), "dead")
			c.Cancel(id)
			continue
		}
		c.changesNothing("Replace of a dead job", func() { c.held(replacing(key, nil), id, store.Failed, "dead") })
	}
}

func replaceOfOthers(c *C) {
	id := c.free(keyed("key", 0), "the first job")
	c.changesNothing("Replace by other jobs", func() {
		c.held(replacing("key", func(n *store.NewJob) { n.Kind = "other" }), id, store.Ready, "of another kind")
		c.held(replacing("key", func(n *store.NewJob) { n.Queue = "other" }), id, store.Ready, "in another queue")
		c.held(replacing("key", func(n *store.NewJob) { n.LimitKey = "other" }), id, store.Ready, "with a limit key")
		c.held(keyed("key", 0), id, store.Ready, "without Replace")
	})
	c.free(replacing("another", nil), "another key")
	limited := keyed("limited", 0)
	limited.LimitKey = "a"
	id = c.free(limited, "a job with a limit key")
	c.changesNothing("Replace by jobs with other limit keys", func() {
		c.held(replacing("limited", nil), id, store.Ready, "without a limit key")
		c.held(replacing("limited", func(n *store.NewJob) { n.LimitKey = "b" }), id, store.Ready, "with another limit key")
	})
}

func replaceOfExpired(c *C) {
	expiring := c.expiring(time.Second)
	expiring.UniqueKey = "key"
	id := c.free(expiring, "a job that expires")
	expiring.UniqueKey, expiring.UniqueFor = "window", time.Hour
	held := c.free(expiring, "a job that expires, with a window")
	c.Advance(time.Second)
	c.changesNothing("Replace of an expired job with a window", func() {
		c.held(replacing("window", nil), held, store.Ready, "expired in its window")
	})
	before := c.Get(id)
	c.free(replacing("key", nil), "the holder has expired")
	c.Equal(c.Get(id), becomes(store.OpCancel, before, c.Now()), "the holder that had expired")
}

// replaceInsideOneCall has items that replace a job from before the call, and a job of the call.
func replaceInsideOneCall(c *C) {
	numbered := func(key string, number int, replace bool) store.NewJob {
		return replacing(key, func(n *store.NewJob) {
			n.Payload, n.Priority, n.Delay, n.Replace = fmt.Appendf(nil, "%d", number), number, time.Duration(number)*time.Second, replace
		})
	}
	old := c.waitingHolder(store.After, keyed("old", 0))
	c.Enqueue(keyed("busy", 0))
	busy := c.Get(c.ClaimOne().ID)
	batch := []store.NewJob{
		numbered("new", 1, true), numbered("old", 2, true), numbered("new", 3, false), numbered("busy", 4, true),
		numbered("new", 5, true), numbered("old", 6, true), plain(), numbered("new", 7, true), numbered("old", 8, false),
	}
	batch = append(batch, replacing("new", func(n *store.NewJob) { n.Kind = "other" }))
	got := c.answers(batch...)
	added := got[0].ID
	answer := func(id int64, state store.State, replaced bool) store.Enqueued {
		return store.Enqueued{ID: id, State: state, Duplicate: true, Replaced: replaced}
	}
	c.Equal(got, []store.Enqueued{
		{ID: added, State: store.Ready}, answer(old.ID, store.Failed, true), answer(added, store.Ready, false),
		answer(busy.ID, store.InFlight, false), answer(added, store.Ready, true), answer(old.ID, store.Failed, true),
		{ID: got[6].ID, State: store.Ready}, answer(added, store.Ready, true), answer(old.ID, store.Failed, false),
		answer(added, store.Ready, false),
	}, "the answers")
	now := c.Now()
	c.Equal(c.Get(old.ID), replacedBy(replacedBy(old, batch[1], now), batch[5], now), "the job from before, replaced twice")
	first := store.JobDetail{Job: batch[0].Row(added, now)}
	first.History = c.Get(added).History
	c.Equal(c.Get(added), replacedBy(replacedBy(first, batch[4], now), batch[7], now), "the new job, replaced twice")
	c.Equal(c.Get(busy.ID), busy, "the job in flight")
	c.Equal(c.Get(got[6].ID).Job, plain().Row(got[6].ID, now), "the job of another item")
	c.Equal(c.howMany(), 4, "how many jobs there are")
}

func replaceNeedsAKey(c *C) {
	id := c.free(keyed("key", 0), "the first job")
	c.changesNothing("Replace without a unique key", func() {
		_, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{replacing("key", nil), replacing("", nil)}})
		c.refused(err, 1, "replace", "Replace without a unique key")
	})
	c.Equal(c.onlyJob().ID, id, "the only job")
}

func replaceUnderARequestKey(c *C) {
	before := c.waitingHolder(store.After, keyed("key", 0))
	req := store.EnqueueRequest{Jobs: []store.NewJob{replacing("key", nil), plain()}, RequestKey: "request"}
	first := c.asked(req)
	c.Equal(first[0], store.Enqueued{ID: before.ID, State: store.Failed, Duplicate: true, Replaced: true}, "the first answer")
	c.changesNothing("a repeat", func() { c.Equal(c.asked(req), first, "the answer to a repeat") })
	other := store.EnqueueRequest{Jobs: []store.NewJob{keyed("key", 0), plain()}, RequestKey: "request"}
	c.changesNothing("the same without Replace", func() {
		_, err := c.Store.Enqueue(c.Ctx, other)
		c.refused(err, -1, "request_key", "the same jobs without Replace")
	})
}

// replaceRacesClaims replaces jobs while others claim them. Whichever comes first decides: a job that was replaced is claimed with
// its new payload, or not yet, and a job that was claimed stays as it is.
func replaceRacesClaims(c *C) {
	var list []int64
	before, by := map[int64]store.JobDetail{}, map[int64]store.NewJob{}
	for i := range 100 {
		key := fmt.Sprint(i)
		id := c.Enqueue(keyed(key, 0))[0]
		list, before[id] = append(list, id), c.Get(id)
		by[id] = replacing(key, func(n *store.NewJob) { n.Payload, n.Delay = []byte("1"), time.Hour })
	}
	answers := map[int64]store.Enqueued{}
	claimed := c.besideClaims(list, func(id int64) { answers[id] = c.answers(by[id])[0] })
	for _, id := range list {
		answer, want := store.Enqueued{ID: id, State: store.Ready, Duplicate: true, Replaced: true}, replacedBy(before[id], by[id], c.Now())
		if j, was := claimed[id]; was {
			answer.State, answer.Replaced, want = store.InFlight, false, becomes(store.OpClaim, before[id], c.Now())
			c.Equal(j, want.Job, "a job that was claimed before it could be replaced")
		}
		c.Equal(answers[id], answer, "the answer for the key of job %d", id)
		c.Equal(c.Get(id), want, "job %d", id)
	}
}
