package conformance

import (
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// saveEndings end an attempt in every way there is.
func saveEndings(c *C) map[string]func(l store.Lease) {
	ends := map[string]func(l store.Lease){
		"expiry": func(store.Lease) { c.Advance(ttl); c.Recover(store.MaxItems) },
		"cancel": func(l store.Lease) { c.Cancel(l.ID) },
		"an Ack whose result is refused": func(l store.Lease) {
			c.One(c.Store.Ack(c.Ctx, []store.Ack{{Lease: l, Result: []byte("{")}}))
		},
	}
	for _, op := range finishOps {
		ends[string(op)] = func(l store.Lease) { underLease(c, op, l) }
	}
	return ends
}

func saveSurvivesEndings(c *C) {
	for name, end := range saveEndings(c) {
		before := holding(c, name, 1)[0]
		end(before.Lease())
		got := c.Get(before.ID)
		c.True(got.State != store.InFlight, "the attempt is ended by %s", name)
		c.Equal([]string{string(got.Checkpoint), string(got.Progress)}, []string{`"kept"`, `"seen"`}, "checkpoint and progress after %s", name)
	}
}

// saveReachesTheNextAttempt requeues what is terminal; only what has succeeded begins anew.
func saveReachesTheNextAttempt(c *C) {
	for name, end := range saveEndings(c) {
		before := holding(c, name, 1)[0]
		end(before.Lease())
		want := []string{`"kept"`, `"seen"`}
		if d := c.Get(before.ID); d.Terminal() {
			c.Requeue(before.ID)
			if d.State == store.Succeeded {
				want = []string{"", ""}
			}
		}
		c.Advance(time.Hour)
		next := c.ClaimBy(store.ClaimRequest{Queue: name, Limit: 1, Worker: worker, TTL: ttl})
		c.Equal(ids(next), []int64{before.ID}, "claimed after %s", name)
		for _, j := range next {
			c.Equal([]string{string(j.Checkpoint), string(j.Progress)}, want, "checkpoint and progress of the attempt after %s", name)
			c.Ack(j.Lease())
		}
	}
}
