package conformance

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	sentenceRefused   = "A result that breaks a limit is not kept: the job fails for good, with a reason that says so, and the outcome is ok with the state failed."
	sentenceDocuments = "Payload, result, checkpoint and progress are JSON documents of at most 1 MiB in valid UTF-8, kept byte for byte; all but the payload may be left out."
	sentenceCallLimit = "A call has at most 1,000 items and 8 MiB in all, counted over its strings and documents, its request key aside."
	sentenceNoSlice   = "A store keeps no slice that it was given and hands out none that it keeps."
	sentenceLateGood  = "A lease that has run out but was not recovered yet is still good."
	sentenceAckOK     = "ok the job was in flight under this token, or an Ack had finished it under this token before;"
)

var finishCases = slices.Concat(finishAckCases, finishNAckCases, finishRepeatCases)

var finishAckCases = []Case{
	{"Finish/AckMakesTheJobSucceeded", "Ack finishes jobs whose work is done: each becomes succeeded, its lease ends and its result is kept.", finishAckMakesTheJobSucceeded},
	{"Finish/ResultIsKeptByteForByte", sentenceDocuments, finishResultByteForByte},
	{"Finish/ResultAtItsLimitIsKept", sentenceDocuments, finishResultAtItsLimit},
	{"Finish/RefusedResultFailsTheJobForGood", sentenceRefused, finishRefusedResult},
	{"Finish/RefusedResultUnderAStaleLeaseChangesNothing", sentenceAckStale, finishRefusedResultIsStale},
	{"Finish/AckKeepsToTheLimitsOfACall", sentenceCallLimit, finishAckLimits},
	{"Finish/LateButUnrecoveredIsAccepted", sentenceLateGood, finishLate},
	{"Finish/WithoutItemsNothingIsDone", "A call without items does nothing.", finishWithoutItems},
	{"Finish/ItemsAreHandledInOrder", sentencePositional, finishInOrder},
	{"Finish/KeepsAndHandsOutNoSlice", sentenceNoSlice, finishKeepsNoSlice},
	{"Finish/OneOfSeveralWaysAtOnceWins", "Any method may be called at any time, from any goroutine, also for one job.", finishWaysAtOnce},
}

// oddDocuments are valid, and each is spoiled by a store that parses what it should only keep.
var oddDocuments = []string{
	`null`, ` {"b": 1,` + "\t\n" + `"a":2, "a":3} `, `12345678901234567890.00e-400`, `"\u0000 \/ \ud800 é 𝄞"`, "\"é 𝄞 \u2028\"", `[-0, 1E5, 1.50]`,
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

func finishAckMakesTheJobSucceeded(c *C) {
	before := holding(c, queue, 1)[0]
	want := becomes(store.OpAck, before, c.Now())
	c.Equal(underLease(c, store.OpAck, before.Lease()), store.OutcomeOf(want.Job, store.StatusOK), "the outcome")
	c.Equal(c.Get(before.ID), want, "the job")
	c.Advance(time.Hour)
	c.Equal(len(c.Recover(10))+len(c.Claim(10)), 0, "leases to recover and jobs to claim, later")
}

func finishResultByteForByte(c *C) {
	jobs := holding(c, queue, len(oddDocuments))
	var acks []store.Ack
	for i, doc := range oddDocuments {
		acks = append(acks, store.Ack{Lease: jobs[i].Lease(), Result: []byte(doc)})
	}
	_, err := c.Store.Ack(c.Ctx, acks)
	c.OK(err, "Ack of %d jobs", len(acks))
	for i, doc := range oddDocuments {
		c.Equal(string(c.Get(jobs[i].ID).Result), doc, "the result")
	}
}

func finishResultAtItsLimit(c *C) {
	before := holding(c, queue, 1)[0]
	doc := docOf(store.MaxDocBytes)
	got := c.One(c.Store.Ack(c.Ctx, []store.Ack{{Lease: before.Lease(), Result: doc}}))
	c.Equal(got.State, store.Succeeded, "the state of a job with a result of exactly 1 MiB")
	c.True(bytes.Equal(c.Get(before.ID).Result, doc), "the result of exactly 1 MiB is kept")
}

func finishRefusedResult(c *C) {
	broken := brokenDocuments()
	jobs := holding(c, queue, len(broken)+1)
	last := jobs[len(broken)]
	var acks []store.Ack
	for i, doc := range broken {
		acks = append(acks, store.Ack{Lease: jobs[i].Lease(), Result: doc})
	}
	outcomes, err := c.Store.Ack(c.Ctx, append(acks, store.Ack{Lease: last.Lease(), Result: []byte(resultDoc)}))
	c.OK(err, "Ack with results that are refused")
	for i, doc := range broken {
		got := c.Get(jobs[i].ID)
		want := becomes(store.OpNever, jobs[i], c.Now())
		want.Error, want.History[0].Error = got.Error, got.Error
		c.True(got.Error != "", "the job has a reason for the refused result %.20q", doc)
		c.Equal(got, want, "the job whose result %.20q is refused", doc)
		c.Equal(outcomes[i], store.OutcomeOf(want.Job, store.StatusOK), "the outcome for the refused result %.20q", doc)
	}
	c.Equal(c.Get(last.ID), becomes(store.OpAck, last, c.Now()), "the last job of the call, whose result is fine")
}

func finishRefusedResultIsStale(c *C) {
	held := holding(c, queue, 1)[0]
	c.ClaimAnew(held.Job)
	before := c.Get(held.ID)
	outcomes, err := c.Store.Ack(c.Ctx, []store.Ack{{Lease: held.Lease(), Result: []byte("{")}, {Lease: notThere(0), Result: []byte("{")}})
	c.OK(err, "Ack with refused results")
	c.Equal(statuses(outcomes), []store.Status{store.StatusStale, store.StatusNotFound}, "refused results under no good lease")
	c.Equal(c.Get(held.ID), before, "the job of the next holder")
}

func finishAckLimits(c *C) {
	before := holding(c, queue, 1)[0]
	of := func(n int, result []byte) []store.Ack {
		acks := []store.Ack{{Lease: before.Lease(), Result: result}}
		for i := 1; i < n; i++ {
			acks = append(acks, store.Ack{Lease: notThere(i), Result: result})
		}
		return acks
	}
	large := docOf(store.MaxDocBytes)
	full := store.MaxCallBytes / store.MaxDocBytes
	for what, acks := range map[string][]store.Ack{
		"1,001 items": of(store.MaxItems+1, nil), "8 MiB and a byte": append(of(full, large), store.Ack{Lease: notThere(0), Result: []byte("1")}),
	} {
		_, err := c.Store.Ack(c.Ctx, acks)
		c.ErrorIs(err, store.ErrInvalid, "Ack of %s", what)
		c.Equal(c.Get(before.ID), before, "the job, after an Ack of %s", what)
	}
	atLimit, err := c.Store.Ack(c.Ctx, append(of(full, large), store.Ack{Lease: notThere(0), Result: docOf(store.MaxDocBytes + 1)}))
	c.OK(err, "Ack of 8 MiB, and a result that is refused and counts for nothing")
	c.Equal(statuses(atLimit)[:2], []store.Status{store.StatusOK, store.StatusNotFound}, "outcomes of an Ack of 8 MiB")
	most, err := c.Store.Ack(c.Ctx, of(store.MaxItems, nil))
	c.OK(err, "Ack of 1,000 items")
	c.Equal(len(most), store.MaxItems, "outcomes of an Ack of 1,000 items")
}

// finishLate ends each lease at the moment of its expiry, and another an hour later.
func finishLate(c *C) {
	for _, op := range finishOps {
		jobs := holding(c, string(op), 2)
		for i, late := range []time.Duration{0, time.Hour} {
			c.Advance(jobs[i].LeaseExpiresAt.Add(late).Sub(c.Now()))
			want := becomes(op, jobs[i], c.Now())
			c.Equal(underLease(c, op, jobs[i].Lease()), store.OutcomeOf(want.Job, store.StatusOK), "%s %v after the lease's end", op, late)
			c.Equal(c.Get(jobs[i].ID), want, "the job, after %s %v after the lease's end", op, late)
		}
		c.Equal(c.Recover(10), []store.Recovered{}, "leases to recover, after %s", op)
	}
}

func finishWithoutItems(c *C) {
	before := holding(c, queue, 1)[0]
	calls := map[string]func() ([]store.Outcome, error){
		"Ack":    func() ([]store.Outcome, error) { return c.Store.Ack(c.Ctx, nil) },
		"NAck":   func() ([]store.Outcome, error) { return c.Store.NAck(c.Ctx, []store.NAck{}) },
		"Extend": func() ([]store.Outcome, error) { return c.Store.Extend(c.Ctx, nil, ttl) },
		"Save":   func() ([]store.Outcome, error) { return c.Store.Save(c.Ctx, []store.Save{}) },
	}
	for name, call := range calls {
		outcomes, err := call()
		c.OK(err, "%s without items", name)
		c.Equal(outcomes, []store.Outcome{}, "%s without items", name)
	}
	c.Equal(c.Get(before.ID), before, "the job in flight")
}

// finishInOrder lets a job stand twice in a call, in the same way and in another.
func finishInOrder(c *C) {
	twice := holding(c, "ack", 2)
	acks := []store.Ack{
		{Lease: twice[0].Lease(), Result: []byte(`1`)}, {Lease: twice[1].Lease(), Result: []byte(`2`)},
		{Lease: twice[0].Lease(), Result: []byte(`3`)}, {Lease: twice[1].Lease(), Result: []byte(`{`)},
	}
	outcomes, err := c.Store.Ack(c.Ctx, acks)
	c.OK(err, "Ack with each job twice")
	for i, o := range outcomes {
		want := becomes(store.OpAck, twice[i%2], c.Now())
		want.Result = acks[i%2].Result
		c.Equal(o, store.OutcomeOf(want.Job, store.StatusOK), "outcome %d", i)
		c.Equal(c.Get(want.ID), want, "the job of item %d, which its first Ack finished", i)
	}
	for _, first := range finishOps[1:] {
		for _, second := range finishOps[1:] {
			before := holding(c, string(first+second), 1)[0]
			outcomes, err := c.Store.NAck(c.Ctx, []store.NAck{nackOf(first, before.Lease()), nackOf(second, before.Lease())})
			c.OK(err, "NAck with %s and %s of one job", first, second)
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

func finishKeepsNoSlice(c *C) {
	before := holding(c, queue, 1)[0]
	result := []byte(resultDoc)
	c.One(c.Store.Ack(c.Ctx, []store.Ack{{Lease: before.Lease(), Result: result}}))
	want := becomes(store.OpAck, before, c.Now())
	clear(result)
	handedOut := c.Get(before.ID)
	c.Equal(handedOut, want, "the job, after the result that was passed in was overwritten")
	clear(handedOut.Result)
	clear(handedOut.Checkpoint)
	clear(handedOut.History)
	c.Equal(c.Get(before.ID), want, "the job, after what was handed out was overwritten")
}

// finishWaysAtOnce finishes each job in four ways at the same time. Which of them starts last changes from job to job: it
// is the one that most likely finds the others under way.
func finishWaysAtOnce(c *C) {
	ways := []store.Op{store.OpAck, store.OpFail, store.OpSnooze, store.OpRelease}
	for _, before := range holding(c, queue, 40) {
		ways = append(ways[1:], ways[0])
		outcomes := make([]store.Outcome, len(ways))
		c.Parallel(len(ways), func(i int) { outcomes[i] = underLease(c, ways[i], before.Lease()) })
		var won []store.Op
		want := before
		for i, way := range ways {
			if outcomes[i].Status == store.StatusOK {
				won, want = append(won, way), becomes(way, before, c.Now())
			}
		}
		c.Equal(len(won), 1, "ways that were ok: %v", won)
		c.Equal(c.Get(before.ID), want, "a job that was finished by %v", won)
	}
}
