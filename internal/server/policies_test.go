package server

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
)

// declaring returns the options of a server that declares how many jobs of the default queue may be in flight.
func declaring(version int64, most int) Options {
	return Options{Queues: map[string]QueueOptions{
		DefaultQueue: {Policy: &store.Policy{Owner: "billing", Declared: version, MaxInFlight: most}},
		"another":    {},
	}}
}

func (w *world) policy() store.Policy {
	w.Helper()
	p, err := w.store.Policy(w.Context(), DefaultQueue)
	require.NoError(w, err)
	return p
}

// A server claims nothing before its policy holds.
func TestServerKeepsToThePolicyThatItDeclares(t *testing.T) {
	inWorld(t, func(w *world) {
		var running, most atomic.Int64
		w.handlers["job"] = func(ctx context.Context, _ *Run) error {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			return travel(ctx, time.Second)
		}
		ids := w.enqueue(20, "job")
		s := w.start(declaring(1, 3))
		w.wait(time.Minute)
		for _, id := range ids {
			assert.Equal(w, store.Succeeded, w.job(id).State)
		}
		assert.Equal(w, int64(3), most.Load(), "ran at once")
		p := w.policy()
		p.MaxInFlight = 5
		w.setPolicy(DefaultQueue, p)
		w.stop(s)
		w.stop(w.start(declaring(1, 3)))
		assert.Equal(w, 5, w.policy().MaxInFlight, "what a person has set stays")
		s = w.start(declaring(2, 4))
		w.wait(time.Second)
		assert.Equal(w, 4, w.policy().MaxInFlight, "until the program declares a higher version")
		w.stop(s)
	})
}

// away fails the declaration for a while.
type away struct {
	*memory.Store
	err   error
	asked atomic.Int64
	left  atomic.Int64
}

func (a *away) Policy(ctx context.Context, queue string) (store.Policy, error) {
	if a.asked.Add(1); a.left.Add(-1) >= 0 {
		return store.Policy{}, a.err
	}
	return a.Store.Policy(ctx, queue)
}

func TestDeclarationIsTriedAgainUntilTheStoreAnswers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["job"] = work(0)
		a := &away{Store: w.store, err: store.ErrUnavailable}
		a.left.Store(6)
		ids := w.enqueue(1, "job")
		s := w.start(declaring(1, 3), a)
		w.wait(time.Second)
		assert.Equal(w, store.Ready, w.job(ids[0]).State, "nothing is claimed before")
		require.Positive(w, a.left.Load(), "the store is still away")
		w.wait(time.Minute)
		assert.Equal(w, store.Succeeded, w.job(ids[0]).State)
		assert.Equal(w, 3, w.policy().MaxInFlight)
		w.stop(s)
	})
}

func TestServerThatIsStoppedDeclaresNoMore(t *testing.T) {
	inWorld(t, func(w *world) {
		a := &away{Store: w.store, err: store.ErrUnavailable}
		a.left.Store(1 << 60)
		s := w.start(declaring(1, 3), a)
		w.wait(time.Minute)
		w.stop(s)
		asked := a.asked.Load()
		w.wait(time.Hour)
		assert.Equal(w, asked, a.asked.Load())
	})
}

// mere has no abilities.
type mere struct{ store.Store }

func TestServerStopsIfItsPolicyIsRefused(t *testing.T) {
	for name, k := range map[string]struct {
		store func(w *world) store.Store
		says  string
	}{
		"of another program": {func(w *world) store.Store {
			w.setPolicy(DefaultQueue, store.Policy{Owner: "mail", Declared: 1})
			return w.store
		}, `belongs to "mail"`},
		"denied": {func(w *world) store.Store {
			a := &away{Store: w.store, err: errDenied}
			a.left.Store(1)
			return a
		}, errDenied.Error()},
		"no such ability": {func(w *world) store.Store { return mere{w.store} }, "the store keeps no policies"},
		"unsupported behind a remote store": {func(w *world) store.Store {
			a := &away{Store: w.store, err: errors.ErrUnsupported}
			a.left.Store(1)
			return a
		}, errors.ErrUnsupported.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.handlers["job"] = work(0)
				ids := w.enqueue(1, "job")
				s := w.server(declaring(1, 3), k.store(w))
				ctx, cancel := context.WithTimeout(w.Context(), time.Hour)
				defer cancel()
				err := s.Run(ctx)
				require.ErrorContains(w, err, `jq: the policy of the queue "default" can not be declared: `)
				require.ErrorContains(w, err, k.says)
				assert.LessOrEqual(w, w.since(), time.Second)
				assert.Equal(w, store.Ready, w.job(ids[0]).State)
				assert.Equal(w, 1, w.log.said(`jq: the policy of the queue "default" can not be declared; the server stops`))
			})
		})
	}
}

func TestPolicyOfOptionsIsChecked(t *testing.T) {
	for says, p := range map[string]store.Policy{
		`Queues["default"].Policy owner must name the program that declares the policy`:       {Declared: 1},
		`Queues["default"].Policy declared must be the version of the declaration, 1 or more`: {Owner: "billing"},
		`Queues["default"].Policy max_in_flight must be 0 to 10000`:                           {Owner: "billing", Declared: 1, MaxInFlight: -1},
	} {
		_, err := New(memory.New(memory.Options{}), func(string) (Handler, bool) { return work(0), true }, Options{Queues: map[string]QueueOptions{DefaultQueue: {Policy: &p}}})
		assert.ErrorContains(t, err, says)
	}
}

// A server whose queue has a rate claims again as soon as there is room, although it looks ever more seldom into a queue that was empty.
func TestRateIsUsedUp(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["job"] = work(0)
		rate := store.Rate{N: 10, Per: 10 * time.Second}
		w.setPolicy(DefaultQueue, store.Policy{Rate: rate})
		ids := w.enqueue(200, "job")
		s := w.start(Options{Slots: 50, Claim: ClaimOptions{PollInterval: time.Hour}})
		w.wait(191 * time.Second)
		var claims []time.Time
		for _, id := range ids {
			j := w.job(id)
			require.Equal(w, store.Succeeded, j.State, "job %d", id)
			claims = append(claims, j.ClaimedAt)
		}
		slices.SortFunc(claims, time.Time.Compare)
		for i := range claims[rate.N:] {
			require.GreaterOrEqual(w, claims[i+rate.N].Sub(claims[i]), rate.Per, "between claim %d and the tenth after it", i)
		}
		w.stop(s)
	})
}
