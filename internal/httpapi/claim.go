package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// Defaults and limits of a claim.
const (
	defaultLease = 30 * time.Second
	maxWait      = time.Minute
	maxQueues    = 100
)

// claim claims jobs for the client. If the client asks for that, it waits for the first job. If the client has left, it gives
// the jobs back.
func (a *API) claim(w *exchange, r *http.Request) error {
	req, err := decode[wire.Claim](w, r)
	if err != nil {
		return err
	}
	asked, err := a.asked(req)
	if err == nil {
		err = w.bearer.needs("queues", asked.queues...)
	}
	if err != nil {
		return err
	}
	done, err := a.lasting()
	if err != nil {
		return err
	}
	defer done()
	if asked.wait > 0 {
		a.unhurried(w)
	}
	jobs, err := a.await(w, r, asked)
	if err != nil {
		return err
	}
	return a.deliver(w, r, jobs)
}

// deliver sends the jobs to the client, or gives them back if it can not.
func (a *API) deliver(w *exchange, r *http.Request, jobs []wire.Job) error {
	text, jobs, err := a.fitting(w, r, jobs)
	if err != nil {
		return err
	}
	err = r.Context().Err() // only the context tells that the client has left: writing to the connection still succeeds
	if err == nil {
		err = a.send(w, http.StatusOK, wire.JSON, text)
		if err == nil && len(jobs) > 0 {
			if flushed := http.NewResponseController(w).Flush(); flushed != nil {
				err = &unsent{flushed}
			}
		}
	}
	if err != nil {
		_ = a.giveBack(r, jobs) // the client has left, so nobody can get the error
		return &unsent{err}
	}
	return nil
}

// fitting encodes as many of the jobs as there is memory for, and gives the others back. If none fits, it returns the error,
// which says that nothing was applied. If some jobs could not be given back, the claim is in doubt.
func (a *API) fitting(w *exchange, r *http.Request, jobs []wire.Job) ([]byte, []wire.Job, error) {
	var kept error
	for {
		text, err := w.encode(wire.Jobs{Jobs: jobs})
		if err == nil {
			return text, jobs, nil
		}
		half := len(jobs) / 2
		kept = cmp.Or(kept, a.giveBack(r, jobs[half:]))
		switch jobs = jobs[:half]; {
		case half > 0:
		case kept != nil:
			return nil, nil, fmt.Errorf("%w: the jobs of a claim that there is no room to answer: %v", store.ErrInDoubt, kept) //nolint:errorlint // the error of another call
		default:
			return nil, nil, err
		}
	}
}

// giveBack releases jobs that the client did not get. If that fails, they return when their leases expire.
func (a *API) giveBack(r *http.Request, jobs []wire.Job) error {
	if len(jobs) == 0 {
		return nil
	}
	releases := wire.Releases{Jobs: wire.Each(jobs, func(j wire.Job) wire.Lease { return wire.Lease{ID: j.ID, Token: j.Token} })}
	ctx, cancel := a.within(context.WithoutCancel(r.Context()))
	defer cancel()
	_, err := a.release(ctx, releases)
	if err != nil {
		a.log.Warn("jq: jobs that were claimed for nobody return when their leases end", "jobs", len(jobs), "error", err)
	}
	return err
}

// A claim is a request for jobs, with defaults filled in.
type claim struct {
	queues []string
	each   store.ClaimRequest // the request for one queue, with the limit and the quota of the whole claim
	shared bool               // the server chooses the retry quota
	wait   time.Duration
}

func (a *API) asked(req wire.Claim) (claim, error) {
	c := claim{
		queues: req.Queues, wait: time.Duration(req.Wait), shared: req.RetryQuota == nil,
		each: store.ClaimRequest{
			Limit: limitOr(req.Limit, 1), RetryQuota: limitOr(req.RetryQuota, 0), Worker: req.Worker, TTL: time.Duration(req.Lease),
		},
	}
	if len(c.queues) == 0 {
		c.queues = []string{a.defaults.Queue}
	}
	fill(&c.each.TTL, defaultLease)
	switch {
	case len(c.queues) > maxQueues:
		return c, refuse("queues", fmt.Sprintf("must be at most %d", maxQueues))
	case c.wait < 0 || c.wait > maxWait:
		return c, refuse("wait", fmt.Sprintf("must be 0 to %v", maxWait))
	}
	for i, queue := range c.queues {
		if slices.Contains(c.queues[:i], queue) {
			return c, refuse("queues", "must have each queue once")
		}
		c.each.Queue = queue
		if err := c.each.Check(); err != nil {
			return c, named(err, "queue", "queues")
		}
	}
	return c, nil
}

// await claims jobs. If there are none, it waits for them as long as the client asked for.
func (a *API) await(w *exchange, r *http.Request, c claim) ([]wire.Job, error) {
	if err := w.expect(&w.own.claimed, c.each.Limit); err != nil {
		return nil, err
	}
	if c.wait == 0 {
		return a.take(r.Context(), w, c)
	}
	me := a.waiters.join(c.queues) // join before the first claim, so that no wake-up is missed after it
	defer a.waiters.leave(me)
	jobs, err := a.take(r.Context(), w, c)
	if err != nil || len(jobs) > 0 {
		return jobs, err
	}
	late := a.clock.Timer(c.wait) // start the timer before the claim counts as waiting
	defer late.Stop()
	leave, ok := w.enter(func(s *share) room { return s.polls })
	if !ok {
		return nil, noRoom
	}
	defer leave()
	w.end() // the decoded request is small
	return a.sleep(r.Context(), w, c, me, late)
}

func (a *API) sleep(ctx context.Context, w *exchange, c claim, me *waiter, late *clock.Timer) ([]wire.Job, error) {
	none := []wire.Job{} // encoded as an empty list
	for {
		select {
		case <-w.revoked():
			return nil, w.refusal()
		case <-ctx.Done():
			return none, nil
		case <-a.life.Done():
			return none, nil
		case <-late.C:
			return none, nil
		case queue := <-me.woken:
			if ctx.Err() != nil {
				a.waiters.tell(queue)
				return none, nil
			}
			if err := cmp.Or(w.refusal(), w.expect(&w.own.claimed, c.each.Limit)); err != nil {
				a.waiters.tell(queue)
				return nil, err
			}
			jobs, err := a.take(ctx, w, c)
			if len(jobs) > 0 || errors.Is(err, busy) || cmp.Or(w.refusal(), ctx.Err()) != nil {
				a.waiters.tell(queue) // there may be more jobs, or this claim has not asked for them
			}
			if err != nil || len(jobs) > 0 {
				return jobs, err
			}
			w.end()
		}
	}
}

// take waits for the turn of the claim, and claims. If the API is closed before, it takes nothing.
func (a *API) take(ctx context.Context, w *exchange, c claim) ([]wire.Job, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.life, cancel)()
	begun := false
	jobs, err := paced(ctx, a, w, func() ([]wire.Job, error) {
		if err := cmp.Or(w.refusal(), gaveUp(ctx)); err != nil {
			return nil, err
		}
		begun = true
		return a.takeNow(c)
	})
	if !begun && a.life.Err() != nil {
		return []wire.Job{}, nil
	}
	return jobs, err
}

// takeNow claims from the queues until it has enough jobs, or enough bytes for an answer. Each call begins with another queue.
// An error after jobs were claimed is only logged. The store call does not end with the client's context: if the client
// leaves in the middle, the API must know which jobs to give back.
func (a *API) takeNow(c claim) ([]wire.Job, error) {
	jobs := []wire.Job{}
	events := []Event{}
	weight := 0
	for i, first := 0, a.turns.next(c.queues); i < len(c.queues) && len(jobs) < c.each.Limit && weight < store.MaxAnswerBytes; i++ {
		req := c.each
		req.Queue = c.queues[(first+i)%len(c.queues)]
		req.Limit -= len(jobs)
		begun := a.clock.Now()
		claimed, err := a.fetch(req, c.shared)
		if err != nil && len(jobs) == 0 {
			return nil, err
		}
		if err != nil {
			a.log.Warn("jq: a claim of several queues goes without one", "queue", req.Queue, "error", err)
			break
		}
		a.countClaimed(req.Queue, claimed)
		remaining := a.remaining(begun, req.TTL)
		for _, j := range claimed {
			weight += j.Weight()
			out := wire.JobOf(j)
			out.LeaseRemaining = remaining
			jobs, events = append(jobs, out), append(events, Event{Job: out.ID, Queue: j.Queue, Event: WasClaimed})
		}
	}
	a.Publish(events...)
	return jobs, nil
}

func (a *API) fetch(req store.ClaimRequest, shared bool) ([]store.Job, error) {
	var p portion
	if shared {
		p = a.lanes.take(req.Queue, req.Limit)
		req.RetryQuota = p.quota
	} else {
		req.RetryQuota = min(req.RetryQuota, req.Limit)
	}
	ctx, cancel := a.within(context.Background())
	defer cancel()
	jobs, err := a.store.FetchAndClaim(ctx, req)
	if shared {
		a.lanes.took(req.Queue, req.Limit, len(jobs), p)
	}
	return jobs, err
}

// turns chooses the queue that a claim of several queues begins with.
type turns struct {
	seed   maphash.Seed
	mu     sync.Mutex     // guards begins
	begins map[uint64]int // by a hash of the names, which can be long; after a collision two lists take turns together
}

func (t *turns) next(queues []string) int {
	if len(queues) == 1 {
		return 0
	}
	key := maphash.String(t.seed, strings.Join(queues, "\x00"))
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.begins == nil || len(t.begins) >= maxLanes {
		t.begins = map[uint64]int{}
	}
	begin := t.begins[key] % len(queues)
	t.begins[key] = begin + 1
	return begin
}
