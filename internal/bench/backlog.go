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

// Scenes returns the names of all scenes.
func Scenes() []string { return []string{Few, Waiting, Scheduled, Finished} }

// A scene is the content of the queue while claims are measured.
type scene struct {
	name                         string
	waiting, scheduled, finished int
}

// scene returns a scene with few waiting jobs, with many, or with few and many others that are scheduled at the highest
// priority or finished.
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

// piling measures claims in one scene after the other. They should all cost the same.
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

// play sets the scene up, measures, and removes its jobs.
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

// A Pile is a scene that stays, so that it can be measured several times in turn with others.
type Pile struct {
	run   *run
	scene scene
	taken int // how many of the waiting jobs
}

// NewPile sets up a scene. Its jobs stay in the store.
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

// Measure measures one round. Afterwards as many jobs wait as before.
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

// Verify checks in the store how the jobs of all rounds have ended.
func (p *Pile) Verify(ctx context.Context) error {
	return p.run.verify(ctx, map[jq.State]int64{
		jq.Ready:     int64(p.scene.waiting + p.scene.scheduled - p.taken),
		jq.Succeeded: int64(p.scene.finished + p.taken),
	})
}

// mostClaims gives a steady median and leaves most of the jobs waiting.
const mostClaims = 200

// claims claims and acks a part of the waiting jobs.
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

// finish puts finished jobs into the store, one call after the other, so that claims do not overlap and each finds its jobs.
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

// claim claims jobs without a server.
func (r *run) claim(ctx context.Context, limit int) ([]jq.Job, error) {
	return r.store.FetchAndClaim(ctx, store.ClaimRequest{Queue: r.queue, Limit: limit, Worker: r.queue, TTL: time.Hour})
}

// ack finishes claimed jobs.
func (r *run) ack(ctx context.Context, jobs []jq.Job) error {
	acks := make([]store.Ack, len(jobs))
	for i, j := range jobs {
		acks[i] = store.Ack{Lease: j.Lease()}
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
