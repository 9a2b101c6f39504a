// Package conformance is the executable contract: cases that each quote one sentence of package store and check it on any
// adapter, driven by a fake clock.
//
// A case is a function over [C], which is a testing.TB: that of a test, so that a finding shows the case's own line, or that of a
// command, which keeps what was found.
// Each case has a fresh store; after each, an audit checks what must hold of every store at every time.
package conformance

import (
	"context"
	"database/sql"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/store"
)

// An Adapter is a kind of store, as the suite sees it.
type Adapter struct {
	// New makes an empty store that takes its time from clk.
	New func(ctx context.Context, clk clock.Clock) (*Instance, error)

	// Exclude names cases, or groups of cases as "Tx/", that do not hold for this adapter, each with the reason. What is
	// not named here must pass: a missing ability is no excuse. If a group is excluded, cases of other groups leave out the steps that need it.
	Exclude map[string]string

	// AnyOrder is the reason why jobs may be told of several ends in another order than that of the ends, which decides what their errors
	// name. If it is set, random sequences leave out waits, because the reference model tells them in one order.
	AnyOrder string
}

// An Instance is one store under test.
type Instance struct {
	// Store is empty, and takes its time from the clock that New was given.
	Store store.Store

	// DB opens callers' transactions for a store that is a Transactor.
	DB *sql.DB

	// Reopen closes the store and opens it again on what it has kept; nil for a store that keeps nothing.
	Reopen func(ctx context.Context) (store.Store, error)

	// Remove closes the store and takes away what it has kept; nil if Store.Close does.
	Remove func() error
}

// A Case checks one sentence of the contract.
type Case struct {
	Name     string // a claim: Claim/ExpiredLeaseIsOffered
	Sentence string // word by word as it stands in package store; several stand on a line each
	Run      func(c *C)
}

// A Group is the cases of one topic.
type Group struct {
	Name  string // the first part of the names of its cases
	About string
	Cases []Case
}

// Groups returns the whole suite in the order in which to make a new adapter pass: each group needs only what the groups before
// it are about. The first case of a group is the simplest.
func Groups() []Group {
	return []Group{
		{"Enqueue", "jobs are added, all or none, and kept as they were given", enqueueCases},
		{"Claim", "which jobs a claim takes, in which order, and what becomes of them", claimCases},
		{"Finish", "Ack and NAck end a lease, once", finishCases},
		{"Retry", "backoff, the limit of retries, and the forms of NAck", retryCases},
		{"Extend", "a heartbeat prolongs a lease in force, and revives nothing", extendCases},
		{"Recover", "expired leases end, and their jobs are tried again", recoverCases},
		{"Stale", "a lease that was lost writes nothing", staleCases},
		{"Matrix", "every operation in every phase", matrixCases},
		{"Save", "checkpoints and progress", saveCases},
		{"History", "every attempt can be read back", historyCases},
		{"Call", "what holds for every call that takes items", callCases},
		{"Time", "one clock, to the microsecond, that never goes back by little", timeCases},
		{"Ahead", "jobs and leases written by a clock that was ahead", recoverAheadCases},
		{"Unique", "one job holds a unique key", uniqueCases},
		{"RequestKey", "an Enqueue that can be repeated", requestKeyCases},
		{"Inspect", "Get, List and Count", inspectCases},
		{"Cancel", "live jobs are ended from outside", cancelCases},
		{"Requeue", "jobs that have ended run again", requeueCases},
		{"Settle", "jobs that have expired are cancelled", settleCases},
		{"Waits", "jobs wait for other jobs", waitCases},
		{"Groups", "jobs wait for groups of jobs", groupCases},
		{"Reschedule", "jobs that wait get another due time", rescheduleCases},
		{"Delete", "jobs that have ended are removed", deleteCases},
		{"Queue", "queues are listed and paused", queueCases},
		{"Policy", "what a queue keeps for how long", policyCases},
		{"Limits", "how many jobs of a queue, and of a limit key, are in flight at once, how many are claimed in a span of time, how limit keys take turns, and in which order their jobs are claimed", slices.Concat(limitCases, rateCases, limitKeyCases, keyLimitCases, lateKeyCases, fairCases, orderedCases)},
		{"Registry", "the list of workers", registryCases},
		{"Schedule", "schedules are kept, and enqueue each time once", scheduleCases},
		{"Monitor", "what probes and metrics ask", monitorCases},
		{"Activity", "what servers did, minute by minute", activityCases},
		{"Fence", "a store restored from a backup", fenceCases},
		{"Reopen", "what a store keeps when it is closed", reopenCases},
		{"Fault", "what an error says about the call, and how to repeat it", faultCases},
		{"Tx", "writes in a caller's transaction", txCases},
		{"Notify", "wake-ups", notifyCases},
	}
}

// Cases returns every case, in the order of [Groups].
func Cases() []Case {
	var all []Case
	for _, g := range Groups() {
		all = append(all, g.Cases...)
	}
	return all
}

// A Result is what a case came to.
type Result struct {
	Failed   bool
	Hung     bool     // it failed because it did not end
	Excluded string   // the adapter's reason for not running it
	Log      []string // what was found, a line each
	Took     time.Duration
}

// patience is how long a case may take in real time before it counts as hung.
const patience = 3 * time.Minute

// Run runs one case on a fresh store of the adapter, outside go test.
func Run(ctx context.Context, a Adapter, k Case) Result {
	if reason, ok := a.Excludes(k.Name); ok {
		return Result{Excluded: reason}
	}
	started, r := time.Now(), &record{}
	hung := prove(ctx, r, a, k)
	return Result{Failed: r.Failed(), Hung: hung, Log: r.lines(), Took: time.Since(started)}
}

// Test runs one case on a fresh store of the adapter in a test.
func Test(t *testing.T, a Adapter, k Case) {
	t.Helper()
	if reason, ok := a.Excludes(k.Name); ok {
		t.Skipf("excluded by the adapter: %s", reason)
	}
	prove(t.Context(), t, a, k)
}

// prove runs the case and says whether it hung: whether it did not end before patience did.
func prove(ctx context.Context, tb testing.TB, a Adapter, k Case) (hung bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c := &C{TB: tb, Ctx: ctx, Clock: clock.NewMock()}
	c.Clock.Set(epoch)

	done := make(chan struct{})
	go func() {
		defer close(done)
		c.run(a, k)
	}()
	select {
	case <-done:
		hung = ctx.Err() != nil
	case <-ctx.Done():
		hung = true
		select { // the context's end should have freed whatever waited for the store
		case <-done:
		case <-time.After(patience / 10):
			tb.Errorf("did not end, nor when its context did:\n%s", stacks())
		}
	}
	if hung && !tb.Failed() {
		tb.Errorf("ended only with its context: %v", context.Cause(ctx))
	}
	if tb.Failed() {
		tb.Logf("the case begins at %s", k.place())
		tb.Logf("the contract says: %q", k.Sentence)
		c.calls.Show(tb)
	}
	return hung
}

// Excludes gives the adapter's reason for leaving the case out.
func (a Adapter) Excludes(name string) (reason string, ok bool) {
	for pattern, reason := range a.Exclude {
		if pattern == name || strings.HasSuffix(pattern, "/") && strings.HasPrefix(name, pattern) {
			return reason, true
		}
	}
	return "", false
}

// run is the life of a case: it must end by itself or by a failed check.
func (c *C) run(a Adapter, k Case) {
	instance, err := a.New(c.Ctx, c.Clock)
	if err != nil {
		c.Errorf("opening a fresh store: %v", err)
		return
	}
	c.instance = instance
	_, c.noWaits = a.Excludes("Waits/")
	_, c.noKeyLimits = a.Excludes(NoKeyLimits)
	c.use(instance.Store)
	defer c.remove()
	defer c.catch()
	k.Run(c)
	if !c.Failed() {
		c.audit()
	}
}

func (c *C) remove() {
	defer c.catch() // a store that the case has broken may break here once more
	remove := c.instance.Remove
	if remove == nil {
		remove = c.Store.Close
	}
	if err := remove(); err != nil {
		c.Errorf("removing the store: %v", err)
	}
}

func stacks() string {
	buf := make([]byte, 64<<10)
	return string(buf[:runtime.Stack(buf, true)])
}

// CheckExclusions refuses exclusions that name no case, or give no reason.
func (a Adapter) CheckExclusions() error {
	for pattern, reason := range a.Exclude {
		if reason == "" {
			return fmt.Errorf("the exclusion of %s gives no reason", pattern)
		}
		one := Adapter{Exclude: map[string]string{pattern: reason}}
		if !slices.ContainsFunc(Cases(), func(k Case) bool { _, ok := one.Excludes(k.Name); return ok }) {
			return fmt.Errorf("the exclusion of %s names no case", pattern)
		}
	}
	return nil
}
