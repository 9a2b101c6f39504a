package jq

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/await"
	"github.com/seed-ed332417/jq/internal/policy"
	"github.com/seed-ed332417/jq/internal/store"
)

// A Client enqueues jobs and manages them. It is safe for concurrent use, needs no Close, and needs no server in its process.
type Client struct {
	store      Store
	defaults   EnqueueOptions
	middleware []EnqueueMiddleware
}

// ClientOptions configures NewClient. Zero fields mean the default.
type ClientOptions struct {
	// Defaults apply to every job, unless the call or the payload's own [Defaulter] sets the option.
	Defaults EnqueueOptions
	// Middleware wraps every enqueueing. The first one is outermost.
	Middleware []EnqueueMiddleware
}

// An EnqueueFunc adds jobs to the store. An [EnqueueMiddleware] wraps it.
type EnqueueFunc func(ctx context.Context, req EnqueueRequest) ([]Enqueued, error)

// An EnqueueMiddleware wraps enqueueing. It may change the request, count it, or refuse it with an error. It must return an
// answer for each job of the request, in order.
type EnqueueMiddleware func(next EnqueueFunc) EnqueueFunc

type txKey struct{}

// InTx takes the context that a middleware gets, and reports whether the jobs are enqueued in a caller's transaction. If they
// are, a nil error does not mean that they were added: the end of the transaction decides that, and the middleware does not
// learn it.
func InTx(ctx context.Context) bool {
	in, _ := ctx.Value(txKey{}).(bool)
	return in
}

// inTx returns the context for middleware. The context of the caller may be that of another call's middleware.
func inTx(ctx context.Context, in bool) context.Context {
	if InTx(ctx) == in {
		return ctx
	}
	return context.WithValue(ctx, txKey{}, in)
}

// NewClient returns a client of the store. Options may be nil. It panics if the store or a middleware is nil.
func NewClient(s Store, options *ClientOptions) *Client {
	if s == nil {
		panic("jq: a client needs a store: open one first")
	}
	c := &Client{store: s}
	if options != nil {
		c.defaults, c.middleware = options.Defaults, slices.Clone(options.Middleware)
	}
	if slices.ContainsFunc(c.middleware, func(m EnqueueMiddleware) bool { return m == nil }) {
		panic("jq: ClientOptions.Middleware: a middleware is nil")
	}
	return c
}

// Enqueue adds a job. When it returns nil, the job is stored, as durably as its store keeps jobs. If another job holds the
// unique key, nothing is added: Duplicate is set, and ID is that of the other job. Options may be nil.
//
// After ErrUnavailable nothing was added. After ErrInDoubt the job may have been added. It is then safe to repeat the call if
// it has a RequestKey or a UniqueKey; without them a repeat may add the job twice.
func (c *Client) Enqueue(ctx context.Context, payload Payload, options *EnqueueOptions) (Enqueued, error) {
	return c.one(inTx(ctx, false), c.store, payload, options)
}

// EnqueueTx is Enqueue in the caller's own SQL transaction: the job exists once you commit, and never if you roll back.
// Anything but an open transaction, such as a *sql.DB, is refused with ErrInvalid.
//
// You commit, so you also handle a commit in doubt: after an error of Commit the transaction may have been committed. With
// synchronous replication of Postgres, even a Commit without an error can be lost in a failover, if its wait for the standby
// was broken off. Transactions of the store's DB, and those of postgres.ConfirmCommits, return ErrInDoubt in that case.
func (c *Client) EnqueueTx(ctx context.Context, tx Tx, payload Payload, options *EnqueueOptions) (Enqueued, error) {
	w, err := c.inTx(tx)
	if err != nil {
		return Enqueued{}, err
	}
	return c.one(inTx(ctx, true), w, payload, options)
}

// An Item is a job for [Client.EnqueueMany], or for a [Batch].
type Item struct {
	Payload Payload         // its kind selects the handler
	Options *EnqueueOptions // may be nil
}

// EnqueueManyOptions configures one call of EnqueueMany as a whole.
type EnqueueManyOptions struct {
	// RequestKey makes the call safe to repeat for a day.
	RequestKey string
	// Open are groups that the call opens, up to 100: what waits for one of them goes on after [Client.SealGroup] alone. A group can be
	// opened again.
	Open []string
}

func (o *EnqueueManyOptions) open() []string {
	if o == nil {
		return nil
	}
	return o.Open
}

func (o *EnqueueManyOptions) key() string {
	if o == nil {
		return ""
	}
	return o.RequestKey
}

// EnqueueMany adds up to 1,000 jobs, all or none of them, and answers in their order. If an item is refused, the [InvalidError]
// has its index. A duplicate is not an error: its answer has Duplicate set. Options may be nil.
func (c *Client) EnqueueMany(ctx context.Context, items []Item, options *EnqueueManyOptions) ([]Enqueued, error) {
	return c.many(inTx(ctx, false), c.store, items, options)
}

// EnqueueManyTx is EnqueueMany in the caller's own SQL transaction.
func (c *Client) EnqueueManyTx(ctx context.Context, tx Tx, items []Item, options *EnqueueManyOptions) ([]Enqueued, error) {
	w, err := c.inTx(tx)
	if err != nil {
		return nil, err
	}
	return c.many(inTx(ctx, true), w, items, options)
}

func (c *Client) inTx(tx Tx) (store.Writer, error) {
	transactor, ok := c.store.(store.Transactor)
	if !ok {
		return nil, missing("write in a caller's transaction")
	}
	return transactor.InTx(tx), nil
}

func (c *Client) one(ctx context.Context, w store.Writer, payload Payload, options *EnqueueOptions) (Enqueued, error) {
	var o EnqueueOptions
	if options != nil {
		o = *options
	}
	job, err := newJob(0, payload, o, c.defaults)
	if err != nil {
		return Enqueued{}, err
	}
	room := roomFor(1)
	(*room)[0] = job
	added, err := c.send(ctx, w, room, nil, o.RequestKey)
	if err != nil {
		return Enqueued{}, err
	}
	return added[0], nil
}

func (c *Client) many(ctx context.Context, w store.Writer, items []Item, options *EnqueueManyOptions) ([]Enqueued, error) {
	room, err := c.jobs(items)
	if err != nil {
		return nil, err
	}
	return c.send(ctx, w, room, options.open(), options.key())
}

// jobs returns the items as the store gets them.
func (c *Client) jobs(items []Item) (*[]NewJob, error) {
	room := roomFor(len(items))
	for i, item := range items {
		var o EnqueueOptions
		if item.Options != nil {
			o = *item.Options
		}
		if o.RequestKey != "" {
			return nil, &InvalidError{Item: i, Field: "request_key", Rule: "belongs to the call: set it in EnqueueManyOptions"}
		}
		job, err := newJob(i, item.Payload, o, c.defaults)
		if err != nil {
			return nil, err
		}
		(*room)[i] = job
	}
	return room, nil
}

// rooms has slices of jobs that a store has added. A store keeps nothing of a request, so the slices can be used again.
var rooms = sync.Pool{New: func() any { return new([]NewJob) }}

func roomFor(jobs int) *[]NewJob {
	room := rooms.Get().(*[]NewJob)
	*room = slices.Grow((*room)[:0], jobs)[:jobs]
	return room
}

// send adds the jobs. It takes over their room.
func (c *Client) send(ctx context.Context, w store.Writer, room *[]NewJob, open []string, key string) ([]Enqueued, error) {
	req := EnqueueRequest{Jobs: *room, Open: open, RequestKey: key}
	enqueue := EnqueueFunc(w.Enqueue)
	for _, around := range slices.Backward(c.middleware) {
		enqueue = around(enqueue)
	}
	jobs := len(req.Jobs)
	added, err := enqueue(ctx, req)
	if err == nil && len(c.middleware) == 0 { // after an error the store may still read, and a middleware may keep what it wants
		clear(*room)
		rooms.Put(room)
	}
	if err == nil && len(added) != jobs {
		return nil, fmt.Errorf("jq: a middleware returned %d answers for %d jobs; it must answer for each", len(added), jobs)
	}
	return added, err
}

func missing(what string) error {
	return fmt.Errorf("jq: this store cannot %s: %w", what, errors.ErrUnsupported)
}

// Get returns a job with the history of its attempts, or ErrNotFound.
func (c *Client) Get(ctx context.Context, id int64) (JobDetail, error) { return c.store.Get(ctx, id) }

// Jobs iterates over the jobs that match, the newest first. It reads them page by page. After an error it yields nothing more.
func (c *Client) Jobs(ctx context.Context, filter Filter) iter.Seq2[Job, error] {
	return jobs(ctx, c.store, filter)
}

func jobs(ctx context.Context, s Store, filter Filter) iter.Seq2[Job, error] {
	return pages(func(page Page) (JobPage, error) { return s.List(ctx, filter, page) })
}

// pages iterates over the jobs of all pages.
func pages(read func(Page) (JobPage, error)) iter.Seq2[Job, error] {
	return func(yield func(Job, error) bool) {
		page := Page{Limit: 100}
		for {
			part, err := read(page)
			if err != nil {
				yield(Job{}, err)
				return
			}
			for _, j := range part.Jobs {
				if !yield(j, nil) {
					return
				}
			}
			if page.Cursor = part.Next; page.Cursor == "" {
				return
			}
		}
	}
}

// WaitedFor returns the jobs that a job waits for or has waited for by their ids, in the order of its waits. [Result] reads the result of
// one. A job that no longer exists has nothing but its ID. For the jobs of a group, use [Client.Jobs]. Through a server with tokens, only
// operators may read results of other jobs here: a handler uses [Run.WaitedFor].
func (c *Client) WaitedFor(ctx context.Context, id int64) ([]Job, error) {
	job, err := c.store.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	ids := waitedIDs(job.Waits)
	if len(ids) == 0 {
		return nil, nil
	}
	known, err := byID(jobs(ctx, c.store, Filter{IDs: ids}))
	return inOrder(ids, known), err
}

// waitedIDs returns the ids of the jobs that the waits are for.
func waitedIDs(waits []Waiting) (ids []int64) {
	for _, w := range waits {
		if w.Group == "" {
			ids = append(ids, w.ID)
		}
	}
	return ids
}

// byID reads all jobs, and returns none of them after an error.
func byID(found iter.Seq2[Job, error]) (map[int64]Job, error) {
	known := map[int64]Job{}
	for j, err := range found {
		if err != nil {
			return nil, err
		}
		known[j.ID] = j
	}
	return known, nil
}

// inOrder returns the jobs in the order of the ids. Those that are not known have nothing but their ids.
func inOrder(ids []int64, known map[int64]Job) []Job {
	if known == nil {
		return nil
	}
	waited := make([]Job, len(ids))
	for i, id := range ids {
		waited[i] = known[id]
		waited[i].ID = id
	}
	return waited
}

// List returns one page of the jobs that match, the newest first.
func (c *Client) List(ctx context.Context, filter Filter, page Page) (JobPage, error) {
	return c.store.List(ctx, filter, page)
}

// Count counts the jobs that match, by queue and phase.
func (c *Client) Count(ctx context.Context, filter Filter) (Counts, error) {
	return c.store.Count(ctx, filter)
}

// Wait waits until the job has succeeded, is dead or is cancelled, and then returns it as Get does, with its result. A dead job
// is no error: look at its Phase.
//
// Wait returns at once if the job ends through this value of the store in this process, by a [Server], a Client or an HTTP API.
// Otherwise it returns within about a second: it looks at the job each second, and holds nothing in the store meanwhile. It may
// miss the end of a job that is requeued within that second. If many wait for the same job, one look serves all of them.
//
// If the context ends first, the error matches the context's own. While the store is unavailable, Wait goes on; if it still is
// when the context ends, the error also matches ErrUnavailable. If the job does not exist, or is deleted meanwhile, the error is
// ErrNotFound; if the store is closed, ErrClosed.
func (c *Client) Wait(ctx context.Context, id int64) (JobDetail, error) {
	return await.Until(ctx, clock.New(), c.store, id)
}

// Cancel ends a job that has not finished. If the job is running, its handler's context is cancelled within about a second, or at
// the next heartbeat of its server if the store's wake-up is lost; writes of the handler are refused from now on. If the job has
// succeeded or is dead, the error is ErrState.
func (c *Client) Cancel(ctx context.Context, id int64) error {
	return single(c.telling(c.store.Cancel)(ctx, Filter{IDs: []int64{id}}, 1))
}

// Requeue makes a finished job ready again, with no retries counted. If the job has not finished, the error is ErrState; if
// another job holds its unique key, ErrDuplicate.
func (c *Client) Requeue(ctx context.Context, id int64) error {
	return single(c.store.Requeue(ctx, Filter{IDs: []int64{id}}, 1))
}

// Reschedule makes a job that is ready or retrying due at the given time. If that time is past or zero, the job is due now. A
// retrying job keeps its retries. If the job is in flight or has finished, the error is ErrState.
func (c *Client) Reschedule(ctx context.Context, id int64, at time.Time) error {
	return single(c.store.Reschedule(ctx, Filter{IDs: []int64{id}}, at, 1))
}

// Delete removes a finished job. If the job has not finished, the error is ErrState.
func (c *Client) Delete(ctx context.Context, id int64) error {
	return single(c.telling(c.store.Delete)(ctx, Filter{IDs: []int64{id}}, 1))
}

// telling returns the bulk call, which then tells those who wait for the jobs.
func (c *Client) telling(call func(context.Context, Filter, int) ([]Outcome, error)) func(context.Context, Filter, int) ([]Outcome, error) {
	return func(ctx context.Context, filter Filter, limit int) ([]Outcome, error) {
		outcomes, err := call(ctx, filter, limit)
		await.Tell(c.store, outcomes)
		return outcomes, err
	}
}

func single(outcomes []Outcome, err error) error {
	if err != nil {
		return err
	}
	return outcomes[0].Err()
}

// CancelAll cancels all jobs that match and have not finished, and returns their number. An empty filter is refused.
func (c *Client) CancelAll(ctx context.Context, filter Filter) (int, error) {
	return all(ctx, c.telling(c.store.Cancel), filter)
}

// RequeueAll makes all jobs ready again that match and had finished when the call began, and returns their number. A job whose
// unique key is held by another one stays as it is. An empty filter is refused.
func (c *Client) RequeueAll(ctx context.Context, filter Filter) (int, error) {
	if err := filter.CheckBulk(1); err != nil { // the age added below would hide that the filter is empty
		return 0, err
	}
	began, err := store.Now(ctx, c.store)
	if err != nil {
		return 0, err
	}
	return all(ctx, func(ctx context.Context, filter Filter, limit int) ([]Outcome, error) {
		now, err := store.Now(ctx, c.store)
		if err != nil {
			return nil, err
		}
		filter.FinishedFor = max(filter.FinishedFor, now.Sub(began))
		return c.store.Requeue(ctx, filter, limit)
	}, filter)
}

// RescheduleAll makes all jobs that match and are ready or retrying due at the given time, or now if that time is past or zero.
// It returns their number, including those that were due then already. An empty filter is refused.
func (c *Client) RescheduleAll(ctx context.Context, filter Filter, at time.Time) (int, error) {
	return all(ctx, func(ctx context.Context, filter Filter, limit int) ([]Outcome, error) {
		return c.store.Reschedule(ctx, filter, at, limit)
	}, filter)
}

// DeleteAll removes all finished jobs that match, and returns their number. An empty filter is refused.
func (c *Client) DeleteAll(ctx context.Context, filter Filter) (int, error) {
	return all(ctx, c.telling(c.store.Delete), filter)
}

// all repeats a bulk call, from the smallest id on, until no job is left to change.
func all(ctx context.Context, call func(context.Context, Filter, int) ([]Outcome, error), filter Filter) (int, error) {
	const limit = 1000
	changed := 0
	for {
		outcomes, err := call(ctx, filter, limit)
		if err != nil {
			return changed, err
		}
		for _, o := range outcomes {
			if o.Err() == nil {
				changed++
			}
		}
		if len(filter.IDs) > 0 || len(outcomes) < limit {
			return changed, nil
		}
		filter.After = outcomes[len(outcomes)-1].ID
	}
}

// Pause stops claims from the queue until [Client.Resume]. Jobs that run go on.
func (c *Client) Pause(ctx context.Context, queue string) error { return c.setPaused(ctx, queue, true) }

// Resume ends a pause.
func (c *Client) Resume(ctx context.Context, queue string) error {
	return c.setPaused(ctx, queue, false)
}

func (c *Client) setPaused(ctx context.Context, queue string, paused bool) error {
	keeper, ok := c.store.(store.QueueKeeper)
	if !ok {
		return missing("pause queues")
	}
	return keeper.SetPaused(ctx, queue, paused)
}

// Queues returns every queue that has a job, is paused, or has a policy that sets something.
func (c *Client) Queues(ctx context.Context) ([]Queue, error) {
	keeper, ok := c.store.(store.QueueKeeper)
	if !ok {
		return nil, missing("list queues")
	}
	return keeper.Queues(ctx)
}

// Policy returns the policy of the queue. All servers of the store follow it. If none was ever set, it sets nothing, so the
// defaults apply, and its version is 0.
func (c *Client) Policy(ctx context.Context, queue string) (Policy, error) {
	keeper, err := c.policies()
	if err != nil {
		return Policy{}, err
	}
	return keeper.Policy(ctx, queue)
}

// SetPolicy replaces the queue's policy as a whole, and returns it with its new version. Start from what [Client.Policy] has
// returned: if somebody has changed the policy since, the error is ErrConflict, and you must read it again.
func (c *Client) SetPolicy(ctx context.Context, queue string, p Policy) (Policy, error) {
	keeper, err := c.policies()
	if err != nil {
		return Policy{}, err
	}
	return keeper.SetPolicy(ctx, queue, p)
}

// DeclarePolicy makes p the queue's policy, unless its Owner has declared the same version or a higher one: raise p.Declared with each change. A
// change by the command, on the dashboard, or with [Client.SetPolicy] if that keeps Owner and Declared, stays until the program declares a higher
// version. So a program can declare its policies each time it starts, and a server does so for its [QueueOptions]. DeclarePolicy ignores
// p.Version, and returns the policy that the queue has then, or ErrConflict if another program has declared it.
func (c *Client) DeclarePolicy(ctx context.Context, queue string, p Policy) (Policy, error) {
	keeper, err := c.policies()
	if err != nil {
		return Policy{}, err
	}
	return policy.Declare(ctx, keeper, queue, p)
}

func (c *Client) policies() (store.PolicyKeeper, error) {
	keeper, ok := c.store.(store.PolicyKeeper)
	if !ok {
		return nil, missing("keep policies of queues")
	}
	return keeper, nil
}

// Workers returns the servers that work on the store, and those that have worked on it within the last day.
func (c *Client) Workers(ctx context.Context) ([]Worker, error) {
	registry, ok := c.store.(store.Registry)
	if !ok {
		return nil, missing("list workers")
	}
	return store.AllWorkers(ctx, registry)
}
