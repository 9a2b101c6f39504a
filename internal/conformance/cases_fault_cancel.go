package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	hastyCallers = 6
	hastyRounds  = 15
	hastyLimit   = 2 // of each claim
	mostTurns    = 30
	mostLooks    = 24
)

// hastily makes the n-th of some calls under a context that ends before, during or after it: after some turns of the
// scheduler, or when the store looks at it once more.
func (c *C) hastily(n int, call func(ctx context.Context) error) error {
	var err error
	if n%2 == 0 {
		err = c.turning(n*7/2%mostTurns, call)
	} else {
		err = c.fickly(n/2%mostLooks, call)
	}
	if err != nil {
		c.ErrorIs(err, context.Canceled, "a call whose context was cancelled")
		c.True(errors.Is(err, store.ErrUnavailable) != errors.Is(err, store.ErrInDoubt), "it is either unavailable or in doubt: %v", err)
	}
	return err
}

// turning calls under a context that is cancelled after so many turns of the scheduler.
func (c *C) turning(turns int, call func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(c.Ctx)
	var canceller sync.WaitGroup
	canceller.Go(func() {
		for range turns {
			runtime.Gosched()
		}
		cancel()
	})
	err := call(ctx)
	canceller.Wait()
	return err
}

// enqueueing is what calls came to that each enqueue three jobs of a kind of their own.
type enqueueing struct {
	mu   sync.Mutex
	errs map[string]error
}

// call enqueues the three jobs of the n-th call of caller i.
func (e *enqueueing) call(c *C, i, n int) error {
	kind := fmt.Sprintf("%d.%d", i, n)
	job := plainBut(func(n *store.NewJob) { n.Kind = kind })
	_, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{job, job, job}})
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.errs == nil {
		e.errs = map[string]error{}
	}
	e.errs[kind] = err
	return err
}

// leaves checks that the jobs of each call are there as its error says.
func (e *enqueueing) leaves(c *C) {
	kinds := map[string]int{}
	for _, j := range c.All() {
		kinds[j.Kind]++
	}
	for kind, err := range e.errs {
		switch n := kinds[kind]; {
		case err == nil:
			c.Equal(n, 3, "jobs of a call that was answered")
		case errors.Is(err, store.ErrInDoubt):
			c.True(n == 0 || n == 3, "a call in doubt has left %d of its 3 jobs: %v", n, err)
		case errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrClosed):
			c.Equal(n, 0, "jobs of a call that was refused: %v", err)
		default:
			c.Errorf("a call that was disturbed: %v, want an error that says what is known", err)
		}
		delete(kinds, kind)
	}
	c.Equal(kinds, map[string]int{}, "jobs that no call has enqueued")
}

func faultUnavailableMeansNotApplied(c *C) {
	var calls enqueueing
	c.Parallel(hastyCallers, func(i int) {
		for n := range hastyRounds {
			_ = c.hastily(i*hastyRounds+n, func(ctx context.Context) error { return calls.call(c.under(ctx), i, n) })
		}
	})
	calls.leaves(c)
}

// Half of the callers are hasty; the patient ones must not notice.
func faultCancelledCallsSpoilNoOther(c *C) {
	c.EnqueueN(100)
	acked := make([][]int64, hastyCallers)
	c.Parallel(hastyCallers, func(i int) {
		patient := i%2 == 0
		calls := i
		do := func(call func(ctx context.Context) error) bool {
			if calls++; !patient {
				return c.hastily(calls, call) == nil
			}
			err := call(c.Ctx)
			if err != nil {
				c.Errorf("a patient caller got %v", err)
			}
			return err == nil
		}
		for range hastyRounds {
			acked[i] = append(acked[i], c.workOnce(do)...)
		}
	})
	for i, list := range acked {
		for _, id := range list {
			c.Equal(c.Get(id).Phase(), store.Succeeded, "job %d, which caller %d has acked", id, i)
		}
		c.True(i%2 == 1 || len(list) == hastyRounds, "patient caller %d has acked %d jobs", i, len(list))
	}
}

const busyTries = 100

// workOnce enqueues, claims, extends and acks one job each, and returns the id if all was answered.
func (c *C) workOnce(do func(call func(ctx context.Context) error) bool) []int64 {
	var jobs []store.Job
	do(func(ctx context.Context) error {
		_, err := c.Store.Enqueue(ctx, store.EnqueueRequest{Jobs: []store.NewJob{plain()}})
		return err
	})
	claimed := do(func(ctx context.Context) (err error) {
		jobs, err = c.Store.FetchAndClaim(ctx, claimOf(1))
		return err
	})
	if !claimed || len(jobs) == 0 {
		return nil
	}
	l := jobs[0].Lease()
	for _, op := range []store.Op{store.OpExtend, store.OpAck} {
		var outcomes []store.Outcome
		busy := true // for a moment, if a claim that began before this one has locked the job and found it taken
		for try := 0; busy && try < busyTries; try++ {
			if !do(func(ctx context.Context) (err error) {
				outcomes, err = tryOn(c.under(ctx), op, l)
				return err
			}) {
				return nil
			}
			busy = op == store.OpExtend && len(outcomes) == 1 && outcomes[0].Status == store.StatusBusy
		}
		c.Equal(statuses(outcomes), []store.Status{store.StatusOK}, "outcomes under a lease that nobody else has")
	}
	return []int64{l.ID}
}

// A hastyClaim is what a claim came to, whose worker nobody else is.
type hastyClaim struct {
	leases []store.Lease
	err    error
}

// Only a claim that was in doubt may have taken jobs that its caller does not know of. All others can be claimed a second later.
func faultUndeliveredClaimIsReleased(c *C) {
	const jobs = 200
	c.EnqueueN(jobs)
	claims := map[string]hastyClaim{}
	var mu sync.Mutex
	c.Parallel(hastyCallers, func(i int) {
		for n := range hastyRounds {
			req := claimOf(hastyLimit)
			req.Worker = fmt.Sprintf("%d.%d", i, n)
			var claim hastyClaim
			claim.err = c.hastily(i*hastyRounds+n, func(ctx context.Context) error {
				jobs, err := c.Store.FetchAndClaim(ctx, req)
				for _, j := range jobs {
					claim.leases = append(claim.leases, j.Lease())
				}
				return err
			})
			mu.Lock()
			claims[req.Worker] = claim
			mu.Unlock()
		}
	})
	held := map[string][]store.Lease{}
	handedOut := map[int64]string{}
	for _, j := range c.All() {
		if j.State == store.InFlight {
			held[j.Worker] = append(held[j.Worker], j.Lease())
			continue
		}
		c.True(j.Claimable(c.Now()), "job %d is claimable where no claim has it, and not %s", j.ID, j.Phase())
	}
	for who, claim := range claims {
		byID := func(a, b store.Lease) int { return int(a.ID - b.ID) }
		slices.SortFunc(claim.leases, byID)
		slices.SortFunc(held[who], byID)
		switch {
		case claim.err == nil:
			c.Equal(held[who], claim.leases, "the leases in force of a claim that was answered")
		case errors.Is(claim.err, store.ErrUnavailable):
			c.Equal(held[who], []store.Lease{}, "the leases in force of a claim that was unavailable: %v", claim.err)
		default:
			c.True(len(held[who]) <= hastyLimit, "a claim in doubt took %d jobs, and asked for %d", len(held[who]), hastyLimit)
		}
		c.True(claim.err == nil || len(claim.leases) == 0, "no jobs come with the error %v: %v", claim.err, claim.leases)
		for _, l := range claim.leases {
			c.Equal(handedOut[l.ID], "", "who else was given job %d", l.ID)
			handedOut[l.ID] = who
		}
		delete(held, who)
	}
	c.Equal(held, map[string][]store.Lease{}, "the leases of claims that nobody made")

	c.Advance(time.Second)
	waiting := len(c.List(store.Filter{States: []store.State{store.Ready}}, 100))
	c.Equal(len(c.Claim(store.MaxItems)), waiting, "claimed a second after claims that were cancelled")
	c.Advance(ttl)
	c.Equal(len(c.Recover(store.MaxItems)), jobs, "recovered when all leases have expired")
	c.Advance(time.Minute)
	c.Equal(len(c.Claim(store.MaxItems)), jobs, "claimed after the backoff")
}

// A fickle context ends when it has been looked at so many times: at an exact moment of the call that it is given to,
// which is the worst one for a store that looks once more when it has done its work.
type fickle struct {
	context.Context
	looks atomic.Int64 // how many are left
	end   context.CancelFunc
}

func (f *fickle) look() {
	if f.looks.Add(-1) < 0 {
		f.end()
	}
}

func (f *fickle) Done() <-chan struct{} {
	f.look()
	return f.Context.Done()
}

func (f *fickle) Err() error {
	f.look()
	return f.Context.Err()
}

// fickly calls under a context that ends at its look after so many others. A call that looks less often is not disturbed.
func (c *C) fickly(looks int, call func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(c.Ctx)
	defer cancel()
	f := &fickle{Context: ctx, end: cancel}
	f.looks.Store(int64(looks))
	return call(f)
}

const hastyWritesEach = 2 * mostLooks // of each operation

// A hastyWrite is one call that would change the one job it has.
type hastyWrite struct {
	op     store.Op
	before store.Job

	outcomes []store.Outcome
	err      error
}

func faultUnavailableWriteIsNotApplied(c *C) {
	var writes []*hastyWrite
	for _, op := range []store.Op{
		store.OpExtend, store.OpSave, store.OpAck, store.OpFail, store.OpCancel, store.OpRequeue, store.OpReschedule, store.OpDelete,
	} {
		ready := map[store.Op]store.Op{store.OpRequeue: store.OpAck, store.OpDelete: store.OpAck, store.OpReschedule: store.OpAfter}[op]
		for _, d := range holding(c, string(op), hastyWritesEach) {
			if ready != "" {
				underLease(c, ready, d.Lease())
			}
			writes = append(writes, &hastyWrite{op: op, before: c.Get(d.ID).Job})
		}
	}
	c.Advance(time.Second) // so that every change shows
	c.Parallel(hastyCallers, func(i int) {
		for n := i; n < len(writes); n += hastyCallers {
			w := writes[n]
			w.err = c.hastily(n%hastyWritesEach, func(ctx context.Context) (err error) {
				w.outcomes, err = tryOn(c.under(ctx), w.op, w.before.Lease())
				return err
			})
		}
	})
	rows := map[int64]store.Job{}
	for _, j := range c.All() {
		rows[j.ID] = j
	}
	for _, w := range writes {
		after := rows[w.before.ID]
		switch {
		case w.err == nil:
			c.Equal(c.One(w.outcomes, nil).Status, store.StatusOK, "the outcome of a %s that was answered", w.op)
			c.True(!cmp.Equal(after, w.before, alike), "a %s that was answered has changed the job", w.op)
		case errors.Is(w.err, store.ErrUnavailable):
			c.Equal(after, w.before, "the job after a %s that was unavailable: %v", w.op, w.err)
		}
	}
}
