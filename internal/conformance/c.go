package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/seed-ed332417/jq/internal/conformance/watch"
	"github.com/seed-ed332417/jq/internal/store"
)

// epoch is when every case begins: a time with microseconds, far from zero.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 123_456_000, time.UTC)

// What cases use unless they care.
const (
	queue  = "q"
	worker = "w"
	ttl    = 30 * time.Second
)

// C is a running case: where it reports, its store, and its clock. Fatalf, and every helper that calls it, ends the goroutine it is
// called from, so a case that starts goroutines does so by Parallel.
type C struct {
	testing.TB
	Ctx   context.Context
	Store store.Store // its calls are kept for the log; for its abilities see ability
	Clock *clock.Mock

	instance *Instance
	calls    watch.Log
	noWaits  bool // the adapter keeps no waits

	noKeyLimits bool // the adapter limits nothing by limit keys
}

// phases are those that a job can have in the store.
func (c *C) phases() []store.State {
	return slices.DeleteFunc(slices.Clone(store.Phases), func(p store.State) bool { return p == store.Blocked && c.noWaits })
}

// use goes on with the store.
func (c *C) use(s store.Store) {
	c.instance.Store = s
	c.Store = c.calls.Watch(s)
}

// ability is what the store can do beyond the core.
func ability[A any](c *C) A {
	c.Helper()
	able, ok := c.instance.Store.(A)
	if !ok {
		c.Fatalf("the store is no %s: exclude the case with a reason", strings.TrimPrefix(fmt.Sprintf("%T", (*A)(nil)), "*"))
	}
	return able
}

// alike is how values are compared: nil and empty are one, and documents are compared whole, for some are of a megabyte.
var alike = cmp.Options{
	cmpopts.EquateEmpty(),
	cmp.FilterValues(func(x, y []byte) bool { return len(x)+len(y) > 0 }, cmp.Comparer(bytes.Equal)),
}

// Equal checks that got is want; what says of what, with its input.
func (c *C) Equal(got, want any, what string, args ...any) {
	c.Helper()
	if !cmp.Equal(want, got, alike) {
		c.Errorf("%s: got %s, want %s; %s", fmt.Sprintf(what, args...), watch.Short(got), watch.Short(want), difference(got, want))
	}
}

// difference shows where two values differ, unless nobody would read it.
func difference(got, want any) string {
	diff := cmp.Diff(want, got, alike)
	if len(diff) > 64<<10 {
		return "the difference is too long to show"
	}
	return "difference (-want +got):\n" + diff
}

// True checks a condition.
func (c *C) True(ok bool, what string, args ...any) {
	c.Helper()
	if !ok {
		c.Errorf("not true: %s", fmt.Sprintf(what, args...))
	}
}

// OK ends the case unless err is nil.
func (c *C) OK(err error, what string, args ...any) {
	c.Helper()
	if err != nil {
		c.Fatalf("%s: %v", fmt.Sprintf(what, args...), err)
	}
}

// kinds are the errors of the contract, of which an error is at most one.
var kinds = []error{store.ErrInvalid, store.ErrClosed, store.ErrUnavailable, store.ErrDenied, store.ErrInDoubt}

// ErrorIs checks that err is of the kind wanted, and of no other kind.
func (c *C) ErrorIs(err, want error, what string, args ...any) {
	c.Helper()
	if !errors.Is(err, want) {
		c.Errorf("%s: got error %v, want one that is %v", fmt.Sprintf(what, args...), err, want)
	}
	for _, other := range kinds {
		if slices.Contains(kinds, want) && !errors.Is(want, other) && errors.Is(err, other) {
			c.Errorf("%s: got error %v, which is %v too", fmt.Sprintf(what, args...), err, other)
		}
	}
}

// Parallel runs f(0) to f(n−1) at once and waits for all of them. A failed check in one ends the case after the others.
func (c *C) Parallel(n int, f func(i int)) {
	var started, done sync.WaitGroup
	started.Add(n)
	for i := range n {
		done.Go(func() {
			defer c.catch()
			started.Done()
			started.Wait()
			f(i)
		})
	}
	done.Wait()
	if c.Failed() {
		runtime.Goexit()
	}
}

// catch makes a finding of a panic, which would end the whole run.
func (c *C) catch() {
	if p := recover(); p != nil {
		c.Errorf("panic: %v\n%s", p, stacks())
	}
}

// Now is the store's now, as far as the fake clock tells it.
func (c *C) Now() time.Time { return store.Truncate(c.Clock.Now()) }

// Advance moves the clock.
func (c *C) Advance(d time.Duration) { c.Clock.Add(d) }

// A job with the values that a case does not care about: no jitter, so that delays are plain.
func plain() store.NewJob {
	return store.NewJob{
		Queue: queue, Kind: "k", Payload: []byte(`{}`), MaxRetries: 3,
		Backoff: store.Backoff{Base: time.Second, Cap: time.Minute},
	}
}

// plainBut is plain with something changed.
func plainBut(change func(*store.NewJob)) store.NewJob {
	n := plain()
	change(&n)
	return n
}

// Enqueue adds jobs and returns their ids.
func (c *C) Enqueue(jobs ...store.NewJob) []int64 {
	c.Helper()
	return each(c.answers(jobs...), func(a store.Enqueued) int64 { return a.ID })
}

// EnqueueOne adds a plain job and returns its id.
func (c *C) EnqueueOne() int64 {
	c.Helper()
	return c.Enqueue(plain())[0]
}

// EnqueueN adds n plain jobs and returns their ids.
func (c *C) EnqueueN(n int) []int64 {
	c.Helper()
	var ids []int64
	for ; n > 0; n -= store.MaxItems {
		ids = append(ids, c.Enqueue(slices.Repeat([]store.NewJob{plain()}, min(n, store.MaxItems))...)...)
	}
	return ids
}

// claimOf is the request that cases use unless they care.
func claimOf(limit int) store.ClaimRequest {
	return store.ClaimRequest{Queue: queue, Limit: limit, Worker: worker, TTL: ttl}
}

// Claim claims up to limit jobs of the queue, with no retry quota.
func (c *C) Claim(limit int) []store.Job {
	c.Helper()
	return c.ClaimBy(claimOf(limit))
}

// ClaimBy claims as the request says.
func (c *C) ClaimBy(req store.ClaimRequest) []store.Job {
	c.Helper()
	jobs, err := c.Store.FetchAndClaim(c.Ctx, req)
	c.OK(err, "FetchAndClaim %+v", req)
	return jobs
}

// ClaimOne claims one job, and ends the case if there is none.
func (c *C) ClaimOne() store.Job {
	c.Helper()
	jobs := c.Claim(1)
	if len(jobs) != 1 {
		c.Fatalf("FetchAndClaim with limit 1: got %d jobs, want 1", len(jobs))
	}
	return jobs[0]
}

// ClaimAnew ends the lease by expiry, and claims the job once more after its backoff.
func (c *C) ClaimAnew(lost store.Job) store.Job {
	c.Helper()
	c.Advance(ttl)
	c.Recover(store.MaxItems)
	c.Advance(time.Hour)
	jobs := c.Claim(store.MaxItems)
	at := slices.Index(ids(jobs), lost.ID)
	if at < 0 {
		c.Fatalf("job %d was not claimable an hour after its lease was recovered", lost.ID)
	}
	return jobs[at]
}

// Recover ends up to limit expired leases.
func (c *C) Recover(limit int) []store.Recovered {
	c.Helper()
	recovered, err := c.Store.RecoverExpiredLeases(c.Ctx, store.RecoverRequest{Limit: limit})
	c.OK(err, "RecoverExpiredLeases with limit %d", limit)
	return recovered
}

// Get returns the job with its history.
func (c *C) Get(id int64) store.JobDetail {
	c.Helper()
	detail, err := c.Store.Get(c.Ctx, id)
	c.OK(err, "Get %d", id)
	return detail
}

// All returns every job, the newest first.
func (c *C) All() []store.Job {
	c.Helper()
	return c.List(store.Filter{}, 100)
}

// page is one page of the jobs that match.
func (c *C) page(filter store.Filter, page store.Page) store.JobPage {
	c.Helper()
	part, err := c.Store.List(c.Ctx, filter, page)
	c.OK(err, "List %+v, page %+v", filter, page)
	return part
}

// List returns every job that matches, read in pages of the size.
func (c *C) List(filter store.Filter, size int) []store.Job {
	c.Helper()
	var jobs []store.Job
	for page := (store.Page{Limit: size}); ; {
		part := c.page(filter, page)
		if len(jobs) > 0 && len(part.Jobs) > 0 && part.Jobs[0].ID >= jobs[len(jobs)-1].ID {
			c.Fatalf("List %+v: a page begins with job %d, and the one before ended with %d", filter, part.Jobs[0].ID, jobs[len(jobs)-1].ID)
		}
		jobs = append(jobs, part.Jobs...)
		if part.Next == "" {
			return jobs
		}
		page.Cursor = part.Next
	}
}

// count is what Count answers.
func (c *C) count(filter store.Filter) store.Counts {
	c.Helper()
	counts, err := c.Store.Count(c.Ctx, filter)
	c.OK(err, "Count %+v", filter)
	return counts
}

// One returns the only outcome of a call on one item.
func (c *C) One(outcomes []store.Outcome, err error) store.Outcome {
	c.Helper()
	c.OK(err, "a call on one item")
	if len(outcomes) != 1 {
		c.Fatalf("a call on one item: got %d outcomes: %+v", len(outcomes), outcomes)
	}
	return outcomes[0]
}

// Ack finishes under the lease.
func (c *C) Ack(l store.Lease) store.Outcome {
	c.Helper()
	return c.One(c.Store.Ack(c.Ctx, []store.Ack{{Lease: l}}))
}

// NAck ends the lease in the form.
func (c *C) NAck(l store.Lease, form store.Form, delay time.Duration, reason string) store.Outcome {
	c.Helper()
	return c.One(c.Store.NAck(c.Ctx, []store.NAck{{Lease: l, Form: form, Delay: delay, Error: reason}}))
}

// Extend extends the lease by the usual time.
func (c *C) Extend(l store.Lease) store.Outcome {
	c.Helper()
	return c.One(c.Store.Extend(c.Ctx, []store.Lease{l}, ttl))
}

// SaveCheckpoint keeps a checkpoint under the lease.
func (c *C) SaveCheckpoint(l store.Lease, seq int64, doc string) store.Outcome {
	c.Helper()
	return c.One(c.Store.Save(c.Ctx, []store.Save{{Lease: l, Seq: seq, Checkpoint: []byte(doc)}}))
}

// Cancel cancels one job by its id.
func (c *C) Cancel(id int64) store.Outcome {
	c.Helper()
	return c.One(c.Store.Cancel(c.Ctx, only(id), 1))
}

// Requeue requeues one job by its id.
func (c *C) Requeue(id int64) store.Outcome {
	c.Helper()
	return c.One(c.Store.Requeue(c.Ctx, only(id), 1))
}

// Reschedule makes one job due at the time, by its id.
func (c *C) Reschedule(id int64, at time.Time) store.Outcome {
	c.Helper()
	return c.One(c.Store.Reschedule(c.Ctx, only(id), at, 1))
}

// Delete deletes one job by its id.
func (c *C) Delete(id int64) store.Outcome {
	c.Helper()
	return c.One(c.Store.Delete(c.Ctx, only(id), 1))
}

func only(ids ...int64) store.Filter { return store.Filter{IDs: ids} }

// statuses are the statuses of the outcomes, in order.
func statuses(outcomes []store.Outcome) []store.Status {
	return each(outcomes, func(o store.Outcome) store.Status { return o.Status })
}

// ids are the ids of the jobs, in order.
func ids(jobs []store.Job) []int64 {
	return each(jobs, func(j store.Job) int64 { return j.ID })
}

// JobIn brings a new job of the queue into the phase and returns it as it then is. Other jobs of the queue must not be
// claimable.
func (c *C) JobIn(phase store.State) store.JobDetail {
	c.Helper()
	var after []store.Wait
	if phase == store.Blocked {
		after = []store.Wait{{ID: c.Enqueue(plainBut(func(n *store.NewJob) { n.Queue = "parents" }))[0]}}
	}
	id := c.Enqueue(plainBut(func(n *store.NewJob) { n.After = after }))[0]
	switch phase {
	case store.Cancelled:
		c.Cancel(id)
	case store.InFlight:
		c.ClaimOne()
	case store.Retrying:
		c.NAck(c.ClaimOne().Lease(), store.Fail, 0, "boom")
	case store.Dead:
		c.NAck(c.ClaimOne().Lease(), store.Never, 0, "boom")
	case store.Succeeded:
		c.Ack(c.ClaimOne().Lease())
	}
	detail := c.Get(id)
	if detail.ID != id || detail.Phase() != phase {
		c.Fatalf("bringing a job to %s: got job %d in %s", phase, detail.ID, detail.Phase())
	}
	return detail
}
