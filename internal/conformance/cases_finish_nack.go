package conformance

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	sentenceErrorText   = "An error text is never refused: what is not valid UTF-8, and NUL, becomes U+FFFD, and what is longer than 16 KiB is cut."
	sentenceNAckInvalid = "invalid the form or the delay breaks a limit, as Reason says in the words of Check; nothing changed;"
)

var finishNAckCases = []Case{
	{"Finish/ErrorsAreMendedAndCut", sentenceErrorText, finishErrorsAreMended},
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
