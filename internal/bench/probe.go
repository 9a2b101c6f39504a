package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-ed332417/jq"
)

// A probe measures how long jobs take from the start of the call that enqueues them until the store has accepted their end.
type probe struct {
	*tally
	run      *run
	journeys *journeys
	servers  []*worker
}

// probeServers is how many servers work on the store meanwhile, with the options that servers have by default.
const probeServers = 2

// probe starts the servers.
func (r *run) probe(ctx context.Context) (*probe, error) {
	r.o.Concurrency, r.o.Buffer = 10, 0
	p := &probe{tally: newTally(), run: r, journeys: newJourneys(int(r.o.Rate * (2*r.o.patience + r.o.Duration).Seconds()))}
	p.ended = p.journeys.arrive
	for i := range probeServers {
		w, err := r.workAs(unlisted(r.store), fmt.Sprintf("%s-%d", r.queue, i), nothing, p.tally)
		if err == nil {
			p.servers = append(p.servers, w)
			err = w.server.Start(ctx)
		}
		if err != nil {
			return nil, errors.Join(err, p.end(ctx))
		}
	}
	return p, nil
}

// end stops the servers and removes the jobs.
func (p *probe) end(ctx context.Context) error {
	var errs []error
	for _, w := range p.servers {
		errs = append(errs, w.stop(ctx))
	}
	return errors.Join(append(errs, p.run.remove(ctx))...)
}

// during probes while do runs.
func (p *probe) during(ctx context.Context, doing string, do func() error) ([]Figure, error) {
	defer p.run.telling(ofJobs(doing, p.succeeded.Load, 0))()
	first := p.journeys.next()
	until, done := context.WithCancel(ctx)
	defer done()
	sent := make(chan error, 1)
	go func() { sent <- p.run.send(ctx, until, p.journeys) }()
	err := do()
	done()
	if err = errors.Join(err, <-sent); err != nil {
		return nil, err
	}
	jobs := p.journeys.sent.Load()
	if err := p.reach(ctx, jobs); err != nil {
		return nil, err
	}
	return p.journeys.figures(first), p.run.verify(ctx, map[jq.State]int64{jq.Succeeded: jobs})
}
