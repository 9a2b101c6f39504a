package conformance

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

const sentenceSaveNumber = "Save ignores a document if an earlier save of this lease wrote that document with a greater Seq, and writes it otherwise. The outcome is ok in both cases."

var saveCases = []Case{
	{"Save/LeavesWhatIsNil", "An empty document leaves the stored one as it is.", saving(
		aSave{0, "", ""}, aSave{1, "", "1"}, aSave{2, "2", ""}, aSave{3, "", "3"}, aSave{4, "", ""}, aSave{5, "4", ""},
	)},
	{"Save/IgnoresAnOlderNumberAndRewritesAnEqualOne", sentenceSaveNumber, saving(
		aSave{0, `"a"`, `"a"`}, aSave{0, `"b"`, `"b"`}, aSave{5, `"c"`, `"c"`}, aSave{4, `"d"`, `"d"`}, aSave{5, `"e"`, `"e"`},
		aSave{0, `"f"`, `"f"`}, aSave{6, `"g"`, `"g"`}, aSave{math.MaxInt64, `"h"`, `"h"`},
		aSave{math.MaxInt64 - 1, `"i"`, `"i"`}, aSave{math.MaxInt64, `"j"`, `"j"`},
	)},
	{"Save/CountsNumbersForEachDocument", sentenceSaveNumber, saving(
		aSave{2, "", "2"}, aSave{1, "1", ""}, aSave{1, `"both"`, `"both"`}, aSave{4, "4", ""}, aSave{3, "", "3"}, aSave{3, `"both"`, `"both"`},
	)},
	{"Save/InvalidItemIsNotKeptAndSpoilsNoOther", "invalid a document or Seq breaks a limit, and Reason has the message of Check; nothing of this item was kept;\n" + sentencePositional, saveInvalid},
	{"Save/DocumentsAndResultsAreKeptByteForByte", "Payload, result, checkpoint and progress are JSON documents of at most 1 MiB in valid UTF-8, and the store must keep them byte for byte. Only the payload is required.", saveByteForByte},
	{"Save/SurvivesWhateverEndedTheAttempt", "The checkpoint survives the end of the attempt, whatever ended it.\nthe Seq with which it was saved within the lease", saveSurvivesEndings},
}

// aSave is a save with a number, and documents that may be empty.
type aSave struct {
	seq                  int64
	checkpoint, progress string
}

func (s aSave) under(l store.Lease) store.Save {
	return store.Save{Lease: l, Seq: s.seq, Checkpoint: []byte(s.checkpoint), Progress: []byte(s.progress)}
}

// written is the job after the save was taken.
func (s aSave) written(d store.JobDetail) store.JobDetail {
	if s.checkpoint != "" && s.seq >= d.CheckpointSeq {
		d.Checkpoint, d.CheckpointSeq = []byte(s.checkpoint), s.seq
	}
	if s.progress != "" && s.seq >= d.ProgressSeq {
		d.Progress, d.ProgressSeq = []byte(s.progress), s.seq
	}
	return d
}

// save saves one item.
func save(c *C, l store.Lease, s aSave) store.Outcome {
	return c.One(c.Store.Save(c.Ctx, []store.Save{s.under(l)}))
}

// saving is a case: each save, one after the other under one lease, writes what it should and nothing else.
func saving(saves ...aSave) func(c *C) {
	return func(c *C) {
		want := inFlightAnew(c)
		for _, s := range saves {
			want = s.written(want)
			c.Equal(save(c, want.Lease(), s), store.OutcomeOf(want.Job, store.StatusOK), "the outcome of %+v", s)
			c.Equal(c.Get(want.ID), want, "the job, after %+v", s)
		}
	}
}

// inFlightAnew is a job in flight that has nothing saved.
func inFlightAnew(c *C) store.JobDetail {
	d := c.JobIn(store.InFlight)
	c.Advance(time.Second)
	return d
}

// saveInvalid has two good items of one job at the end, of which the second overwrites what the first has written.
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
	outcomes := c.many(c.Store.Save(c.Ctx, append(bad, aSave{savedSeq, "1", "1"}.under(last.Lease()), good)))
	for i, item := range bad {
		got := outcomes[i]
		c.Equal(got, store.Outcome{ID: item.ID, Status: store.StatusInvalid, Reason: item.Check().Error()}, "the outcome of %.60q, seq %d", item.Checkpoint, item.Seq)
		c.Equal(c.Get(item.ID), jobs[i], "the job of the invalid item %d", i)
	}
	c.Equal(statuses(outcomes[len(bad):]), []store.Status{store.StatusOK, store.StatusOK}, "the good items after the invalid ones")
	c.Equal(c.Get(last.ID), becomes(store.OpSave, last, c.Now()), "the job of the good items")
}

// saveByteForByte has no two documents of a job alike. Every job is acked with a result at last.
func saveByteForByte(c *C) {
	longest := string(docOf(store.MaxDocBytes))
	docs := append(slices.Clone(oddDocuments), longest, strings.Replace(longest, "x", "y", 1))
	for i, d := range holding(c, queue, len(docs)) {
		want := []string{docs[i], docs[len(docs)-1-i], docs[(i+1)%len(docs)]}
		c.Equal(save(c, d.Lease(), aSave{savedSeq, want[0], want[1]}).Status, store.StatusOK, "a save of %.100q", want[:2])
		c.One(c.Store.Ack(c.Ctx, []store.Ack{{Lease: d.Lease(), Result: []byte(want[2])}}))
		got := c.Get(d.ID)
		kept := []string{string(got.Checkpoint), string(got.Progress), string(got.Result)}
		c.True(slices.Equal(kept, want), "checkpoint, progress and result are kept byte for byte: %.100q, of %.100q", kept, want)
	}
}

// saveSurvivesEndings ends attempts in every way there is. The next lease counts its saves anew.
func saveSurvivesEndings(c *C) {
	ends := map[string]func(l store.Lease){
		"expiry":                         func(store.Lease) { c.Advance(ttl); c.Recover(store.MaxItems) },
		"cancel":                         func(l store.Lease) { c.Cancel(l.ID) },
		"an Ack whose result is refused": func(l store.Lease) { c.One(c.Store.Ack(c.Ctx, []store.Ack{{Lease: l, Result: []byte("{")}})) },
	}
	for _, op := range finishOps {
		ends[string(op)] = func(l store.Lease) { underLease(c, op, l) }
	}
	for name, end := range ends {
		before := holding(c, name, 1)[0]
		end(before.Lease())
		got := c.Get(before.ID)
		c.True(got.State != store.InFlight, "the attempt is ended by %s", name)
		c.Equal([]string{string(got.Checkpoint), string(got.Progress)}, []string{`"kept"`, `"seen"`}, "checkpoint and progress after %s", name)

		c.Requeue(before.ID)
		c.Advance(time.Hour)
		c.Equal(ids(c.claimFrom(name, 1, 0)), []int64{before.ID}, "claimed after %s", name)
		next, first := c.Get(before.ID), aSave{0, "1", "2"}
		c.Equal([]int64{next.CheckpointSeq, next.ProgressSeq}, []int64{0, 0}, "the numbers when the next lease begins, after %s", name)
		save(c, next.Lease(), first)
		c.Equal(c.Get(before.ID), first.written(next), "the job, after the first save of the next lease, after %s", name)
		c.Cancel(before.ID)
	}
}
