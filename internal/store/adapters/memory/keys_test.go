package memory

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/bubble"
	"github.com/seed-ed332417/jq/internal/store"
)

func request(t *testing.T, w store.Writer, key string, jobs ...store.NewJob) []store.Enqueued {
	t.Helper()
	answers, err := w.Enqueue(t.Context(), store.EnqueueRequest{Jobs: jobs, RequestKey: key})
	require.NoError(t, err)
	return answers
}

// TestRollbackAfterTheEndOfAKeysTime lets the time of keys end within the transaction that took them, so that a later call
// of it forgets them.
func TestRollbackAfterTheEndOfAKeysTime(t *testing.T) {
	take := map[string]func(*testing.T, store.Writer){
		"UniqueKey":  func(t *testing.T, w store.Writer) { enqueue(t, w, plain(unique("a", time.Second))) },
		"RequestKey": func(t *testing.T, w store.Writer) { request(t, w, "a", plain()) },
	}
	giveUp := map[string]func(*testing.T, *Store, *sql.Tx, context.CancelFunc){
		"Rollback": func(t *testing.T, _ *Store, tx *sql.Tx, _ context.CancelFunc) { assert.NoError(t, tx.Rollback()) },
		"Context":  func(_ *testing.T, _ *Store, _ *sql.Tx, cancel context.CancelFunc) { cancel() },
		"Close":    func(t *testing.T, s *Store, _ *sql.Tx, _ context.CancelFunc) { assert.NoError(t, s.Close()) },
	}
	for taking, take := range take {
		for ending, giveUp := range giveUp {
			t.Run(taking+"/"+ending, func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					s, clk := newStore(t)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					tx, err := s.DB().BeginTx(ctx, nil)
					require.NoError(t, err)
					take(t, s.InTx(tx))
					clk.Add(store.RequestKeyLife + time.Second)
					enqueue(t, s.InTx(tx), plain())

					giveUp(t, s, tx, cancel)
					synctest.Wait()
					if s.closed {
						_, err = s.Get(t.Context(), 1)
						assert.ErrorIs(t, err, store.ErrClosed)
					} else {
						requireNoKeys(t, s)
						assert.Empty(t, claim(t, s, 10))
					}
				})
			})
		}
	}
}

func requireNoKeys(t *testing.T, s *Store) {
	t.Helper()
	require.Empty(t, s.keys)
	require.Empty(t, s.windows.items)
	require.Empty(t, s.requests)
	require.Empty(t, s.answers.items)
}

// TestRollbackLeavesTheWindowOfAnotherJob has the other's window where that of the transaction's job was.
func TestRollbackLeavesTheWindowOfAnotherJob(t *testing.T) {
	s, clk := newStore(t)
	bystander := plain(unique("bystander", time.Minute))
	enqueue(t, s, bystander)
	tx := beginTx(t, s)
	enqueue(t, s.InTx(tx), plain(unique("a", time.Second)))
	clk.Add(2 * time.Second)
	enqueue(t, s.InTx(tx), plain())
	require.NoError(t, tx.Rollback())

	assert.True(t, enqueue(t, s, bystander)[0].Duplicate, "its window goes on")
	clk.Add(100 * time.Hour)
	assert.False(t, enqueue(t, s, bystander)[0].Duplicate, "its window has ended")
}

// TestRollbackGivesAKeyToWhoeverHadIt takes keys again and again in a transaction.
func TestRollbackGivesAKeyToWhoeverHadIt(t *testing.T) {
	s, clk := newStore(t)
	live := enqueue(t, s, plain(unique("live", 0)))[0].ID
	enqueue(t, s, plain(unique("window", time.Second)))
	lease := claim(t, s, 1)[0].Lease()

	tx := beginTx(t, s)
	w := s.InTx(tx)
	_, err := w.Ack(t.Context(), []store.Ack{{Lease: lease}})
	require.NoError(t, err)
	for range 3 {
		clk.Add(time.Second)
		again := enqueue(t, w, plain(unique("live", time.Second)), plain(unique("window", time.Second)))
		require.False(t, again[0].Duplicate)
		require.False(t, again[1].Duplicate, "the window has ended")
	}
	require.NoError(t, tx.Rollback())

	again := enqueue(t, s, plain(unique("live", 0)), plain(unique("window", time.Hour)))
	assert.Equal(t, store.Enqueued{ID: live, State: store.InFlight, Duplicate: true}, again[0])
	assert.False(t, again[1].Duplicate, "what ended in the transaction has ended")
	assert.Len(t, s.windows.items, 1)
}

// TestRolledBackTransactionsLeaveNoKeys does the same at random in two stores, one of which is also written by transactions
// that are rolled back, and looks at the keys of both.
func TestRolledBackTransactionsLeaveNoKeys(t *testing.T) {
	for seed := range uint64(20) {
		bubble.Test(t, func(t *testing.T) { writeInVain(t, rand.New(rand.NewPCG(seed, 0)), seed) })
	}
}

func writeInVain(t *testing.T, random *rand.Rand, seed uint64) {
	got, gotTime := newStore(t)
	want, wantTime := newStore(t)
	pass := func() {
		d := time.Duration(random.Int64N(int64(3 * time.Hour)))
		gotTime.Add(d)
		wantTime.Add(d)
	}
	for range 100 {
		pass()
		key, n := randomRequest(random)
		request(t, got, key, n)
		request(t, want, key, n)

		tx := beginTx(t, got)
		for range random.IntN(6) {
			key, n := randomRequest(random)
			request(t, got.InTx(tx), key, n)
			pass()
		}
		require.NoError(t, tx.Rollback())
		require.Equal(t, keysOf(want), keysOf(got), "seed %d", seed)
		requireIndexes(t, got)
	}
}

// randomRequest is determined by its key, if it has one.
func randomRequest(random *rand.Rand) (key string, n store.NewJob) {
	if i := random.IntN(20); i > 0 {
		key = fmt.Sprint(i)
		random = rand.New(rand.NewPCG(uint64(i), 0))
	}
	n = plain(unique(fmt.Sprint(random.IntN(20)), time.Duration(random.Int64N(int64(10*time.Hour)))))
	return key, n
}

// keysOf lists the keys in force, and when they are forgotten.
func keysOf(s *Store) []string {
	s.forget(s.now())
	keys := slices.Collect(maps.Keys(s.keys))
	for _, it := range s.windows.items {
		keys = append(keys, fmt.Sprint("window of ", it.value.key, " to ", it.at))
	}
	for key := range s.requests {
		keys = append(keys, "request "+key)
	}
	for _, it := range s.answers.items {
		keys = append(keys, fmt.Sprint("answer to ", it.value.key, " to ", it.at))
	}
	slices.Sort(keys)
	return keys
}

// requireIndexes looks whether each value in a heap knows where it stands.
func requireIndexes(t *testing.T, s *Store) {
	t.Helper()
	for i, it := range s.windows.items {
		require.Equal(t, i, it.value.index)
		require.Same(t, it.value, s.keys[it.value.key])
	}
	for i, it := range s.answers.items {
		require.Equal(t, i, it.value.index)
		require.Same(t, it.value, s.requests[it.value.key])
	}
}
