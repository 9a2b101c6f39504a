package conformance

import (
	"cmp"
	"slices"
	"sync"

	"github.com/seed-ed332417/jq/internal/store"
)

func recoverersShare(c *C) {
	const leases = 100
	enqueued := c.EnqueueN(leases)
	held := map[int64]store.JobDetail{}
	for _, j := range c.Claim(leases) {
		held[j.ID] = c.Get(j.ID)
	}
	c.Advance(ttl)
	var mu sync.Mutex
	var all []store.Recovered
	c.Parallel(8, func(int) {
		for range 5 {
			some := c.Recover(7)
			mu.Lock()
			all = append(all, some...)
			mu.Unlock()
		}
	})
	all = append(all, c.Recover(leases)...)

	slices.SortFunc(all, func(a, b store.Recovered) int { return cmp.Compare(a.ID, b.ID) })
	var want []store.Recovered
	for _, id := range enqueued {
		after := expired(held[id], c.Now())
		want = append(want, recoveredAs(after.Job))
		c.Equal(c.Get(id), after, "a job that was recovered among others")
	}
	c.Equal(all, want, "the answers of all recoverers together")
}

// recoverRacesHeartbeat has every lease either extended or recovered, and the row says the same as the answers.
func recoverRacesHeartbeat(c *C) {
	const leases = 40
	c.EnqueueN(leases)
	held := c.Claim(leases)
	if len(held) != leases {
		c.Fatalf("claimed %d of %d jobs", len(held), leases)
	}
	before := map[int64]store.JobDetail{}
	for _, j := range held {
		before[j.ID] = c.Get(j.ID)
	}
	c.Advance(ttl)
	extended := make([]store.Outcome, leases)
	recovered := make([][]store.Recovered, 4)
	c.Parallel(8, func(i int) {
		for n := i; i < 4 && n < leases; n += 4 {
			extended[n] = untilDecided(c, store.OpExtend, held[n].Lease())
		}
		for n := 0; i >= 4 && n < 5; n++ {
			recovered[i-4] = append(recovered[i-4], c.Recover(2)...)
		}
	})
	times := map[int64]int{}
	for _, r := range slices.Concat(recovered...) {
		times[r.ID]++
	}
	for n, j := range held {
		want := before[j.ID]
		switch status := extended[n].Status; status {
		case store.StatusOK:
			want.LeaseExpiresAt = c.Now().Add(ttl)
			c.Equal(times[j.ID], 0, "how often a job was recovered whose heartbeat was ok")
		case store.StatusStale:
			want = expired(want, c.Now())
			c.Equal(times[j.ID], 1, "how often a job was recovered whose heartbeat was stale")
		default:
			c.Errorf("a heartbeat against recovery: got %s, want ok or stale", status)
		}
		c.Equal(c.Get(j.ID), want, "a job whose heartbeat was %s", extended[n].Status)
	}
}
