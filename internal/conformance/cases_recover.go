package conformance

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var recoverCases = []Case{
	{"Recover/ChangesTheRowAsTheTableSays", "Each fails as by NAck, with the reason \"lease expired\", and with a new token; attempts stay as they are.", recoverChangesTheRow},
	{"Recover/GraceIsExact", "Only jobs in flight whose lease expired at or before now minus Grace are touched.", recoverGraceIsExact},
	{"Recover/OldestExpiryFirstThenSmallerID", "RecoverExpiredLeases ends leases that have expired, at most Limit of them, the oldest expiry first, then the smaller id.", recoverOldestFirst},
	{"Recover/EachLimitIsRefusedJustBeyond", "ErrInvalid: the request breaks a limit and nothing was applied.", recoverRefusedBeyond},
	{"Recover/CrashedJobIsFinishedByAnotherWorker", "The token grows with every transition but the holder's own, and never shrinks or restarts, so a token that is not the job's own is one that was overtaken: what is written with it is refused as stale.", recoverThenAnotherWorker},
	{"Recover/RecoverersAtTheSameTimeShareTheLeases", "Each expired lease is recovered once, also by callers that recover at the same time.", recoverersShare},
	{"Recover/RaceWithAHeartbeatHasOneWinner", "A lease that has run out but was not recovered yet can be extended.", recoverRacesHeartbeat},
}

// recoveredAs is the answer for a job that was recovered and now stands as it does.
func recoveredAs(j store.Job) store.Recovered {
	return store.Recovered{ID: j.ID, Queue: j.Queue, Kind: j.Kind, Worker: j.Worker, State: store.Failed, Token: j.Token, Next: j.RetryAt}
}

// expired is the detail as it must be once its lease was recovered now, the policy spelt out.
func expired(d store.JobDetail, now time.Time) store.JobDetail {
	d.State, d.LeaseExpiresAt = store.Failed, time.Time{}
	d.Token++
	d.Retries++
	d.Error = store.LeaseExpired.Reason
	if d.Retries > d.MaxRetries {
		d.FinishedAt = now
	} else {
		d.RetryAt = now.Add(d.Backoff.Delay(d.ID, d.Retries))
	}
	d.History = slices.Clone(d.History)
	last := &d.History[len(d.History)-1]
	last.EndedAt, last.Ending, last.Error = now, store.EndExpired, store.LeaseExpired.Reason
	return d
}

func recoverChangesTheRow(c *C) {
	for _, maxRetries := range []int{0, 1, 2} {
		id := c.Enqueue(plainBut(func(n *store.NewJob) {
			n.MaxRetries, n.Tags, n.Kind = maxRetries, []string{"t"}, "kind"
			n.Backoff = store.Backoff{Base: time.Second, Cap: time.Minute, Jitter: 50}
		}))[0]
		for range maxRetries + 1 {
			held := c.ClaimBy(store.ClaimRequest{Queue: queue, Limit: 1, Worker: "who had it", TTL: time.Minute})[0].Lease()
			_, err := c.Store.Save(c.Ctx, []store.Save{{Lease: held, Seq: 5, Checkpoint: []byte(`"c"`), Progress: []byte(`"p"`)}})
			c.OK(err, "Save")
			before := c.Get(id)
			c.Advance(90 * time.Second)

			recovered := c.Recover(10)

			want := expired(before, c.Now())
			c.Equal(c.Get(id), want, "a recovered job with %d of %d retries", want.Retries, maxRetries)
			c.Equal(recovered, []store.Recovered{recoveredAs(want.Job)}, "the answer for it")
			c.Equal(ids(c.Claim(10)), []int64{}, "claimed right after the recovery")
			c.Advance(time.Minute)
		}
	}
}

func recoverGraceIsExact(c *C) {
	held := c.JobIn(store.InFlight)
	by := func(grace time.Duration) []store.Recovered {
		recovered, err := c.Store.RecoverExpiredLeases(c.Ctx, store.RecoverRequest{Limit: 10, Grace: grace})
		c.OK(err, "RecoverExpiredLeases with a grace of %v", grace)
		return recovered
	}
	c.Equal(by(store.MaxDuration), []store.Recovered{}, "recovered with a grace of ten years")
	c.Advance(ttl)
	c.Equal(by(store.Resolution), []store.Recovered{}, "recovered when the lease expires, with a grace of one tick")
	c.Advance(time.Minute - store.Resolution)
	c.Equal(by(time.Minute), []store.Recovered{}, "recovered one tick before the grace of a minute is over")
	c.Equal(c.Get(held.ID), held, "the job one tick before the grace is over")
	c.Advance(store.Resolution)
	c.Equal(by(time.Minute+store.Resolution), []store.Recovered{}, "recovered with a grace of one tick more than a minute")
	c.Equal(len(by(time.Minute)), 1, "how many were recovered when the grace is over")
	c.Equal(c.Get(held.ID), expired(held, c.Now()), "the job")
}

// recoverOldestFirst has leases whose ends are in another order than the ids, the claims and the priorities; some ends
// were moved by Extend.
func recoverOldestFirst(c *C) {
	var held []store.Job
	for i := range 30 {
		c.Enqueue(plainBut(func(n *store.NewJob) { n.Priority = i % 5 }))
		held = append(held, c.ClaimBy(store.ClaimRequest{Queue: queue, Limit: 1, Worker: worker, TTL: time.Duration(i*7%10+1) * time.Second})...)
	}
	_, err := c.Store.Extend(c.Ctx, []store.Lease{held[3].Lease(), held[20].Lease()}, time.Millisecond)
	c.OK(err, "Extend")
	_, err = c.Store.Extend(c.Ctx, []store.Lease{held[0].Lease()}, time.Minute)
	c.OK(err, "Extend")
	for i, j := range held {
		held[i] = c.Get(j.ID).Job
	}
	slices.SortFunc(held, func(a, b store.Job) int {
		return cmp.Or(a.LeaseExpiresAt.Compare(b.LeaseExpiresAt), cmp.Compare(a.ID, b.ID))
	})
	c.Advance(time.Minute)
	var got []int64
	for _, limit := range []int{1, 2, 7, 19, 10} {
		recovered := c.Recover(limit)
		c.True(len(recovered) <= limit, "recovered with limit %d: %d", limit, len(recovered))
		for _, r := range recovered {
			got = append(got, r.ID)
		}
	}
	c.Equal(got, ids(held), "the order of recovery")
}

func recoverRefusedBeyond(c *C) {
	held := c.JobIn(store.InFlight)
	c.Advance(time.Hour)
	for what, k := range map[string]struct {
		field string
		req   store.RecoverRequest
	}{
		"limit 0":                {"limit", store.RecoverRequest{}},
		"limit −1":               {"limit", store.RecoverRequest{Limit: -1}},
		"limit 1,001":            {"limit", store.RecoverRequest{Limit: 1001}},
		"a negative grace":       {"grace", store.RecoverRequest{Limit: 1, Grace: -1}},
		"a grace over ten years": {"grace", store.RecoverRequest{Limit: 1, Grace: 87_600*time.Hour + 1}},
	} {
		got, err := c.Store.RecoverExpiredLeases(c.Ctx, k.req)
		c.refused(err, -1, k.field, "a recovery with "+what)
		c.Equal(got, []store.Recovered{}, "the answer to a recovery with %s", what)
	}
	c.Equal(c.Get(held.ID), held, "the job that refused calls could have recovered")
	c.Equal(len(c.Recover(1000)), 1, "how many were recovered with limit 1,000")
}
