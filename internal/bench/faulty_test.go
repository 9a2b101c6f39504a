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
	contract.PolicyKeeper // for workloads that set policies
	calls                 atomic.Int64
	after                 int64
	cut                   func()
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
	contract.PolicyKeeper
	calls  atomic.Int64
	passes func(req jq.EnqueueRequest) bool // without losing a job, if set
}

func losing(s jq.Store) jq.Store { return &loser{Store: s, PolicyKeeper: s.(contract.PolicyKeeper)} }

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
	contract.PolicyKeeper
	calls atomic.Int64
}

func forgetting(s jq.Store) jq.Store {
	return &forgetter{Store: s, PolicyKeeper: s.(contract.PolicyKeeper)}
}

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

// A liar says that it keeps policies as they are.
type liar struct {
	jq.Store
	contract.PolicyKeeper
	keeps func(jq.Policy) jq.Policy // what it keeps of one that is set
	shows func(jq.Policy) jq.Policy // what it shows of one that is kept
}

func same(p jq.Policy) jq.Policy { return p }

// boundless keeps no limit for each key, and says that it does.
func boundless(s jq.Store) jq.Store {
	none := func(p jq.Policy) jq.Policy {
		p.MaxPerKey, p.MaxInFlight = 0, p.MaxPerKey*contract.MaxLimit
		return p
	}
	shown := func(p jq.Policy) jq.Policy {
		p.MaxPerKey, p.MaxInFlight = p.MaxInFlight/contract.MaxLimit, 0
		return p
	}
	return &liar{s, s.(contract.PolicyKeeper), none, shown}
}

// lax shows a limit that is higher by one.
func lax(s jq.Store) jq.Store {
	return &liar{s, s.(contract.PolicyKeeper), same, func(p jq.Policy) jq.Policy {
		if p.MaxInFlight > 0 {
			p.MaxInFlight++
		}
		if p.MaxPerKey > 0 {
			p.MaxPerKey++
		}
		return p
	}}
}

// unfair lets no keys take turns, and says that it does.
func unfair(s jq.Store) jq.Store {
	none := func(p jq.Policy) jq.Policy {
		if p.Fair {
			p.Fair, p.MaxInFlight = false, contract.MaxLimit
		}
		return p
	}
	shown := func(p jq.Policy) jq.Policy {
		p.Fair, p.MaxInFlight = p.MaxInFlight > 0, 0
		return p
	}
	return &liar{s, s.(contract.PolicyKeeper), none, shown}
}

// moody does not show that keys take turns.
func moody(s jq.Store) jq.Store {
	return &liar{s, s.(contract.PolicyKeeper), same, func(p jq.Policy) jq.Policy {
		p.Fair = false
		return p
	}}
}

func (l *liar) SetPolicy(ctx context.Context, queue string, p jq.Policy) (jq.Policy, error) {
	next, err := l.PolicyKeeper.SetPolicy(ctx, queue, l.keeps(p))
	return l.shows(next), err
}

func (l *liar) Policy(ctx context.Context, queue string) (jq.Policy, error) {
	p, err := l.PolicyKeeper.Policy(ctx, queue)
	return l.shows(p), err
}
