package conformance

import (
	"github.com/seed-ed332417/jq/internal/store"
)

var cancelCases = append([]Case{
	{"Cancel/FencedNotStopped", "Cancel fences a job in flight but does not stop its handler. The worker learns of the cancellation at its next Extend, and until then the handler may run at the same time as a new job with the same unique key.", cancelFencedNotStopped},
}, cancelling.cases("Cancel")...)

func cancelFencedNotStopped(c *C) {
	first := c.Enqueue(keyed("key", 0))[0]
	running := c.ClaimOne()
	c.Cancel(first)
	second := c.free(keyed("key", 0), "its holder was cancelled")
	beside := c.ClaimOne()
	c.Equal(beside.ID, second, "the job that runs beside the cancelled one")
	c.Equal(c.Extend(running.Lease()).Status, store.StatusCancelled, "the next Extend of the cancelled one")
	c.Equal(c.Ack(beside.Lease()).Status, store.StatusOK, "Ack of the new one")
}
