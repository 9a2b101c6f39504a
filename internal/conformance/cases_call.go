package conformance

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var callCases = []Case{
	{"Call/WithoutItemsDoesNothing", "A call without items does nothing.", callWithoutItems},
	{"Call/ThousandItemsAndNoMore", sentenceCallLimit, callThousandItems},
	{"Call/EightMebibytesAndNoMore", sentenceCallLimit, callEightMebibytes},
	{"Call/RequestsBeyondALimitAreRefused", "ErrInvalid: the request breaks a limit and nothing was applied.", callBeyondALimit},
}

// someLeases are n leases: the first is the one that is held, the others are of no job.
func someLeases(held store.Lease, n int) []store.Lease {
	leases := []store.Lease{held}
	for i := range n {
		leases = append(leases, notThere(i))
	}
	return leases[:n]
}

// callOf makes the call with n items, the first under the lease; op is any under a lease, and empty for Enqueue.
func (c *C) callOf(op store.Op, held store.Lease, n int) (answers int, err error) {
	if op == "" {
		answers, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: slices.Repeat([]store.NewJob{plain()}, n)})
		return len(answers), err
	}
	outcomes, err := tryUnderLeases(c, op, someLeases(held, n)...)
	return len(outcomes), err
}

func callWithoutItems(c *C) {
	held := holding(c, queue, 1)[0]
	for _, op := range append([]store.Op{""}, leaseOps...) {
		answers, err := c.callOf(op, held.Lease(), 0)
		c.OK(err, "a call without items: %s", op)
		c.Equal(answers, 0, "how many answers a call without items has: %s", op)
		c.Equal(c.everything(), []store.JobDetail{held}, "all jobs after a call without items: %s", op)
	}
}

func callThousandItems(c *C) {
	for _, op := range append([]store.Op{""}, leaseOps...) {
		before := holding(c, "q"+string(op), 1)[0]
		was := c.countOf(store.Filter{Queue: queue})
		_, err := c.callOf(op, before.Lease(), store.MaxItems+1)
		c.ErrorIs(err, store.ErrInvalid, "a call with 1,001 items: %s", op)
		c.Equal(c.Get(before.ID), before, "the job of the first of 1,001 items: %s", op)
		c.Equal(c.countOf(store.Filter{Queue: queue}), was, "how many jobs there are after a call with 1,001 items: %s", op)

		answers, err := c.callOf(op, before.Lease(), store.MaxItems)
		c.OK(err, "a call with 1,000 items: %s", op)
		c.Equal(answers, store.MaxItems, "how many answers a call with 1,000 items has: %s", op)
		if op != "" {
			c.Equal(c.Get(before.ID), becomes(op, before, c.Now()), "the job of the first of 1,000 items: %s", op)
		}
	}
}

// callEightMebibytes counts what is kept: an error once it is mended and cut, and no result that is refused. What counts of a new
// job has a case of its own, Enqueue/EightMebibytesAndNoMore.
func callEightMebibytes(c *C) {
	const mebi, texts = store.MaxDocBytes, store.MaxCallBytes / store.MaxErrorBytes
	var held store.Lease
	number := func(bytesLong int) []byte { return bytes.Repeat([]byte("1"), bytesLong) }
	save := func(sizes ...int) ([]store.Outcome, error) {
		saves := make([]store.Save, len(sizes))
		for i, l := range someLeases(held, len(sizes)) {
			saves[i] = store.Save{Lease: l, Seq: 1, Checkpoint: number(sizes[i] / 2), Progress: number(sizes[i] - sizes[i]/2)}
		}
		return c.Store.Save(c.Ctx, saves)
	}
	ack := func(sizes ...int) ([]store.Outcome, error) {
		acks := make([]store.Ack, len(sizes))
		for i, l := range someLeases(held, len(sizes)) {
			acks[i] = store.Ack{Lease: l, Result: number(sizes[i])}
		}
		return c.Store.Ack(c.Ctx, acks)
	}
	nack := func(n int, reason string) ([]store.Outcome, error) {
		nacks := make([]store.NAck, n)
		for i, l := range someLeases(held, n) {
			nacks[i] = store.NAck{Lease: l, Form: store.Fail, Error: reason}
		}
		return c.Store.NAck(c.Ctx, nacks)
	}
	long, broken := strings.Repeat("x", store.MaxErrorBytes), strings.Repeat("a\xff", store.MaxErrorBytes/4)
	eight := slices.Repeat([]int{mebi}, 8)
	for what, beyond := range map[string]func() ([]store.Outcome, error){
		"Save with a byte more":             func() ([]store.Outcome, error) { return save(2*mebi, 2*mebi, 2*mebi, 2*mebi, 1) },
		"Ack with a byte more":              func() ([]store.Outcome, error) { return ack(append(eight, 1)...) },
		"NAck with an error more":           func() ([]store.Outcome, error) { return nack(texts+1, long) },
		"NAck with more once it was mended": func() ([]store.Outcome, error) { return nack(texts+1, broken) },
	} {
		before := holding(c, what, 1)[0]
		held = before.Lease()
		_, err := beyond()
		c.ErrorIs(err, store.ErrInvalid, "8 MiB: %s", what)
		c.Equal(c.Get(before.ID), before, "the job, after %s", what)
	}
	for what, exact := range map[string]func() ([]store.Outcome, error){
		"Save": func() ([]store.Outcome, error) { return save(2*mebi, 2*mebi, 2*mebi, 2*mebi) },
		"Ack with a result more, that is refused": func() ([]store.Outcome, error) { return ack(append(eight, mebi+1)...) },
		"NAck with errors that are cut":           func() ([]store.Outcome, error) { return nack(texts, long+"cut") },
	} {
		held = holding(c, what, 1)[0].Lease()
		outcomes, err := exact()
		c.OK(err, "8 MiB: %s", what)
		c.Equal(statuses(outcomes)[:2], []store.Status{store.StatusOK, store.StatusNotFound}, "8 MiB: the first outcomes of %s", what)
	}
}

// callBeyondALimit has a job for each call: one to claim, one whose lease has expired, and one that has expired itself.
func callBeyondALimit(c *C) {
	claim := func(change func(*store.ClaimRequest)) func() error {
		return func() error {
			req := claimOf(1)
			change(&req)
			_, err := c.Store.FetchAndClaim(c.Ctx, req)
			return err
		}
	}
	recovering := func(limit int, grace time.Duration) func() error {
		return func() error {
			_, err := c.Store.RecoverExpiredLeases(c.Ctx, store.RecoverRequest{Limit: limit, Grace: grace})
			return err
		}
	}
	type wrong struct {
		field string
		call  func() error
	}
	list := []wrong{
		{"queue", claim(func(r *store.ClaimRequest) { r.Queue = "" })},
		{"worker", claim(func(r *store.ClaimRequest) { r.Worker = "" })},
		{"retry_quota", claim(func(r *store.ClaimRequest) { r.RetryQuota = -1 })},
		{"retry_quota", claim(func(r *store.ClaimRequest) { r.RetryQuota = 2 })},
		{"grace", recovering(1, -1)},
		{"grace", recovering(1, store.MaxDuration+1)},
	}
	for _, ttl := range []time.Duration{0, store.Resolution - 1, -ttl, time.Hour + 1, store.MaxDuration + 1} {
		list = append(list, wrong{"ttl", claim(func(r *store.ClaimRequest) { r.TTL = ttl })})
	}
	for _, limit := range []int{0, -1, store.MaxItems + 1} {
		settle := func() error { _, err := c.Store.Settle(c.Ctx, limit); return err }
		list = append(list, wrong{"limit", claim(func(r *store.ClaimRequest) { r.Limit = limit })}, wrong{"limit", recovering(limit, 0)}, wrong{"limit", settle})
	}
	for _, name := range wrongNames {
		list = append(list, wrong{"queue", claim(func(r *store.ClaimRequest) { r.Queue = name })}, wrong{"worker", claim(func(r *store.ClaimRequest) { r.Worker = name })})
	}
	c.JobIn(store.InFlight)
	c.Enqueue(c.expiring(time.Second))
	c.Advance(time.Hour)
	c.EnqueueOne()
	c.changesNothing("calls beyond their limits", func() {
		for i, k := range list {
			c.refused(k.call(), -1, k.field, fmt.Sprintf("call %d, whose %s is wrong", i, k.field))
		}
	})
	req := claimOf(store.MaxItems)
	req.RetryQuota, req.TTL = store.MaxItems, store.Resolution
	counts := []int{len(c.ClaimBy(req)), len(c.Recover(store.MaxItems)), len(c.Settle(store.MaxItems))}
	c.Equal(counts, []int{1, 1, 1}, "how many jobs calls at their limits take")
}
