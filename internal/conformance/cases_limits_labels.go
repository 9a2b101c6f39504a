package conformance

import (
	"context"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// These cases hold for a store that does not limit jobs by their keys too: it keeps the keys as labels.
var limitKeyCases = []Case{
	{"Limits/KeyIsKept", "LimitKey returns what the job counts for under a limit for each key, such as a customer, or \"\" if it has none.", limitKeyIsKept},
	{"Limits/KeyChoosesJobs", "List returns the jobs that match, the newest first: in descending order of id.\nCount counts the jobs that match, by queue and phase.\nFilter, limit and order work as in Cancel.", limitKeyChoosesJobs},
	{"Limits/KeyHasBounds", "Queue, kind, group, limit key, unique key, request key, tag and worker are 1 to 255 bytes of valid UTF-8 without NUL; trace and host may also be empty.", limitKeyHasBounds},
}

// limitKeyIsKept takes a job through its life: no operation changes its limit key.
func limitKeyIsKept(c *C) {
	for _, key := range strangeNames {
		id := c.enqueueOf(key)[0]
		c.Equal(c.Get(id).LimitKey(), key, "the limit key of a new job")
		c.Equal(c.List(only(id), 1)[0].LimitKey(), key, "the limit key of a job that is listed")
		c.Equal(c.ClaimOne().LimitKey(), key, "the limit key of a job that is claimed")
		c.Cancel(id)
	}
	c.Equal(c.Get(c.EnqueueOne()).LimitKey(), "", "the limit key of a job without one")
	c.Cancel(c.ClaimOne().ID)

	n := ofKey("a")
	n.UniqueKey, n.ExpiresAt, n.MaxRetries = "unique", c.Now().Add(24*time.Hour), 1000
	id := c.Enqueue(n)[0]
	keeps := func(what string) {
		c.Helper()
		c.Equal(c.Get(id).LimitKey(), "a", "the limit key after %s", what)
	}
	for _, op := range finishOps {
		c.Reschedule(id, time.Time{})
		keeps("Reschedule")
		l := c.ClaimOne().Lease()
		c.SaveCheckpoint(l, 1, "1")
		c.Extend(l)
		underLease(c, op, l)
		keeps(string(op))
		if c.Get(id).Terminal() {
			c.Requeue(id)
			keeps("Requeue")
		}
	}
	n.Replace, n.ExpiresAt, n.RunAt = true, time.Time{}, c.Now()
	c.Equal(c.answers(n)[0].Replaced, true, "whether the job was replaced")
	keeps("Replace")
	c.ClaimOne()
	c.Advance(ttl)
	c.Recover(10)
	keeps("a recovery")
	c.Cancel(id)
	keeps("Cancel")
	c.Requeue(id)
	keeps("Requeue of a cancelled job")
	c.Advance(time.Hour)
	c.Equal(c.ClaimOne().LimitKey(), "a", "the limit key of a job that is claimed at last")
}

func limitKeyChoosesJobs(c *C) {
	list := c.enqueueOf("a", "b", "a", "", "A", "a", "ab", "a ")
	ofA := []int64{list[5], list[2], list[0]}
	filter := store.Filter{LimitKey: "a"}
	c.Equal(ids(c.List(filter, 10)), ofA, "jobs with a limit key")
	c.Equal(ids(c.List(filter, 2)), ofA, "the same in pages of two")
	c.Equal(ids(c.List(store.Filter{LimitKey: "a", After: list[0]}, 10)), ofA[:2], "those with a greater id")
	c.Equal(ids(c.List(store.Filter{LimitKey: "a", IDs: list[1:3]}, 10)), ofA[1:2], "those among some")
	c.Equal(ids(c.List(store.Filter{LimitKey: "a", Queue: "another"}, 10)), []int64{}, "those in another queue")
	c.Equal(ids(c.List(store.Filter{LimitKey: "c"}, 10)), []int64{}, "jobs with a limit key that none has")
	c.Equal(c.countOf(filter), map[string]int64{queue + " ready": 3}, "how many jobs have a limit key")
	part := c.page(filter, store.Page{Limit: 1})
	_, err := c.Store.List(c.Ctx, store.Filter{LimitKey: "b"}, store.Page{Limit: 1, Cursor: part.Next})
	c.refused(err, -1, "cursor", "the cursor of a filter with another limit key")

	c.Equal(statuses(rescheduling.on(c, filter, 2)), []store.Status{store.StatusOK, store.StatusOK}, "the outcomes of Reschedule by a limit key")
	for _, b := range []bulk{cancelling, requeueing, cancelling, deleting} {
		first := b.on(c, filter, 2)
		c.Equal(each(first, func(o store.Outcome) int64 { return o.ID }), []int64{list[0], list[2]}, "the first jobs of %s by a limit key", b.op)
		rest := b.on(c, store.Filter{LimitKey: "a", After: list[2]}, 10)
		c.Equal(each(rest, func(o store.Outcome) int64 { return o.ID }), []int64{list[5]}, "the other jobs of %s by a limit key", b.op)
	}
	c.Equal(ids(c.All()), []int64{list[7], list[6], list[4], list[3], list[1]}, "jobs when those with the limit key are deleted")
	c.Equal(statuses(cancelling.on(c, store.Filter{LimitKey: "b", IDs: list[:2]}, 1)), []store.Status{store.StatusNotFound, store.StatusOK}, "the outcomes of Cancel by ids and a limit key")
}

func limitKeyHasBounds(c *C) {
	for what, name := range wrongNames {
		_, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{plain(), ofKey(name)}})
		c.refused(err, 1, "limit_key", "a limit key of "+what)
		for call, try := range map[string]func(context.Context, store.Filter) error{
			"List": func(ctx context.Context, f store.Filter) error {
				_, err := c.Store.List(ctx, f, store.Page{Limit: 1})
				return err
			},
			"Count":  func(ctx context.Context, f store.Filter) error { _, err := c.Store.Count(ctx, f); return err },
			"Cancel": func(ctx context.Context, f store.Filter) error { _, err := c.Store.Cancel(ctx, f, 1); return err },
		} {
			c.refused(try(c.Ctx, store.Filter{LimitKey: name}), -1, "limit_key", call+" by a limit key of "+what)
		}
	}
	c.Equal(c.howMany(), 0, "jobs after the refused calls")
	longest := strings.Repeat("x", store.MaxNameBytes)
	id := c.enqueueOf(longest)[0]
	c.Equal(ids(c.List(store.Filter{LimitKey: longest}, 10)), []int64{id}, "jobs with the longest limit key")
}
