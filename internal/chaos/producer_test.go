//go:build unix

package chaos

import (
	"context"
	"errors"
	"time"

	"github.com/seed-ed332417/jq"
)

// pace is the time between two calls in a soak, which leave the workers some rest: what waits then waits for the store.
const pace = 100 * time.Millisecond

// callTime is how long a producer waits for the store's answer.
const callTime = 2 * time.Second

// A producer enqueues what the ledger asks for, and tells it what the store has acknowledged.
type producer struct {
	role
	link   *link
	client *jq.Client
}

// produce is a producer process. It works until the ledger wants no more.
func produce(ctx context.Context, r role, l *link) error {
	s, err := openStore(ctx, r, storeTimeout)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	return produceIn(ctx, r, l, s)
}

func produceIn(ctx context.Context, r role, l *link, s jq.Store) error {
	p := &producer{role: r, link: l, client: jq.NewClient(s, nil)}
	for {
		next := l.ask(message{Op: opNext})
		if !next.OK {
			return nil
		}
		if err := p.call(ctx, next.Call); err != nil {
			return err
		}
		if r.soak {
			<-time.After(pace)
			ended := jq.Filter{States: []jq.State{jq.Succeeded, jq.Dead, jq.Cancelled}, FinishedFor: 2 * time.Second}
			err := p.patiently(ctx, func(ctx context.Context) error {
				_, err := s.Delete(ctx, ended, 1000)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
}

// call enqueues the jobs of one call, and cancels what it regrets.
func (p *producer) call(ctx context.Context, call int) error {
	plans := callOf(p.seed, call)
	items := make([]jq.Item, len(plans))
	for i, one := range plans {
		items[i] = one.item()
	}
	options := &jq.EnqueueManyOptions{RequestKey: requestKey(call)}
	if p.soak {
		options = nil // the store keeps request keys for a day: it would grow by them
	}
	var added []jq.Enqueued
	err := p.patiently(ctx, func(ctx context.Context) (err error) {
		added, err = p.client.EnqueueMany(ctx, items, options)
		return err
	})
	if err != nil {
		return err
	}
	told := message{Op: opAdded, Call: call}
	for _, e := range added {
		told.Answers = append(told.Answers, answer{e.ID, e.Duplicate})
	}
	p.link.ask(told)
	for i, one := range plans {
		if one.kind != regretted {
			continue
		}
		err := p.patiently(ctx, func(ctx context.Context) error { return p.client.Cancel(ctx, added[i].ID) })
		if err != nil && !errors.Is(err, jq.ErrState) && !errors.Is(err, jq.ErrNotFound) { // what is lost, the judge finds
			return err
		}
		p.link.ask(message{Op: opCancel, Job: added[i].ID, N: one.n, OK: err == nil})
	}
	return nil
}

// patiently repeats the call until the store has answered it. Its calls are safe to repeat.
func (p *producer) patiently(ctx context.Context, call func(ctx context.Context) error) error {
	for {
		limited, cancel := context.WithTimeout(ctx, callTime)
		err := call(limited)
		cancel()
		doubt := errors.Is(err, jq.ErrInDoubt)
		if !doubt && !errors.Is(err, jq.ErrUnavailable) {
			return err
		}
		p.link.ask(message{Op: opFailed, Doubt: doubt})
		<-time.After(20 * time.Millisecond)
	}
}
