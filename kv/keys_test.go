package kv_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/kv"
)

func ofKey(queue, limitKey string) contract.NewJob {
	return contract.NewJob{Queue: queue, Kind: "k", Payload: []byte(`1`), LimitKey: limitKey, MaxRetries: 1000}
}

// setPolicy replaces the policy of the queue, whatever that is.
func setPolicy(t *testing.T, s contract.PolicyKeeper, queue string, p contract.Policy) {
	t.Helper()
	for {
		before, err := s.Policy(t.Context(), queue)
		require.NoError(t, err)
		p.Version = before.Version
		if _, err = s.SetPolicy(t.Context(), queue, p); !errors.Is(err, contract.ErrConflict) {
			require.NoError(t, err)
			return
		}
	}
}

// urgent is a job that is claimed before others.
func urgent(queue, limitKey string) contract.NewJob {
	n := ofKey(queue, limitKey)
	n.Priority = 5
	return n
}

// inFlight returns how many jobs of the limit key are in flight.
func (p *pair) inFlight(limitKey string) int {
	p.t.Helper()
	page, err := p.one.List(p.t.Context(), contract.Filter{LimitKey: limitKey, States: []contract.State{contract.InFlight}}, contract.Page{Limit: 100})
	require.NoError(p.t, err)
	return len(page.Jobs)
}

func (p *pair) policy(policy contract.Policy) { p.t.Helper(); setPolicy(p.t, p.one, "q", policy) }

// take claims so many jobs of queue q, or fewer, on the store.
func (p *pair) take(s *kv.Store, limit int) (ids []int64) {
	p.t.Helper()
	jobs, err := s.FetchAndClaim(p.t.Context(), claimOf("q", limit))
	assert.NoError(p.t, err)
	for _, j := range jobs {
		ids = append(ids, j.ID)
	}
	return ids
}

func (p *pair) end(id int64, form contract.Form) {
	p.t.Helper()
	j, err := p.one.Get(p.t.Context(), id)
	require.NoError(p.t, err)
	_, err = p.one.NAck(p.t.Context(), []contract.NAck{{Lease: j.Lease(), Form: form}})
	require.NoError(p.t, err)
}

func (p *pair) reschedule(id int64, in time.Duration) {
	p.t.Helper()
	var at time.Time
	if in > 0 {
		at = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(in)
	}
	_, err := p.one.Reschedule(p.t.Context(), contract.Filter{IDs: []int64{id}}, at, 1)
	require.NoError(p.t, err)
}

// A keyScene is a scene of which the guards of several tables may keep it from ending badly.
type keyScene struct {
	guards string // none if the scene needs commits one after the other instead
	only   bool   // leave out only guards of keys that the change does not write
	play   func(p *pair) (got, want any)
}

var keyScenes = map[string]keyScene{
	"TwoClaimsOfAKey": {guards: "K", play: func(p *pair) (any, any) {
		p.policy(contract.Policy{MaxPerKey: 1})
		p.enqueue(p.one, ofKey("q", "a"), ofKey("q", "b"), ofKey("q", "b"), urgent("another", "b"))
		p.take(p.one, 1) // which looks at both keys
		p.between(anyChange, func(s *kv.Store) { p.take(s, 1) }, func(s *kv.Store) {
			p.enqueue(s, urgent("q", "b"))
			p.take(s, 1)
		})
		return p.inFlight("b"), 1
	}},
	"ClaimThatDoesNotKnowOfAnEnd": {guards: "K", play: func(p *pair) (any, any) {
		p.policy(contract.Policy{MaxPerKey: 2})
		ids := p.enqueue(p.one, ofKey("q", "b"), ofKey("q", "b"), ofKey("q", "b"), urgent("another", "b"))
		p.take(p.one, 1)
		p.between(anyChange, func(s *kv.Store) { p.take(s, 1) }, func(s *kv.Store) {
			p.ack(contract.Lease{ID: ids[0], Token: 1})(s)
			p.enqueue(s, urgent("q", "a"))
			p.take(s, 1) // which looks at the other key because of the end
		})
		p.take(p.one, 9)
		return p.state(ids[2]), contract.InFlight
	}},
	"JobComesBackToWhereAHintWas": {guards: "H", play: func(p *pair) (any, any) {
		p.policy(contract.Policy{MaxPerKey: 1})
		ids := p.enqueue(p.one, ofKey("q", "a"))
		p.reschedule(ids[0], time.Hour)
		p.between(anyChange, func(s *kv.Store) { p.take(s, 1) }, func(*kv.Store) { p.reschedule(ids[0], 0) })
		p.take(p.one, 1)
		return p.state(ids[0]), contract.InFlight
	}},
	"EarlierJobIsRequeued": {guards: "G", play: func(p *pair) (any, any) {
		p.policy(contract.Policy{Ordered: true})
		ids := p.enqueue(p.one, ofKey("q", "a"), ofKey("q", "a"))
		p.take(p.one, 1)
		p.end(ids[0], contract.Never)
		p.between(anyChange, func(s *kv.Store) { p.take(s, 1) }, func(s *kv.Store) {
			_, err := s.Requeue(p.t.Context(), contract.Filter{IDs: ids[:1]}, 1)
			assert.NoError(p.t, err)
		})
		return p.state(ids[0]), contract.InFlight
	}},
	"JobComesWhileAQueueBeginsToLimitKeys": {guards: "m", play: func(p *pair) (any, any) {
		p.enqueue(p.one, ofKey("q", "b"))
		var ids []int64
		p.between(anyChange, func(s *kv.Store) { ids = p.enqueue(s, ofKey("q", "a")) }, func(*kv.Store) { p.policy(contract.Policy{MaxPerKey: 1}) })
		return slices.Contains(p.take(p.one, 9), ids[0]), true
	}},
	"JobEndsWhileAQueueBeginsToLimitKeys": {guards: "j", only: true, play: func(p *pair) (any, any) {
		ids := p.enqueue(p.one, ofKey("q", "a"), ofKey("q", "a"))
		p.take(p.one, 1)
		givesSlots := func(c kv.Change) bool {
			return slices.ContainsFunc(c.Puts, func(item kv.Item) bool { return item.Key[0] == 'S' })
		}
		p.between(givesSlots, func(s *kv.Store) { setPolicy(p.t, s, "q", contract.Policy{MaxPerKey: 1}) }, p.ack(contract.Lease{ID: ids[0], Token: 1}))
		return p.take(p.one, 9), ids[1:]
	}},
	"QueueBeginsToLimitKeysWhileAJobComes": {play: func(p *pair) (any, any) {
		var ids []int64
		p.enqueue(p.one, ofKey("another", "a"))
		p.between(anyChange, func(s *kv.Store) { setPolicy(p.t, s, "q", contract.Policy{MaxPerKey: 1}) }, func(s *kv.Store) {
			ids = p.enqueue(s, ofKey("q", "a"))
		})
		return p.take(p.one, 9), ids
	}},
	"QueueLimitsKeysAnewWhileAClaimGoesOn": {play: func(p *pair) (any, any) {
		p.policy(contract.Policy{MaxPerKey: 1})
		p.enqueue(p.one, ofKey("q", "a"), ofKey("q", "a"))
		p.between(anyChange, func(s *kv.Store) { setPolicy(p.t, s, "q", contract.Policy{MaxPerKey: 2}) }, func(s *kv.Store) { p.take(s, 1) })
		p.take(p.one, 9)
		return p.inFlight("a"), 2
	}},
	"ClaimWhileAQueueBeginsToLimitKeys": {guards: "mq", play: func(p *pair) (any, any) {
		p.enqueue(p.one, ofKey("q", "a"), urgent("another", "a"))
		p.between(anyChange, func(s *kv.Store) { p.take(s, 9) }, func(s *kv.Store) {
			p.policy(contract.Policy{MaxPerKey: 1})
			p.enqueue(s, urgent("q", "a"))
			p.take(s, 1)
		})
		return p.inFlight("a"), 1
	}},
}

// Whatever comes between the decision of a call and its commit, no key has more in flight than it may, none goes out of order, and no job is hidden.
func TestKeysBetweenADecisionAndItsCommit(t *testing.T) {
	for name, s := range keyScenes {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, func(kv.Change, kv.Item) bool { return false })
			got, want := s.play(p)
			assert.Equal(t, want, got)
			keysAreWhereTheirJobsAre(t, p.db)
		})
	}
}

func TestEachGuardOfKeysIsNeeded(t *testing.T) {
	if race.Enabled {
		t.Skip("left to the pass without the race detector: what is looked for is no race")
	}
	for name, s := range keyScenes {
		if s.guards == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			got, want := s.play(newPair(t, func(c kv.Change, g kv.Item) bool {
				return strings.ContainsRune(s.guards, rune(g.Key[0])) && !(s.only && writes(c, g.Key))
			}))
			assert.NotEqual(t, want, got, "without guards of the tables %q", s.guards)
		})
	}
}
