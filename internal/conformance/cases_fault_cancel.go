package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	hastyCallers = 6
	hastyRounds  = 15
	mostTurns    = 30
)

// hastily calls under a context that is cancelled after some turns of the scheduler: before, during or after the call.
func (c *C) hastily(turns int, call func(ctx context.Context) error) error {
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
	if err != nil {
		c.ErrorIs(err, context.Canceled, "a call whose context was cancelled")
		c.True(errors.Is(err, store.ErrUnavailable) != errors.Is(err, store.ErrInDoubt), "it is either unavailable or in doubt: %v", err)
	}
	return err
}

// hastyEnqueues lets many callers enqueue three jobs at a time, hastily, and returns what each call came to, by the kind
// of its jobs.
func (c *C) hastyEnqueues() map[string]error {
	var mu sync.Mutex
	answers := map[string]error{}
	c.Parallel(hastyCallers, func(i int) {
		turns := rand.New(rand.NewPCG(uint64(i), 71))
		for n := range hastyRounds {
			kind := fmt.Sprintf("%d.%d", i, n)
			job := plainBut(func(n *store.NewJob) { n.Kind = kind })
			err := c.hastily(turns.IntN(mostTurns), func(ctx context.Context) error {
				_, err := c.Store.Enqueue(ctx, store.EnqueueRequest{Jobs: []store.NewJob{job, job, job}})
				return err
			})
			mu.Lock()
			answers[kind] = err
			mu.Unlock()
		}
	})
	return answers
}

func (c *C) jobsByKind() map[string]int {
	kinds := map[string]int{}
	for _, j := range c.All() {
		kinds[j.Kind]++
	}
	return kinds
}

func faultUnavailableMeansNotApplied(c *C) {
	answers := c.hastyEnqueues()
	kinds := c.jobsByKind()
	for kind, err := range answers {
		switch {
		case err == nil:
			c.Equal(kinds[kind], 3, "jobs of a call that was answered")
		case errors.Is(err, store.ErrUnavailable):
			c.Equal(kinds[kind], 0, "jobs of a call that was unavailable: %v", err)
		}
	}
}

func faultInDoubtMeansAllOrNothing(c *C) {
	answers := c.hastyEnqueues()
	for kind, n := range c.jobsByKind() {
		c.True(n == 0 || n == 3, "%d of the 3 jobs of one call are there; its error was: %v", n, answers[kind])
	}
}

func faultEveryErrorIsOneOfTheContract(c *C) {
	ended, cancel := context.WithCancel(c.Ctx)
	cancel()
	enqueue := func(ctx context.Context, jobs ...store.NewJob) error {
		_, err := c.Store.Enqueue(ctx, store.EnqueueRequest{Jobs: jobs})
		return err
	}
	found := map[string]error{
		"an invalid job":   enqueue(c.Ctx, store.NewJob{}),
		"an ended context": enqueue(ended, plain()),
	}
	c.OK(c.Store.Close(), "Close")
	found["a closed store"] = enqueue(c.Ctx, plain())
	want := map[string]error{
		"an invalid job": store.ErrInvalid, "an ended context": store.ErrUnavailable, "a closed store": store.ErrClosed,
	}
	for what, err := range found {
		for _, kind := range []error{store.ErrInvalid, store.ErrClosed, store.ErrUnavailable, store.ErrInDoubt} {
			c.Equal(errors.Is(err, kind), errors.Is(want[what], kind), "the error of %s (%v) is %v", what, err, kind)
		}
	}
}

// Half of the callers are hasty; the patient ones must not notice.
func faultCancelledCallsSpoilNoOther(c *C) {
	c.EnqueueN(100)
	acked := make([][]int64, hastyCallers)
	c.Parallel(hastyCallers, func(i int) {
		turns := rand.New(rand.NewPCG(uint64(i), 72))
		patient := i%2 == 0
		do := func(call func(ctx context.Context) error) bool {
			if !patient {
				return c.hastily(turns.IntN(mostTurns), call) == nil
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
	var outcomes []store.Outcome
	for _, call := range []func(ctx context.Context) error{
		func(ctx context.Context) (err error) {
			outcomes, err = c.Store.Extend(ctx, []store.Lease{l}, ttl)
			return err
		},
		func(ctx context.Context) (err error) {
			outcomes, err = c.Store.Ack(ctx, []store.Ack{{Lease: l}})
			return err
		},
	} {
		if !do(call) {
			return nil
		}
		c.Equal(statuses(outcomes), []store.Status{store.StatusOK}, "outcomes under a lease that nobody else has")
	}
	return []int64{l.ID}
}

// hastyClaims lets many callers claim hastily, and returns the leases that reached one, and whether a claim was in doubt.
func (c *C) hastyClaims() (delivered map[store.Lease]bool, doubt bool) {
	c.EnqueueN(200)
	delivered = map[store.Lease]bool{}
	var mu sync.Mutex
	c.Parallel(hastyCallers, func(i int) {
		turns := rand.New(rand.NewPCG(uint64(i), 15))
		for range hastyRounds {
			var jobs []store.Job
			err := c.hastily(turns.IntN(mostTurns), func(ctx context.Context) (err error) {
				jobs, err = c.Store.FetchAndClaim(ctx, claimOf(2))
				return err
			})
			mu.Lock()
			doubt = doubt || errors.Is(err, store.ErrInDoubt)
			for _, j := range jobs {
				c.True(err == nil && !delivered[j.Lease()], "the lease %+v is handed out once, and not with an error: %v", j.Lease(), err)
				delivered[j.Lease()] = true
			}
			mu.Unlock()
		}
	})
	return delivered, doubt
}

func faultUndeliveredClaimIsReleased(c *C) {
	delivered, doubt := c.hastyClaims()
	held := map[store.Lease]bool{}
	for _, j := range c.List(store.Filter{States: []store.State{store.InFlight}}, 100) {
		held[j.Lease()] = true
		c.True(delivered[j.Lease()] || doubt, "job %d is in flight, although no claim that was in doubt can have taken it", j.ID)
	}
	for l := range delivered {
		c.True(held[l], "the lease %+v, which reached its caller, is in force", l)
	}
}

func faultCancelledClaimersHideNoJob(c *C) {
	_, _ = c.hastyClaims()
	c.Advance(time.Second)
	waiting := ids(c.List(store.Filter{States: []store.State{store.Ready}}, 100))
	claimed := ids(c.Claim(store.MaxItems))
	slices.Sort(waiting)
	slices.Sort(claimed)
	c.Equal(claimed, waiting, "claimed a second after claims that were cancelled")

	c.Advance(ttl)
	c.Equal(len(c.Recover(store.MaxItems)), 200, "recovered when all leases have expired")
	c.Advance(time.Minute)
	c.Equal(len(c.Claim(store.MaxItems)), 200, "claimed after the backoff")
}
