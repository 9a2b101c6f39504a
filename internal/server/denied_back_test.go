package server

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// A worker that the store denies extends no lease, as in an outage: once it is permitted again, recovery gives live workers time to
// extend.
func TestTheLivingExtendAfterADenialToo(t *testing.T) {
	for range 20 { // servers are not in step
		inWorld(t, func(w *world) {
			w.handlers["job"] = work(10 * time.Minute)
			h := w.hook()
			a := w.start(Options{Name: "a"}, h)
			id := w.enqueue(1, "job")[0]
			w.wait(5 * time.Second)
			require.Equal(w, store.InFlight, w.job(id).State)
			b := w.start(Options{Name: "b"}, h)
			w.wait(5 * time.Second)
			h.every(func(context.Context, string) error { return errDenied })
			w.wait(3 * time.Minute)
			h.let()
			w.wait(15 * time.Minute)
			assert.Equal(w, 1, w.job(id).Attempts, "it was run once")
			w.stop(a)
			w.stop(b)
		})
	}
}
