package conformance

import (
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

func recoverThenAnotherWorker(c *C) {
	id := c.EnqueueOne()
	lost := c.ClaimBy(store.ClaimRequest{Queue: queue, Limit: 1, Worker: "crashes", TTL: ttl})[0]
	c.SaveCheckpoint(lost.Lease(), 1, `"half"`)
	c.Advance(ttl)
	c.Equal(len(c.Recover(10)), 1, "how many were recovered when the lease expired")
	c.Advance(time.Second - store.Resolution)
	c.Equal(ids(c.Claim(10)), []int64{}, "claimed one tick before the backoff is over")
	c.Advance(store.Resolution)
	next := c.ClaimBy(store.ClaimRequest{Queue: queue, Limit: 1, Worker: "finishes", TTL: ttl})
	if len(next) != 1 {
		c.Fatalf("the job was not claimable after its backoff")
	}
	c.Equal(string(next[0].Checkpoint), `"half"`, "what the first worker had saved")
	c.Equal(c.Ack(lost.Lease()).Status, store.StatusStale, "an Ack of the worker that crashed")
	c.Equal(c.Get(id).Job, next[0], "the job after a stale Ack")
	c.Equal(c.Ack(next[0].Lease()).Status, store.StatusOK, "an Ack of the worker that took over")

	want := next[0]
	want.State, want.LeaseExpiresAt, want.Error, want.FinishedAt = store.Succeeded, time.Time{}, "", c.Now()
	want.CheckpointSeq, want.ProgressSeq = c.Get(id).CheckpointSeq, c.Get(id).ProgressSeq
	c.Equal(c.Get(id).Job, want, "the finished job")
}
