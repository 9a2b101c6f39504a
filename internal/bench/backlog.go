package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/store"
)

// A scene is what lies in the store while claims are measured.
type scene struct {
	name                         string
	waiting, scheduled, finished int
}

// piling measures claims beside few waiting jobs, beside many, and beside few with many that are scheduled for later at the
// highest priority, or have finished. What they cost should be the same.
func piling(ctx context.Context, r *run) ([]Part, error) {
	few, many := r.o.beside, r.o.Jobs
	scenes := []scene{
		{name: "few", waiting: few},
		{name: "waiting", waiting: max(few, many)},
		{name: "scheduled", waiting: few, scheduled: many},
		{name: "finished", waiting: few, finished: many},
	}
	parts := make([]Part, len(scenes))
	for i, s := range scenes {
		figures, err := r.beside(s.name).play(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		parts[i] = Part{s.name, figures}
		for _, name := range []string{"claim p50", "claim and ack p50"} {
			mine, _ := parts[i].Figure(name)
			least, _ := parts[0].Figure(name)
			if i > 0 && least.Value > 0 {
				parts[i].Figures = append(parts[i].Figures, Figure{name + " to few", "%", 100 * mine.Value / least.Value})
			}
		}
	}
	return parts, nil
}

// play sets the scene, measures, and clears it away.
func (r *run) play(ctx context.Context, s scene) (figures []Figure, err error) {
	defer func() { err = errors.Join(err, r.remove(ctx)) }()
	if err := r.finish(ctx, s.finished); err != nil {
		return nil, err
	}
	if err := r.fill(ctx, s.scheduled, &jq.EnqueueOptions{Delay: 24 * time.Hour, Priority: 9}); err != nil {
		return nil, err
	}
	if err := r.fill(ctx, s.waiting, nil); err != nil {
		return nil, err
	}
	figures, taken, err := r.claims(ctx, s)
	if err != nil {
		return nil, err
	}
	return figures, r.verify(ctx, map[jq.State]int64{
		jq.Ready: int64(s.waiting + s.scheduled - taken), jq.Succeeded: int64(s.finished + taken),
	})
}

// mostClaims are enough for a steady median, and leave most of what waits.
const mostClaims = 200

// claims claims and acks a part of what waits, and returns how many jobs that were.
func (r *run) claims(ctx context.Context, s scene) ([]Figure, int, error) {
	batch := min(r.o.Batch, r.o.beside/2)
	rounds := min(mostClaims, r.o.beside/2/batch)
	var claim, both times
	var taken atomic.Int64
	m, err := r.measure(ctx, taken.Load, ofJobs("claiming beside "+s.name, taken.Load, int64(rounds*batch)))
	if err != nil {
		return nil, 0, err
	}
	defer m.halt()
	for range rounds {
		began := time.Now()
		jobs, err := r.claim(ctx, batch)
		claim.add(time.Since(began))
		if err != nil {
			return nil, 0, err
		}
		if len(jobs) != batch {
			return nil, 0, fmt.Errorf("the run does not count: a claim of %d has found %d, with %d waiting", batch, len(jobs), s.waiting)
		}
		if err := r.ack(ctx, jobs); err != nil {
			return nil, 0, err
		}
		both.add(time.Since(began))
		taken.Add(int64(len(jobs)))
	}
	figures, err := m.stop(ctx)
	if err != nil {
		return nil, 0, err
	}
	figures = append(append(claim.figures("claim "), both.figures("claim and ack ")...), figures...)
	return figures, int(taken.Load()), nil
}

// finish brings so many finished jobs into the store, a call after the other: no claim overlaps another, and each finds its jobs.
func (r *run) finish(ctx context.Context, jobs int) error {
	next, done := upTo(jobs, r.o.most()), atomic.Int64{}
	defer r.telling(ofJobs("finishing jobs", done.Load, int64(jobs)))()
	client := r.client()
	for n := next(); n > 0; n = next() {
		if _, err := client.EnqueueMany(ctx, r.items(n, nil), nil); err != nil {
			return err
		}
		claimed, err := r.claim(ctx, n)
		if err != nil {
			return err
		}
		if err := r.ack(ctx, claimed); err != nil {
			return err
		}
		done.Add(int64(len(claimed)))
	}
	return nil
}

// claim takes jobs without a server.
func (r *run) claim(ctx context.Context, limit int) ([]jq.Job, error) {
	return r.store.FetchAndClaim(ctx, jq.ClaimRequest{Queue: r.queue, Limit: limit, Worker: r.queue, TTL: time.Hour})
}

// ack finishes what was claimed.
func (r *run) ack(ctx context.Context, jobs []jq.Job) error {
	acks := make([]jq.Ack, len(jobs))
	for i, j := range jobs {
		acks[i] = jq.Ack{Lease: j.Lease()}
	}
	outcomes, err := r.store.Ack(ctx, acks)
	if err != nil {
		return err
	}
	for _, o := range outcomes {
		if o.Status != store.StatusOK {
			return fmt.Errorf("the run does not count: the ack of job %d was answered by %s", o.ID, o.Status)
		}
	}
	return nil
}
