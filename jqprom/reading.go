package jqprom

import (
	"context"
	"errors"
	"time"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/sample"
	"github.com/seed-ed332417/jq/internal/store"
)

// A reading asks the store for the values of a scrape. Each question has at most one call in progress, and concurrent scrapes
// share its answer. A scrape waits for the short calls. Counting many jobs takes long, so a count continues in the
// background, and scrapes show the last one with its age.
type reading struct {
	timeout time.Duration

	ping   *sample.Sampler[struct{}]
	due    *sample.Sampler[store.Due]
	queues *sample.Sampler[[]jq.Queue]
	counts *sample.Sampler[jq.Counts]
}

func newReading(s jq.Store, timeout, maxAge time.Duration) *reading {
	brief := sample.Options{Life: timeout}
	return &reading{
		timeout: timeout,
		ping:    sample.New(func(ctx context.Context) (struct{}, error) { return struct{}{}, store.Ping(ctx, s) }, brief),
		due: sample.New(func(ctx context.Context) (store.Due, error) {
			if monitor, ok := s.(store.Monitor); ok {
				return monitor.OldestDue(ctx)
			}
			return store.Due{}, errors.ErrUnsupported
		}, brief),
		queues: sample.New(func(ctx context.Context) ([]jq.Queue, error) {
			if keeper, ok := s.(store.QueueKeeper); ok {
				return keeper.Queues(ctx)
			}
			return nil, nil
		}, sample.Options{Life: timeout, MaxAge: maxAge}),
		counts: sample.New(func(ctx context.Context) (jq.Counts, error) {
			return s.Count(ctx, jq.Filter{States: counted[:]})
		}, sample.Options{MaxAge: maxAge, Rest: sample.Tenth}), // stores have limits of their own for the life of a count
	}
}

// A sight is what one scrape shows of the store.
type sight struct {
	up     bool
	due    *store.Due               // nil if not known now
	queues []jq.Queue               // the latest known
	counts sample.Answer[jq.Counts] // the latest known
}

// read asks the store. It returns when the short calls are answered or have timed out. It waits a little for a count as well,
// and so gets the quick ones.
func (r *reading) read() sight {
	ctx, cancel := context.WithTimeout(context.Background(), r.timeout)
	defer cancel()
	quick, cancel := context.WithTimeout(ctx, r.timeout/4)
	defer cancel()
	ping, due, queues, counts := r.ping.Ask(), r.due.Ask(), r.queues.Ask(), r.counts.Ask()

	var seen sight
	unsupported := false
	if sample.Wait(ctx, ping) {
		latest, _ := r.ping.Answers()
		seen.up = latest.Err == nil
	}
	if sample.Wait(ctx, due) {
		if latest, _ := r.due.Answers(); latest.Err == nil {
			seen.due = &latest.Value
		} else if errors.Is(latest.Err, errors.ErrUnsupported) {
			unsupported = true
		}
	}
	sample.Wait(ctx, queues)
	_, listed := r.queues.Answers()
	seen.queues = listed.Value
	sample.Wait(quick, counts)
	if _, seen.counts = r.counts.Answers(); unsupported && seen.counts.Known() {
		seen.due = dueOf(seen.counts.Value)
	}
	return seen
}

// dueOf takes the due times from a count, for a store that is not a Monitor. They are as old as the count.
func dueOf(counts jq.Counts) *store.Due {
	due := store.Due{Now: counts.Now}
	for _, q := range counts.Queues {
		if !q.OldestDue.IsZero() {
			due.Queues = append(due.Queues, store.QueueDue{Queue: q.Queue, OldestDue: q.OldestDue})
		}
	}
	return &due
}

// end cancels all current calls and waits for them.
func (r *reading) end() {
	r.ping.Close()
	r.due.Close()
	r.queues.Close()
	r.counts.Close()
}
