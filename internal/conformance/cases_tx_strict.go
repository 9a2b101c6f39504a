package conformance

import (
	"errors"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

func txEnqueueKeepsItsPromises(c *C) {
	job := plainBut(func(n *store.NewJob) { n.UniqueKey = "key" })
	c.inTx(func(t *txCase) {
		first := t.enqueue(store.EnqueueRequest{Jobs: []store.NewJob{plain(), job}, RequestKey: "request"})
		c.Equal(t.enqueue(store.EnqueueRequest{Jobs: []store.NewJob{plain(), job}, RequestKey: "request"}), first, "the same request in one transaction")
		second := t.enqueue(store.EnqueueRequest{Jobs: []store.NewJob{job, plain()}})
		c.Equal(second[0], store.Enqueued{ID: first[1].ID, State: store.Ready, Duplicate: true}, "a duplicate in one transaction")
		c.True(first[0].ID < first[1].ID && first[1].ID < second[1].ID, "ids grow in the order of the items: %v, %v", first, second)
		t.commit()
	})
	c.Equal(len(c.All()), 3, "jobs after the commit")
	c.changesNothing("an invalid Enqueue in a transaction", func() {
		c.inTx(func(t *txCase) {
			wrong := plain()
			wrong.Kind = ""
			_, err := t.w.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{plain(), wrong}})
			c.ErrorIs(err, store.ErrInvalid, "Enqueue of an invalid job in a transaction")
			var invalid *store.InvalidError
			c.True(errors.As(err, &invalid) && invalid.Item == 1, "the error names the item: %v", err)
			t.rollback()
		})
	})
}

func txFinishIsStrict(c *C) {
	ack := func(l store.Lease) func(store.Writer) error {
		return func(w store.Writer) error { _, err := w.Ack(c.Ctx, []store.Ack{{Lease: l}}); return err }
	}
	nack := func(l store.Lease, form store.Form, delay time.Duration) func(store.Writer) error {
		return func(w store.Writer) error {
			_, err := w.NAck(c.Ctx, []store.NAck{{Lease: l, Form: form, Delay: delay}})
			return err
		}
	}
	acked, dead, gone := c.JobIn(store.Succeeded).Lease(), c.JobIn(store.Dead).Lease(), c.JobIn(store.Succeeded).Lease()
	c.Delete(gone.ID)
	cancelled := c.JobIn(store.InFlight).Lease()
	c.Cancel(cancelled.ID)
	released := c.JobIn(store.InFlight).Lease()
	c.NAck(released, store.Release, 0, "")
	older := c.ClaimOne().Lease()
	older.Token--
	held := c.JobIn(store.InFlight).Lease()
	for _, k := range []struct {
		what string
		call func(store.Writer) error
		want error
	}{
		{"Ack of a cancelled job", ack(cancelled), store.ErrStaleLease},
		{"Ack under an older token", ack(older), store.ErrStaleLease},
		{"Release under an older token", nack(older, store.Release, 0), store.ErrStaleLease},
		{"Fail of a cancelled job", nack(cancelled, store.Fail, 0), store.ErrStaleLease},
		{"Ack once more", ack(acked), store.ErrAlreadyFinished},
		{"Never once more", nack(dead, store.Never, 0), store.ErrAlreadyFinished},
		{"After where it was Never", nack(dead, store.After, time.Second), store.ErrAlreadyFinished},
		{"Ack of a deleted job", ack(gone), store.ErrNotFound},
		{"Snooze of a deleted job", nack(gone, store.Snooze, 0), store.ErrNotFound},
		{"an unknown form", nack(held, "lose", 0), store.ErrInvalid},
		{"a delay below zero", nack(held, store.After, -time.Second), store.ErrInvalid},
		{"a delay with Release", nack(held, store.Release, time.Second), store.ErrInvalid},
		{"a result that is no JSON", func(w store.Writer) error {
			_, err := w.Ack(c.Ctx, []store.Ack{{Lease: held, Result: []byte(`{`)}})
			return err
		}, store.ErrInvalid},
	} {
		c.changesNothing(k.what+" in a transaction", func() {
			c.inTx(func(t *txCase) {
				c.ErrorIs(k.call(t.w), k.want, "%s in a transaction", k.what)
				t.rollback()
			})
		})
	}
	c.Equal(c.Ack(held).Status, store.StatusOK, "Ack of the job that was still held")
}

// It is ErrStaleLease by the words of that error and ErrAlreadyFinished by those of InTx: never a silent success.
func txFinishedInAnotherWayIsAnError(c *C) {
	l := c.JobIn(store.Succeeded).Lease()
	c.changesNothing("NAck after Ack in a transaction", func() {
		c.inTx(func(t *txCase) {
			_, err := t.w.NAck(c.Ctx, []store.NAck{{Lease: l, Form: store.Never}})
			c.True(errors.Is(err, store.ErrStaleLease) || errors.Is(err, store.ErrAlreadyFinished), "NAck after Ack: got error %v", err)
			t.rollback()
		})
		c.inTx(func(t *txCase) {
			_, err := t.w.Ack(c.Ctx, []store.Ack{{Lease: l}, {Lease: l}})
			c.ErrorIs(err, store.ErrAlreadyFinished, "Ack once more")
			t.rollback()
		})
	})
}

func txOneBadItemFailsAll(c *C) {
	good, stale := c.JobIn(store.InFlight).Lease(), c.JobIn(store.InFlight).Lease()
	stale.Token--
	c.changesNothing("calls with one bad item", func() {
		for _, acks := range [][]store.Ack{
			{{Lease: good}, {Lease: stale}}, {{Lease: stale}, {Lease: good}},
		} {
			c.inTx(func(t *txCase) {
				outcomes, err := t.w.Ack(c.Ctx, acks)
				c.ErrorIs(err, store.ErrStaleLease, "Ack with one stale lease")
				c.Equal(outcomes, []store.Outcome{}, "outcomes that come with the error")
				t.rollback()
			})
		}
		c.inTx(func(t *txCase) {
			_, err := t.w.Ack(c.Ctx, []store.Ack{{Lease: good}, {Lease: good}})
			c.ErrorIs(err, store.ErrAlreadyFinished, "Ack of one job twice in a call")
			t.rollback()
		})
	})
	c.Equal(c.Ack(good).Status, store.StatusOK, "Ack of the good one after all that")
}

func txInvalidItemIsNamed(c *C) {
	c.EnqueueN(2)
	held := c.Claim(2)
	good, bad := held[0].Lease(), held[1].Lease()
	for what, call := range map[string]func(w store.Writer) error{
		"Ack with a result that is no JSON": func(w store.Writer) error {
			_, err := w.Ack(c.Ctx, []store.Ack{{Lease: good}, {Lease: bad, Result: []byte(`{`)}})
			return err
		},
		"Ack with a result that is too long": func(w store.Writer) error {
			long := []byte(`"` + strings.Repeat("x", store.MaxDocBytes-1) + `"`)
			_, err := w.Ack(c.Ctx, []store.Ack{{Lease: good}, {Lease: bad, Result: long}})
			return err
		},
		"NAck in an unknown form": func(w store.Writer) error {
			_, err := w.NAck(c.Ctx, []store.NAck{{Lease: good, Form: store.Fail}, {Lease: bad, Form: "lose"}})
			return err
		},
		"NAck with a delay below zero": func(w store.Writer) error {
			_, err := w.NAck(c.Ctx, []store.NAck{{Lease: good, Form: store.Fail}, {Lease: bad, Form: store.After, Delay: -time.Second}})
			return err
		},
	} {
		c.changesNothing(what+" in a transaction", func() {
			c.inTx(func(t *txCase) {
				err := call(t.w)
				var invalid *store.InvalidError
				c.True(errors.As(err, &invalid) && invalid.Item == 1, "the error of %s names item 1: %v", what, err)
				t.rollback()
			})
		})
	}
}

// What is kept is what is kept outside: see Finish/ErrorsAreMendedAndCut for every way to mend and cut.
func txErrorsAreMended(c *C) {
	longest := strings.Repeat("x", store.MaxErrorBytes)
	for text, want := range map[string]string{
		"a\x00b": "a\uFFFDb", "a\xffb": "a\uFFFDb", longest: longest, longest + "x": store.CleanError(longest + "x"),
	} {
		for _, form := range []store.Form{store.Fail, store.Never, store.After} {
			before := c.JobIn(store.InFlight)
			n := store.NAck{Lease: before.Lease(), Form: form, Error: text}
			if form == store.After {
				n.Delay = time.Hour // so that nobody claims it here
			}
			c.inTx(func(t *txCase) {
				_, err := t.w.NAck(c.Ctx, []store.NAck{n})
				c.OK(err, "NAck %s in a transaction with the error %.20q", form, text)
				t.commit()
			})
			failed := before.Failed(n.Failure(), c.Now())
			failed.Error = want
			attempt := before.History[0]
			attempt.EndedAt, attempt.Ending, attempt.Error = c.Now(), store.EndFailed, want
			c.Equal(c.Get(before.ID), store.JobDetail{Job: failed, History: []store.Attempt{attempt}}, "the job after NAck %s with the error %.20q", form, text)
			c.Cancel(before.ID)
		}
	}
}
