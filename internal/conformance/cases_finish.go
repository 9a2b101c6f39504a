package conformance

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	sentenceCallLimit = "A call has at most 1,000 items, and a call of Fire at most 100. Its strings and documents, without the request key, have at most 8 MiB in all."
	sentenceErrorText = "The store must not reject any error text. It replaces invalid UTF-8 and NUL with U+FFFD, and it cuts a text that is longer than 16 KiB."
	sentenceHolds     = "The store must remember this until the token grows again or the job is deleted."
)

var finishCases = []Case{
	{"Finish/RefusedResultFailsTheJobForGood", "The store does not keep a result that breaks a limit. The job becomes dead, its error says why, and the outcome is ok with the state failed.\n" + sentenceAckStale, finishRefusedResult},
	{"Finish/ItemsAreHandledInOrder", sentencePositional, finishInOrder},
	{"Finish/OneOfSeveralWaysAtOnceWins", "Any goroutine may call any method at any time, even while other goroutines make calls for the same job.\nIt is safe to repeat a NAck: a repeat counts nothing twice and takes nothing back twice.", finishWaysAtOnce},
	{"Finish/RepeatKeepsWhatTheFirstHasWritten", "ok the job was in flight under this token, or an earlier Ack finished it under this token;\nok the job was in flight under this token, or its holder ended the lease in the same way before;\n" + sentenceHolds, finishRepeated},
	{"Finish/ErrorsAreMendedAndCut", sentenceErrorText, finishErrorsAreMended},
	{"Finish/InvalidItemChangesNothingAndSpoilsNoOther", "An invalid item gets the outcome invalid, whether its lease is valid or not.\ninvalid the form or the delay breaks a limit, and Reason has the message of Check; nothing changed;", finishInvalidItem},
}

// brokenDocuments are no documents that may be kept.
func brokenDocuments() [][]byte {
	return [][]byte{
		docOf(store.MaxDocBytes + 1), []byte(`{`), []byte(`{} {}`), []byte(" "), []byte(`nul`), []byte("\"\xff\""), []byte("\"\x00\""), []byte("{}\x00"),
	}
}

// docOf is a document of so many bytes.
func docOf(size int) []byte {
	return []byte(`"` + strings.Repeat("x", size-2) + `"`)
}

// notThere is a lease of a job far from any that a case has enqueued.
func notThere(i int) store.Lease { return store.Lease{ID: 1<<40 + int64(i), Token: 1} }

// finishRefusedResult has results that are refused under good leases, under one that was lost, and under that of no job, and a result
// that is fine.
func finishRefusedResult(c *C) {
	lost := holding(c, queue, 1)[0]
	c.ClaimAnew(lost.Job)
	next := c.Get(lost.ID)
	broken := brokenDocuments()
	jobs := holding(c, "refused", len(broken)+1)
	acks := []store.Ack{
		{Lease: lost.Lease(), Result: []byte("{")}, {Lease: notThere(0), Result: []byte("{")},
		{Lease: jobs[len(broken)].Lease(), Result: []byte(resultDoc)},
	}
	for i, doc := range broken {
		acks = append(acks, store.Ack{Lease: jobs[i].Lease(), Result: doc})
	}
	outcomes := c.many(c.Store.Ack(c.Ctx, acks))
	c.Equal(statuses(outcomes)[:3], []store.Status{store.StatusStale, store.StatusNotFound, store.StatusOK}, "outcomes of the first items")
	c.Equal(c.Get(lost.ID), next, "the job of the next holder, after a refused result under the lease that was lost")
	c.Equal(c.Get(acks[2].ID), becomes(store.OpAck, jobs[len(broken)], c.Now()), "the job whose result is fine")
	for i, doc := range broken {
		got := c.Get(jobs[i].ID)
		want := becomes(store.OpNever, jobs[i], c.Now())
		want.Error, want.History[0].Error = got.Error, got.Error
		c.True(got.Error != "", "the job has a reason for the refused result %.20q", doc)
		c.Equal(got, want, "the job whose result %.20q is refused", doc)
		c.Equal(outcomes[i+3], store.OutcomeOf(want.Job, store.StatusOK), "the outcome for the refused result %.20q", doc)
	}
}

// finishInOrder lets a job stand twice in a call, in the same way and in another.
func finishInOrder(c *C) {
	twice := holding(c, "ack", 2)
	acks := []store.Ack{
		{Lease: twice[0].Lease(), Result: []byte(`1`)}, {Lease: twice[1].Lease(), Result: []byte(`2`)},
		{Lease: twice[0].Lease(), Result: []byte(`3`)}, {Lease: twice[1].Lease(), Result: []byte(`{`)},
	}
	outcomes := c.many(c.Store.Ack(c.Ctx, acks))
	for i, o := range outcomes {
		want := becomes(store.OpAck, twice[i%2], c.Now())
		want.Result = acks[i%2].Result
		c.Equal(o, store.OutcomeOf(want.Job, store.StatusOK), "outcome %d", i)
		c.Equal(c.Get(want.ID), want, "the job of item %d, which its first Ack finished", i)
	}
	for _, first := range finishOps[1:] {
		for _, second := range finishOps[1:] {
			before := holding(c, string(first+second), 1)[0]
			outcomes := c.many(c.Store.NAck(c.Ctx, []store.NAck{nackOf(first, before.Lease()), nackOf(second, before.Lease())}))
			want := becomes(first, before, c.Now())
			status := store.StatusStale
			if wayOf(first) == wayOf(second) {
				status = store.StatusOK
			}
			c.Equal(outcomes, []store.Outcome{store.OutcomeOf(want.Job, store.StatusOK), store.OutcomeOf(want.Job, status)}, "%s and %s in one call", first, second)
			c.Equal(c.Get(before.ID), want, "the job, after %s and %s in one call", first, second)
		}
	}
}

// finishWaysAtOnce finishes each job in four ways at the same time, each of them twice, beside heartbeats. Which of them starts last
// changes from job to job: it is the one that most likely finds the others under way.
func finishWaysAtOnce(c *C) {
	ways := slices.Repeat([]store.Op{store.OpAck, store.OpFail, store.OpSnooze, store.OpRelease, store.OpExtend}, 2)
	for _, before := range holding(c, queue, 40) {
		ways = append(ways[1:], ways[0])
		outcomes := make([]store.Outcome, len(ways))
		c.Parallel(len(ways), func(i int) { outcomes[i] = untilDecided(c, ways[i], before.Lease()) })
		want, won := before, store.Op("")
		for i, way := range ways {
			if outcomes[i].Status == store.StatusOK && way != store.OpExtend && way != won {
				c.Equal(won, store.Op(""), "the way that was ok before %s was", way)
				want, won = becomes(way, before, c.Now()), way
			}
		}
		c.Equal(c.Get(before.ID), want, "a job that was finished by %s", won)
		for i, way := range ways {
			c.Equal(outcomes[i].Status == store.StatusOK, way == won || way == store.OpExtend && outcomes[i].Status != store.StatusFinished,
				"%s beside %s, which ended the lease, is ok: %s", way, won, outcomes[i].Status)
		}
	}
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
		for _, l := range []store.Lease{notThere(1), {ID: bad.ID, Token: bad.Token - 1}} {
			c.Equal(c.NAck(l, bad.Form, bad.Delay, "").Status, store.StatusInvalid, "an invalid item under a lease that is none")
			c.Equal(c.SaveCheckpoint(l, 1, "{").Status, store.StatusInvalid, "Save of half a document under a lease that is none")
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
