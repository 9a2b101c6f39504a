package conformance

import (
	"bytes"
	"math"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	sentenceSave        = "Save keeps a checkpoint, a progress or both for each job that is in flight under the token."
	sentenceSaveNumber  = "A document is written if no save of this lease with a greater Seq has written it before, otherwise ignored; the outcome is ok either way."
	sentenceSaveInvalid = "invalid a document or the number breaks a limit, as Reason says in the words of Check; nothing of this item was kept;"
	sentenceSurvives    = "A checkpoint survives whatever ended the attempt."
)

var saveCases = []Case{
	{"Save/KeepsBothAndChangesNothingElse", sentenceSave, saveKeepsBoth},
	{"Save/LeavesWhatIsNil", "What is empty is left as it is.", saveLeavesWhatIsNil},
	{"Save/IgnoresAnOlderNumberAndRewritesAnEqualOne", sentenceSaveNumber, saveNumbers},
	{"Save/CountsNumbersForEachDocument", sentenceSaveNumber, saveNumbersOfEachDocument},
	{"Save/CountsNumbersOnlyOfWhatWasWritten", sentenceSaveNumber, saveNumbersOfWhatWasWritten},
	{"Save/CountsNumbersAnewWithEachLease", "its number within the lease", saveNumbersOfEachLease},
	{"Save/GreatestNumberWinsAmongSavesAtOnce", sentenceSaveNumber, saveAtOnce},
	{"Save/InvalidItemIsNotKeptAndSpoilsNoOther", sentenceSaveInvalid, saveInvalid},
	{"Save/DocumentsAtTheirLimitAreKeptByteForByte", sentenceDocuments, saveAtTheLimit},
	{"Save/KeepsToTheLimitsOfACall", sentenceCallLimit, saveCallLimits},
	{"Save/ItemsAreHandledInOrder", sentencePositional, saveInOrder},
	{"Save/SurvivesWhateverEndedTheAttempt", sentenceSurvives, saveSurvivesEndings},
	{"Save/KeepsAndHandsOutNoSlice", sentenceNoSlice, saveKeepsNoSlice},
}

// save saves one item; an empty document is nil.
func save(c *C, l store.Lease, seq int64, checkpoint, progress string) store.Outcome {
	item := store.Save{Lease: l, Seq: seq}
	if checkpoint != "" {
		item.Checkpoint = []byte(checkpoint)
	}
	if progress != "" {
		item.Progress = []byte(progress)
	}
	return c.One(c.Store.Save(c.Ctx, []store.Save{item}))
}

// inFlightAnew is a job in flight that has nothing saved.
func inFlightAnew(c *C) store.JobDetail {
	d := c.JobIn(store.InFlight)
	c.Advance(time.Second)
	return d
}

func saveKeepsBoth(c *C) {
	before := inFlightAnew(c)
	want := becomes(store.OpSave, before, c.Now())
	c.Equal(underLease(c, store.OpSave, before.Lease()), store.OutcomeOf(want.Job, store.StatusOK), "the outcome")
	c.Equal(c.Get(before.ID), want, "the job")
}

func saveLeavesWhatIsNil(c *C) {
	want := inFlightAnew(c)
	l := want.Lease()
	for i, docs := range [][2]string{{"", ""}, {"", "1"}, {"2", ""}, {"", "3"}, {"", ""}, {"4", ""}} {
		seq := int64(i)
		if docs[0] != "" {
			want.Checkpoint, want.CheckpointSeq = []byte(docs[0]), seq
		}
		if docs[1] != "" {
			want.Progress, want.ProgressSeq = []byte(docs[1]), seq
		}
		c.Equal(save(c, l, seq, docs[0], docs[1]), store.OutcomeOf(want.Job, store.StatusOK), "the outcome of save %d", i)
		c.Equal(c.Get(l.ID), want, "the job, after save %d of %q", i, docs)
	}
}

func saveNumbers(c *C) {
	want := inFlightAnew(c)
	l := want.Lease()
	for _, s := range []struct {
		seq     int64
		doc     string
		written bool
	}{
		{0, `"a"`, true}, {0, `"b"`, true}, {5, `"c"`, true}, {4, `"d"`, false}, {5, `"e"`, true}, {0, `"f"`, false}, {6, `"g"`, true},
		{math.MaxInt64, `"h"`, true}, {math.MaxInt64 - 1, `"i"`, false}, {math.MaxInt64, `"j"`, true},
	} {
		if s.written {
			want.Checkpoint, want.CheckpointSeq, want.Progress, want.ProgressSeq = []byte(s.doc), s.seq, []byte(s.doc), s.seq
		}
		c.Equal(save(c, l, s.seq, s.doc, s.doc), store.OutcomeOf(want.Job, store.StatusOK), "the outcome of save %d of %s", s.seq, s.doc)
		c.Equal(c.Get(l.ID), want, "the job, after save %d of %s", s.seq, s.doc)
	}
}

func saveNumbersOfEachDocument(c *C) {
	for _, s := range [][2]store.Save{
		{{Seq: 2, Progress: []byte("2")}, {Seq: 1, Checkpoint: []byte("1")}},
		{{Seq: 2, Checkpoint: []byte("2")}, {Seq: 1, Progress: []byte("1")}},
		{{Seq: 2, Progress: []byte("2")}, {Seq: 1, Checkpoint: []byte("1"), Progress: []byte("1")}},
		{{Seq: 2, Checkpoint: []byte("2")}, {Seq: 1, Checkpoint: []byte("1"), Progress: []byte("1")}},
	} {
		want := inFlightAnew(c)
		s[0].Lease, s[1].Lease = want.Lease(), want.Lease()
		for _, item := range s {
			if item.Checkpoint != nil && item.Seq >= want.CheckpointSeq {
				want.Checkpoint, want.CheckpointSeq = item.Checkpoint, item.Seq
			}
			if item.Progress != nil && item.Seq >= want.ProgressSeq {
				want.Progress, want.ProgressSeq = item.Progress, item.Seq
			}
			o := c.One(c.Store.Save(c.Ctx, []store.Save{item}))
			c.Equal(o, store.OutcomeOf(want.Job, store.StatusOK), "the outcome of %+v", item)
			c.Equal(c.Get(want.ID), want, "the job, after %+v", item)
		}
	}
}

// saveNumbersOfWhatWasWritten gives great numbers to saves that write nothing, and a small one to the save that does.
func saveNumbersOfWhatWasWritten(c *C) {
	want := inFlightAnew(c)
	l := want.Lease()
	c.Equal(save(c, l, 9, "", "").Status, store.StatusOK, "a save without documents")
	c.Equal(save(c, l, 9, "{", "9").Status, store.StatusInvalid, "a save with a document that is refused")
	c.Equal(save(c, store.Lease{ID: l.ID, Token: l.Token - 1}, 9, "9", "9").Status, store.StatusStale, "a stale save")
	c.Equal(c.Get(l.ID), want, "the job, after saves that write nothing")
	save(c, l, 1, "1", "1")
	want.Checkpoint, want.CheckpointSeq, want.Progress, want.ProgressSeq = []byte("1"), 1, []byte("1"), 1
	c.Equal(c.Get(l.ID), want, "the job, after a save with number 1")
}

func saveNumbersOfEachLease(c *C) {
	c.EnqueueOne()
	for _, op := range []store.Op{store.OpRelease, store.OpSnooze, store.OpFail, store.OpAfter, store.OpNever} {
		c.Advance(time.Hour)
		j := c.ClaimOne()
		c.Equal([]int64{j.CheckpointSeq, j.ProgressSeq}, []int64{0, 0}, "the numbers when the lease begins")
		want := c.Get(j.ID)
		save(c, j.Lease(), 0, `"of the new lease"`, `"of the new lease"`)
		want.Checkpoint, want.Progress = []byte(`"of the new lease"`), []byte(`"of the new lease"`)
		c.Equal(c.Get(j.ID), want, "the job, after the first save of a lease")
		save(c, j.Lease(), 7, `"of the old lease"`, `"of the old lease"`)
		underLease(c, op, j.Lease())
		if c.Get(j.ID).Terminal() {
			c.Requeue(j.ID)
		}
	}
}

func saveAtOnce(c *C) {
	before := inFlightAnew(c)
	l := before.Lease()
	const savers, each = 8, 10
	c.Parallel(savers, func(i int) {
		for n := range each {
			seq := int64(n*savers + i + 1)
			doc := `"` + time.Duration(seq).String() + `"`
			c.Equal(save(c, l, seq, doc, doc).Status, store.StatusOK, "a save among others")
		}
	})
	want, last := before, int64(savers*each)
	doc := []byte(`"` + time.Duration(last).String() + `"`)
	want.Checkpoint, want.CheckpointSeq, want.Progress, want.ProgressSeq = doc, last, doc, last
	c.Equal(c.Get(l.ID), want, "the job, after the save with the greatest number")
}

func saveInvalid(c *C) {
	bad := []store.Save{{Seq: -1, Checkpoint: []byte("1"), Progress: []byte("1")}, {Seq: math.MinInt64}}
	for _, doc := range brokenDocuments() {
		bad = append(bad,
			store.Save{Seq: savedSeq, Checkpoint: doc, Progress: []byte("1")},
			store.Save{Seq: savedSeq, Checkpoint: []byte("1"), Progress: doc})
	}
	jobs := holding(c, queue, len(bad)+1)
	last := jobs[len(bad)]
	for i := range bad {
		bad[i].Lease = jobs[i].Lease()
	}
	good := store.Save{Lease: last.Lease(), Seq: savedSeq, Checkpoint: []byte(savedDoc), Progress: []byte(savedDoc)}
	outcomes, err := c.Store.Save(c.Ctx, append(bad, good))
	c.OK(err, "Save with invalid items")
	for i, item := range bad {
		got := outcomes[i]
		c.Equal(got, store.Outcome{ID: item.ID, Status: store.StatusInvalid, Reason: item.Check().Error()}, "the outcome of %.60q, seq %d", item.Checkpoint, item.Seq)
		c.Equal(c.Get(item.ID), jobs[i], "the job of the invalid item %d", i)
	}
	c.Equal(outcomes[len(bad)].Status, store.StatusOK, "the good item after the invalid ones")
	c.Equal(c.Get(last.ID), becomes(store.OpSave, last, c.Now()), "the job of the good item")
}

func saveAtTheLimit(c *C) {
	before := inFlightAnew(c)
	checkpoint, progress := docOf(store.MaxDocBytes), bytes.Replace(docOf(store.MaxDocBytes), []byte("x"), []byte("y"), 1)
	o := c.One(c.Store.Save(c.Ctx, []store.Save{{Lease: before.Lease(), Seq: 0, Checkpoint: checkpoint, Progress: progress}}))
	c.Equal(o.Status, store.StatusOK, "a save of two documents of exactly 1 MiB")
	got := c.Get(before.ID)
	c.True(bytes.Equal(got.Checkpoint, checkpoint) && bytes.Equal(got.Progress, progress), "documents of exactly 1 MiB are kept")
	for i, doc := range oddDocuments {
		other := oddDocuments[len(oddDocuments)-1-i]
		save(c, before.Lease(), int64(i), doc, other)
		got := c.Get(before.ID)
		c.Equal([]string{string(got.Checkpoint), string(got.Progress)}, []string{doc, other}, "checkpoint and progress")
	}
}

func saveCallLimits(c *C) {
	before := inFlightAnew(c)
	large := docOf(store.MaxDocBytes)
	full := []store.Save{{Lease: before.Lease(), Seq: 1, Checkpoint: large, Progress: large}}
	for i := range store.MaxCallBytes/store.MaxDocBytes/2 - 1 {
		full = append(full, store.Save{Lease: notThere(i), Checkpoint: large, Progress: large})
	}
	most := []store.Save{{Lease: before.Lease(), Seq: 2, Checkpoint: []byte("2")}}
	for i := range store.MaxItems - 1 {
		most = append(most, store.Save{Lease: notThere(i)})
	}
	for what, saves := range map[string][]store.Save{
		"1,001 items": append(most, store.Save{}), "8 MiB and a byte": append(full, store.Save{Lease: notThere(99), Progress: []byte("1")}),
	} {
		_, err := c.Store.Save(c.Ctx, saves)
		c.ErrorIs(err, store.ErrInvalid, "Save of %s", what)
		c.Equal(c.Get(before.ID), before, "the job, after Save of %s", what)
	}
	for what, saves := range map[string][]store.Save{"8 MiB": full, "1,000 items": most} {
		outcomes, err := c.Store.Save(c.Ctx, saves)
		c.OK(err, "Save of %s", what)
		c.Equal(statuses(outcomes)[:2], []store.Status{store.StatusOK, store.StatusNotFound}, "outcomes of Save of %s", what)
		c.Equal(len(outcomes), len(saves), "outcomes of Save of %s", what)
	}
}

func saveInOrder(c *C) {
	want := inFlightAnew(c)
	l := want.Lease()
	outcomes, err := c.Store.Save(c.Ctx, []store.Save{
		{Lease: l, Seq: 2, Checkpoint: []byte("2")}, {Lease: l, Seq: 1, Checkpoint: []byte("1"), Progress: []byte("1")},
		{Lease: notThere(0), Seq: 9, Checkpoint: []byte("9")}, {Lease: l, Seq: 2, Checkpoint: []byte(`"2 again"`)},
		{Lease: l, Seq: -1, Progress: []byte("9")}, {Lease: store.Lease{ID: l.ID, Token: l.Token + 1}, Seq: 9, Progress: []byte("9")},
	})
	c.OK(err, "Save with a job five times")
	want.Checkpoint, want.CheckpointSeq, want.Progress, want.ProgressSeq = []byte(`"2 again"`), 2, []byte("1"), 1
	c.Equal(statuses(outcomes), []store.Status{
		store.StatusOK, store.StatusOK, store.StatusNotFound, store.StatusOK, store.StatusInvalid, store.StatusStale,
	}, "the statuses")
	c.Equal(c.Get(l.ID), want, "the job")
}

func saveKeepsNoSlice(c *C) {
	before := inFlightAnew(c)
	checkpoint, progress := []byte(savedDoc), []byte(savedDoc)
	c.One(c.Store.Save(c.Ctx, []store.Save{{Lease: before.Lease(), Seq: savedSeq, Checkpoint: checkpoint, Progress: progress}}))
	want := becomes(store.OpSave, before, c.Now())
	clear(checkpoint)
	clear(progress)
	handedOut := c.Get(before.ID)
	c.Equal(handedOut, want, "the job, after what was passed in was overwritten")
	clear(handedOut.Checkpoint)
	clear(handedOut.Progress)
	c.Equal(c.Get(before.ID), want, "the job, after what was handed out was overwritten")
}
