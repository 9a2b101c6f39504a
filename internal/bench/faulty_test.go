package bench

import (
	"context"
	"sync/atomic"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
)

// A breaker cuts something off after so many calls that write.
type breaker struct {
	jq.Store
	calls atomic.Int64
	after int64
	cut   func()
}

func (b *breaker) count() {
	if b.calls.Add(1) == b.after {
		b.cut()
	}
}

func (b *breaker) Enqueue(ctx context.Context, req jq.EnqueueRequest) ([]jq.Enqueued, error) {
	b.count()
	return b.Store.Enqueue(ctx, req)
}

func (b *breaker) FetchAndClaim(ctx context.Context, req contract.ClaimRequest) ([]jq.Job, error) {
	b.count()
	return b.Store.FetchAndClaim(ctx, req)
}

// A loser loses the last job of the first call of Enqueue, and says that it has it.
type loser struct {
	jq.Store
	calls  atomic.Int64
	passes func(req jq.EnqueueRequest) bool // without losing a job, if set
}

func losing(s jq.Store) jq.Store { return &loser{Store: s} }

// losingAMember loses a job of the first call that adds several jobs which wait for nothing.
func losingAMember(s jq.Store) jq.Store {
	return &loser{Store: s, passes: func(req jq.EnqueueRequest) bool { return len(req.Jobs) == 1 || len(req.Jobs[1].After) > 0 }}
}

func (l *loser) Enqueue(ctx context.Context, req jq.EnqueueRequest) ([]jq.Enqueued, error) {
	if l.passes != nil && l.passes(req) || l.calls.Add(1) > 1 {
		return l.Store.Enqueue(ctx, req)
	}
	last := len(req.Jobs) - 1
	added, err := l.Store.Enqueue(ctx, jq.EnqueueRequest{Jobs: req.Jobs[:last]})
	return append(added, jq.Enqueued{ID: 1 << 40, State: jq.Ready}), err
}

// A short store has no time to count.
type short struct{ jq.Store }

func (short) Count(context.Context, jq.Filter) (jq.Counts, error) {
	return jq.Counts{}, jq.ErrUnavailable
}

func losingAndShort(s jq.Store) jq.Store { return short{losing(s)} }

// A forgetter forgets the last of the first acks, and says that it has done it.
type forgetter struct {
	jq.Store
	calls atomic.Int64
}

func forgetting(s jq.Store) jq.Store { return &forgetter{Store: s} }

func (f *forgetter) Ack(ctx context.Context, acks []contract.Ack) ([]jq.Outcome, error) {
	if f.calls.Add(1) > 1 {
		return f.Store.Ack(ctx, acks)
	}
	last := len(acks) - 1
	outcomes, err := f.Store.Ack(ctx, acks[:last])
	return append(outcomes, jq.Outcome{ID: acks[last].ID, Status: "ok", State: jq.Succeeded}), err
}

// A hider hands out one job less than it has claimed.
type hider struct {
	jq.Store
	calls atomic.Int64
}

func hiding(s jq.Store) jq.Store { return &hider{Store: s} }

func (h *hider) FetchAndClaim(ctx context.Context, req contract.ClaimRequest) ([]jq.Job, error) {
	jobs, err := h.Store.FetchAndClaim(ctx, req)
	if len(jobs) > 0 && h.calls.Add(1) == 1 {
		jobs = jobs[:len(jobs)-1]
	}
	return jobs, err
}
