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

// Scenes of the workload backlog.
const (
	Few       = "few"
	Waiting   = "waiting"
	Scheduled = "scheduled"
	Finished  = "finished"
)

// Scenes are the names of all scenes.
func Scenes() []string { return []string{Few, Waiting, Scheduled, Finished} }

// A scene is what lies in the queue while claims are measured.
type scene struct {
	name                         string
	waiting, scheduled, finished int
}

// scene has few waiting jobs, or many; or few with many that are scheduled for later at the highest priority, or have finished.
func (o Options) scene(name string) scene {
	s := scene{name: name, waiting: o.beside}
	switch name {
	case Waiting:
		s.waiting = max(o.beside, o.Jobs)
	case Scheduled:
		s.scheduled = o.Jobs
	case Finished:
		s.finished = o.Jobs
	}
	return s
}

// piling measures claims in one scene after the other. What they cost should be the same.
func piling(ctx context.Context, r *run) ([]Part, error) {
	parts := make([]Part, len(Scenes()))
	for i, name := range Scenes() {
		figures, err := r.beside(name).play(ctx, r.o.scene(name))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		parts[i] = Part{name, figures}
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
	p := &Pile{run: r, scene: s}
	if err := p.set(ctx); err != nil {
		return nil, err
	}
	if figures, err = p.claims(ctx); err != nil {
		return nil, err
	}
	return figures, p.Verify(ctx)
}

// A Pile is a scene that stays, to be measured several times in turn with others.
type Pile struct {
	run   *run
	scene scene
	taken int // of what waited
}

// NewPile sets a scene. Its jobs are left in the store.
func NewPile(ctx context.Context, s jq.Store, options Options, scene string) (*Pile, error) {
	options.Workload = Backlog
	o, err := options.filled()
	if err != nil {
		return nil, err
	}
	p := &Pile{run: newRun(s, o), scene: o.scene(scene)}
	return p, p.set(ctx)
}

func (p *Pile) set(ctx context.Context) error {
	if err := p.run.finish(ctx, p.scene.finished); err != nil {
		return err
	}
	if err := p.run.fill(ctx, p.scene.scheduled, &jq.EnqueueOptions{Delay: 24 * time.Hour, Priority: new(9)}); err != nil {
		return err
	}
	return p.run.fill(ctx, p.scene.waiting, nil)
}

// Measure is one round, after which as many jobs wait as before.
func (p *Pile) Measure(ctx context.Context) (Result, error) {
	before := p.taken
	figures, err := p.claims(ctx)
	if err != nil {
		return Result{}, err
	}
	result := Result{Workload: Backlog, Queue: p.run.queue, Parts: []Part{{p.scene.name, figures}}}
	taken := p.taken - before
	p.scene.waiting += taken
	return result, p.run.fill(ctx, taken, nil)
}

// Verify asks the store what became of the jobs of all rounds.
func (p *Pile) Verify(ctx context.Context) error {
	return p.run.verify(ctx, map[jq.State]int64{
		jq.Ready:     int64(p.scene.waiting + p.scene.scheduled - p.taken),
		jq.Succeeded: int64(p.scene.finished + p.taken),
	})
}

// mostClaims are enough for a steady median, and leave most of what waits.
const mostClaims = 200

// claims claims and acks a part of what waits.
func (p *Pile) claims(ctx context.Context) ([]Figure, error) {
	r := p.run
	batch := min(r.o.Batch, r.o.beside/2)
	rounds := min(mostClaims, r.o.beside/2/batch)
	var claim, both times
	var taken atomic.Int64
	m, err := r.measure(ctx, taken.Load, ofJobs("claiming beside "+p.scene.name, taken.Load, int64(rounds*batch)))
	if err != nil {
		return nil, err
	}
	defer m.halt()
	for range rounds {
		began := time.Now()
		jobs, err := r.claim(ctx, batch)
		claim.add(time.Since(began))
		if err != nil {
			return nil, err
		}
		if len(jobs) != batch {
			return nil, fmt.Errorf("the run does not count: a claim of %d has found %d, with %d waiting", batch, len(jobs), p.scene.waiting)
		}
		if err := r.ack(ctx, jobs); err != nil {
			return nil, err
		}
		both.add(time.Since(began))
		taken.Add(int64(len(jobs)))
	}
	figures, err := m.stop(ctx)
	if err != nil {
		return nil, err
	}
	p.taken += int(taken.Load())
	return append(append(claim.figures("claim "), both.figures("claim and ack ")...), figures...), nil
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
		if len(claimed) != n {
			return fmt.Errorf("the run does not count: a claim of %d has found %d", n, len(claimed))
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
