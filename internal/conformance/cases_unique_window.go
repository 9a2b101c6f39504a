package conformance

import (
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

func uniqueWindowOutlives(c *C) {
	for what, end := range keyEndings {
		id := c.free(keyed(what, 100*time.Hour), "the first job")
		c.held(keyed(what, time.Hour), id, store.Ready, "within the window, ready")
		held := c.ClaimOne()
		c.held(keyed(what, time.Hour), id, store.InFlight, "within the window, in flight")
		end(c, held)
		var state store.State
		if what != "deleted" {
			state = c.Get(id).State
		}
		c.held(keyed(what, time.Hour), id, state, "within the window, %s", what)
		c.Advance(90 * time.Hour)
		c.held(keyed(what, 0), id, state, "within the window, %s long ago", what)
		c.Advance(10 * time.Hour)
		c.Cancel(c.free(keyed(what, 0), "the window of a job has ended that was %s", what))
	}
}

func uniqueWindowIsExact(c *C) {
	id := c.free(keyed("key", time.Minute), "the first job")
	c.Ack(c.ClaimOne().Lease())
	c.Advance(time.Minute - store.Resolution)
	c.held(keyed("key", time.Minute), id, store.Succeeded, "one tick before the end of the window")
	c.Advance(store.Resolution)
	c.free(keyed("key", time.Minute), "at the end of the window")

	short := c.free(keyed("short", store.Resolution), "a window of one tick")
	c.held(keyed("short", 0), short, store.Ready, "at once")
	c.Advance(store.Resolution)
	c.free(keyed("short", 0), "a tick later")
}

func uniqueWindowSlides(c *C) {
	first := c.free(keyed("key", time.Hour), "the first job")
	for range 3 {
		c.Advance(15 * time.Minute)
		c.held(keyed("key", 10*time.Hour), first, store.Ready, "which does not prolong the window")
	}
	c.Advance(15 * time.Minute)
	second := c.free(keyed("key", time.Hour), "an hour after the first job")
	c.Advance(time.Hour - store.Resolution)
	c.held(keyed("key", time.Hour), second, store.Ready, "within the window of the second job")
	c.Advance(store.Resolution)
	c.free(keyed("key", time.Hour), "an hour after the second job")
}

func uniqueScopesShareTheKey(c *C) {
	live := c.free(keyed("key", 0), "a job that holds it while live")
	c.Advance(time.Hour)
	c.held(keyed("key", time.Minute), live, store.Ready, "by a live job, asked for a window")
	c.Ack(c.ClaimOne().Lease())
	windowed := c.free(keyed("key", time.Minute), "the live job has ended")
	c.held(keyed("key", 0), windowed, store.Ready, "by a window")
	c.Ack(c.ClaimOne().Lease())
	c.held(keyed("key", 0), windowed, store.Succeeded, "by a window whose job has ended")
	c.Advance(time.Minute)
	c.free(keyed("key", 0), "the window has ended")
}
