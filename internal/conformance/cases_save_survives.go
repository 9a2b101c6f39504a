package conformance

import (
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
