package rounds

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/seed-ed332417/jq/bench/internal/peer"
	"github.com/seed-ed332417/jq/bench/internal/producer"
)

// loneHandlers is how many handlers run at once at least: enough for the slow ones, about 120 at a time.
const loneHandlers = 200

// lone works on jobs that another process enqueues one by one, and measures what each costs.
func lone(tx bool) func(ctx context.Context, p *play) (Result, error) {
	return func(ctx context.Context, p *play) (r Result, err error) {
		if err := p.queue.Work(ctx, cmp.Or(p.Handlers, max(p.peer.Handlers, loneHandlers))); err != nil {
			return Result{}, err
		}
		from, err := producer.Start(ctx, p.peer.ID(), p.place)
		if err != nil {
			return Result{}, err
		}
		defer func() { err = errors.Join(err, from.Close()) }()
		warm := peer.Load{Jobs: 1, Tx: tx}
		if _, err := from.Enqueue(ctx, warm, p.pace); err != nil {
			return Result{}, err
		}
		if err := p.ledger.Await(ctx, 1); err != nil {
			return Result{}, err
		}
		return p.measureLone(ctx, from, tx)
	}
}

// measureLone measures after a rest, in which idle sessions report to the server what the start has cost: they do so after ten
// seconds, with the usual duration of five.
func (p *play) measureLone(ctx context.Context, from *producer.Producer, tx bool) (Result, error) {
	if err := rest(ctx, p.Duration*21/10); err != nil {
		return Result{}, err
	}
	if err := p.meter.Begin(ctx, from.PID()); err != nil {
		return Result{}, err
	}
	began, jobs := time.Now(), p.times-1
	called, err := from.Enqueue(ctx, peer.Load{First: 1, Jobs: jobs, Tx: tx, Shape: p.shape}, p.pace)
	if err != nil {
		return Result{}, err
	}
	r := Result{Jobs: int64(jobs), Seconds: time.Since(began).Seconds()}
	if err := p.ledger.Await(ctx, int64(p.times)); err != nil {
		return r, err
	}
	if err := rest(ctx, p.Duration*2/5); err != nil { // until the handlers and their acks are over: asking the store would cost too
		return r, err
	}
	if err := p.meter.End(ctx); err != nil {
		return r, err
	}
	if err := p.finish(ctx, int64(p.times)); err != nil {
		return r, err
	}
	p.waits(&r, called)
	return r, nil
}

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
