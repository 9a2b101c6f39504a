package jqtest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
)

// DrainOptions configures Drain. Zero fields mean the default.
type DrainOptions struct {
	// Queues lists the queues to drain. Default: every queue.
	Queues []string
	// Until is the time up to which Drain may move the clock. Default: no limit.
	Until time.Time
	// MaxRuns is the number of runs after which the test fails, because some job keeps coming back. Default: 1000.
	MaxRuns int
}

// A Ran is one run that Drain made.
type Ran struct {
	jq.Job           // the job as it was claimed
	After  jq.Job    // the job after the run
	At     time.Time // when it ran
}

// String describes the run on one line: which job ran, and the state it ended in.
func (r Ran) String() string {
	text := fmt.Sprintf("%s  job %d, %s %s, attempt %d: %s", r.At.Format(time.DateTime), r.ID, r.Kind, r.Payload, r.Attempts, r.After.Phase())
	if r.After.Error != "" {
		first, _, _ := strings.Cut(r.After.Error, "\n")
		text += ": " + first
	}
	return text
}

const drainLease = time.Hour

// Drain runs the jobs of the store with the handlers, one after another in the test's goroutine, until no job is left that
// could run. It does not wait for delays, backoffs and rates: it moves the store's clock to the next due job. It leaves out jobs of
// paused queues, and cancels those that have expired. The test fails if a kind has no handler, or if the drain does not end. Options
// may be nil.
func Drain(t testing.TB, s *Store, handlers *jq.Handlers, options *DrainOptions) []Ran {
	t.Helper()
	d := &drain{store: s, client: jq.NewClient(s, nil), handlers: handlers}
	if options != nil {
		d.options = *options
	}
	d.options.MaxRuns = cmp.Or(d.options.MaxRuns, 1000)
	if err := d.run(t.Context()); err != nil {
		t.Fatalf("%v%s", err, lines("\nThe latest runs:", d.ran[max(0, len(d.ran)-10):]))
	}
	return d.ran
}

// A drain is one call of Drain.
type drain struct {
	store    *Store
	client   *jq.Client
	handlers *jq.Handlers
	options  DrainOptions
	ran      []Ran
}

func (d *drain) run(ctx context.Context) error {
	for {
		if err := d.settle(ctx); err != nil {
			return err
		}
		queues, err := d.queues(ctx)
		if err != nil {
			return err
		}
		found, err := d.round(ctx, queues)
		if err != nil {
			return err
		}
		if found {
			continue
		}
		next, err := d.nextDue(ctx, queues)
		if err != nil || next.IsZero() || !d.options.Until.IsZero() && next.After(d.options.Until) {
			return err
		}
		d.store.Clock.Set(next)
	}
}

// settle cancels expired jobs, as a server does.
func (d *drain) settle(ctx context.Context) error {
	const limit = 1000
	for {
		settled, err := d.store.Settle(ctx, limit)
		if err != nil || len(settled) < limit {
			return err
		}
	}
}

// queues returns the queues to drain that are not paused.
func (d *drain) queues(ctx context.Context) ([]string, error) {
	known, err := d.client.Queues(ctx)
	if err != nil {
		return nil, err
	}
	var queues []string
	for _, q := range known {
		if !q.Paused && (len(d.options.Queues) == 0 || slices.Contains(d.options.Queues, q.Name)) {
			queues = append(queues, q.Name)
		}
	}
	return queues, nil
}

// round runs one due job of each queue that has one.
func (d *drain) round(ctx context.Context, queues []string) (found bool, err error) {
	for _, queue := range queues {
		jobs, err := d.store.FetchAndClaim(ctx, contract.ClaimRequest{Queue: queue, Limit: 1, Worker: "drain", TTL: drainLease})
		if err != nil {
			return false, err
		}
		for _, job := range jobs {
			if err := d.one(ctx, job); err != nil {
				return false, err
			}
			found = true
		}
	}
	return found, nil
}

func (d *drain) one(ctx context.Context, job jq.Job) error {
	if len(d.ran) == d.options.MaxRuns {
		return fmt.Errorf("the drain has run %d jobs and comes to no end", len(d.ran))
	}
	at := d.store.Clock.Now()
	if _, err := d.handlers.RunJob(ctx, d.store, job); err != nil {
		return fmt.Errorf("job %d: %w", job.ID, err)
	}
	after, err := d.store.Get(ctx, job.ID)
	if err != nil {
		return err
	}
	d.ran = append(d.ran, Ran{Job: job, After: after.Job, At: at})
	return nil
}

// nextDue returns when to look again for a job of the queues, or zero if none will be claimable.
func (d *drain) nextDue(ctx context.Context, queues []string) (time.Time, error) {
	var next time.Time
	for job, err := range d.client.Jobs(ctx, jq.Filter{States: []jq.State{jq.Ready, jq.Retrying}}) {
		if err != nil {
			return next, err
		}
		if !slices.Contains(queues, job.Queue) {
			continue
		}
		at, err := d.claimable(ctx, job)
		if err != nil {
			return next, err
		}
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next, nil
}

// claimable returns when to look again for a job that no claim has taken. If it is due, a limit of its queue holds it back: under a rate it
// is claimable a while later, and under another limit when another job has run, or never.
func (d *drain) claimable(ctx context.Context, job jq.Job) (time.Time, error) {
	now := d.store.Clock.Now()
	if due := job.Next(); due.After(now) {
		return due, nil
	}
	policy, err := d.client.Policy(ctx, job.Queue)
	if err != nil || policy.Rate.N == 0 {
		return time.Time{}, err
	}
	for _, r := range d.ran { // the first claim that counts is the first to count no more
		if room := r.At.Add(policy.Rate.Per); r.Queue == job.Queue && room.After(now) {
			return room, nil
		}
	}
	return now.Add(policy.Rate.Per), nil // the claims were the test's own
}
