package conformance

import (
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var claimCases = []Case{
	{"Claim/ReturnsTheRowAsStored", "Each claimed job becomes in_flight: its token and its attempts grow by one, its lease runs until now plus TTL, its worker is the caller, its RetryAt is cleared, and the numbers of its saves begin at 0 again.", claimReturnsTheRowAsStored},
	{"Claim/RetryKeepsWhatItHadReached", "Its checkpoint, progress, retries and error stay.", claimRetryKeepsWhatItHadReached},
	{"Claim/DelayedJobIsHiddenUntilDue", "A job is claimable when it is ready and its RunAt is due, or retrying and its RetryAt is due.", claimDelayedJobIsHiddenUntilDue},
	{"Claim/RetryIsHiddenUntilDue", "A job is claimable when it is ready and its RunAt is due, or retrying and its RetryAt is due.", claimRetryIsHiddenUntilDue},
	{"Claim/TakesOnlyFromItsQueue", "A claim takes only from its queue.", claimOnlyFromItsQueue},
	{"Claim/EachLimitIsRefusedJustBeyond", "ErrInvalid: the request breaks a limit and nothing was applied.", claimRefusedBeyond},
	{"Claim/EachLimitIsGrantedExactly", "A duration is 0 to ten years, a lease or a window at least a microsecond, a jitter 0 to 100 percent, a cap no less than its base, and no time that is asked for lies after the year 9999.", claimGrantedAtLimit},
	{"Claim/EmptyQueueAnswersAtOnce", "No method waits for work to appear; a call may wait for other calls and for open transactions, until its context ends.", claimEmptyQueue},
	{"Claim/NothingMatchesIsNoError", "Where nothing matches, the answer is empty and there is no error.", claimEmptyQueue},
	{"Claim/HandsOutNoSliceThatItKeeps", "A store keeps no slice that it was given and hands out none that it keeps.", claimHandsOutNoSlice},
	{"Claim/HigherPriorityThenEarlierDueThenSmallerID", "Within each lane the higher priority goes first, then the earlier due time, then the smaller id.", claimOrderOfFresh},
	{"Claim/RetriesStandInTheSameOrder", "Within each lane the higher priority goes first, then the earlier due time, then the smaller id.", claimOrderOfRetries},
	{"Claim/WaitingJobOfHighPriorityHidesNothing", "A job is claimable when it is ready and its RunAt is due, or retrying and its RetryAt is due.", claimWaitingHidesNothing},
	{"Claim/EachLaneFillsWhatTheOtherLeaves", "Up to RetryQuota retries are taken, then fresh jobs for the rest, and each lane fills what the other leaves.", claimLanes},
	{"Claim/LaneEndsBeforeItWeighsTooMuch", "A lane ends before the first job with which its documents would weigh more than MaxAnswerBytes.", claimLaneEndsBeforeItWeighsTooMuch},
	{"Claim/WhatWasTooMuchIsClaimedNext", "A lane ends before the first job with which its documents would weigh more than MaxAnswerBytes.", claimWhatWasTooMuchIsClaimedNext},
	{"Claim/RetriesComeFirst", "The answer holds the retries first.", claimRetriesComeFirst},
	{"Claim/SnoozedReleasedAndRequeuedJobsAreFresh", "There are two lanes: retries are the retrying jobs, fresh are the ready ones.", claimLaneIsTheState},
	{"Claim/TakesAsManyAsThereAre", "A claim that overlaps no other call takes as many as there are, up to these limits.", claimTakesAsManyAsThereAre},
	{"Claim/TwoClaimersNeverGetOneJob", "No job is handed out twice with one token.", claimTwoNeverGetOne},
	{"Claim/NoTokenIsHandedOutTwice", "No job is handed out twice with one token.", claimNoTokenTwice},
	{"Claim/NothingStaysHiddenAfterARace", "A claim that overlaps others may leave out jobs that they hold, but a job that is committed and claimable is found by some claim within a bound: at once, or within a second where the adapter says so.", claimNothingStaysHidden},
	{"Claim/IsSeenAsAWholeOrNotAtAll", "A call takes effect as a whole, at one moment between its start and its return, or not at all.", claimIsSeenAsAWhole},
}

func claimReturnsTheRowAsStored(c *C) {
	id := c.EnqueueOne()
	before := c.Get(id).Job
	c.Advance(time.Second)

	got := c.ClaimOne()

	want := before
	want.State, want.Token, want.Attempts, want.Worker = store.InFlight, 1, 1, worker
	want.LeaseExpiresAt = c.Now().Add(ttl)
	c.Equal(got, want, "the claimed job")
	c.Equal(c.Get(id).Job, want, "the stored job")
}

func claimRetryKeepsWhatItHadReached(c *C) {
	id := c.EnqueueOne()
	held := c.ClaimOne().Lease()
	saved := c.One(c.Store.Save(c.Ctx, []store.Save{{Lease: held, Seq: 7, Checkpoint: []byte(`"page 3"`), Progress: []byte("0.5")}}))
	c.Equal(saved.Status, store.StatusOK, "a save with number 7")
	c.NAck(held, store.Fail, 0, "boom")
	before := c.Get(id)
	c.Equal([]int64{before.CheckpointSeq, before.ProgressSeq}, []int64{7, 7}, "the numbers of the saves before the claim")
	c.Advance(time.Minute)

	got := c.ClaimBy(store.ClaimRequest{Queue: queue, Limit: 1, Worker: "other", TTL: time.Minute})

	want := before.Job
	want.State, want.Token, want.Attempts, want.Worker = store.InFlight, 2, 2, "other"
	want.RetryAt, want.LeaseExpiresAt = time.Time{}, c.Now().Add(time.Minute)
	want.CheckpointSeq, want.ProgressSeq = 0, 0
	c.Equal(got, []store.Job{want}, "the claimed retry")
	history := append(before.History, store.Attempt{Token: 2, Worker: "other", StartedAt: c.Now()})
	c.Equal(c.Get(id), store.JobDetail{Job: want, History: history}, "the stored retry")
	c.Equal([]any{want.Retries, want.Error, string(want.Checkpoint), string(want.Progress)}, []any{1, "boom", `"page 3"`, "0.5"}, "what stays")
}

func claimDelayedJobIsHiddenUntilDue(c *C) {
	id := c.Enqueue(plainBut(func(n *store.NewJob) { n.Delay = time.Minute }))[0]

	c.Advance(time.Minute - store.Resolution)
	c.Equal(ids(c.Claim(10)), []int64{}, "claimed one tick before the job is due")

	c.Advance(store.Resolution)
	c.Equal(ids(c.Claim(10)), []int64{id}, "claimed when the job is due")
}

func claimRetryIsHiddenUntilDue(c *C) {
	id := c.EnqueueOne()
	for round, end := range []func(held store.Job){
		func(held store.Job) { c.NAck(held.Lease(), store.After, time.Minute, "boom") },
		func(held store.Job) { c.NAck(held.Lease(), store.Snooze, time.Minute, "") },
		func(held store.Job) { c.NAck(held.Lease(), store.Fail, 0, "boom") },
		func(store.Job) { c.Advance(ttl); c.Recover(1) },
	} {
		end(c.ClaimOne())
		wait := c.Get(id).Next().Sub(c.Now())
		c.True(wait > store.Resolution, "there is a wait after ending %d: %v", round, wait)
		c.Advance(wait - store.Resolution)
		c.Equal(ids(c.Claim(10)), []int64{}, "claimed one tick before the job is due after ending %d", round)
		c.Advance(store.Resolution)
		c.Equal(ids(c.Claim(10)), []int64{id}, "claimed when the job is due after ending %d", round)
		c.NAck(c.Get(id).Lease(), store.Release, 0, "")
	}
}

func claimOnlyFromItsQueue(c *C) {
	var jobs []store.NewJob
	for range 2 {
		for _, name := range strangeNames {
			jobs = append(jobs, plainBut(func(n *store.NewJob) { n.Queue = name }))
		}
	}
	enqueued := c.Enqueue(jobs...)
	half := len(strangeNames)
	c.Equal(ids(c.ClaimBy(store.ClaimRequest{Queue: "nobody's", Limit: 1000, Worker: worker, TTL: ttl})), []int64{}, "claimed from a queue without jobs")
	for i, name := range strangeNames {
		got := c.ClaimBy(store.ClaimRequest{Queue: name, Limit: 1000, Worker: worker, TTL: ttl})
		c.Equal(ids(got), []int64{enqueued[i], enqueued[half+i]}, "claimed from queue %q", name)
	}
}

func claimRefusedBeyond(c *C) {
	before := c.Get(c.EnqueueOne())
	good := claimOf(1)
	type wrong struct {
		what, field string
		change      func(*store.ClaimRequest)
	}
	list := []wrong{
		{"no queue", "queue", func(r *store.ClaimRequest) { r.Queue = "" }},
		{"no worker", "worker", func(r *store.ClaimRequest) { r.Worker = "" }},
		{"limit 0", "limit", func(r *store.ClaimRequest) { r.Limit = 0 }},
		{"limit −1", "limit", func(r *store.ClaimRequest) { r.Limit = -1 }},
		{"limit 1,001", "limit", func(r *store.ClaimRequest) { r.Limit = 1001 }},
		{"quota −1", "retry_quota", func(r *store.ClaimRequest) { r.RetryQuota = -1 }},
		{"a quota over the limit", "retry_quota", func(r *store.ClaimRequest) { r.RetryQuota = 2 }},
		{"no lease", "ttl", func(r *store.ClaimRequest) { r.TTL = 0 }},
		{"a lease below a tick", "ttl", func(r *store.ClaimRequest) { r.TTL = store.Resolution - 1 }},
		{"a negative lease", "ttl", func(r *store.ClaimRequest) { r.TTL = -ttl }},
		{"a lease over ten years", "ttl", func(r *store.ClaimRequest) { r.TTL = 87_600*time.Hour + 1 }},
	}
	for what, name := range wrongNames {
		list = append(list,
			wrong{"a queue of " + what, "queue", func(r *store.ClaimRequest) { r.Queue = name }},
			wrong{"a worker of " + what, "worker", func(r *store.ClaimRequest) { r.Worker = name }},
		)
	}
	for _, k := range list {
		req := good
		k.change(&req)
		got, err := c.Store.FetchAndClaim(c.Ctx, req)
		c.refused(err, -1, k.field, "a claim with "+k.what)
		c.Equal(got, []store.Job{}, "the answer to a claim with %s", k.what)
	}
	c.Equal(c.Get(before.ID), before, "the job that refused claims could have taken")
}

func claimGrantedAtLimit(c *C) {
	for _, lease := range []time.Duration{store.Resolution, store.DefaultMaxLease} {
		for _, name := range []string{"w", strings.Repeat("é", 127) + "w"} {
			id := c.Enqueue(plainBut(func(n *store.NewJob) { n.Queue = name }))[0]
			want := c.Get(id).Job
			want.State, want.Token, want.Attempts, want.Worker = store.InFlight, 1, 1, name
			want.LeaseExpiresAt = c.Now().Add(lease)
			got := c.ClaimBy(store.ClaimRequest{Queue: name, Limit: 1000, RetryQuota: 1000, Worker: name, TTL: lease})
			c.Equal(got, []store.Job{want}, "claimed with a lease of %v", lease)
			c.Equal(c.Get(id).Job, want, "the stored job")
		}
	}
}

func claimEmptyQueue(c *C) {
	for range 2 {
		got, err := c.Store.FetchAndClaim(c.Ctx, claimOf(10))
		c.OK(err, "FetchAndClaim where nothing is due")
		c.Equal(got, []store.Job{}, "claimed where nothing is due")
		recovered, err := c.Store.RecoverExpiredLeases(c.Ctx, store.RecoverRequest{Limit: 10})
		c.OK(err, "RecoverExpiredLeases where nothing has expired")
		c.Equal(recovered, []store.Recovered{}, "recovered where nothing has expired")
		c.Enqueue(plainBut(func(n *store.NewJob) { n.Delay = time.Hour }))
	}
}

// claimHandsOutNoSlice spells out what it expects: a row that was read before could share the slice that is spoiled.
func claimHandsOutNoSlice(c *C) {
	id := c.Enqueue(plainBut(func(n *store.NewJob) { n.Payload, n.Tags = []byte(`{"a":1}`), []string{"t1", "t2"} }))[0]
	held := c.ClaimOne()
	c.SaveCheckpoint(held.Lease(), 1, `"saved"`)
	c.NAck(held.Lease(), store.Release, 0, "")

	for range 2 {
		j := c.ClaimOne()
		c.Equal([]string{string(j.Payload), string(j.Checkpoint)}, []string{`{"a":1}`, `"saved"`}, "the documents of the claimed job")
		c.Equal(j.Tags, []string{"t1", "t2"}, "the tags of the claimed job")
		spoil(j.Payload)
		spoil(j.Checkpoint)
		clear(j.Tags)
		got := c.Get(id)
		c.Equal([]string{string(got.Payload), string(got.Checkpoint)}, []string{`{"a":1}`, `"saved"`}, "the documents of the stored job")
		c.Equal(got.Tags, []string{"t1", "t2"}, "the tags of the stored job")
		c.NAck(j.Lease(), store.Release, 0, "")
	}
}
