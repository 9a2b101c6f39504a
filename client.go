package jq

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/seed-ed332417/jq/internal/store"
)

// A Client enqueues jobs, and looks after them. It is safe for use by many goroutines, holds nothing that has to be closed,
// and needs no server in its process.
type Client struct {
	store      Store
	defaults   EnqueueOptions
	middleware []EnqueueMiddleware
}

// ClientOptions are what can be chosen; what is zero is the default.
type ClientOptions struct {
	// Defaults are for what neither the call nor the payload's own [Defaulter] says.
	Defaults EnqueueOptions
	// Middleware stands around every enqueueing, the first one outermost.
	Middleware []EnqueueMiddleware
}

// An EnqueueFunc brings jobs to the store.
type EnqueueFunc func(ctx context.Context, req EnqueueRequest) ([]Enqueued, error)

// An EnqueueMiddleware stands around enqueueing: it may change the request, count it, or refuse it with an error. It answers for
// each job of the request, in their order.
type EnqueueMiddleware func(next EnqueueFunc) EnqueueFunc

type txKey struct{}

// InTx says, of the context that a middleware is given, that the jobs are enqueued in a caller's transaction: whether they were
// added is known when that has ended, and not to the middleware.
func InTx(ctx context.Context) bool {
	in, _ := ctx.Value(txKey{}).(bool)
	return in
}

// inTx is the context for a middleware. The one of the caller may be that of another call's middleware.
func inTx(ctx context.Context, in bool) context.Context {
	if InTx(ctx) == in {
		return ctx
	}
	return context.WithValue(ctx, txKey{}, in)
}

// NewClient returns a client of the store. Options may be nil. A store or a middleware that is nil panics.
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

// Enqueue adds a job. When it returns nil the job is stored, as durably as the store is, or, if its unique key is held,
// Duplicate is set and the ID is that of the holder. Options may be nil.
//
// After ErrUnavailable nothing was added. After ErrInDoubt the job may have been added: to repeat the call is safe with a
// RequestKey or a UniqueKey, and may add the job twice without.
func (c *Client) Enqueue(ctx context.Context, payload Payload, options *EnqueueOptions) (Enqueued, error) {
	return c.one(inTx(ctx, false), c.store, payload, options)
}

// EnqueueTx is Enqueue in the caller's own SQL transaction: the job is there when the transaction is committed, and never if
// it is rolled back. What is no open transaction, such as a *sql.DB, is ErrInvalid.
//
// The Commit is yours, and so is its doubt. An error of Commit may mean that it was committed. Under synchronous replication of
// Postgres, even a Commit without an error may be lost in a failover, if its wait for the standby was broken off: the transactions
// of the store's DB, and those of postgres.ConfirmCommits, then return ErrInDoubt.
func (c *Client) EnqueueTx(ctx context.Context, tx Tx, payload Payload, options *EnqueueOptions) (Enqueued, error) {
	w, err := c.inTx(tx)
	if err != nil {
		return Enqueued{}, err
	}
	return c.one(inTx(ctx, true), w, payload, options)
}

// An Item is one job among many.
type Item struct {
	Payload Payload
	Options *EnqueueOptions // may be nil
}

// ManyOptions are about a call of EnqueueMany as a whole.
type ManyOptions struct {
	// RequestKey makes the call safe to repeat for a day.
	RequestKey string
}

// EnqueueMany adds up to 1,000 jobs, all or none of them, and answers in their order. An item that is refused is named by its
// index in an [InvalidError]. Duplicates are no errors: they are answered as such. Options may be nil.
func (c *Client) EnqueueMany(ctx context.Context, items []Item, options *ManyOptions) ([]Enqueued, error) {
	return c.many(inTx(ctx, false), c.store, items, options)
}

// EnqueueManyTx is EnqueueMany in the caller's own SQL transaction.
func (c *Client) EnqueueManyTx(ctx context.Context, tx Tx, items []Item, options *ManyOptions) ([]Enqueued, error) {
	w, err := c.inTx(tx)
	if err != nil {
		return nil, err
	}
	return c.many(inTx(ctx, true), w, items, options)
}

func (c *Client) inTx(tx Tx) (Writer, error) {
	transactor, ok := c.store.(Transactor)
	if !ok {
		return nil, missing("write in a caller's transaction")
	}
	return transactor.InTx(tx), nil
}

func (c *Client) one(ctx context.Context, w Writer, payload Payload, options *EnqueueOptions) (Enqueued, error) {
	var o EnqueueOptions
	if options != nil {
		o = *options
	}
	job, err := newJob(0, payload, o, c.defaults)
	if err != nil {
		return Enqueued{}, err
	}
	added, err := c.send(ctx, w, EnqueueRequest{Jobs: []NewJob{job}, RequestKey: o.RequestKey})
	if err != nil {
		return Enqueued{}, err
	}
	return added[0], nil
}

func (c *Client) many(ctx context.Context, w Writer, items []Item, options *ManyOptions) ([]Enqueued, error) {
	req := EnqueueRequest{Jobs: make([]NewJob, len(items))}
	if options != nil {
		req.RequestKey = options.RequestKey
	}
	for i, item := range items {
		var o EnqueueOptions
		if item.Options != nil {
			o = *item.Options
		}
		if o.RequestKey != "" {
			return nil, &InvalidError{Item: i, Field: "request_key", Rule: "belongs to the call: set it in ManyOptions"}
		}
		job, err := newJob(i, item.Payload, o, c.defaults)
		if err != nil {
			return nil, err
		}
		req.Jobs[i] = job
	}
	return c.send(ctx, w, req)
}

func (c *Client) send(ctx context.Context, w Writer, req EnqueueRequest) ([]Enqueued, error) {
	enqueue := EnqueueFunc(w.Enqueue)
	for _, around := range slices.Backward(c.middleware) {
		enqueue = around(enqueue)
	}
	added, err := enqueue(ctx, req)
	if err == nil && len(added) != len(req.Jobs) {
		return nil, fmt.Errorf("jq: %d jobs were to be enqueued, and the answer is for %d: a middleware has to answer for each", len(req.Jobs), len(added))
	}
	return added, err
}

func missing(what string) error {
	return fmt.Errorf("jq: this store can not %s: %w", what, errors.ErrUnsupported)
}

// Get returns a job with the history of its attempts, or ErrNotFound.
func (c *Client) Get(ctx context.Context, id int64) (JobDetail, error) { return c.store.Get(ctx, id) }

// Jobs goes through the jobs that match, the newest first. It reads them page by page; an error is the last that it yields.
func (c *Client) Jobs(ctx context.Context, filter Filter) iter.Seq2[Job, error] {
	return func(yield func(Job, error) bool) {
		page := Page{Limit: 100}
		for {
			part, err := c.store.List(ctx, filter, page)
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

// List returns one page of the jobs that match, the newest first.
func (c *Client) List(ctx context.Context, filter Filter, page Page) (JobPage, error) {
	return c.store.List(ctx, filter, page)
}

// Count counts the jobs that match, by queue and phase.
func (c *Client) Count(ctx context.Context, filter Filter) (Counts, error) {
	return c.store.Count(ctx, filter)
}

// Cancel ends a job that is not finished. If it is running, its handler's context is cancelled at the next heartbeat, and what
// the handler writes from now on is refused. ErrState says that it has finished.
func (c *Client) Cancel(ctx context.Context, id int64) error {
	return single(c.store.Cancel(ctx, Filter{IDs: []int64{id}}, 1))
}

// Requeue makes a finished job ready again, with no retries counted. ErrState says that it has not finished, ErrDuplicate that
// another job holds its unique key.
func (c *Client) Requeue(ctx context.Context, id int64) error {
	return single(c.store.Requeue(ctx, Filter{IDs: []int64{id}}, 1))
}

// Delete removes a finished job. ErrState says that it has not finished.
func (c *Client) Delete(ctx context.Context, id int64) error {
	return single(c.store.Delete(ctx, Filter{IDs: []int64{id}}, 1))
}

func single(outcomes []Outcome, err error) error {
	if err != nil {
		return err
	}
	return outcomes[0].Err()
}

// CancelAll cancels all jobs that match and are not finished, and returns how many those were. An empty filter is refused.
func (c *Client) CancelAll(ctx context.Context, filter Filter) (int, error) {
	return all(ctx, c.store.Cancel, filter)
}

// RequeueAll makes all finished jobs that match ready again, and returns how many those were: only such as had finished when
// the call began. Jobs whose unique key another one holds stay as they are. An empty filter is refused.
func (c *Client) RequeueAll(ctx context.Context, filter Filter) (int, error) {
	if err := filter.CheckBulk(1); err != nil { // the age that is added below would hide that the filter is empty
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

// DeleteAll removes all finished jobs that match, and returns how many those were. An empty filter is refused.
func (c *Client) DeleteAll(ctx context.Context, filter Filter) (int, error) {
	return all(ctx, c.store.Delete, filter)
}

// all repeats a call on a filter until nothing is left to change, from the smallest id on.
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

// Pause lets nothing more be claimed from the queue until [Client.Resume]. What runs goes on.
func (c *Client) Pause(ctx context.Context, queue string) error { return c.setPaused(ctx, queue, true) }

// Resume ends a pause.
func (c *Client) Resume(ctx context.Context, queue string) error {
	return c.setPaused(ctx, queue, false)
}

func (c *Client) setPaused(ctx context.Context, queue string, paused bool) error {
	keeper, ok := c.store.(QueueKeeper)
	if !ok {
		return missing("pause queues")
	}
	return keeper.SetPaused(ctx, queue, paused)
}

// Queues returns every queue that has a job, is paused, or has a policy that sets something.
func (c *Client) Queues(ctx context.Context) ([]Queue, error) {
	keeper, ok := c.store.(QueueKeeper)
	if !ok {
		return nil, missing("list queues")
	}
	return keeper.Queues(ctx)
}

// Policy returns the policy of the queue: its settings, which hold for all who use the store. One that was never set sets
// nothing, so that the defaults go for it, and has version 0.
func (c *Client) Policy(ctx context.Context, queue string) (Policy, error) {
	keeper, ok := c.store.(PolicyKeeper)
	if !ok {
		return Policy{}, missing("keep policies of queues")
	}
	return keeper.Policy(ctx, queue)
}

// SetPolicy puts p in the place of the queue's policy, as a whole, and returns it with its new version. Change what
// [Client.Policy] has returned: if others have changed it since, the error is [ErrConflict], and you read it again.
func (c *Client) SetPolicy(ctx context.Context, queue string, p Policy) (Policy, error) {
	keeper, ok := c.store.(PolicyKeeper)
	if !ok {
		return Policy{}, missing("keep policies of queues")
	}
	return keeper.SetPolicy(ctx, queue, p)
}

// Workers returns the servers that work on the store, and those that did within a day.
func (c *Client) Workers(ctx context.Context) ([]Worker, error) {
	registry, ok := c.store.(Registry)
	if !ok {
		return nil, missing("list workers")
	}
	return store.AllWorkers(ctx, registry)
}
