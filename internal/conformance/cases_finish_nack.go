package conformance

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	sentenceSnooze      = "Snooze makes the job ready again after the delay."
	sentenceRelease     = "Release makes it ready at once and takes the attempt back."
	sentenceFailing     = "Fail, Never and After count one more retry, and keep the error: Fail waits the job's backoff, After the given delay, and beyond MaxRetries or with Never the job is dead."
	sentenceErrorText   = "An error text is never refused: what is not valid UTF-8, and NUL, becomes U+FFFD, and what is longer than 16 KiB is cut."
	sentenceNAckInvalid = "invalid the form or the delay breaks a limit, as Reason says in the words of Check; nothing changed;"
)

var finishNAckCases = []Case{
	{"Finish/EachFormOfNAckChangesWhatTheTableSays", "NAck ends leases without success.", finishFormsOfNAck},
	{"Finish/TheHoldersOwnTransitionsLeaveTheToken", "The token stays.", finishTokenStays},
	{"Finish/FailWaitsTheBackoff", sentenceFailing, finishFailWaitsTheBackoff},
	{"Finish/AfterWaitsExactlyTheGivenDelay", sentenceFailing, finishAfterWaits},
	{"Finish/BeyondMaxRetriesTheJobIsDead", sentenceFailing, finishBeyondMaxRetries},
	{"Finish/NeverIsDeadWhateverRetriesAreLeft", sentenceFailing, finishNever},
	{"Finish/SnoozeHidesTheJobForExactlyTheDelay", sentenceSnooze, finishSnoozeHides},
	{"Finish/ReleaseTakesTheAttemptBackAndUsesUpNoRetry", sentenceRelease, finishReleaseUsesUpNothing},
	{"Finish/SnoozeUsesUpNoRetry", "Snooze and Release do not.", finishSnoozeUsesUpNothing},
	{"Finish/ErrorsAreMendedAndCut", sentenceErrorText, finishErrorsAreMended},
	{"Finish/OnlyFailuresKeepAnError", sentenceFailing, finishOnlyFailuresKeepAnError},
	{"Finish/InvalidItemChangesNothingAndSpoilsNoOther", sentenceNAckInvalid, finishInvalidItem},
	{"Finish/InvalidItemIsInvalidWhateverItsLease", "An invalid item is invalid whatever its lease.", finishInvalidWhateverItsLease},
	{"Finish/DelayAtItsLimits", "A duration is 0 to ten years, a lease or a window at least a microsecond, a jitter 0 to 100 percent, a cap no less than its base, and no time that is asked for lies after the year 9999.", finishDelayLimits},
	{"Finish/DelayIsTruncatedToAMicrosecond", "times and durations that come in are truncated to it", finishDelayIsTruncated},
	{"Finish/NAckKeepsToTheLimitsOfACall", sentenceCallLimit, finishNAckLimits},
}

func finishInvalidWhateverItsLease(c *C) {
	held := c.JobIn(store.InFlight)
	for name, l := range map[string]store.Lease{
		"in force": held.Lease(), "overtaken": {ID: held.ID, Token: held.Token - 1}, "of no job": {ID: held.ID + 1000, Token: 1},
	} {
		c.Equal(c.NAck(l, "later", 0, "").Status, store.StatusInvalid, "NAck in no known form under a lease %s", name)
		c.Equal(c.SaveCheckpoint(l, 1, "{").Status, store.StatusInvalid, "Save of half a document under a lease %s", name)
	}
	c.Equal(c.Get(held.ID), held, "the job that is in flight")
}

// finishFormsOfNAck tries the first attempt of a job, and one that comes after a failure, whose error must not get lost.
func finishFormsOfNAck(c *C) {
	for _, op := range finishOps[1:] {
		before := holding(c, string(op), 1)[0]
		for range 2 {
			want := becomes(op, before, c.Now())
			c.Equal(underLease(c, op, before.Lease()), store.OutcomeOf(want.Job, store.StatusOK), "the outcome of %s", op)
			c.Equal(c.Get(before.ID), want, "the job, after %s", op)
			if op == store.OpNever {
				break
			}
			c.Advance(givenDelay)
			again := c.ClaimBy(store.ClaimRequest{Queue: string(op), Limit: 1, Worker: worker, TTL: ttl})[0]
			c.NAck(again.Lease(), store.Fail, 0, "an earlier failure")
			c.Advance(givenDelay)
			c.ClaimBy(store.ClaimRequest{Queue: string(op), Limit: 1, Worker: worker, TTL: ttl})
			before = c.Get(before.ID)
		}
	}
}

func finishTokenStays(c *C) {
	for _, op := range finishOps {
		before := holding(c, string(op), 1)[0]
		o := underLease(c, op, before.Lease())
		c.Equal(o.Token, before.Token, "the token in the outcome of %s", op)
		c.Equal(c.Get(before.ID).Token, before.Token, "the token after %s", op)
	}
}

func finishFailWaitsTheBackoff(c *C) {
	c.EnqueueOne()
	for _, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		o := underLease(c, store.OpFail, c.ClaimOne().Lease())
		c.Equal(o.Next, c.Now().Add(wait), "when the job is due again")
		c.Advance(wait - store.Resolution)
		c.Equal(len(c.Claim(1)), 0, "claimed a tick before the backoff of %v is over", wait)
		c.Advance(store.Resolution)
	}
	c.Equal(underLease(c, store.OpFail, c.ClaimOne().Lease()).Next, time.Time{}, "when the job is due that has used up its retries")
}

func finishAfterWaits(c *C) {
	for _, delay := range []time.Duration{0, store.Resolution, time.Second, time.Hour} {
		id := c.EnqueueOne()
		before := c.Get(c.ClaimOne().ID)
		c.NAck(before.Lease(), store.After, delay, failReason)
		want := becomes(store.OpAfter, before, c.Now())
		want.RetryAt = c.Now().Add(delay)
		c.Equal(c.Get(id), want, "the job that is to wait %v", delay)
		if delay > 0 {
			c.Advance(delay - store.Resolution)
			c.Equal(len(c.Claim(1)), 0, "claimed a tick before the delay of %v is over", delay)
			c.Advance(store.Resolution)
		}
		c.Ack(c.ClaimOne().Lease())
	}
}

func finishBeyondMaxRetries(c *C) {
	for _, op := range []store.Op{store.OpFail, store.OpAfter} {
		for _, most := range []int{0, 1, 2} {
			id := c.Enqueue(plainBut(func(n *store.NewJob) { n.MaxRetries = most }))[0]
			for run := range most + 1 {
				c.Advance(time.Hour)
				c.ClaimOne()
				before := c.Get(id)
				c.Equal(before.Retries, run, "retries counted before run %d", run)
				underLease(c, op, before.Lease())
				c.Equal(c.Get(id), becomes(op, before, c.Now()), "the job with MaxRetries %d, after %s of run %d", most, op, run)
			}
			c.Equal(c.Get(id).Phase(), store.Dead, "a job with MaxRetries %d, after as many retries", most)
			c.Advance(time.Hour)
			c.Equal(len(c.Claim(1)), 0, "claimed of a job that is dead")
		}
	}
}

func finishNever(c *C) {
	before := holding(c, queue, 1)[0]
	c.True(before.Retries < before.MaxRetries, "retries are left")
	underLease(c, store.OpNever, before.Lease())
	c.Equal(c.Get(before.ID), becomes(store.OpNever, before, c.Now()), "the job")
	c.Advance(24 * time.Hour)
	c.Equal(len(c.Claim(1)), 0, "claimed of a job that is dead")
}

func finishSnoozeHides(c *C) {
	for _, delay := range []time.Duration{0, store.Resolution, time.Second, time.Hour} {
		id := c.EnqueueOne()
		c.ClaimOne()
		c.Advance(time.Second)
		before := c.Get(id)
		c.NAck(before.Lease(), store.Snooze, delay, "")
		want := becomes(store.OpSnooze, before, c.Now())
		want.RunAt = c.Now().Add(delay)
		c.Equal(c.Get(id), want, "the job that is snoozed for %v", delay)
		if delay > 0 {
			c.Advance(delay - store.Resolution)
			c.Equal(len(c.Claim(1)), 0, "claimed a tick before the delay of %v is over", delay)
			c.Advance(store.Resolution)
		}
		c.Ack(c.ClaimOne().Lease())
	}
}

// finishReleaseUsesUpNothing gives a job that may run once back more often than that.
func finishReleaseUsesUpNothing(c *C) {
	id := c.Enqueue(plainBut(func(n *store.NewJob) { n.MaxRetries = 0 }))[0]
	for range 5 {
		c.Advance(time.Second)
		j := c.ClaimOne()
		c.Equal(j.Attempts, 1, "attempts at a claim after releases only")
		before := c.Get(id)
		c.Advance(time.Second)
		underLease(c, store.OpRelease, j.Lease())
		c.Equal(c.Get(id), becomes(store.OpRelease, before, c.Now()), "the job, released")
	}
	c.Equal(c.ClaimOne().ID, id, "claimed at the moment of its release")
}

func finishSnoozeUsesUpNothing(c *C) {
	id := c.Enqueue(plainBut(func(n *store.NewJob) { n.MaxRetries = 0 }))[0]
	for run := range 5 {
		j := c.ClaimOne()
		c.Equal(j.Attempts, run+1, "attempts, which a snooze leaves")
		underLease(c, store.OpSnooze, j.Lease())
		c.Advance(givenDelay)
	}
	c.Equal(c.Get(id).Phase(), store.Ready, "a job that was snoozed only")
}

// finishErrorsAreMended reads each error back from the row and from the history. The first follows another, and is empty.
func finishErrorsAreMended(c *C) {
	longest := strings.Repeat("x", store.MaxErrorBytes)
	texts := []string{
		"", "plain", "a\x00b", "a\xffb", "\xc3", "é\u2028𝄞\n", longest, longest + "x", longest[1:] + "é", longest[2:] + "é",
		longest[3:] + "𝄞x", strings.Repeat("𝄞", store.MaxErrorBytes), strings.Repeat("\x00", store.MaxErrorBytes), longest + "\xff",
	}
	mended := map[string]string{"a\x00b": "a\uFFFDb", "a\xffb": "a\uFFFDb", "\xc3": "\uFFFD"}
	for _, op := range []store.Op{store.OpFail, store.OpNever, store.OpAfter} {
		jobs := holding(c, string(op), len(texts))
		var nacks []store.NAck
		for i, text := range texts {
			nacks = append(nacks, store.NAck{Lease: jobs[i].Lease(), Form: store.Form(op), Error: text})
		}
		outcomes, err := c.Store.NAck(c.Ctx, nacks)
		c.OK(err, "NAck with odd errors")
		for i, text := range texts {
			got := c.Get(jobs[i].ID)
			c.Equal(outcomes[i].Status, store.StatusOK, "the status for the error %.20q", text)
			c.Equal(got.History[0].Error, got.Error, "the error of the attempt, against that of the job, for %.20q", text)
			switch want, isMended := mended[text]; {
			case isMended:
				c.Equal(got.Error, want, "the error %.20q", text)
			case len(text) <= store.MaxErrorBytes && utf8.ValidString(text) && !strings.Contains(text, "\x00"):
				c.Equal(got.Error, text, "the error %.20q, which is fine as it is", text)
			default:
				c.Equal(got.Error, store.CleanError(text), "the error %.20q, which is to be mended and cut", text)
				c.True(len(got.Error) <= store.MaxErrorBytes && utf8.ValidString(got.Error), "%d bytes of error are cut and valid", len(text))
			}
		}
	}
	last := holding(c, queue, 1)[0]
	c.NAck(last.Lease(), store.Fail, 0, "an earlier failure")
	c.Advance(time.Second)
	c.NAck(c.ClaimOne().Lease(), store.Fail, 0, "")
	c.Equal(c.Get(last.ID).Error, "", "the error of a job whose latest failed attempt gave none")
}

func finishOnlyFailuresKeepAnError(c *C) {
	for _, op := range []store.Op{store.OpSnooze, store.OpRelease} {
		before := holding(c, string(op), 1)[0]
		n := nackOf(op, before.Lease())
		n.Error = "not a failure"
		c.One(c.Store.NAck(c.Ctx, []store.NAck{n}))
		c.Equal(c.Get(before.ID), becomes(op, before, c.Now()), "the job, after %s with an error", op)
	}
}

func finishInvalidItem(c *C) {
	for _, bad := range []store.NAck{
		{Form: ""}, {Form: "retry"}, {Form: "Fail"}, {Form: "fail "},
		{Form: store.After, Delay: -1}, {Form: store.Snooze, Delay: -1},
		{Form: store.After, Delay: store.MaxDuration + 1}, {Form: store.Snooze, Delay: store.MaxDuration + 1},
		{Form: store.Fail, Delay: time.Second}, {Form: store.Never, Delay: time.Second}, {Form: store.Release, Delay: time.Second},
	} {
		jobs := holding(c, "invalid "+string(bad.Form)+bad.Delay.String(), 3)
		bad.Lease = jobs[1].Lease()
		outcomes, err := c.Store.NAck(c.Ctx, []store.NAck{nackOf(store.OpFail, jobs[0].Lease()), bad, nackOf(store.OpFail, jobs[2].Lease())})
		c.OK(err, "NAck with an invalid item")
		got := outcomes[1]
		c.Equal(got, store.Outcome{ID: bad.ID, Status: store.StatusInvalid, Reason: bad.Check().Error()}, "the outcome of %+v", bad)
		c.Equal(c.Get(bad.ID), jobs[1], "the job of the invalid item %+v", bad)
		for _, i := range []int{0, 2} {
			want := becomes(store.OpFail, jobs[i], c.Now())
			c.Equal(outcomes[i], store.OutcomeOf(want.Job, store.StatusOK), "the outcome beside the invalid item")
			c.Equal(c.Get(want.ID), want, "the job beside the invalid item")
		}
		outcomes, err = c.Store.NAck(c.Ctx, []store.NAck{bad, nackOf(store.OpRelease, bad.Lease)})
		c.OK(err, "NAck with an invalid item")
		c.Equal(statuses(outcomes), []store.Status{store.StatusInvalid, store.StatusOK}, "an invalid item, then a good one of the same job")
	}
}

func finishDelayLimits(c *C) {
	for _, op := range []store.Op{store.OpAfter, store.OpSnooze} {
		for _, delay := range []time.Duration{0, store.MaxDuration} {
			before := holding(c, string(op)+delay.String(), 1)[0]
			o := c.NAck(before.Lease(), store.Form(op), delay, "")
			c.Equal(o.Status, store.StatusOK, "%s with a delay of %v", op, delay)
			c.Equal(c.Get(before.ID).Next(), c.Now().Add(delay), "when the job is due after %s with a delay of %v", op, delay)
		}
	}
}

func finishDelayIsTruncated(c *C) {
	for _, op := range []store.Op{store.OpAfter, store.OpSnooze} {
		before := holding(c, string(op), 1)[0]
		o := c.NAck(before.Lease(), store.Form(op), 2*store.Resolution-1, "")
		c.Equal(o.Next, c.Now().Add(store.Resolution), "when the job is due in the outcome of %s with 1,999 ns", op)
		c.Equal(c.Get(before.ID).Next(), c.Now().Add(store.Resolution), "when the job is due after %s with 1,999 ns", op)
	}
}

func finishNAckLimits(c *C) {
	before := holding(c, queue, 1)[0]
	of := func(n int, reason string) []store.NAck {
		nacks := []store.NAck{{Lease: before.Lease(), Form: store.Fail, Error: reason}}
		for i := 1; i < n; i++ {
			nacks = append(nacks, store.NAck{Lease: notThere(i), Form: store.Fail, Error: reason})
		}
		return nacks
	}
	long := strings.Repeat("x", store.MaxErrorBytes)
	full := store.MaxCallBytes / store.MaxErrorBytes
	for what, nacks := range map[string][]store.NAck{
		"1,001 items": of(store.MaxItems+1, ""), "more than 8 MiB": of(full+1, long),
		"more than 8 MiB once they are mended": of(full+1, strings.Repeat("a\xff", store.MaxErrorBytes/4)),
	} {
		_, err := c.Store.NAck(c.Ctx, nacks)
		c.ErrorIs(err, store.ErrInvalid, "NAck of %s", what)
		c.Equal(c.Get(before.ID), before, "the job, after a NAck of %s", what)
	}
	outcomes, err := c.Store.NAck(c.Ctx, of(full, long+"cut")) // no longer than what is kept of it
	c.OK(err, "NAck of 8 MiB")
	c.Equal(statuses(outcomes)[:2], []store.Status{store.StatusOK, store.StatusNotFound}, "outcomes of a NAck of 8 MiB")
	outcomes, err = c.Store.NAck(c.Ctx, of(store.MaxItems, ""))
	c.OK(err, "NAck of 1,000 items")
	c.Equal(len(outcomes), store.MaxItems, "outcomes of a NAck of 1,000 items")
}
