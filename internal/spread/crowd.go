package spread

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/kv"
)

// commits counts the commits of engines, and those that conflict.
type commits struct{ tries, conflicts atomic.Int64 }

// of returns an engine whose commits are counted.
func (c *commits) of(e kv.Engine) kv.Engine {
	one := counting{e, c}
	if w, watches := e.(kv.Watcher); watches {
		return struct {
			counting
			kv.Watcher
		}{one, w}
	}
	return one
}

type counting struct {
	kv.Engine
	count *commits
}

func (e counting) View(ctx context.Context) (kv.View, error) {
	v, err := e.Engine.View(ctx)
	return countingView{v, e.count}, err
}

// Shared is part of kv.Sharer.
func (counting) Shared() {}

type countingView struct {
	kv.View
	count *commits
}

func (v countingView) Commit(ctx context.Context, c kv.Change) error {
	err := v.View.Commit(ctx, c)
	v.count.tries.Add(1)
	if errors.Is(err, kv.ErrConflict) {
		v.count.conflicts.Add(1)
	}
	return err
}

// Crowd lets eight stores claim from one queue. It fails unless they hardly ever conflict, and none of them starves. Commits of Acks do not count: they never conflict.
func Crowd(t *testing.T, connect func() (kv.Engine, error)) {
	t.Helper()
	const (
		stores        = 8
		limit         = 10
		rounds        = 60 // claims of each store
		mostConflicts = 0.1
		mostSlower    = 3 // than the median
	)
	var count commits
	var list []*kv.Store
	for range stores {
		e, err := connect()
		require.NoError(t, err)
		s, err := kv.Open(t.Context(), count.of(e), &kv.Options{Clock: clock.New()}) // so that no commit is about the time
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, s.Close()) })
		list = append(list, s)
	}
	one := contract.NewJob{Queue: "q", Kind: "k", Payload: []byte(`{"to":"ada@example.org"}`), MaxRetries: 1}
	for range stores * rounds * limit * 2 / 1000 {
		_, err := list[0].Enqueue(t.Context(), contract.EnqueueRequest{Jobs: slices.Repeat([]contract.NewJob{one}, 1000)})
		require.NoError(t, err)
	}

	count.tries.Store(0)
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
	claims, conflicts := count.tries.Load()-acks.Load(), count.conflicts.Load()
	share := float64(conflicts) / float64(claims)
	figures.Print(t, "eight stores on one queue: %d of %d claims conflicted, %.1f %%; %d claims took a store %v, the slowest one %v",
		conflicts, claims, 100*share, rounds, took[stores/2].Round(time.Millisecond), took[stores-1].Round(time.Millisecond))
	assert.Less(t, share, mostConflicts)
	assert.Less(t, took[stores-1], mostSlower*took[stores/2])
}
