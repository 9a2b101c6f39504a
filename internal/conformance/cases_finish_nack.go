package conformance

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	sentenceErrorText = "The store must not reject any error text. It replaces invalid UTF-8 and NUL with U+FFFD, and it cuts a text that is longer than 16 KiB."
	sentenceHolds     = "The store must remember this until the token grows again or the job is deleted."
)

var finishNAckCases = []Case{
	{"Finish/RepeatKeepsWhatTheFirstHasWritten", "ok the job was in flight under this token, or an earlier Ack finished it under this token;\nok the job was in flight under this token, or its holder ended the lease in the same way before;\n" + sentenceHolds, finishRepeated},
	{"Finish/ErrorsAreMendedAndCut", sentenceErrorText, finishErrorsAreMended},
	{"Finish/InvalidItemChangesNothingAndSpoilsNoOther", "invalid the form or the delay breaks a limit, and Reason has the message of Check; nothing changed;", finishInvalidItem},
	{"Finish/InvalidItemIsInvalidWhateverItsLease", "An invalid item gets the outcome invalid, whether its lease is valid or not.", finishInvalidWhateverItsLease},
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

// finishErrorsAreMended reads each error back from the row and from the history. The job has failed before with another error.
func finishErrorsAreMended(c *C) {
	longest := strings.Repeat("x", store.MaxErrorBytes)
	kept := map[string]string{
		"": "", "plain": "plain", "é\u2028𝄞\n": "é\u2028𝄞\n", longest: longest, longest[2:] + "é": longest[2:] + "é",
		"a\x00b": "a\uFFFDb", "a\xffb": "a\uFFFDb", "\xc3": "\uFFFD",
	}
	for _, long := range []string{
		longest + "x", longest[1:] + "é", longest[3:] + "𝄞x", strings.Repeat("𝄞", store.MaxErrorBytes),
		strings.Repeat("\x00", store.MaxErrorBytes), longest + "\xff",
	} {
		kept[long] = store.CleanError(long)
		c.True(len(kept[long]) <= store.MaxErrorBytes && utf8.ValidString(kept[long]), "%d bytes of error are cut and valid", len(long))
	}
	for text, want := range kept {
		for _, form := range []store.Form{store.Fail, store.Never, store.After} {
			id := c.EnqueueOne()
			c.NAck(c.ClaimOne().Lease(), store.Fail, 0, "an earlier failure")
			c.Advance(time.Second)
			c.Equal(c.NAck(c.ClaimOne().Lease(), form, 0, text).Status, store.StatusOK, "the status for the error %.20q", text)
			got := c.Get(id)
			c.Equal([]string{got.Error, got.History[1].Error}, []string{want, want}, "the error %.20q of the job and of its attempt, after %s", text, form)
			c.Cancel(id)
		}
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
		outcomes := c.many(c.Store.NAck(c.Ctx, []store.NAck{nackOf(store.OpFail, jobs[0].Lease()), bad, nackOf(store.OpFail, jobs[2].Lease())}))
		got := outcomes[1]
		c.Equal(got, store.Outcome{ID: bad.ID, Status: store.StatusInvalid, Reason: bad.Check().Error()}, "the outcome of %+v", bad)
		c.Equal(c.Get(bad.ID), jobs[1], "the job of the invalid item %+v", bad)
		for _, i := range []int{0, 2} {
			want := becomes(store.OpFail, jobs[i], c.Now())
			c.Equal(outcomes[i], store.OutcomeOf(want.Job, store.StatusOK), "the outcome beside the invalid item")
			c.Equal(c.Get(want.ID), want, "the job beside the invalid item")
		}
		outcomes = c.many(c.Store.NAck(c.Ctx, []store.NAck{bad, nackOf(store.OpRelease, bad.Lease)}))
		c.Equal(statuses(outcomes), []store.Status{store.StatusInvalid, store.StatusOK}, "an invalid item, then a good one of the same job")
	}
}

// again checks that the operation, repeated, answers with the status and leaves the job as it is.
func again(c *C, op store.Op, before store.JobDetail, l store.Lease, status store.Status, what string) {
	c.Equal(underLease(c, op, l), store.OutcomeOf(before.Job, status), "%s %s", op, what)
	c.Equal(c.Get(before.ID), before, "the job, after %s %s", op, what)
}

// finishedBy is a job that the operation has finished, an hour ago.
func finishedBy(c *C, op store.Op, name string) store.JobDetail {
	held := holding(c, name, 1)[0]
	underLease(c, op, held.Lease())
	c.Advance(time.Hour)
	return c.Get(held.ID)
}

// finishRepeated repeats each way of finishing with another result, reason or delay: at once, and after all that is refused, and days.
func finishRepeated(c *C) {
	for _, op := range finishOps {
		done := finishedBy(c, op, string(op))
		repeat := func(other, when string) {
			var got store.Outcome
			if n := nackOf(op, done.Lease()); op == store.OpAck {
				got = c.One(c.Store.Ack(c.Ctx, []store.Ack{{Lease: done.Lease(), Result: []byte(other)}}))
			} else {
				got = c.NAck(done.Lease(), n.Form, n.Delay/2, other)
			}
			c.Equal(got, store.OutcomeOf(done.Job, store.StatusOK), "%s repeated with %q, %s", op, other, when)
			c.Equal(c.Get(done.ID), done, "the job, after %s repeated with %q, %s", op, other, when)
		}
		for _, other := range []string{"", `"another"`, "{"} {
			repeat(other, "an hour later")
		}
		for _, refused := range leaseOps {
			underLease(c, refused, store.Lease{ID: done.ID, Token: done.Token - 1})
			if wayOf(refused) != wayOf(op) {
				underLease(c, refused, done.Lease())
			}
		}
		c.Recover(store.MaxItems)
		if done.Terminal() {
			c.Cancel(done.ID)
		} else {
			c.Requeue(done.ID)
			c.Delete(done.ID)
		}
		c.Advance(48 * time.Hour)
		repeat("", "after two days of refused calls")
	}
}
