package kv_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/kv"
	"github.com/seed-ed332417/jq/kv/internal/memkv"
)

// A losing engine loses its first watch when it is told to, and hears of no commit.
type losing struct {
	kv.Engine
	watches atomic.Int64
	began   chan struct{}
	lose    chan struct{}
}

func (l *losing) Watch(ctx context.Context, heard func(key []byte), _ ...[]byte) error {
	heard(nil)
	if l.watches.Add(1) > 1 {
		<-ctx.Done()
		return ctx.Err()
	}
	close(l.began)
	select {
	case <-l.lose:
		return errors.New("compacted")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// next returns the next wake-up.
func next(t *testing.T, wakeups <-chan contract.Wakeup) contract.Wakeup {
	t.Helper()
	select {
	case w := <-wakeups:
		return w
	case <-time.After(30 * time.Second):
		t.Fatal("no wake-up came")
		return contract.Wakeup{}
	}
}

// When a watch was lost, every listener is told to look, for what is to settle, for jobs and for cancelled leases: also one that has named no queue.
func TestLostWatchBeginsAnewAndTellsEverybodyToLook(t *testing.T) {
	e := &losing{Engine: memkv.New().Connect(), began: make(chan struct{}), lose: make(chan struct{})}
	var log bytes.Buffer
	s, err := kv.Open(t.Context(), e, &kv.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	closed := false
	defer func() {
		if !closed {
			assert.NoError(t, s.Close())
		}
	}()
	_, err = s.Enqueue(t.Context(), request(1))
	require.NoError(t, err)
	<-e.began // so that what follows is of the second watch
	some, err := s.Subscribe(t.Context(), []string{"another"})
	require.NoError(t, err)
	every, err := s.Subscribe(t.Context(), nil)
	require.NoError(t, err)

	close(e.lose)
	assert.Equal(t, contract.Wakeup{Settle: true}, next(t, some))
	assert.Equal(t, contract.Wakeup{Settle: true}, next(t, every))
	for _, cancelled := range []bool{false, true} {
		assert.Equal(t, contract.Wakeup{Queue: "another", Cancelled: cancelled}, next(t, some))
	}
	for _, cancelled := range []bool{false, true} {
		assert.Equal(t, contract.Wakeup{Queue: "q0", Cancelled: cancelled}, next(t, every))
	}
	require.NoError(t, s.Close())
	closed = true
	assert.Contains(t, log.String(), "the watch of the engine was lost, and begins anew")
	assert.Contains(t, log.String(), "compacted")
}

// A signalling engine says when its watch has begun, and when the store has heard of a job that waits.
type signalling struct {
	kv.Engine
	began chan struct{}
	jobs  chan struct{} // may be nil
}

func (s *signalling) Watch(ctx context.Context, heard func(key []byte), prefixes ...[]byte) error {
	return s.Engine.(kv.Watcher).Watch(ctx, func(key []byte) {
		heard(key)
		if key == nil {
			close(s.began)
		} else if key[0] == 'w' && s.jobs != nil {
			s.jobs <- struct{}{}
		}
	}, prefixes...)
}

// A store whose clock is behind wakes its listeners when jobs that others can claim are due for it too, each of them.
func TestStoreThatIsBehindWakesWhenJobsAreDue(t *testing.T) {
	db, s, ahead := newStore(t)
	e := &signalling{db.Connect(), make(chan struct{}), make(chan struct{}, 3)}
	other, clk := open(t, e)
	<-e.began
	wakeups, err := other.Subscribe(t.Context(), []string{"q0"})
	require.NoError(t, err)
	for range 2 {
		ahead.Add(300 * time.Millisecond)
		_, err := s.Enqueue(t.Context(), request(1))
		require.NoError(t, err)
	}
	ahead.Add(time.Hour)
	_, err = s.Enqueue(t.Context(), request(1)) // due so late that the store looks by itself before
	require.NoError(t, err)
	for range 3 {
		<-e.jobs
	}
	for range 2 {
		assert.Empty(t, wakeups)
		clk.Add(300 * time.Millisecond)
		assert.Equal(t, contract.Wakeup{Queue: "q0"}, next(t, wakeups))
	}
	clk.Add(2 * time.Hour)
	assert.Empty(t, wakeups)
}

// A commit through one store wakes a listener of another one.
func TestOtherStoresHearOfACommit(t *testing.T) {
	db, s, _ := newStore(t)
	e := &signalling{db.Connect(), make(chan struct{}), nil}
	other, _ := open(t, e)
	<-e.began
	wakeups, err := other.Subscribe(t.Context(), []string{"q0"})
	require.NoError(t, err)
	enqueued, err := s.Enqueue(t.Context(), request(1))
	require.NoError(t, err)
	assert.Equal(t, contract.Wakeup{Queue: "q0"}, next(t, wakeups))
	jobs, err := s.FetchAndClaim(t.Context(), claimOf("q0", 1))
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	_, err = s.Cancel(t.Context(), contract.Filter{IDs: []int64{enqueued[0].ID}}, 1)
	require.NoError(t, err)
	assert.Equal(t, contract.Wakeup{Queue: "q0", Cancelled: true}, next(t, wakeups))
}
