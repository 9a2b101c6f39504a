package conformance

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

func txEnqueueKeepsItsPromises(c *C) {
	job := keyed("key", 0)
	twice := store.EnqueueRequest{Jobs: []store.NewJob{plain(), job}, RequestKey: "request"}
	c.inTx(func(t *txCase) {
		first := t.in.asked(twice)
		c.Equal(t.in.asked(twice), first, "the same request in one transaction")
		second := t.in.answers(job, plain())
		c.Equal(second[0], store.Enqueued{ID: first[1].ID, State: store.Ready, Duplicate: true}, "a duplicate in one transaction")
		c.True(first[0].ID < first[1].ID && first[1].ID < second[1].ID, "ids grow in the order of the items: %v, %v", first, second)
		t.commit()
	})
	c.Equal(len(c.All()), 3, "jobs after the commit")
	c.changesNothing("an invalid Enqueue in a transaction", func() {
		c.inTx(func(t *txCase) {
			_, err := t.in.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{plain(), plainBut(func(n *store.NewJob) { n.Kind = "" })}})
			c.refused(err, 1, "kind", "an invalid job in a transaction")
			t.rollback()
		})
	})
}

// The item that fails the call is alone in it, or beside a good one, which is not finished either. A job that was finished in another way is
// ErrStaleLease by the words of that error and ErrAlreadyFinished by those of InTx: never a silent success.
func txFinishIsStrict(c *C) {
	acked, dead, gone := c.JobIn(store.Succeeded).Lease(), c.JobIn(store.Dead).Lease(), c.JobIn(store.Succeeded).Lease()
	c.Delete(gone.ID)
	cancelled := c.JobIn(store.InFlight).Lease()
	c.Cancel(cancelled.ID)
	c.NAck(c.JobIn(store.InFlight).Lease(), store.Release, 0, "")
	older := c.ClaimOne().Lease()
	older.Token--
	held, good := c.JobIn(store.InFlight).Lease(), c.JobIn(store.InFlight).Lease()
	nack := func(l store.Lease, form store.Form, delay time.Duration) *store.NAck {
		return &store.NAck{Lease: l, Form: form, Delay: delay}
	}
	for _, k := range []struct {
		what string
		ack  *store.Ack
		nack *store.NAck
		want []error // one of them
	}{
		{"of a cancelled job", &store.Ack{Lease: cancelled}, nack(cancelled, store.Fail, 0), []error{store.ErrStaleLease}},
		{"under an older token", &store.Ack{Lease: older}, nack(older, store.Release, 0), []error{store.ErrStaleLease}},
		{"once more", &store.Ack{Lease: acked}, nack(dead, store.Never, 0), []error{store.ErrAlreadyFinished}},
		{"After where it was Never", nil, nack(dead, store.After, time.Second), []error{store.ErrAlreadyFinished}},
		{"of the same job twice", &store.Ack{Lease: good}, nack(good, store.Fail, 0), []error{store.ErrAlreadyFinished}},
		{"after Ack", nil, nack(acked, store.Never, 0), []error{store.ErrStaleLease, store.ErrAlreadyFinished}},
		{"of a deleted job", &store.Ack{Lease: gone}, nack(gone, store.Snooze, 0), []error{store.ErrNotFound}},
		{"in an unknown form", nil, nack(held, "lose", 0), []error{store.ErrInvalid}},
		{"with a delay below zero", nil, nack(held, store.After, -time.Second), []error{store.ErrInvalid}},
		{"Release with a delay", nil, nack(held, store.Release, time.Second), []error{store.ErrInvalid}},
		{"with a result that is no JSON", &store.Ack{Lease: held, Result: []byte(`{`)}, nil, []error{store.ErrInvalid}},
		{"with a result that is too long", &store.Ack{Lease: held, Result: docOf(store.MaxDocBytes + 1)}, nil, []error{store.ErrInvalid}},
	} {
		fails := func(at int, call string, finish func(w store.Writer) ([]store.Outcome, error)) {
			c.changesNothing(call+" "+k.what+" in a transaction", func() {
				c.inTx(func(t *txCase) {
					outcomes, err := finish(t.in.Store)
					c.Equal(outcomes, []store.Outcome{}, "the outcomes of %s %s", call, k.what)
					c.True(slices.ContainsFunc(k.want, func(kind error) bool { return errors.Is(err, kind) }), "%s %s: got error %v, want %v", call, k.what, err, k.want)
					var invalid *store.InvalidError
					c.True(!errors.Is(k.want[0], store.ErrInvalid) || errors.As(err, &invalid) && invalid.Item == at, "the error of %s %s names item %d: %v", call, k.what, at, err)
					t.rollback()
				})
			})
		}
		for _, items := range []struct{ n, at int }{{1, 0}, {2, 0}, {2, 1}} {
			if items.n == 1 && k.nack != nil && k.nack.Lease == good {
				continue // alone it would be finished
			}
			if k.ack != nil {
				acks := slices.Insert([]store.Ack{{Lease: good}}, items.at, *k.ack)[:items.n]
				fails(items.at, "Ack", func(w store.Writer) ([]store.Outcome, error) { return w.Ack(c.Ctx, acks) })
			}
			if k.nack != nil {
				nacks := slices.Insert([]store.NAck{{Lease: good, Form: store.Fail}}, items.at, *k.nack)[:items.n]
				fails(items.at, "NAck", func(w store.Writer) ([]store.Outcome, error) { return w.NAck(c.Ctx, nacks) })
			}
		}
	}
	c.Equal(c.Ack(held).Status, store.StatusOK, "Ack of a job that no call has finished")
	c.Equal(c.Ack(good).Status, store.StatusOK, "Ack of the good item of all calls")
}

// What is kept is what is kept outside: see Finish/ErrorsAreMendedAndCut for every way to mend and cut.
func txErrorsAreMended(c *C) {
	text := "a\x00b\xff" + strings.Repeat("x", store.MaxErrorBytes)
	for _, form := range []store.Form{store.Fail, store.Never, store.After} {
		held := c.JobIn(store.InFlight).Lease()
		c.inTx(func(t *txCase) {
			c.Equal(t.in.NAck(held, form, 0, text).Status, store.StatusOK, "NAck %s in a transaction", form)
			t.commit()
		})
		got := c.Get(held.ID)
		want := store.CleanError(text)
		c.Equal([]string{got.Error, got.History[0].Error}, []string{want, want}, "the error of the job and of its attempt, after %s", form)
		c.Cancel(held.ID)
	}
}
