package server_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
)

// A breakage is something that is wrong on purpose: in the store, in what a server sends and receives, or outside.
type breakage struct {
	name  string
	found string // what the simulation has to say of it
	store func(*memory.Store) backend
	link  func(*link) store.Store

	blindOutside bool // the outside does not look at tokens
}

// breakages each break one rule. A simulation that does not find them proves nothing.
var breakages = []breakage{
	{name: "AckOfAnyToken", found: "a stale write was accepted: ack", store: func(m *memory.Store) backend { return ackOfAnyToken{m} }},
	{name: "NAckOfAnyToken", found: "a stale write was accepted: ", store: func(m *memory.Store) backend { return nackOfAnyToken{m} }},
	{name: "ClaimHandsOutTwice", found: "a job was claimed that is in_flight", store: func(m *memory.Store) backend { return &claimTwice{Store: m} }},
	{name: "RequestKeysForgotten", found: "was added although its producer was not told so", store: func(m *memory.Store) backend { return keyless{m} }},
	{name: "EnqueueNotKept", found: "a job that was acknowledged is gone", store: func(m *memory.Store) backend { return forgetful{m} }},
	{name: "ResultOfAnother", found: "the result is", store: func(m *memory.Store) backend { return swapped{m} }},
	{name: "CheckpointNotKept", found: "a checkpoint was lost", store: func(m *memory.Store) backend { return saveless{m} }},
	{name: "WaitsNotKept", found: "a job was claimed that is blocked", store: func(m *memory.Store) backend { return impatient{m} }},
	{name: "LimitNotKept", found: "jobs of a queue are in flight at once", store: func(m *memory.Store) backend { return limitless{m} }},
	{name: "LimitOfKeysNotKept", found: "jobs of a limit key are in flight at once", store: func(m *memory.Store) backend { return limitlessKeys{m} }},
	{name: "OrderNotKept", found: "a job was claimed out of order", store: func(m *memory.Store) backend { return orderless{m} }},
	{name: "RateNotKept", found: "jobs of a queue were claimed within", store: func(m *memory.Store) backend { return rateless{m} }},
	{name: "FullKeyHoldsBackOthers", found: "lies idle although a job is due", store: func(m *memory.Store) backend { return holdingBack{m} }},
	{name: "SealRefused", found: "a flow hangs", store: func(m *memory.Store) backend { return sealless{m} }},
	{name: "BeatReachesNobody", found: "ran out while its server lived", link: func(l *link) store.Store { return beatless{l} }},
	{name: "BeatExtendsByLess", found: "ran out while its server lived", link: func(l *link) store.Store { return shortBeat{l} }},
	{name: "LossNotNoticed", found: "learnt", link: func(l *link) store.Store { return deafToLoss{l} }},
	{name: "AckInDoubtTakenForDone", found: "a server says that token", link: func(l *link) store.Store { return credulous{l} }},
	{name: "ReleaseNotSent", found: "said nothing of the lease that it left", link: func(l *link) store.Store { return keeping{l} }},
	{name: "RecoveryMostlyNotSent", found: "a lease was recovered", link: func(l *link) store.Store { return &lazyRecovery{link: l} }},
	{name: "RecoveryNotSent", found: "have not ended", link: func(l *link) store.Store { return noRecovery{l} }},
	{name: "OutsideIgnoresTokens", found: "the latest effect outside", blindOutside: true},
}

// mostSeeds is the number of seeds within which a breakage must be found.
const mostSeeds = 400

func TestSimulationFindsWhatIsBroken(t *testing.T) {
	if race.Enabled {
		t.Skip("what is broken on purpose is left to the pass without the race detector: what is looked for in it is no race")
	}
	slowest, most, found := "", 0, 0
	for _, b := range breakages {
		t.Run(b.name, func(t *testing.T) {
			for seed := range uint64(mostSeeds) {
				r := watched(t, seed+1, b)
				if slices.ContainsFunc(r.problems, func(p problem) bool { return strings.Contains(p.text, b.found) }) {
					if found++; int(seed) >= most {
						slowest, most = b.name, int(seed)+1
					}
					t.Logf("found by seed %d", seed+1)
					return
				}
			}
			t.Errorf("not found by %d seeds: nothing says %q", mostSeeds, b.found)
		})
	}
	figures.Print(t, "simulation: finds %d of %d breakages, the slowest (%s) by %d seeds", found, len(breakages), slowest, most)
}

// ackOfAnyToken acks jobs whatever the token.
type ackOfAnyToken struct{ *memory.Store }

func (s ackOfAnyToken) Ack(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
	acks = slices.Clone(acks)
	for i := range acks {
		acks[i].Lease = currentLease(s.Store, acks[i].Lease)
	}
	return s.Store.Ack(ctx, acks)
}

// nackOfAnyToken nacks jobs whatever the token.
type nackOfAnyToken struct{ *memory.Store }

func (s nackOfAnyToken) NAck(ctx context.Context, nacks []store.NAck) ([]store.Outcome, error) {
	nacks = slices.Clone(nacks)
	for i := range nacks {
		nacks[i].Lease = currentLease(s.Store, nacks[i].Lease)
	}
	return s.Store.NAck(ctx, nacks)
}

// currentLease returns the lease that the job has now.
func currentLease(s *memory.Store, l store.Lease) store.Lease {
	detail, err := s.Get(context.Background(), l.ID)
	if err != nil {
		return l
	}
	return detail.Lease()
}

// claimTwice returns the latest job once more with each next claim.
type claimTwice struct {
	*memory.Store
	latest []store.Job // guarded by the witness
}

func (s *claimTwice) FetchAndClaim(ctx context.Context, req store.ClaimRequest) ([]store.Job, error) {
	jobs, err := s.Store.FetchAndClaim(ctx, req)
	if len(jobs) == 0 {
		return jobs, err
	}
	again := append(jobs, s.latest...)
	s.latest = jobs[:1:1]
	return again, err
}

// keyless forgets request keys.
type keyless struct{ *memory.Store }

func (s keyless) Enqueue(ctx context.Context, req store.EnqueueRequest) ([]store.Enqueued, error) {
	req.RequestKey = ""
	return s.Store.Enqueue(ctx, req)
}

// forgetful acknowledges jobs of one kind without keeping them.
type forgetful struct{ *memory.Store }

func (s forgetful) Enqueue(ctx context.Context, req store.EnqueueRequest) ([]store.Enqueued, error) {
	if req.Jobs[0].Kind == quick {
		return make([]store.Enqueued, len(req.Jobs)), nil
	}
	return s.Store.Enqueue(ctx, req)
}

// swapped keeps the first result of a call for all jobs.
type swapped struct{ *memory.Store }

func (s swapped) Ack(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
	acks = slices.Clone(acks)
	for i := range acks {
		acks[i].Result = acks[0].Result
	}
	return s.Store.Ack(ctx, acks)
}

// saveless claims to have saved what it has not.
type saveless struct{ *memory.Store }

func (s saveless) Save(ctx context.Context, saves []store.Save) ([]store.Outcome, error) {
	saves = slices.Clone(saves)
	for i := range saves {
		saves[i].Checkpoint = nil
	}
	return s.Store.Save(ctx, saves)
}

// impatient enqueues jobs without their waits.
type impatient struct{ *memory.Store }

func (s impatient) Enqueue(ctx context.Context, req store.EnqueueRequest) ([]store.Enqueued, error) {
	req.Jobs = slices.Clone(req.Jobs)
	for i := range req.Jobs {
		req.Jobs[i].After = nil
	}
	return s.Store.Enqueue(ctx, req)
}

// limitless answers as if it had kept a limit.
type limitless struct{ *memory.Store }

func (s limitless) SetPolicy(_ context.Context, _ string, p store.Policy) (store.Policy, error) {
	return store.Policy{}.Replace(p)
}

// limitlessKeys limits queues, and no keys.
type limitlessKeys struct{ *memory.Store }

func (s limitlessKeys) SetPolicy(ctx context.Context, queue string, p store.Policy) (store.Policy, error) {
	p.MaxPerKey = 0
	return s.Store.SetPolicy(ctx, queue, p)
}

// rateless limits what is in flight, and not how often it is claimed.
type rateless struct{ *memory.Store }

func (s rateless) SetPolicy(ctx context.Context, queue string, p store.Policy) (store.Policy, error) {
	p.Rate = store.Rate{}
	return s.Store.SetPolicy(ctx, queue, p)
}

// orderless lets the jobs of a key run one at a time, in the usual order.
type orderless struct{ *memory.Store }

func (s orderless) SetPolicy(ctx context.Context, queue string, p store.Policy) (store.Policy, error) {
	p.MaxPerKey, p.Ordered = p.KeyLimit(), false
	return s.Store.SetPolicy(ctx, queue, p)
}

// holdingBack counts all jobs of a queue for one key.
type holdingBack struct{ *memory.Store }

func (s holdingBack) Enqueue(ctx context.Context, req store.EnqueueRequest) ([]store.Enqueued, error) {
	req.Jobs = slices.Clone(req.Jobs)
	for i := range req.Jobs {
		req.Jobs[i].LimitKey = limitKeys[0]
	}
	return s.Store.Enqueue(ctx, req)
}

// sealless claims that no group is open, so that nobody seals one.
type sealless struct{ *memory.Store }

func (s sealless) SealGroup(_ context.Context, name string) error { return store.NotOpen(name) }

// beatless answers heartbeats without sending them.
type beatless struct{ *link }

func (l beatless) Extend(_ context.Context, leases []store.Lease, _ time.Duration) ([]store.Outcome, error) {
	return allOK(leases), nil
}

func allOK(leases []store.Lease) []store.Outcome {
	outcomes := make([]store.Outcome, len(leases))
	for i, lease := range leases {
		outcomes[i] = store.Outcome{ID: lease.ID, Status: store.StatusOK}
	}
	return outcomes
}

// shortBeat extends leases by less than the server believes.
type shortBeat struct{ *link }

func (l shortBeat) Extend(ctx context.Context, leases []store.Lease, ttl time.Duration) ([]store.Outcome, error) {
	return l.link.Extend(ctx, leases, ttl/5)
}

// deafToLoss does not tell the server which leases are lost.
type deafToLoss struct{ *link }

func (l deafToLoss) Extend(ctx context.Context, leases []store.Lease, ttl time.Duration) ([]store.Outcome, error) {
	if _, err := l.link.Extend(ctx, leases, ttl); err != nil {
		return nil, err
	}
	return allOK(leases), nil
}

// credulous takes an Ack without an answer for done.
type credulous struct{ *link }

func (l credulous) Ack(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
	outcomes, err := l.link.Ack(ctx, acks)
	if !errors.Is(err, store.ErrInDoubt) {
		return outcomes, err
	}
	leases := make([]store.Lease, len(acks))
	for i, a := range acks {
		leases[i] = a.Lease
	}
	return allOK(leases), nil
}

// keeping does not release buffered jobs.
type keeping struct{ *link }

func (l keeping) NAck(ctx context.Context, nacks []store.NAck) ([]store.Outcome, error) {
	outcomes := make([]store.Outcome, len(nacks))
	for i, n := range nacks {
		outcomes[i] = store.Outcome{ID: n.ID, Status: store.StatusNotFound}
		if n.Form == store.Release {
			continue
		}
		one, err := l.link.NAck(ctx, nacks[i:i+1])
		if err != nil {
			return nil, err
		}
		outcomes[i] = one[0]
	}
	return outcomes, nil
}

// noRecovery finds nothing to recover.
type noRecovery struct{ *link }

func (l noRecovery) RecoverExpiredLeases(context.Context, store.RecoverRequest) ([]store.Recovered, error) {
	return nil, nil
}

// lazyRecovery finds something to recover every fourth time.
type lazyRecovery struct {
	*link
	calls atomic.Int64
}

func (l *lazyRecovery) RecoverExpiredLeases(ctx context.Context, req store.RecoverRequest) ([]store.Recovered, error) {
	if l.calls.Add(1)%4 != 0 {
		return nil, nil
	}
	return l.link.RecoverExpiredLeases(ctx, req)
}
