package tikv_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/kv"
)

// counting counts the commits of an engine, and those that conflict.
type counting struct {
	kv.Engine
	tries, conflicts *atomic.Int64
}

func (c counting) View(ctx context.Context) (kv.View, error) {
	v, err := c.Engine.View(ctx)
	return countingView{v, c}, err
}

func (counting) Shared() {}

type countingView struct {
	kv.View
	of counting
}

func (v countingView) Commit(ctx context.Context, c kv.Change) error {
	err := v.View.Commit(ctx, c)
	v.of.tries.Add(1)
	if errors.Is(err, kv.ErrConflict) {
		v.of.conflicts.Add(1)
	}
	return err
}

// Eight stores on one queue hardly ever conflict, and none of them starves. Commits of Acks and Enqueues do not count: they never conflict.
func TestEightStoresShareAQueue(t *testing.T) {
	if race.Enabled {
		t.Skip("not under the race detector, which makes the cluster in the process so slow that far more calls meet")
	}
	const (
		stores        = 8
		limit         = 10
		rounds        = 60 // claims of each store
		mostConflicts = 0.1
		mostSlower    = 3 // than the median
	)
	p := cluster(t)
	var tries, conflicts atomic.Int64
	var list []*kv.Store
	for range stores {
		e, err := p.connect()
		require.NoError(t, err)
		s, err := kv.Open(t.Context(), counting{e, &tries, &conflicts}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, s.Close()) })
		list = append(list, s)
	}
	one := contract.NewJob{Queue: "q", Kind: "k", Payload: []byte(`{"to":"ada@example.org"}`), MaxRetries: 1}
	for range stores * rounds * limit * 2 / 1000 {
		_, err := list[0].Enqueue(t.Context(), contract.EnqueueRequest{Jobs: slices.Repeat([]contract.NewJob{one}, 1000)})
		require.NoError(t, err)
	}

	tries.Store(0)
	var all sync.WaitGroup
	var acks atomic.Int64
	took := make([]time.Duration, stores)
	for i, s := range list {
		all.Go(func() {
			began := time.Now()
			for range rounds {
				claimed, err := s.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: "q", Limit: limit, Worker: fmt.Sprint(i), TTL: time.Minute})
				assert.NoError(t, err)
				assert.Len(t, claimed, limit)
				var done []contract.Ack
				for _, j := range claimed {
					done = append(done, contract.Ack{Lease: j.Lease()})
				}
				acks.Add(1)
				_, err = s.Ack(t.Context(), done)
				assert.NoError(t, err)
			}
			took[i] = time.Since(began)
		})
	}
	all.Wait()
	slices.Sort(took)
	claims := tries.Load() - acks.Load()
	share := float64(conflicts.Load()) / float64(claims)
	figures.Print(t, "eight stores on one queue: %d of %d claims conflicted, %.1f %%; %d claims took a store %v, the slowest one %v",
		conflicts.Load(), claims, 100*share, rounds, took[stores/2].Round(time.Millisecond), took[stores-1].Round(time.Millisecond))
	assert.Less(t, share, mostConflicts)
	assert.Less(t, took[stores-1], mostSlower*took[stores/2])
}
