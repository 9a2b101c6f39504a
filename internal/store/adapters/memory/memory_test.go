package memory

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-ed332417/jq/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newStore(t *testing.T) (*Store, *clock.Mock) {
	clk := clock.NewMock()
	clk.Set(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	s := New(Options{Clock: clk})
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s, clk
}

func plain(change ...func(*store.NewJob)) store.NewJob {
	n := store.NewJob{Queue: "q", Kind: "k", Payload: []byte(`{}`), MaxRetries: 3}
	for _, c := range change {
		c(&n)
	}
	return n
}

func unique(key string, window time.Duration) func(*store.NewJob) {
	return func(n *store.NewJob) { n.UniqueKey, n.UniqueFor = key, window }
}

func enqueue(t *testing.T, w store.Writer, jobs ...store.NewJob) []store.Enqueued {
	t.Helper()
	answers, err := w.Enqueue(t.Context(), store.EnqueueRequest{Jobs: jobs})
	require.NoError(t, err)
	return answers
}

func claim(t *testing.T, s *Store, limit int) []store.Job {
	t.Helper()
	jobs, err := s.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "q", Limit: limit, Worker: "w", TTL: time.Minute})
	require.NoError(t, err)
	return jobs
}

// TestLongestLeaseIsChecked, in the words of the other stores.
func TestLongestLeaseIsChecked(t *testing.T) {
	for _, longest := range []time.Duration{-time.Second, store.Resolution - 1, store.MaxDuration + 1} {
		assert.PanicsWithError(t, store.CheckMaxLease(longest).Error(), func() { New(Options{MaxLease: longest}) }, longest)
	}
	for _, longest := range []time.Duration{0, store.Resolution, store.MaxDuration} {
		assert.NotPanics(t, func() { New(Options{MaxLease: longest}) }, longest)
	}
}

// TestNothingIsLeftBehind puts jobs through all that can happen to them and deletes them.
func TestNothingIsLeftBehind(t *testing.T) {
	s, clk := newStore(t)
	for round := range 100 {
		var jobs []store.NewJob
		for i := range 30 {
			key := fmt.Sprintf("%d of %d", i, round)
			jobs = append(jobs,
				plain(unique(key, 0), func(n *store.NewJob) { n.Kind = key }),
				plain(unique(key+" for a while", time.Hour)),
				plain(func(n *store.NewJob) { n.Queue, n.Delay = key, time.Minute }),
			)
		}
		_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: jobs, RequestKey: fmt.Sprint(round)})
		require.NoError(t, err)
		for i, j := range claim(t, s, 50) {
			endSomehow(t, s, i, j.Lease())
		}
		clk.Add(time.Minute)
		_, err = s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 1000})
		require.NoError(t, err)
		_, err = s.Cancel(t.Context(), store.Filter{States: store.Phases}, 1000)
		require.NoError(t, err)
		deleted, err := s.Delete(t.Context(), store.Filter{States: store.Phases}, 1000)
		require.NoError(t, err)
		require.Len(t, deleted, len(jobs))
	}
	clk.Add(store.RequestKeyLife)
	_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{plain()}})
	require.NoError(t, err)

	assert.Len(t, s.jobs.pages, 1)
	assert.Len(t, s.jobs.order, 1)
	assert.Len(t, s.queues, 1)
	assert.Len(t, s.sorts, 1)
	for _, chosen := range s.chosen[:cap(s.chosen)] {
		assert.Nil(t, chosen)
	}
	assert.Zero(t, s.leases.fifo.count+len(s.leases.aside.items))
	assert.LessOrEqual(t, cap(s.leases.fifo.slots), 2*fifoSlack)
	assert.Empty(t, s.keys)
	assert.Empty(t, s.windows.items)
	assert.Empty(t, s.requests)
	assert.Empty(t, s.answers.items)
	assert.Empty(t, s.woken)
	for i, l := range s.queues["q"].fresh {
		want := 0
		if i == store.MaxPriority {
			want = 1
		}
		assert.Equal(t, want, l.fifo.count+len(l.aside.items), "fresh jobs of priority %d", store.MaxPriority-i)
	}
}

func endSomehow(t *testing.T, s *Store, i int, l store.Lease) {
	t.Helper()
	var err error
	switch forms := []store.Form{store.Fail, store.Never, store.Snooze, store.Release}; i % 6 {
	case 0:
		_, err = s.Ack(t.Context(), []store.Ack{{Lease: l}})
	case 1: // its lease expires
		_, err = s.Extend(t.Context(), []store.Lease{l}, time.Second)
	default:
		_, err = s.NAck(t.Context(), []store.NAck{{Lease: l, Form: forms[i%6-2]}})
	}
	require.NoError(t, err)
}

// TestEarlyJobStandsAside enqueues a job for later, and others that are due at once behind it.
func TestEarlyJobStandsAside(t *testing.T) {
	s, _ := newStore(t)
	enqueue(t, s, plain(func(n *store.NewJob) { n.Delay = time.Hour }), plain(), plain())
	l := s.queues["q"].fresh.of(0)
	assert.Len(t, l.aside.items, 1)
	assert.Equal(t, 2, l.fifo.count)
}

func TestHistoryKeepsTheLatest(t *testing.T) {
	s, _ := newStore(t)
	id := enqueue(t, s, plain())[0].ID
	for range store.MaxAttemptsKept + 20 {
		_, err := s.NAck(t.Context(), []store.NAck{{Lease: claim(t, s, 1)[0].Lease(), Form: store.Release}})
		require.NoError(t, err)
	}
	history := s.jobs.get(id).history()
	require.Len(t, history, store.MaxAttemptsKept)
	assert.Equal(t, int64(21), history[0].Token)
	assert.LessOrEqual(t, cap(s.jobs.get(id).rare.past), 2*store.MaxAttemptsKept)
}

// TestDocumentsOfABlockAreApart: small documents of several jobs are allocated together, and nobody who has one can reach another.
func TestDocumentsOfABlockAreApart(t *testing.T) {
	s, _ := newStore(t)
	docs := []string{`"first"`, `"second"`, `"third"`}
	var jobs []store.NewJob
	for _, doc := range docs {
		jobs = append(jobs, plain(func(n *store.NewJob) { n.Payload = []byte(doc) }))
	}
	enqueue(t, s, jobs...)
	claimed := claim(t, s, len(docs))
	for i := range claimed {
		_ = append(claimed[i].Payload, "overwrites the next one"...)
		require.Equal(t, docs[i], string(claimed[i].Payload))
		copy(claimed[i].Payload, "overwrites itself")
	}
	for i, j := range claimed {
		detail, err := s.Get(t.Context(), j.ID)
		require.NoError(t, err)
		require.Equal(t, docs[i], string(detail.Payload))
		_ = append(s.jobs.get(j.ID).payload, "overwrites the next one"...)
	}
	for i, j := range claimed {
		require.Equal(t, docs[i], string(s.jobs.get(j.ID).payload))
	}
}

// TestClaimUsesTheRoomThatItIsLent, and keeps nothing of it.
func TestClaimUsesTheRoomThatItIsLent(t *testing.T) {
	s, _ := newStore(t)
	enqueue(t, s, plain(), plain(), plain())
	room := make([]store.Job, 2)
	lend := func(limit int) []store.Job {
		jobs, err := s.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "q", Limit: limit, Worker: "w", TTL: time.Minute, Room: room})
		require.NoError(t, err)
		return jobs
	}
	first := lend(1)
	assert.Same(t, &room[0], &first[0])
	id := first[0].ID
	kept, err := s.Get(t.Context(), id)
	require.NoError(t, err)
	clear(room)
	after, err := s.Get(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, kept, after)
	assert.Len(t, lend(2), 2)
	assert.Empty(t, lend(1))
	enqueue(t, s, plain(), plain(), plain())
	assert.NotSame(t, &room[0], &lend(3)[0], "three do not fit")
}

// TestJobIsSmall because many may wait.
func TestJobIsSmall(t *testing.T) {
	assert.LessOrEqual(t, reflect.TypeFor[job]().Size(), uintptr(160))
}

func TestSubscriptionsEnd(t *testing.T) {
	s, _ := newStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	byContext, err := s.Subscribe(ctx, nil)
	require.NoError(t, err)
	byClose, err := s.Subscribe(context.Background(), []string{"q"})
	require.NoError(t, err)

	cancel()
	_, open := <-byContext
	assert.False(t, open)

	const told = 1000
	for range told { // nobody reads
		enqueue(t, s, plain())
	}
	require.NoError(t, s.Close())
	received := 0
	for range byClose {
		received++
	}
	assert.Positive(t, received)
	assert.Less(t, received, told)
	assert.True(t, s.hub.Silent(), "nobody listens")
}
